"""The state machine of one group: what its chosen entries make of partitions and consumer groups.

The same on every replica, and told nothing but the log: slots in order, their entries, and where
these lie on this node's disk. Batches are applied under the leader epoch of the last lease entry
before them, which the machine therefore follows itself, by the rules of `paxos.lease`.

The registry lives in another group's log, so batches of a partition may be applied before this node
has heard of its topic, or after it has heard of the topic's end: an unknown partition is created,
one that is gone refuses. Only the answer to a producer of a deleted topic can depend on that. Which
are gone is the registry's to say, who knows it without keeping them: uids are given in order.
"""

from collections.abc import Callable
from typing import Final

from broker.commands import (
    DELETE_RECORDS_RESULT,
    EVERYTHING,
    RECORDS_RESULT,
    Command,
    CommandKind,
    parse,
    parse_delete_records,
)
from broker.partition import DamagedEntryError, PartitionState
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.store import GroupStore
from paxos.entry import BeMaster, Entry, Steal
from paxos.ids import SLOT_ZERO, GroupId, Now, Slot
from paxos.lease import Lease
from wire.error_codes import ErrorCode

ApplyRegistry = Callable[[memoryview, int], bytes]
"""`Registry.apply`: a command and its slot to an encoded result."""

_NO_TIME: Final = Now(0, 0)
"""Who holds a lease and under which epoch depends on the log alone; only its deadline has a time,
and here nobody asks for it."""
_NO_LOG_APPEND_TIME: Final = -1


def _never(uid: int) -> bool:
    """Where there is no registry, no topic is ever deleted."""
    return False


class GroupMachine:
    """`apply_registry` is given to the machine of the registry's group, and to no other.

    `is_gone` says of a partition that there was one of this uid, and that its topic was deleted.
    """

    def __init__(
        self,
        group: GroupId,
        *,
        tail: Tail,
        statistics: BrokerStatistics,
        apply_registry: ApplyRegistry | None = None,
        is_gone: Callable[[int], bool] = _never,
    ) -> None:
        self.group = group
        self.applied = SLOT_ZERO
        self.consumer_groups = GroupStore()
        self.partitions: dict[int, PartitionState] = {}
        self._tail = tail
        self._statistics = statistics
        self._apply_registry = apply_registry
        self._lease = Lease()
        self._is_gone = is_gone
        self._grown: dict[int, None] = {}
        self.on_records: Callable[[int, memoryview], None] | None = None
        """Told of every batch that is appended, with its partition's uid, on every replica."""

    def apply(
        self, slot: Slot, entry: Entry, position: int, *, keep_in_tail: bool = True
    ) -> list[bytes]:
        """Apply a chosen entry, whose encoding begins at `position` of the log: a result a command.

        With `keep_in_tail` its buffers are kept in memory for consumers: not so where they belong
        to a large span that was read back for a replay.

        Raises:
            CommandError, DamagedEntryError, coordinator's CommandError: the entry cannot have been
                proposed; this replica must not go on.
        """
        assert slot > self.applied, f"group {self.group}: slot {slot} after {self.applied}"
        self.applied = slot
        payload = entry.payload()
        results: list[bytes] = []
        if payload:
            start = position + len(entry.chunks[0])
            for command in parse(payload):
                results.append(self._apply(command, start, keep_in_tail))  # noqa: PERF401 (raises)
        control = entry.control
        if control is not None:  # what rides on a Steal was proposed before the lease changes
            if isinstance(control, BeMaster):
                self._lease.apply_be_master(slot, control, _NO_TIME, 0)
            elif isinstance(control, Steal):
                self._lease.apply_steal(slot, control, _NO_TIME, 0)
        return results

    def relocate(self, entry: Entry, old: int, new: int) -> None:
        """An applied entry was damaged on the disk and is written again: it begins at `new`."""
        payload = entry.payload()
        if payload:
            head = len(entry.chunks[0])
            for command in parse(payload):
                state = self.partitions.get(command.uid)
                if command.kind == CommandKind.RECORDS and state is not None:
                    at = head + command.at
                    state.index.relocate(old + at, new + at)

    def partition(self, uid: int) -> PartitionState:
        """The state of a partition of this group; empty if nothing was appended to it yet."""
        state = self.partitions.get(uid)
        if state is None:
            state = self.partitions[uid] = PartitionState(uid)
        return state

    def take_grown(self) -> list[int]:
        """The partitions that got batches since the last call, in order, each once."""
        grown = list(self._grown)
        self._grown.clear()
        return grown

    def drop(self, uid: int) -> None:
        """The partition's topic was deleted, and `is_gone` says so to whoever comes later."""
        self._tail.drop(uid)
        state = self.partitions.pop(uid, None)
        if state is not None:
            state.dropped = True
            self._grown[uid] = None  # whoever waits for it should look again

    def _apply(self, command: Command, start: int, keep: bool) -> bytes:
        kind = command.kind
        if kind == CommandKind.RECORDS:
            return self._apply_records(command, start, keep)
        if kind == CommandKind.CONSUMER_GROUP:
            return self.consumer_groups.apply(command.body)
        if kind == CommandKind.REGISTRY and self._apply_registry is not None:
            return self._apply_registry(command.body, self.applied)
        if kind == CommandKind.DELETE_RECORDS:
            return self._delete_records(command.body)
        raise DamagedEntryError(
            f"group {self.group}, slot {self.applied}: no command of kind {kind} belongs here"
        )

    def _apply_records(self, command: Command, start: int, keep: bool) -> bytes:
        uid = command.uid
        state = self.partitions.get(uid)
        if state is None:
            if self._is_gone(uid):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return RECORDS_RESULT.pack(error, -1, _NO_LOG_APPEND_TIME)
            state = self.partition(uid)
        batch = command.body
        appended = state.append(batch, start + command.at, self._lease.epoch)
        error, base_offset, number, append_time_ms = appended
        if number is not None:
            self._grown[uid] = None
            if self.on_records is not None:
                self.on_records(uid, batch)
            if keep:
                self._tail.append(uid, number, batch)
            else:
                self._tail.drop(uid)  # what is kept must reach to the end
        elif error is ErrorCode.NONE:
            self._statistics.duplicates += 1
        return RECORDS_RESULT.pack(error, base_offset, append_time_ms)

    def _delete_records(self, body: memoryview) -> bytes:
        uid, before = parse_delete_records(body)
        if self._is_gone(uid):
            return DELETE_RECORDS_RESULT.pack(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        state = self.partition(uid)
        target = state.next_offset if before == EVERYTHING else before
        if not 0 <= target <= state.next_offset:
            return DELETE_RECORDS_RESULT.pack(ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        if target > state.log_start:
            state.start_at(target)
            self._grown[uid] = None  # whoever waits below the new start should hear of it
        return DELETE_RECORDS_RESULT.pack(ErrorCode.NONE, state.log_start)
