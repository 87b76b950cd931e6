"""Moving data out of the log into the cold store, so that segments of the log can be retired.

Theory of operation. Data below the log window is tiered: partition by partition, its batches are
read from the log, checked, given their offsets and epochs, and appended to the partition's cold
data. A thread does all of it, no faster than the token bucket allows: slowly while the log is a
little longer than it should be, so that a burst is not slowed by work that can wait, and as fast as
the disk once it is twice as long. When the copies are durable, the loop drops the batches from the
partition's index, so that readers find them in the cold store. When a pass over all partitions
finds nothing more below a segment, that segment becomes the bound for retiring.

All partitions share the log, so a pass proceeds in steps of a few megabytes of the log, and within
each step from partition to partition: the log is read once, in large pieces, not batch by batch for
each partition. With so many partitions that a step would give each an fdatasync for next to
nothing, the whole pass is one step, and each batch, or run of batches, is read by itself.

A batch that cannot be read here is requested from a peer, by its offsets (broker.transfer), and the
partition continues behind it. This module also removes cold data of deleted partitions, and files
that lie wholly below their partition's first offset.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Final, Protocol

import attrs

from broker.lifecycle.retention import Segments
from broker.lifecycle.token_bucket import TokenBucket
from broker.ports import Journal, LogReader, Worker
from broker.reads.batch_copy import Copied, NearbyReader, copy
from broker.reads.stored_batch import Batch
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import CopyPlan as Plan
from broker.state_machine.partition import PartitionState
from paxos.ids import MS, GroupId
from storage.cold.format import Written
from storage.cold.store import ColdStore
from storage.errors import DiskFull, StorageError
from storage.format import OFFSET_BITS, Place, place_of
from storage.log.wal import Wal

JOB_BYTES: Final = 4 * 1024 * 1024
"""Copied by one job of the thread; a peer's request for cold data may have to wait this long."""
LOOKS_PER_TICK: Final = 2000
"""Partitions checked in one tick."""
STEP_BYTES: Final = 16 * 1024 * 1024
"""Length of a step: this much of the log is tiered for all partitions before it moves on;
NearbyReader holds as much."""
STEPPED_MAX: Final = 64
"""Most partitions in a pass that proceeds in steps."""
BATCH_BYTES: Final = 2048
"""Cost of a batch beside its bytes, in bytes; charged to the bucket."""
TIDY_EVERY_NS: Final = 1_000 * MS
SECURED_AT_ONCE: Final = 32
"""Partitions whose cold data one job makes durable, each with a file to be read through and an
fdatasync."""
RETRY_NS: Final = 5_000 * MS
"""Pause after the disk was found full."""
EVERYTHING: Final = place_of(1 << 31, 0)
"""Above every position of the log."""


class PeerData(Protocol):
    """Requests from peers what cannot be read here (broker.transfer.sink)."""

    def request_data(
        self, group: GroupId, uid: int, start: int, end: int, *, repairs: bool
    ) -> None: ...


@attrs.define(eq=False)
class TieringStatistics:
    bytes_tiered: int = 0
    batches_tiered: int = 0
    damaged: int = 0
    """Batches that could not be read, and were requested from peers."""
    dropped: int = 0
    """Deleted partitions whose cold data was removed."""


@attrs.define(eq=False)
class _Whole:
    """Moving all of one Paxos group's data, or what lies below a place, before passes continue."""

    group: GroupId
    left: deque[int]
    below: Place
    done: Callable[[], None]


