"""A thread that compacts the cold data of this node's partitions, the dirtiest one first.

broker.lifecycle.compaction rewrites batches, broker.lifecycle.compaction_plan chooses the next
partition, and storage.cold.store has the files. Each replica compacts on its own, as in Kafka:
offsets do not change, so replicas need not coordinate. This module sets the pace. Nothing waits for
a compaction, but it shares the interpreter with everything else. So it works in steps of one block
and rests between them: long enough to keep to its rate in bytes per second, and to leave the
interpreter to others most of the time.

A round that finds damage ends early: the place is reported for repair, and the partition is tried
again later. A full disk also ends the round; any other failure ends the node.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import attrs

from broker.lifecycle.compaction import KEYS_MAX, Rewriter, Survey
from broker.lifecycle.compaction_plan import Compacted, Round, dirtiest, merges, rounds_of
from runtime.system.journal import Journal
from storage.cold.format import ColdBatch, ColdFacts, Written
from storage.disk.threads import SYSTEM_THREADS, Threads
from storage.errors import ColdDamaged, DiskFull, NotInLog, StorageError
from wire.records.batch import Batch, parse_header

STEP_BYTES: Final = 64 * 1024
REST_FACTOR: Final = 3
"""The rest after a step, as a multiple of its time: compaction uses at most a quarter of the
interpreter."""
STOP_S: Final = 5.0
DAMAGED_MAX: Final = 1_024
"""Damaged places that wait to be taken; the oldest are dropped, and found again later."""


class CompactedStore(Protocol):
    """The methods of storage.cold.store.ColdStore that are needed here."""

    def facts(self, uid: int) -> Sequence[ColdFacts]: ...

    def batches(self, uid: int, offset: int, bytes_max: int) -> Sequence[ColdBatch]: ...

    def merge(
        self,
        uid: int,
        files: Sequence[ColdFacts],
        batches: Iterable[Written],
        clean_to: int,
        is_needed: Callable[[], bool],
    ) -> bool: ...


@attrs.define(eq=False)
class CompactingStatistics:
    rounds: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    """Bytes read in order to rewrite them; the survey is not counted."""
    bytes_removed: int = 0
    records_removed: int = 0
    tombstones_removed: int = 0
    unreadable_batches: int = 0
    gave_way: int = 0
    """Rounds that ended early: damage, no room, or files removed meanwhile."""
    partitions_dirty: int = 0
    dirty_ratio_max: float = 0.0
    """The highest dirty ratio of all compacted partitions at the last check."""


class _StoppedError(Exception):
    """The node is being stopped."""


class Compactor:
    """`wall_ms` is the clock for the age of tombstones and for lags. `bytes_per_s` 0: no limit."""

    def __init__(
        self,
        store: CompactedStore,
        wall_ms: Callable[[], int],
        journal: Journal,
        *,
        bytes_per_s: int,
        every_s: float,
        keys_max: int = KEYS_MAX,
        rest_factor: int = REST_FACTOR,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        assert bytes_per_s >= 0
        assert every_s > 0
        self._store, self._wall_ms, self._journal = store, wall_ms, journal
        self._bytes_per_s, self._every_s, self._keys_max = bytes_per_s, every_s, keys_max
        self._rest_factor = rest_factor
        self._partitions: Mapping[int, Compacted] = {}
        self._damaged: deque[ColdDamaged] = deque(maxlen=DAMAGED_MAX)
        self._failure: Exception | None = None
        self._threads = threads
        self._stopping = threads.event()
        self._thread = threads.thread("evenkeel-compact", self._run)
        self._step_began_s = 0.0
        self.statistics = CompactingStatistics()

    # -- on the loop's thread -----------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Abandon the current round and stop; False if that takes longer than STOP_S."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        return not self._thread.is_alive()

    def assign(self, partitions: Mapping[int, Compacted]) -> None:
        """Set the partitions to compact; the caller must not change the mapping any more."""
        self._partitions = partitions

    def compacts(self, uid: int) -> bool:
        return uid in self._partitions

    def take_damaged(self) -> list[ColdDamaged]:
        """The damaged places found since the last call.

        Raises:
            Exception: the one that has ended the thread.
        """
        if self._failure is not None:
            raise self._failure
        found = []
        while self._damaged:
            found.append(self._damaged.popleft())
        return found

    # -- in the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.wait(self._every_s):
                self.look()
        except _StoppedError:
            return
        except Exception as error:  # noqa: BLE001  raised again by take_damaged
            self._failure = error

    def look(self) -> None:
        """Compact all partitions that are due, the dirtiest first, until none is."""
        given_way: set[int] = set()
        while True:
            partitions = self._partitions
            self._step_began_s = self._threads.monotonic()
            rounds = list(self._rounds(partitions, given_way))
            self.statistics.partitions_dirty = len(rounds)
            self.statistics.dirty_ratio_max = max((one.dirty_ratio for one in rounds), default=0.0)
            chosen = dirtiest(rounds)
            if chosen is None:
                return
            try:
                finished = self._compact(chosen, partitions[chosen.uid])
            except (ColdDamaged, DiskFull, NotInLog) as trouble:
                self._give_way(chosen, trouble)
                finished = False
            if not finished:
                given_way.add(chosen.uid)

    def _rounds(self, partitions: Mapping[int, Compacted], but: set[int]) -> Iterator[Round]:
        now_ms = self._wall_ms()
        for uid in sorted(partitions.keys() - but):
            self._rest(0)
            yield from rounds_of(partitions, {uid: self._store.facts(uid)}, now_ms)

    def _give_way(self, chosen: Round, trouble: StorageError) -> None:
        self.statistics.gave_way += 1
        if isinstance(trouble, ColdDamaged):
            self._damaged.append(trouble)
        self._journal.warning("compaction gave way", partition=chosen.uid, reason=str(trouble))

    def _compact(self, chosen: Round, compacted: Compacted) -> bool:
        """One round over one partition; False if its files have changed meanwhile."""
        began_s = self._threads.monotonic()
        now_ms = self._wall_ms()
        survey = self._survey(chosen)
        rewriter = Rewriter(
            survey, now_ms=now_ms, delete_retention_ms=compacted.rules.delete_retention_ms
        )
        files = self._store.facts(chosen.uid)
        finished = all(
            self._rewrite(chosen.uid, run, rewriter, survey.until)
            for run in list(merges(files, survey.until, compacted.segment_bytes))
        )
        self._account(rewriter, self._threads.monotonic() - began_s)
        done = rewriter.statistics
        self._journal.info(
            "partition compacted",
            partition=chosen.uid,
            finished=finished,
            to=survey.until,
            keys=len(survey),
            read=done.bytes_read,
            written=done.bytes_written,
            seconds=round(self._threads.monotonic() - began_s, 3),
        )
        return finished

    def _survey(self, chosen: Round) -> Survey:
        survey = Survey(chosen.clean_to, self._keys_max)
        for batch in self._batches(chosen.uid, chosen.clean_to, chosen.end):
            if not survey.add(_as_batch(batch)):
                return survey
        survey.reached(chosen.end)
        return survey

    def _rewrite(self, uid: int, run: Sequence[ColdFacts], rewriter: Rewriter, until: int) -> bool:
        """Merge files into one, unless nothing would change; False if they changed meanwhile."""
        start, end = run[0].base, run[-1].end
        clean_to = min(until, end)
        is_other = len(run) > 1 or run[0].clean_to < clean_to

        def left() -> Iterator[Written]:
            nonlocal is_other
            for batch, is_last in _with_last(self._batches(uid, start, end)):
                data = rewriter.rewrite(_as_batch(batch), keep=is_last)
                is_other = is_other or data is not batch.data
                if data is not None:
                    yield batch.base, batch.end, parse_header(data).max_timestamp_ms, (data,)

        merged = self._store.merge(uid, run, left(), clean_to, lambda: is_other)
        return merged or not is_other

    def _batches(self, uid: int, offset: int, end: int) -> Iterator[ColdBatch]:
        """The batches from `offset` to `end`, read in steps with rests."""
        while offset < end:
            found = self._store.batches(uid, offset, STEP_BYTES)
            for batch in found:
                if batch.base >= end:
                    return
                yield batch
                offset = batch.end
            if not found:
                return
            self._rest(sum(len(batch.data) for batch in found))

    def _rest(self, size: int) -> None:
        """Rest after a step over `size` bytes."""
        took_s = self._threads.monotonic() - self._step_began_s
        due_s = size / self._bytes_per_s if self._bytes_per_s else 0.0
        if self._stopping.wait(max(due_s - took_s, self._rest_factor * took_s)):
            raise _StoppedError
        self._step_began_s = self._threads.monotonic()

    def _account(self, rewriter: Rewriter, took_s: float) -> None:
        ours, done = self.statistics, rewriter.statistics
        ours.rounds += 1
        ours.seconds += took_s
        ours.bytes_read += done.bytes_read
        ours.bytes_removed += done.bytes_read - done.bytes_written
        ours.records_removed += done.records_read - done.records_kept
        ours.tombstones_removed += done.tombstones_dropped
        ours.unreadable_batches += done.unreadable_batches


def _as_batch(batch: ColdBatch) -> Batch:
    return Batch(parse_header(batch.data), batch.data)


def _with_last(batches: Iterator[ColdBatch]) -> Iterator[tuple[ColdBatch, bool]]:
    """Each batch, and whether it is the last one."""
    before = next(batches, None)
    if before is None:
        return
    for batch in batches:
        yield before, False
        before = batch
    yield before, True
