"""The consumer: partitions by `assign`, or a share of them in a consumer group by `subscribe`.

    async with Consumer("localhost:9092", ConsumerConfig(group="billing")) as consumer:
        await consumer.subscribe(["orders"])
        async for records in consumer:
            for record in records:
                ...

Fetching goes on in the background, bounded by `buffer_bytes`. Records are handed out in the batches
in which they were written. Records that were handed out count as processed when the application
asks for more. Processed records are committed automatically (every `auto_commit_ms`, when
partitions are taken away, at the end, and when a master that is about to move asks). An explicit
`commit` commits everything handed out so far.
"""

import re
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final, Self

import attrs
import trio

from evenkeel import lookups
from evenkeel.client import backoff_s, open_client
from evenkeel.config import ClientConfig, ConsumerConfig, OffsetReset
from evenkeel.consumer.autocommit import AutoCommit
from evenkeel.consumer.fetched import ConsumerRecord, FetchedPartition, Records
from evenkeel.consumer.fetcher import Fetcher
from evenkeel.consumer.listener import ProgressCallback, RebalanceListener, notify
from evenkeel.consumer.membership import Membership
from evenkeel.coordinator import Committed, Coordinator, Identity
from evenkeel.errors import (
    ClosedError,
    CommitError,
    ConfigurationError,
    EvenkeelError,
    ListenerError,
    OffsetError,
)
from evenkeel.lifetime import Scoped
from evenkeel.lookups import FoundOffset
from wire.cluster_view import TopicPartition

__all__ = ["Consumer", "ConsumerRecord", "ConsumerStatistics", "Records", "RebalanceListener"]

LAST_COMMIT_S_MAX: Final = 5.0
"""How long closing may take to commit, also when it is cancelled."""

Positions = Mapping[TopicPartition, int]


@attrs.frozen(kw_only=True)
class ConsumerStatistics:
    """Totals since the start, except `buffered_bytes`, which is current."""

    records: int
    requests: int
    commits: int
    progress_reports: int
    rounds: int
    """Rebalances of the group this consumer has been through."""
    buffered_bytes: int


