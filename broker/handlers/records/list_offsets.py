"""ListOffsets: the begin and end of a partition, and the offset for a point in time.

Offsets for times are exact, whatever the codec and the size of a batch, and do not depend on the
rest of the request: the first record that is not earlier (`broker.reads.time_search`). If a few
small batches are enough to find it, the answer is immediate. Otherwise the request waits, and its
connection with it, like any other that takes time, while others are served
(`broker.reads.search_queue`). Partitions whose search does not finish in time get
REQUEST_TIMED_OUT, and clients retry.

Answered under the lease, which is checked after the work (docs/protocol.md R14). A former master
answers clients that do not know of the move (ADR 50): once the master has said how far it was when
the request came, and that much is applied here.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs

from broker.handlers.topics.known_names import denial
from broker.reads.reader import Reader, UnreadableError
from broker.reads.time_search import MAX_TIMESTAMP, Job, Search, Work, search
from broker.requests.context import Broker
from broker.requests.guard import gather, guarded, report_bug
from broker.requests.leaders import Leader
from broker.requests.request import Request
from broker.state_machine.partition import PartitionState
from paxos.ids import GroupId
from storage.errors import ColdDamaged, NotInLog, StorageError
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.records.batch import BatchError
from wire.records.times import Timed

LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
TO_BE_TIERED: Final = -6
SINCE_VERSION: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    TO_BE_TIERED: 11,
}
"""Meaning of negative timestamps, and the first version with each (KIP-734, 405, 1005, 1023)."""
ANY_EPOCH: Final = -1
AT_ONCE_BYTES_MAX: Final = 64 * 1024
"""Size of a batch that is read on the loop; four times as much when decompressed."""
AT_ONCE_RECORDS: Final = 4_000
"""Records examined on the loop for one request: about 6 ms."""
UNPACKED_FACTOR: Final = 4
SEARCH_MS_MAX: Final = 20_000
"""Clients wait for 30 s or more, unless they set another timeout (KIP-1075)."""


class _Found(NamedTuple):
    """`offset` -1: there is no record as late as that."""

    offset: int
    timestamp_ms: int
    epoch: int


_NOTHING: Final = _Found(-1, -1, -1)
_NO_FRAME: Final = memoryview(b"")
_NO_GROUP: Final = GroupId(-1)


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ListOffsetsRequest)
    broker.statistics.list_offsets_requests += 1
    followed = _followed(broker, request, message)
    if not followed:
        _begin(broker, request, message, frozenset())
        return

    def begin(fresh: Sequence[bool]) -> None:
        groups = frozenset(group for group, one in zip(followed, fresh, strict=True) if one)
        guarded(broker, request, _begin)(broker, request, message, groups)

    put = gather(len(followed), begin)
    for at, group in enumerate(followed):
        broker.groups.ask_index(group, partial(put, at))


def _followed(broker: Broker, request: Request, message: ListOffsetsRequest) -> list[GroupId]:
    """The groups of other masters that are read here: the client does not know of the move."""
    groups, leaders = broker.groups, broker.leaders
    connection, now_ns = request.reply.connection, groups.now().boot_ns
    found: dict[GroupId, None] = {}
    for topic in message.topics:
        known = broker.registry.topic(topic.name)
        places = () if known is None else known.partitions
        for one in topic.partitions:
            if not 0 <= one.partition_index < len(places):
                continue
            group = places[one.partition_index].group
            elsewhere = group in broker.machines and leaders.of(group).node != broker.me
            if elsewhere and connection.misses_move(topic.name, groups.moved_ns(group), now_ns):
                found[group] = None
    return list(found)


def _begin(
    broker: Broker, request: Request, message: ListOffsetsRequest, fresh: frozenset[GroupId]
) -> None:
    asked = _Asked(broker, request, message, fresh)
    asked.search_at_once()
    if not asked.open:
        asked.answer()
    elif broker.search_queue.full:
        asked.expired()
    else:
        wait_ms = message.timeout_ms if message.timeout_ms > 0 else SEARCH_MS_MAX
        broker.search_queue.add(asked, min(wait_ms, SEARCH_MS_MAX))


@attrs.define(eq=False)
class _Row:
    """One partition of the request."""

    asked: ListOffsetsPartition
    error: ErrorCode
    group: GroupId = _NO_GROUP
    leader: Leader | None = None
    state: PartitionState | None = None
    search: Search | None = None
    """Only where a time is asked for."""

    @property
    def searches(self) -> Search:
        assert self.search is not None
        return self.search

    @property
    def has_gone(self) -> bool:
        """What was found now lies below the log start."""
        if self.search is None or self.search.found is None or self.state is None:
            return False
        return self.search.found.offset < self.state.log_start


class _OnLoop:
    """The pace of searches that run on the loop."""

    stopped = False

    def rest(self) -> None:
        """They are short: nothing to do."""


class _Asked:
    """One request until it is answered; while it searches, it is a `search_queue.Searching`."""

    def __init__(
        self,
        broker: Broker,
        request: Request,
        message: ListOffsetsRequest,
        fresh: frozenset[GroupId],
    ) -> None:
        self._broker, self._request, self._fresh = broker, request, fresh
        self._begins_at = 0
        """Where the step under way begins."""
        named = Counter(
            (topic.name, one.partition_index)
            for topic in message.topics
            for one in topic.partitions
        )
        version = request.header.api_version
        topics: dict[str, list[_Row]] = {}
        for topic in message.topics:
            known = broker.registry.topic(topic.name)
            places = () if known is None else known.partitions
            rows = topics.setdefault(topic.name, [])
            for one in topic.partitions:
                times = named.pop((topic.name, one.partition_index), 0)
                if times == 0:
                    continue  # refused already, once for all
                if times > 1:
                    rows.append(_Row(one, ErrorCode.INVALID_REQUEST))
                elif 0 <= one.partition_index < len(places):
                    place = places[one.partition_index]
                    rows.append(_row(broker, *place, one, version, place.group in fresh))
                else:
                    rows.append(_Row(one, denial(broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        self._topics = list(topics.items())
        self._searched = [row for _, rows in self._topics for row in rows if row.search is not None]
        self.open = self._searched[::-1]
        """Rows whose search has not finished, the next one last."""

    # -- searching ----------------------------------------------------------------------------

    def search_at_once(self) -> None:
        """Do what can be done on the loop; the other searches stay open."""
        broker, left = self._broker, list[_Row]()
        reader = Reader(broker.tail, broker.log, broker.statistics)
        records = AT_ONCE_RECORDS
        while self.open and records > 0:
            row = self.open[-1]
            job = self._next_of(row)
            if job is None:
                self.open.pop()
                continue
            records -= min(job.records, AT_ONCE_RECORDS // 2)
            if job.bytes > AT_ONCE_BYTES_MAX or job.records > AT_ONCE_RECORDS // 2:
                left.append(self.open.pop())
                continue
            try:
                prepared = self._prepared(row, job, reader)
                if prepared is not None:
                    work, waits = prepared
                    if waits:
                        left.append(self.open.pop())
                        continue
                    row.searches.heard(work(_OnLoop(), UNPACKED_FACTOR * AT_ONCE_BYTES_MAX))
            except BatchError:  # damaged, or needs more than the loop allows
                left.append(self.open.pop())
        self.open += reversed(left)

    def next_work(self) -> Work | None:
        broker = self._broker
        self._request.frame = _NO_FRAME  # decoded; it would stay in memory while we wait
        try:
            while (job := self._next_job()) is not None:
                self._begins_at = job.offset
                reader = Reader(broker.tail, broker.log, broker.statistics)
                prepared = self._prepared(self.open[-1], job, reader)
                if prepared is not None:
                    return prepared[0]
            self.answer()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(broker, self._request, error)
        return None

    def _next_job(self) -> Job | None:
        """Of the first unfinished search; those that finish are removed from `open`."""
        while self.open:
            job = self._next_of(self.open[-1])
            if job is not None:
                return job
            self.open.pop()
        for row in self._searched:
            if row.has_gone:  # what was found has gone, with the beginning: search again
                job = self._next_of(row)
                if job is not None:
                    self.open.append(row)
                    return job
        return None

    def _next_of(self, row: _Row) -> Job | None:
        if row.error is not ErrorCode.NONE or not self._still_leads(row):
            return None
        return row.searches.next_job()

    def _prepared(self, row: _Row, job: Job, reader: Reader) -> tuple[Work, bool] | None:
        try:
            return job.prepared(reader)
        except UnreadableError as damage:
            self._broker.on_bug("list offsets", damage)
            row.error = ErrorCode.KAFKA_STORAGE_ERROR
            return None

    def heard(self, outcome: Timed | Exception | None) -> bool:
        try:
            self._hear(self.open[-1], outcome)
            if self._next_job() is None:
                self.answer()
                return True
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(self._broker, self._request, error)
            return True
        return False

    def _hear(self, row: _Row, outcome: Timed | Exception | None) -> None:
        if not isinstance(outcome, Exception):
            row.searches.heard(outcome)
            return
        assert row.state is not None
        if isinstance(outcome, NotInLog) and self._begins_at < row.state.log_start:
            return  # the batch to read has gone: the search continues after it
        if isinstance(outcome, UnreadableError) and self._begins_at < row.state.index_start:
            return  # it has left the log meanwhile: the search looks where it is now
        if isinstance(outcome, BatchError):
            row.error = outcome.code
            return
        row.error = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(outcome, UnreadableError):
            row.error = ErrorCode.KAFKA_STORAGE_ERROR
            self._broker.statistics.damaged_reads += 1
            if outcome.position is not None:
                self._broker.statistics.damaged_at.append(outcome.position)
        if isinstance(outcome, StorageError):
            row.error = ErrorCode.KAFKA_STORAGE_ERROR
            self._broker.statistics.damaged_reads += 1
            at = outcome.base if isinstance(outcome, ColdDamaged) else self._begins_at
            self._broker.statistics.damaged_cold.append((row.state.uid, at))
        self._broker.on_bug("list offsets", outcome)

    def expired(self) -> None:
        for row in self.open:
            row.error = row.error or ErrorCode.REQUEST_TIMED_OUT
        try:
            self.answer()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(self._broker, self._request, error)

    # -- answering ----------------------------------------------------------------------------

    def answer(self) -> None:
        topics = []
        for name, rows in self._topics:
            answers = [self._answer(row) for row in rows]
            topics.append(ListOffsetsTopicResponse(name, answers))
            for one in answers:
                if one.error_code != ErrorCode.NONE:
                    self._broker.statistics.count_error(one.error_code)
        response = ListOffsetsResponse(0, topics)
        self._request.reply.complete(encode_response(self._request.header, response))

    def _answer(self, row: _Row) -> ListOffsetsPartitionResponse:
        index = row.asked.partition_index
        error, found = row.error, _NOTHING
        if row.has_gone:
            error = ErrorCode.REQUEST_TIMED_OUT
        elif error is ErrorCode.NONE:
            found = self._found(row)
            if self._is_gone(row):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not self._still_leads(row):
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not ErrorCode.NONE:
            return ListOffsetsPartitionResponse(index, error)
        offset, timestamp_ms, epoch = found
        return ListOffsetsPartitionResponse(index, ErrorCode.NONE, timestamp_ms, offset, epoch)

    def _found(self, row: _Row) -> _Found:
        state, leader = row.state, row.leader
        assert state is not None
        assert leader is not None
        if row.search is not None:
            record = row.search.found
            if record is None:
                return _NOTHING
            return _Found(*record, state.epoch_of(record.offset)[0])
        epoch_now = leader.epoch + self._broker.registry.epoch_base(state.uid)
        if row.asked.timestamp == LATEST:
            return _Found(state.next_offset, -1, epoch_now)
        if row.asked.timestamp in (LATEST_TIERED, TO_BE_TIERED):
            return _NOTHING  # nothing is tiered to remote storage
        start = state.log_start
        epoch = state.epoch_of(start)[0] if start < state.next_offset else epoch_now
        return _Found(start, -1, epoch)

    def _is_gone(self, row: _Row) -> bool:
        """The topic was deleted in the meantime."""
        state = row.state
        return state is not None and (state.dropped or self._broker.registry.is_gone(state.uid))

    def _still_leads(self, row: _Row) -> bool:
        """Whether what was found may be sent (R14)."""
        broker = self._broker
        if row.group in self._fresh:
            return broker.machines.get(row.group) is not None
        return (
            broker.groups.acting(row.group)
            and broker.groups.caught_up(row.group)
            and broker.leaders.of(row.group) == row.leader
        )


def _row(
    broker: Broker,
    uid: int,
    group: GroupId,
    asked: ListOffsetsPartition,
    version: int,
    fresh: bool,
) -> _Row:
    """`fresh`: the client does not know that this node is no longer the master."""
    machine = broker.machines.get(group)
    leader = broker.leaders.of(group)
    if machine is None or (leader.node != broker.me and not fresh):
        return _Row(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = _epoch_problem(asked, leader.epoch + broker.registry.epoch_base(uid))
    if fresh and error is ErrorCode.FENCED_LEADER_EPOCH:
        error = ErrorCode.NONE
    time_ms = asked.timestamp
    if (
        error is ErrorCode.NONE
        and time_ms < 0
        and version < SINCE_VERSION.get(time_ms, version + 1)
    ):
        error = ErrorCode.UNSUPPORTED_VERSION
    if error is not ErrorCode.NONE:
        return _Row(asked, error)
    row = _Row(asked, ErrorCode.NONE, group, leader, machine.partition(uid))
    if time_ms >= 0 or time_ms == MAX_TIMESTAMP:
        assert row.state is not None
        row.search = search(row.state, time_ms)
    return row


def _epoch_problem(asked: ListOffsetsPartition, epoch_now: int) -> ErrorCode:
    epoch = asked.current_leader_epoch
    if epoch in (ANY_EPOCH, epoch_now):
        return ErrorCode.NONE
    if epoch < epoch_now:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