class Tiering:
    """`segments` says when a partition's cold segments are ended; `suspect` is called with
    positions in the log where something else stands than was written."""

    def __init__(
        self,
        wal: Wal,
        machines: Mapping[GroupId, GroupMachine],
        cold: ColdStore,
        worker: Worker,
        bucket: TokenBucket,
        is_gone: Callable[[int], bool],
        segments: Callable[[int], Segments],
        suspect: Callable[[Place], None],
        journal: Journal,
    ) -> None:
        self._wal, self._machines, self._cold, self._worker = wal, machines, cold, worker
        self._bucket, self._is_gone, self._suspect = bucket, is_gone, suspect
        self.segments, self._journal = segments, journal
        self.peer_data: PeerData | None = None
        self.held: set[GroupId] = set()
        """Paxos groups whose state is being transferred here: passes leave their data alone."""
        self.clear_below = wal.kept().start
        """The contents of segments below this one have been tiered; see `read_from`."""
        self._cut = self.clear_below
        self._left: deque[tuple[GroupId, int]] = deque()
        self._below = place_of(self._cut, 0)
        """Where the present step of the pass, which `_left` belongs to, ends."""
        self._nearby = NearbyReader(wal)
        self._stepped = False
        """Whether the pass proceeds in steps: only then are its reads close enough for
        NearbyReader's pieces."""
        self._complete = True
        self._busy = False
        self._unsure = deque(cold.uids())
        """Their cold data is as the start found it. Nothing leaves the log before it is durable;
        and the thread should find out where it ends, which takes long in large files."""
        self._not_before_ns = self._now_ns = 0
        self._wholes: deque[_Whole] = deque()
        self._early: dict[tuple[GroupId, int], Place] = {}
        """What passes would only do later: for these partitions, tier what lies below a place."""
        self._ending: set[int] = set()
        self._waiting: dict[int, int] = {}
        """Partitions that wait for a peer's data, and up to which offset."""
        self._tidied_ns = 0
        self._to_tidy: deque[tuple[GroupId, int]] = deque()
        self.statistics = TieringStatistics()

    # -- on the loop --------------------------------------------------------------------------

    def tick(self, now_ns: int, window_start: int) -> None:
        """Do some of what is due; `window_start`: the lowest segment of the log window."""
        self._now_ns = now_ns
        if now_ns - self._tidied_ns >= TIDY_EVERY_NS:
            self._tidied_ns = now_ns
            self._tidy()
        if self._busy or now_ns < self._not_before_ns:
            return
        if self._unsure:
            self._make_sure()
            return
        if self._wholes:
            self._go_on_whole(self._wholes[0])
            return
        if self._early:
            self._go_on_early()
            return
        if not self._left and not self._new_pass(window_start):
            return
        kept = self._wal.kept()
        beyond = 2 * (window_start - kept.start) / (kept.stop - kept.start)
        if beyond > 1 or self._bucket.open(now_ns, beyond):
            self._go_on()

    def read_from(self) -> int:
        """The lowest segment that batches are still read from. Some batches may lie below what
        passes have cleared: those written long before they were applied, because their group had no
        majority or the state below them came from a peer."""
        if self.clear_below <= self._wal.kept().start:
            return self.clear_below
        places = (machine.needed_from() for machine in self._machines.values())
        numbers = (place >> OFFSET_BITS for place in places if place is not None)
        return min(chain(numbers, (self.clear_below,)))

    def tier_all(self, group: GroupId, done: Callable[[], None]) -> None:
        """Move all of the group's data out of the log, then call back. No pass touches the group
        before `release`."""
        self.held.add(group)
        machine = self._machines.get(group)
        left = deque(machine.partitions if machine else ())
        self._wholes.append(_Whole(group, left, EVERYTHING, done))

    def release(self, group: GroupId) -> None:
        """The transferred state has arrived, or will not come."""
        self.held.discard(group)
        self._wholes = deque(one for one in self._wholes if one.group != group)

    def fetched(self, group: GroupId, uid: int, end: int) -> None:
        """A peer's copy of what could not be read here is in the cold store, up to `end`."""
        self._waiting.pop(uid, None)
        state = self._state(group, uid)
        if state is not None:
            self._tiered(state, end)

    def not_fetched(self, uid: int) -> None:
        """No peer has it: the next pass finds out what is still needed."""
        self._waiting.pop(uid, None)

    def tier_below(self, group: GroupId, below: Place) -> None:
        """The group's data in the log below a place is not reliable there: move it."""
        machine = self._machines.get(group)
        if machine is not None:
            self._wholes.append(_Whole(group, deque(machine.partitions), below, _do_nothing))

    def tier_early(self, group: GroupId, uid: int, below: Place) -> None:
        """Move what the partition has in the log below a place, even if the log has room for it."""
        self._early[group, uid] = below

    def end_file(self, uid: int) -> None:
        """Append nothing more to the partition's last file."""
        if uid not in self._ending:
            self._ending.add(uid)
            self._worker.submit(
                partial(self._cold.end_file, uid),
                lambda _: self._ending.discard(uid),
                partial(self._not_ended, uid),
            )

    def _not_ended(self, uid: int, error: StorageError) -> None:
        if not isinstance(error, DiskFull):
            raise error
        self._ending.discard(uid)
        self._journal.warning("no room to end a file of cold data", reason=str(error))

    def _state(self, group: GroupId, uid: int) -> PartitionState | None:
        machine = self._machines.get(group)
        return None if machine is None else machine.partitions.get(uid)

    # -- passes -------------------------------------------------------------------------------

    def _new_pass(self, window_start: int) -> bool:
        """Begin one, or the next step of it; False if there is nothing to do."""
        if self._below >= place_of(self._cut, 0):
            if window_start <= self.clear_below:
                return False
            self._cut, self._complete, self._below = window_start, True, 0
        self._begin_step()
        self._end_pass()
        return bool(self._left)

    def _begin_step(self) -> None:
        self._left.extend(
            (group, uid) for group, machine in self._machines.items() for uid in machine.partitions
        )
        before, self._below = self._below, place_of(self._cut, 0)
        self._stepped = len(self._left) <= STEPPED_MAX
        if self._stepped:
            places = (machine.needed_from() for machine in self._machines.values())
            lowest = min((one for one in places if one is not None), default=self._below)
            start = max(before, lowest)
            self._below = min(self._below, Place(start - start % STEP_BYTES + STEP_BYTES))

    def _end_pass(self) -> None:
        if not self._left and self._below >= place_of(self._cut, 0):
            self._nearby.forget()
            if self._complete:
                self.clear_below = self._cut

    def _go_on(self) -> None:
        for _ in range(LOOKS_PER_TICK):
            if self._busy or not self._left:
                break
            if self._is_done(*self._left[0], self._below, passing=True):
                self._left.popleft()
        self._end_pass()

    def _go_on_whole(self, whole: _Whole) -> None:
        for _ in range(LOOKS_PER_TICK):
            if self._busy:
                return
            if not whole.left:
                self._wholes.remove(whole)
                whole.done()
                return
            if self._is_done(whole.group, whole.left[0], whole.below, passing=False):
                whole.left.popleft()

    def _go_on_early(self) -> None:
        for _ in range(min(LOOKS_PER_TICK, len(self._early))):
            if self._busy:
                return
            (group, uid), below = next(iter(self._early.items()))
            if group in self.held or self._is_done(group, uid, below, passing=False):
                del self._early[group, uid]

    def _make_sure(self) -> None:
        self._busy = True
        some = [self._unsure.popleft() for _ in range(min(SECURED_AT_ONCE, len(self._unsure)))]

        def secured(_: None) -> None:
            self._busy = False

        self._worker.submit(partial(self._cold.secure, some), secured)

    def _is_done(self, group: GroupId, uid: int, below: Place, *, passing: bool) -> bool:
        """Whether nothing of the partition is to be tiered, or not now; otherwise start on a piece
        of it."""
        state = self._state(group, uid)
        if state is None:
            return True
        if not self._cold.knows(uid):
            self._unsure.appendleft(uid)
            self._make_sure()
            return False
        end = self._cold.end(uid)
        if end is not None and end > state.index_start:
            self._tiered(state, end)  # it is already there: from before a restart, or from a peer
        plan = state.copy_plan(below)
        if plan is None:
            return True
        if (passing and group in self.held) or uid in self._waiting:
            self._complete = False
            return True
        missing = state.missing()
        if missing is not None:
            self._want(group, uid, *missing)
            return True
        self._busy = True
        # If the cold data ends before the first batch, all of it has been deleted.
        drops_first = end is not None and end < plan.bases[0]
        segments = self.segments(uid)
        log: LogReader = self._nearby if passing and self._stepped else self._wal

        def work() -> Copied:
            return self._copy(log, plan, segments, drops_first=drops_first)

        self._worker.submit(work, partial(self._copied, group, state), self._refused)
        return False

    def _copied(self, group: GroupId, state: PartitionState, copied: Copied) -> None:
        self._busy = False
        self._bucket.take(copied.size + len(copied.batches) * BATCH_BYTES)
        self.statistics.bytes_tiered += copied.size
        self.statistics.batches_tiered += len(copied.batches)
        if copied.batches:
            self._tiered(state, copied.batches[-1][1])
        if copied.damaged is not None:
            self.statistics.damaged += 1
            self._suspect(copied.damaged)
            self._want(group, state.uid, copied.damaged_from, copied.damaged_to)

    def _refused(self, error: StorageError) -> None:
        """What was written before the disk was full is found by the next attempt."""
        if not isinstance(error, DiskFull):
            raise error
        self._busy = False
        self._not_before_ns = self._now_ns + RETRY_NS
        self._journal.warning("no room for cold data", reason=str(error))

    def _tiered(self, state: PartitionState, end: int) -> None:
        if not state.dropped:
            state.mark_tiered(end)

    def _want(self, group: GroupId, uid: int, start: int, end: int) -> None:
        """Request from a peer what is missing between the cold data and the log."""
        self._waiting[uid] = end
        self._complete = False
        assert self.peer_data is not None
        self.peer_data.request_data(group, uid, start, end, repairs=False)

    def _tidy(self) -> None:
        """Remove files that hold only deleted data."""
        if not self._to_tidy:
            for uid in self._cold.uids():
                if self._is_gone(uid):
                    self.statistics.dropped += 1
                    self._worker.submit(partial(self._cold.drop, uid), _nothing)
            self._to_tidy.extend(
                (group, uid)
                for group, machine in self._machines.items()
                for uid in machine.partitions
            )
        for _ in range(min(LOOKS_PER_TICK, len(self._to_tidy))):
            group, uid = self._to_tidy.popleft()
            state, start = self._state(group, uid), self._cold.start(uid)
            if state is not None and start is not None and start < state.log_start:
                dropping = partial(self._cold.drop_before, uid, state.log_start)
                self._worker.submit(dropping, _nothing)

    # -- in the worker's thread ---------------------------------------------------------------

    def _copy(self, log: LogReader, plan: Plan, segments: Segments, *, drops_first: bool) -> Copied:
        copied = copy(log, plan, JOB_BYTES)
        # Data from a peer may have been waiting when this was planned; by now it is written.
        end = self._cold.end(plan.uid) or 0
        if drops_first and end < plan.bases[0]:
            self._cold.drop(plan.uid)
        rows = [one for one in copied.batches if one[0] >= end]
        if rows:
            self._cold.append(plan.uid, rows, segment_bytes=segments.bytes, segment_ms=segments.ms)
        return copied


def written(one: Batch) -> Written:
    return one.base, one.end, one.max_timestamp_ms, (one.data,)


def _do_nothing() -> None:
    """Nothing waits for it."""


def _nothing(_result: object) -> None:
    """The job has no result."""
