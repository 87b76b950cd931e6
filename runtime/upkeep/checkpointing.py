"""When a group's checkpoint is taken, and which log segments can then be retired.

Theory of operation: a group is due when the node has logged `bytes_each` bytes or `records_each`
records since the group's last checkpoint. The groups start at different points of that interval, so
their checkpoints come one after the other. The loop takes the state part by part, for no more than
SLICE_NS of a tick; each part knows its slot (broker.state_machine.checkpoint_chunks). A thread
writes the file once every place in the log that it names is durable: after a crash, a place that
was lost would be used for other records, and an index that still names it would read those. Nothing
waits for any of this: if a group's checkpoint is late, its replay takes longer.

Then the log's oldest segments are retired, under three conditions: neither generation of any
group's checkpoints needs them; no batch is read from them any more (broker.lifecycle.tiering); and
the log window remains, from which peers catch up that were away for a while.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import attrs

from broker.state_machine.checkpoint_chunks import Chunk, ChunkKind, encode_chunk
from broker.state_machine.machine import GroupMachine
from paxos import base as paxos_base
from paxos.ids import MS, SLOT_ZERO, GroupId, Slot
from paxos.multigroup import MultiGroup
from runtime.system.journal import Journal
from runtime.system.worker import Worker
from storage.checkpoints import Checkpoint, CheckpointFiles
from storage.errors import DiskFull, StorageError
from storage.format import Place
from storage.log.wal import Wal

SLICE_NS: Final = 2 * MS
"""The time per tick of 20 ms: a client's request may have to wait for it."""
RETRY_NS: Final = 10_000 * MS
"""When a checkpoint is tried again after there was no room for it."""
NO_SLOTS: Final = range(1, 1)
"""The slots of a group whose entries the log has never had, or is to forget."""