class Consumer(Scoped["Consumer"]):
    """Reads records. One task iterates; the other methods may be called from any.

    Leaving the `async with` commits what has been processed and leaves the group, also when it is
    cancelled, within a few seconds.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        config: ConsumerConfig | None = None,
        *,
        client: ClientConfig | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> None:
        """`on_progress` is called when a master that is about to move wants to know our progress,
        before what is processed is committed: store offsets there if you keep them yourself."""
        super().__init__()
        self._bootstrap = bootstrap
        self._config = ConsumerConfig() if config is None else config
        self._client_config = ClientConfig() if client is None else client
        self._on_progress = on_progress
        self._listener = RebalanceListener()
        self._pattern: re.Pattern[str] | None = None
        self._group_mode = False
        self._arrived = trio.Event()
        self._lost_position = trio.Event()
        self._turn: deque[TopicPartition] = deque()
        self._failure: EvenkeelError | None = None
        self._coordinator: Coordinator | None = None
        self._membership: Membership | None = None
        self._while_member = trio.CancelScope()
        self._committing = trio.Lock()
        every_ms = self._config.auto_commit_ms
        self._commits_by_itself = self._config.group is not None and every_ms is not None
        self._auto_commit = AutoCommit(
            (every_ms or 0) / 1000,
            partial(backoff_s, self._client_config),
            lambda: self._commit_processed(list(self._fetcher.assigned)),
        )
        self._records = 0
        self._commits = 0

    # -- what to read -----------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str],
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics, or all that match a pattern, with the other members of the group.

        Raises:
            ConfigurationError: if there is no consumer group, or partitions were assigned by hand.
        """
        self._check_open()
        if self._membership is None:
            advice = "ConsumerConfig(group=...), or assign()"
            raise ConfigurationError("cannot subscribe without a consumer group", advice=advice)
        if self._fetcher.assigned and not self._group_mode:
            raise ConfigurationError("this consumer's partitions are assigned by hand")
        if listener is not None:
            self._listener = listener
        started, self._group_mode = self._group_mode, True
        if isinstance(topics, re.Pattern):
            self._pattern, self._client.topics = topics, None
            await self._client.refresh()
            self._changed()
        else:
            self._pattern = None
            names = [topics] if isinstance(topics, str) else list(topics)
            self._membership.want(names)
        if not started:
            self._client.start(self._run_membership)
        await trio.lowlevel.checkpoint()

    async def assign(self, places: Iterable[TopicPartition | tuple[str, int]] | Positions) -> None:
        """Read exactly these partitions; a mapping also gives the offset to begin at.

        Without an offset the consumer begins at the committed offset of its consumer group, or else
        by `offset_reset`.

        Raises:
            ConfigurationError: if this consumer has subscribed.
        """
        self._check_open()
        if self._group_mode:
            raise ConfigurationError("this consumer gets its partitions from its consumer group")
        wanted = [TopicPartition(*one) for one in places]
        self._drop(self._fetcher.assigned.keys() - set(wanted))
        self._take(wanted)
        if isinstance(places, Mapping):
            for place, offset in places.items():
                self._fetcher.assigned[TopicPartition(*place)].seek(offset)
        self._client.follow(one.topic for one in wanted)
        self._lost_position.set()
        self._fetcher.wake()
        await trio.lowlevel.checkpoint()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._fetcher.assigned) if self._open else frozenset()

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Hand out and fetch no records of these partitions until `resume`."""
        for place in places:
            self._state(place).paused = True

    def resume(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._state(place).paused = False
        self._something_new()
        self._fetcher.wake()

    def seek(self, place: TopicPartition, where: int | OffsetReset) -> None:
        """Continue from an offset, or from the EARLIEST or LATEST one."""
        state = self._state(place)
        if isinstance(where, OffsetReset):
            state.seek_to(where)
            self._lost_position.set()
        elif where < 0:
            raise ConfigurationError(f"cannot seek to offset {where}")
        else:
            state.seek(where)
            self._fetcher.wake()

    async def position(self, place: TopicPartition) -> int:
        """The offset of the next record to be handed out; waits until it has been found."""
        while True:
            state = self._state(place)
            if state.position is not None:
                return state.position
            if (error := self._failure or state.error) is not None:
                raise error.again() from error.__cause__
            await self._arrived.wait()

    def known_position(self, place: TopicPartition) -> int | None:
        """Like `position`, without waiting: None while it is not known."""
        return self._state(place).position

    # -- reading ----------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Records:
        """The next records; waits until there are some.

        Raises:
            EvenkeelError: what makes it impossible to continue (damaged records, no offset to begin
                at, fenced, a listener that failed). After a damaged batch, `seek` past it.
        """
        self._check_open()
        for state in self._fetcher.assigned.values():
            state.processed = state.position
        await trio.lowlevel.checkpoint()
        while True:
            arrived = self._arrived
            records = self._next_records()
            if records is not None:
                self._records += len(records.records)
                return records
            await arrived.wait()

    async def poll(self, timeout_s: float) -> Records | None:
        """Like iterating, but returns None after `timeout_s` without records."""
        with trio.move_on_after(timeout_s):
            return await self.__anext__()
        return None

    def _next_records(self) -> Records | None:
        """Records of the partition that has waited longest, if any has some. Does not wait."""
        if self._failure is not None:
            raise self._failure.again() from self._failure.__cause__
        for _ in range(len(self._turn)):
            place = self._turn[0]
            self._turn.rotate(-1)
            state = self._fetcher.assigned.get(place)
            if state is None:
                self._turn.pop()
                continue
            if state.paused or state.settling:
                continue
            if state.error is not None:
                error, state.error = state.error, None
                state.not_before = trio.current_time() + backoff_s(self._client_config, 0)
                self._fetched()
                self._fetcher.wake()
                raise error.again() from error.__cause__
            while state.has_records:
                records = state.hand_out(self._config.decompressed_bytes_max)
                if state.buffered < self._config.partition_bytes_max:
                    self._fetcher.wake()
                if records is not None:
                    return records
        return None

    # -- offsets ----------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int | Committed] | None = None) -> None:
        """Commit these offsets (of the next record to read), or all that was handed out so far.

        Raises:
            CommitError: if the partitions belong to others by now.
            ConfigurationError: without a consumer group.
        """
        self._check_open()
        if offsets is None:
            wanted = self._to_commit(self._fetcher.assigned, processed_only=False)
        else:
            wanted = {
                place: one if isinstance(one, Committed) else Committed(one)
                for place, one in offsets.items()
            }
        await self._commit(wanted)

    async def committed(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """The committed offsets of the consumer group for these; partitions without one are left
        out."""
        self._check_open()
        return await self._the_coordinator().committed(places)

    async def beginning_offsets(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await self._ends(places, lookups.BEGINNING)

    async def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """With READ_COMMITTED: the offset where the first open transaction begins."""
        return await self._ends(places, lookups.END)

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record not before each time; None if there is none."""
        self._check_open()
        found = await lookups.list_offsets(self._client, times_ms, self._config.isolation)
        return {place: one if one.offset >= 0 else None for place, one in found.items()}

    def lag(self, place: TopicPartition) -> int | None:
        """How many offsets the consumer was behind at its last fetch; None before that."""
        return self._state(place).lag

    def statistics(self) -> ConsumerStatistics:
        return ConsumerStatistics(
            records=self._records,
            requests=self._fetcher.requests,
            commits=self._commits,
            progress_reports=self._fetcher.reports,
            rounds=0 if self._membership is None else self._membership.rounds,
            buffered_bytes=sum(one.buffered for one in self._fetcher.assigned.values()),
        )

    async def _ends(
        self, places: Iterable[TopicPartition], which: int
    ) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = {place: which for place in places}
        found = await lookups.list_offsets(self._client, wanted, self._config.isolation)
        return {place: one.offset for place, one in found.items()}

    # -- committing -------------------------------------------------------------------------------

    def _the_coordinator(self) -> Coordinator:
        if self._coordinator is None:
            raise ConfigurationError(
                "there are no committed offsets without a consumer group",
                advice="ConsumerConfig(group=...)",
            )
        return self._coordinator

    def _identity(self) -> Identity:
        if self._group_mode and self._membership is not None:
            return self._membership.identity()
        return Identity()

    def _to_commit(
        self, places: Iterable[TopicPartition], *, processed_only: bool
    ) -> dict[TopicPartition, Committed]:
        wanted = {}
        for place in places:
            state = self._fetcher.assigned.get(place)
            if state is not None:
                offset = state.processed if processed_only else state.position
                if offset is not None and offset != state.committed:
                    wanted[place] = Committed(offset, "", state.leader_epoch)
        return wanted

    async def _commit(
        self, wanted: Mapping[TopicPartition, Committed], timeout_s: float | None = None
    ) -> None:
        """One at a time, so that an older position never overwrites a newer one. Nor may a commit
        count under a generation that the group has reached meanwhile: it would set back the commits
        of a partition's next owner."""
        coordinator, assigned = self._the_coordinator(), self._fetcher.assigned
        owned = {place: assigned[place] for place in wanted if place in assigned}

        def who() -> Identity:
            gone = [place for place, state in owned.items() if assigned.get(place) is not state]
            if gone and self._group_mode:
                raise CommitError(
                    f"cannot commit {', '.join(map(str, sorted(gone)[:3]))}",
                    why="the consumer group has rebalanced: other members own the partitions now",
                    advice="their new owners read again what was not committed",
                )
            return self._identity()

        async with self._committing:
            await coordinator.commit(wanted, who, timeout_s=timeout_s)
            self._commits += bool(wanted)
            for place, one in wanted.items():
                state = self._fetcher.assigned.get(place)
                if state is not None:
                    state.committed = one.offset

    async def _commit_processed(self, places: Collection[TopicPartition]) -> EvenkeelError | None:
        """Commit for the application. A failure, which is returned, is not raised: the records are
        read again then."""
        if not self._commits_by_itself:
            return None
        wanted = self._to_commit(places, processed_only=True)
        if wanted:
            try:
                await self._commit(wanted)
            except EvenkeelError as error:
                if not error.retriable and not isinstance(error, CommitError):
                    self._fail(error)
                return error
        return None

    async def _report_progress(self, places: Collection[TopicPartition]) -> bool:
        """A master is about to move: commit now what has been processed."""
        if self._on_progress is not None:
            try:
                await notify(self._on_progress, places)
            except ListenerError as error:
                self._fail(error)
                return False
        return await self._commit_processed(places) is None

    # -- positions --------------------------------------------------------------------------------

    def _state(self, place: TopicPartition) -> FetchedPartition:
        self._check_open()
        state = self._fetcher.assigned.get(place)
        if state is None:
            raise ConfigurationError(f"{TopicPartition(*place)} is not assigned to this consumer")
        return state

    def _take(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            if place not in self._fetcher.assigned:
                self._fetcher.assigned[place] = FetchedPartition(place)
                if place not in self._turn:
                    self._turn.append(place)
        self._lost_position.set()

    async def _find_positions(self) -> None:
        """The only task that looks up where to begin."""
        failures = 0
        while True:
            self._lost_position = trio.Event()
            lost = [
                one
                for one in self._fetcher.assigned.values()
                if one.position is None and one.error is None and not one.settling
            ]
            if not lost:
                await self._lost_position.wait()
                continue
            try:
                await self._find(lost)
                failures = 0
            except EvenkeelError as error:
                if not error.retriable:
                    for one in lost:
                        one.error = error
                await trio.sleep(backoff_s(self._client_config, failures))
                failures += 1
            self._something_new()
            self._fetcher.wake()

    async def _find(self, lost: Collection[FetchedPartition]) -> None:
        fresh = [one.place for one in lost if one.reset is None]
        if fresh and self._coordinator is not None:
            committed = await self._coordinator.committed(fresh)
            for one in lost:
                if one.place in committed and one.position is None and one.reset is None:
                    one.seek(committed[one.place].offset)
                    one.committed = one.position
        times = {}
        asked = {one.place: one.reset for one in lost}
        for one in lost:
            reset = one.reset or self._config.offset_reset
            if one.position is not None:
                continue
            if reset is OffsetReset.ERROR:
                one.error = OffsetError(
                    f"no offset to begin at in {one.place}",
                    why="none is committed, or the log no longer has it",
                    advice="seek, or choose another offset_reset",
                )
            else:
                earliest = reset is OffsetReset.EARLIEST
                times[one.place] = lookups.BEGINNING if earliest else lookups.END
        found = await lookups.list_offsets(self._client, times, self._config.isolation)
        for one in lost:
            still = one.position is None and one.reset is asked[one.place]  # else a seek intervened
            if still and one.place in found:
                one.seek(found[one.place].offset)

    # -- the group --------------------------------------------------------------------------------

    async def _run_membership(self) -> None:
        assert self._membership is not None
        with self._while_member:
            try:
                await self._membership.run()
            except EvenkeelError as error:
                self._fail(error)

    async def assigned(self, places: Collection[TopicPartition]) -> None:
        """For `Membership`: these partitions are ours now."""
        self._client.follow(place.topic for place in places)
        self._take(sorted(places))
        fresh = [self._fetcher.assigned[place] for place in places]
        for state in fresh:
            state.settling = True  # the listener may seek before anything is fetched
        self._auto_commit.restart()
        await notify(self._listener.assigned, places)
        for state in fresh:
            state.settling = False
        self._lost_position.set()
        self._fetcher.wake()

    async def revoked(self, places: Collection[TopicPartition]) -> None:
        """For `Membership`: give these up in an orderly way."""
        states = {place: self._fetcher.assigned.get(place) for place in places}
        for state in states.values():
            if state is not None:
                state.drop()
                state.settling = True
        try:
            await notify(self._listener.revoked, places)
            await self._commit_processed(places)
        finally:
            self._drop(places)  # also if the group no longer waits for it

    async def lost(self, places: Collection[TopicPartition]) -> None:
        """For `Membership`: these may belong to another member already."""
        self._drop(places)
        await notify(self._listener.lost, places)

    def _drop(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._fetcher.assigned.pop(place, None)
        self._fetcher.wake()
        self._something_new()

    # -- lifetime ---------------------------------------------------------------------------------

    def _something_new(self) -> None:
        """Wake all waiting tasks; each waits for the event that was current when it looked."""
        arrived, self._arrived = self._arrived, trio.Event()
        arrived.set()

    def _fetched(self) -> None:
        """There may be new records, or a position that the log no longer contains."""
        self._something_new()
        if any(one.position is None for one in self._fetcher.assigned.values()):
            self._lost_position.set()

    def _fail(self, error: EvenkeelError) -> None:
        self._failure = error
        self._something_new()

    def _changed(self) -> None:
        """The client's metadata has changed."""
        self._fetcher.wake()
        if self._membership is None:
            return
        if self._pattern is not None:
            names = [
                name
                for name, view in self._client.view.topics.items()
                if not view.internal and self._pattern.fullmatch(name)
            ]
            self._membership.want(names)
        self._membership.metadata_changed()

    def _lifetime(self) -> AbstractAsyncContextManager["Consumer"]:
        return self._run()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator["Consumer"]:
        opened = open_client(
            self._bootstrap, self._client_config, on_change=self._changed, on_denied=self._fail
        )
        async with opened as self._client:
            reports = self._on_progress is not None or self._commits_by_itself
            report = self._report_progress if reports else None
            self._fetcher = Fetcher(self._client, self._config, report, self._fetched)
            if self._config.group is not None:
                self._coordinator = Coordinator(self._client, self._config.group)
                self._membership = Membership(self._client, self._config, self._coordinator, self)
                if self._commits_by_itself:
                    self._client.start(self._auto_commit.run)
            self._client.start(self._fetcher.run)
            self._client.start(self._find_positions)
            try:
                yield self
                for state in self._fetcher.assigned.values():
                    state.processed = state.position
            finally:
                await self._leave_group()

    async def _leave_group(self) -> None:
        """Commit and leave, within a few seconds, even if we are being cancelled."""
        self._fail(ClosedError("the consumer is closed"))
        self._while_member.cancel()  # or its heartbeats would hear that we have left
        try:
            with trio.move_on_after(LAST_COMMIT_S_MAX, shield=True):
                if self._group_mode and self._fetcher.assigned:
                    await self.revoked(list(self._fetcher.assigned))
                else:
                    await self._commit_processed(list(self._fetcher.assigned))
        finally:
            if self._membership is not None and self._group_mode:
                await self._membership.leave()