@attrs.frozen(kw_only=True)
class CheckpointConfig:
    bytes_each: int
    records_each: int
    log_bytes: int
    """The log window: this much is kept even if this node does not need it."""
    segment_bytes: int

    @property
    def segments_kept(self) -> int:
        """The log window in segments: at least the current one and a complete one."""
        return max(2, self.log_bytes // self.segment_bytes)


@attrs.frozen
class Taken:
    """A checkpoint that was written, found at the start, or received from a peer."""

    slot: Slot
    at_boot_ns: int
    size: int = 0
    seconds: float = 0.0


@attrs.define(eq=False)
class _Making:
    group: GroupId
    slot: Slot
    needs: int
    parts: Iterator[Chunk]
    began_ns: int
    chunks: list[bytes] = attrs.Factory(list)
    end: Place | None = None
    """Set once all parts are taken: they name no place in the log from here on."""


@attrs.define(eq=False)
class CheckpointStatistics:
    written: int = 0
    failed: int = 0
    segments_retired: int = 0
    slice_ns_max: int = 0
    """The longest time that a tick has spent on it."""


class Checkpointing:
    """`read_from`: the lowest segment that batches are still read from."""

    def __init__(
        self,
        multi: MultiGroup,
        wal: Wal,
        machines: Mapping[GroupId, GroupMachine],
        files: CheckpointFiles,
        worker: Worker,
        config: CheckpointConfig,
        journal: Journal,
        read_from: Callable[[], int],
    ) -> None:
        self._multi, self._wal, self._machines = multi, wal, machines
        self._files, self._worker, self._config = files, worker, config
        self._journal = journal
        self._read_from = read_from
        self._logged: dict[GroupId, tuple[int, int]] = {}
        """The log's bytes and records at each group's last checkpoint."""
        self._making: _Making | None = None
        self._saving: GroupId | None = None
        self._dropped = Counter[GroupId]()
        """How often this node has dropped each group."""
        self._not_before_ns = 0
        self._look_at = (0, 0, 0)
        """(bytes, records, groups): no group is due before the log has that many bytes or records,
        as long as the number of groups is the same. Checking all of them in every tick would cost
        more than everything else here."""
        self.held: set[GroupId] = set()
        """Groups that are receiving a peer's state: their own need not be saved."""
        self.taken: dict[GroupId, Taken] = {}
        self.statistics = CheckpointStatistics()

    @property
    def window_bytes(self) -> int:
        """How much of the log is kept even if this node does not need it."""
        return self._config.segments_kept * self._config.segment_bytes

    # -- when ---------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Called on the loop while every machine has applied what its replica has."""
        making = self._making
        if making is not None:
            if making.end is None:
                self._go_on(now_ns, making)
            elif self._wal.reached >= making.end:
                self._making = None
                self._save(now_ns, making)
        elif self._saving is None and now_ns >= self._not_before_ns:
            group = self._most_due()
            if group is not None:
                self._begin(now_ns, group)

    def found(self, now_ns: int, checkpoints: Mapping[GroupId, Checkpoint]) -> None:
        """Take note of the checkpoints found at the start."""
        for group, one in checkpoints.items():
            self.taken[group] = Taken(one.slot, now_ns, sum(map(len, one.chunks)))

    def came(self, now_ns: int, group: GroupId, slot: Slot, size: int) -> None:
        """Take note of a checkpoint that came from a peer."""
        self.taken[group] = Taken(slot, now_ns, size)

    def newest(self, group: GroupId) -> Slot | None:
        taken = self.taken.get(group)
        return None if taken is None else taken.slot

    def soon(self, group: GroupId) -> None:
        """Take a checkpoint of the group soon: its part of the log is not reliable."""
        self._logged[group] = (-self._config.bytes_each, 0)
        self._look_at = (0, 0, 0)

    def forget(self, group: GroupId) -> None:
        """Forget the group's checkpoints, and abandon one in progress: they are obsolete."""
        self._logged.pop(group, None)
        self.taken.pop(group, None)
        self._look_at = (0, 0, 0)
        if self._making is not None and self._making.group == group:
            self._making = None

    def dropped(self, group: GroupId) -> None:
        """Remove the files of a group that this node no longer has, and one being written.

        A crash may leave the files after the log has forgotten the group. Then the group is started
        from them as non-voting, and is dropped once more.
        """
        self.forget(group)
        self._dropped[group] += 1
        self._worker.submit(partial(self._files.remove, group), _nothing)

    def _most_due(self) -> GroupId | None:
        config = self._config
        logged, records = self._wal.bytes_staged, self._wal.records
        count = len(self._multi.replicas)
        bytes_due, records_due, counted = self._look_at
        if logged < bytes_due and records < records_due and count == counted:
            return None
        best, most = None, 1.0
        passed_over = False
        bytes_due, records_due = logged + config.bytes_each, records + config.records_each
        for number, (group, replica) in enumerate(self._multi.replicas.items()):
            if group in self.held or replica.learner.applied == SLOT_ZERO:
                passed_over = True
                continue
            since = self._logged.get(group)
            if since is None:
                share = number / count  # so that not all are due at once
                since = self._logged[group] = (
                    logged - round(share * config.bytes_each),
                    records - round(share * config.records_each),
                )
            due = max(
                (logged - since[0]) / config.bytes_each, (records - since[1]) / config.records_each
            )
            if due >= most:
                best, most = group, due
            bytes_due = min(bytes_due, since[0] + config.bytes_each)
            records_due = min(records_due, since[1] + config.records_each)
        self._look_at = (0, 0, 0) if passed_over else (bytes_due, records_due, count)
        return best

    # -- taking it ----------------------------------------------------------------------------

    def _begin(self, now_ns: int, group: GroupId) -> None:
        replica, machine = self._multi.replicas[group], self._machines[group]
        slot = replica.learner.applied
        if machine.applied != slot:
            return  # it is behind the replica: try again at the next tick
        self._logged[group] = (self._wal.bytes_staged, self._wal.records)
        needs = self._wal.needed_from(group, slot)
        base = paxos_base.encode(replica.base())
        first = encode_chunk(Chunk(ChunkKind.REPLICA, 0, slot, base))
        parts = machine.chunks(local=True)
        self._making = _Making(group, slot, needs, parts, now_ns, [first])
        self._go_on(now_ns, self._making)

    def _go_on(self, now_ns: int, making: _Making) -> None:
        began = self._wal.threads.monotonic_ns()
        for part in making.parts:
            making.chunks.append(encode_chunk(part))
            if self._wal.threads.monotonic_ns() - began >= SLICE_NS:
                break
        else:
            making.end = self._wal.end
        spent = self._wal.threads.monotonic_ns() - began
        self.statistics.slice_ns_max = max(self.statistics.slice_ns_max, spent)

    def _save(self, now_ns: int, making: _Making) -> None:
        group, size = making.group, sum(map(len, making.chunks))
        self._saving, times_dropped = group, self._dropped[group]

        def write() -> float:
            started = self._wal.threads.monotonic()
            self._files.save(group, making.slot, making.needs, making.chunks)
            return self._wal.threads.monotonic() - started

        def written(seconds: float) -> None:
            self._saving = None
            if self._dropped[group] != times_dropped:
                return  # the job that removes it is queued, even if the group is here again
            self.statistics.written += 1
            self.taken[group] = Taken(making.slot, making.began_ns, size, seconds)
            self.retire()

        def refused(error: StorageError) -> None:
            if not isinstance(error, DiskFull):
                raise error
            self._saving = None
            self.statistics.failed += 1
            self._not_before_ns = now_ns + RETRY_NS
            self._journal.warning("no room for a checkpoint", group=group, reason=str(error))

        self._worker.submit(write, written, refused)

    # -- retiring the log ---------------------------------------------------------------------

    def window_start(self) -> int:
        """The lowest segment that belongs to the log window."""
        kept = self._wal.kept()
        return max(kept.start, kept.stop - self._config.segments_kept)

    def retire(self) -> None:
        """Retire the log's oldest segments, as far as nothing needs them."""
        below = self.window_start()
        if below <= self._wal.kept().start:
            return
        until: dict[GroupId, Slot] = {}
        for group in self._wal.groups():
            if self._wal.slots(group) == NO_SLOTS:
                continue  # dropped, or not begun; its promises are kept in any case
            slot, needs = self._files.slot(group), self._files.needs(group)
            if slot is None or needs is None:
                return  # it does not have two checkpoints yet
            until[group] = slot
            below = min(below, needs)
        if below > self._wal.kept().start:
            below = min(below, self._read_from())
        freed = self._wal.retire(until, below)
        if freed:
            self.statistics.segments_retired += freed
            self._journal.debug("log retired", segments=freed, oldest=self._wal.kept().start)


def _nothing(_result: object) -> None:
    """For jobs without a result."""
