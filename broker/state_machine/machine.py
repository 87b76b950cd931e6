"""The state machine of one Paxos group: what its chosen entries make of partitions and consumer
groups.

It is the same on every replica, and knows nothing but the log: slots in order, their entries, and
where these lie on this node's disk. Batches are applied under the leader epoch of the last lease
entry before them, so the machine itself follows the lease, by the rules of `paxos.lease`.

The registry lives in another Paxos group's log, so batches of a partition may be applied before
this node has heard of its topic, or after it has heard of the topic's deletion: an unknown
partition is created, a deleted one refuses. Only the answer to a producer of a deleted topic can
depend on that. The registry knows which partitions are deleted without keeping them: uids are
assigned in order.

A checkpoint (`chunks`) is made part by part while entries are applied in between, so each part has
a slot of its own: its *floor*. A machine restored from one applies the log from the base on, the
lowest of these slots, and each part skips what it already contains.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import attrs

from balancer.registry.image import Image, decode_pieces, encode_pieces
from balancer.registry.packing import PackingError
from balancer.registry.versions import LaterVersionError
from broker.ports import NO_COLD, ColdReader
from broker.proposals.commands import (
    ADMIT_RESULT,
    DELETE_RECORDS_RESULT,
    EVERYTHING,
    FENCED_KIND_AT,
    RECORDS_HEAD,
    RECORDS_RESULT,
    Command,
    CommandKind,
    alone,
    parse,
    parse_admit,
    parse_delete_records,
    parse_fenced,
)
from broker.state_machine.checkpoint_chunks import (
    Chunk,
    ChunkKind,
    ImageError,
    decode_end,
    decode_lease,
    encode_end,
    encode_lease,
)
from broker.state_machine.partition import DamagedEntryError, PartitionState
from broker.state_machine.partition_image import (
    encode_partition,
    index_pieces,
    load_index,
    load_partition,
)
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.model import ErrorCode as CoordinatorErrorCode
from coordinator.replicated.codec import CommandError
from coordinator.replicated.commands import CommandKind as CoordinatorKind
from coordinator.replicated.commands import Result, encode_result
from coordinator.replicated.store import GroupStore
from paxos.entry import BeMaster, Buffer, Control, Entry, Steal
from paxos.ids import SLOT_ZERO, GroupId, Now, Slot
from paxos.lease import Lease
from storage.errors import DirectoryRefused
from wire.error_codes import ErrorCode


class ReplicatedRegistry(Protocol):
    """What the registry's Paxos group makes of the commands in its log
    (`balancer.registry.registry`)."""

    def apply(self, command: memoryview, slot: int) -> bytes:
        """Apply a command of this slot; return the encoded result."""

    def image(self) -> Image:
        """Its present contents."""

    def install(self, image: Image) -> None:
        """Replace its contents by this image.

        Raises:
            PackingError: if the image is malformed.
        """


_NO_TIME: Final = Now(0, 0)
"""The holder of a lease and its epoch depend on the log alone; only its deadline depends on a time,
which nothing here asks for."""
_NO_LOG_APPEND_TIME: Final = -1
_NO_ERROR: Final = int(ErrorCode.NONE)
_RECORDS: Final = int(CommandKind.RECORDS)
_KIND_LAST: Final = int(max(CommandKind))
_COORDINATOR_KIND_LAST: Final = int(max(CoordinatorKind))
_THERE_ALREADY: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_PASSED: Final = {
    int(CommandKind.CONSUMER_GROUP): encode_result(Result(CoordinatorErrorCode.NOT_COORDINATOR)),
    int(CommandKind.DELETE_RECORDS): DELETE_RECORDS_RESULT.pack(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
    ),
    int(CommandKind.ADMIT): ADMIT_RESULT.pack(ErrorCode.NOT_LEADER_OR_FOLLOWER),
}
"""Results of commands of a mastership that is over."""
UID_MAX: Final = 2**32 - 1
_LEASE: Final = (ChunkKind.LEASE, 0)
_IN_PIECES: Final = (ChunkKind.CONSUMER_GROUPS, ChunkKind.REGISTRY)


def _part(command: Command) -> tuple[ChunkKind, int]:
    """The part of the machine that the command is for, as its chunk's kind and key."""
    if command.kind == CommandKind.FENCED:
        _, command = parse_fenced(command)
    if command.kind == CommandKind.CONSUMER_GROUP:
        return ChunkKind.CONSUMER_GROUPS, 0
    if command.kind == CommandKind.REGISTRY:
        return ChunkKind.REGISTRY, 0
    if command.kind == CommandKind.ADMIT:
        return ChunkKind.PARTITION, parse_admit(command.body)[0]
    if command.kind == CommandKind.DELETE_RECORDS:
        return ChunkKind.PARTITION, parse_delete_records(command.body)[0]
    return ChunkKind.PARTITION, command.uid


def _never(uid: int) -> bool:
    """Without a registry, no topic is ever deleted."""
    return False


@attrs.define(eq=False)
class _Restoring:
    """How far a checkpoint has been read."""

    group: GroupId
    base: Slot
    floors: dict[tuple[ChunkKind, int], Slot] = attrs.Factory(dict)
    pieces: dict[ChunkKind, list[memoryview]] = attrs.Factory(dict)
    partitions: set[int] = attrs.Factory(set)
    ended: bool = False
    _count: int = 0
    _indexes: int = 0

    def check(self, chunk: Chunk) -> None:
        """Parts come in the order in which they were made, the lease first and once.

        Raises:
            ImageError: if a part is missing or out of order.
        """
        kind, lease_slot = chunk.kind, self.floors.get(_LEASE)
        if self.ended or (lease_slot is None) != (kind == ChunkKind.LEASE):
            raise ImageError(f"group {self.group}: {kind.name} out of order")
        if chunk.slot < (self.base if lease_slot is None else lease_slot):
            raise ImageError(f"group {self.group}: {kind.name} of {chunk.slot}, not {self.base}")
        if kind == ChunkKind.END:
            self.ended = True
            if chunk.key != self._count or self._indexes not in (0, decode_end(chunk.body)):
                raise ImageError(f"group {self.group}: {self._count} chunks of {chunk.key}")
        elif kind == ChunkKind.INDEX:
            self._indexes += 1
        else:
            self._count += 1


class GroupMachine:
    """`registry` is given only to the machine of the registry's Paxos group.

    `is_gone` says whether a partition of this uid existed and its topic was deleted.
    """

    def __init__(
        self,
        group: GroupId,
        *,
        tail: Tail,
        statistics: BrokerStatistics,
        registry: ReplicatedRegistry | None = None,
        is_gone: Callable[[int], bool] = _never,
        cold: ColdReader = NO_COLD,
    ) -> None:
        self.group = group
        self.applied = SLOT_ZERO
        self.consumer_groups = GroupStore()
        self.partitions: dict[int, PartitionState] = {}
        self._tail = tail
        self._statistics = statistics
        self._registry = registry
        self._lease = Lease()
        self._floors: dict[tuple[ChunkKind, int], Slot] = {}
        """After a restore: up to which slot each part already contains the log."""
        self._floor_max = SLOT_ZERO
        self._is_gone = is_gone
        self._cold = cold
        self._grown: dict[int, None] = {}
        self.on_records: Callable[[int, memoryview], None] | None = None
        """Called with every appended batch and its partition's uid, on every replica."""

    def apply(
        self,
        slot: Slot,
        entry: Entry,
        position: int,
        *,
        keep_in_tail: bool = True,
        answer: bool = True,
    ) -> list[bytes]:
        """Apply a chosen entry, whose encoding begins at `position` of the log; one result per
        command.

        With `keep_in_tail` its buffers are kept in memory for consumers: not if they belong to a
        large span that was read back for a replay. Without `answer` results may be missing: nothing
        waits for them.

        Raises:
            CommandError, DamagedEntryError, coordinator's CommandError: the entry cannot have been
                proposed; this replica must not go on.
            DirectoryRefused: only a later version of this program can read it; the same.
        """
        assert slot > self.applied, f"group {self.group}: slot {slot} after {self.applied}"
        self.applied = slot
        if slot <= self._floor_max:
            return self._apply_again(slot, entry, position, keep_in_tail)
        payload = entry.payload()
        results: list[bytes] = []
        if payload:
            start = position + len(entry.chunks[0])
            results = self._apply_all(payload, start, keep_in_tail, answer)
        if entry.control is not None:  # what rides on a Steal was proposed before the lease changes
            self._apply_control(slot, entry.control)
        return results

    def _apply_control(self, slot: Slot, control: Control) -> None:
        if isinstance(control, BeMaster):
            self._lease.apply_be_master(slot, control, _NO_TIME, 0)
        elif isinstance(control, Steal):
            self._lease.apply_steal(slot, control, _NO_TIME, 0)

    def _apply_again(self, slot: Slot, entry: Entry, position: int, keep: bool) -> list[bytes]:
        """Replay an entry: some parts of this node contained it when they were written, others did
        not.

        A skipped command has no result: its proposer, on whose node a client may wait for it, is
        another.
        """
        payload = entry.payload()
        results: list[bytes] = []
        start = position + len(entry.chunks[0]) if payload else position
        for command in parse(payload):
            seen = slot <= self._floors.get(_part(command), SLOT_ZERO)
            results.append(b"" if seen else self._apply(command, start, keep))
        if entry.control is not None and slot > self._floors[_LEASE]:
            self._apply_control(slot, entry.control)
        if slot == self._floor_max:
            self._forget_floors()
        return results

    @property
    def seen_to(self) -> Slot:
        """Parts of this machine may contain slots up to this one before the log has been
        replayed."""
        return self._floor_max

    def relocate(self, entry: Entry, old: int, new: int) -> None:
        """An applied entry was damaged on the disk and has been rewritten: it now begins at
        `new`."""
        payload = entry.payload()
        if payload:
            head = len(entry.chunks[0])
            for command in parse(payload):
                state = self.partitions.get(command.uid)
                if command.kind == CommandKind.RECORDS and state is not None:
                    at = head + command.at
                    state.index.relocate(old + at, new + at)

    def needed_from(self) -> int | None:
        """The lowest position of the log that a batch is still read from; None if there is none."""
        lowest = [one.index.lowest_position() for one in self.partitions.values()]
        return min((one for one in lowest if one is not None), default=None)

    def partition(self, uid: int) -> PartitionState:
        """The state of a partition of this Paxos group; empty if nothing was appended to it yet."""
        state = self.partitions.get(uid)
        if state is None:
            state = self.partitions[uid] = PartitionState(uid, cold=self._cold)
        return state

    def take_grown(self) -> list[int]:
        """The partitions that got batches since the last call, in order, each once."""
        grown = list(self._grown)
        self._grown.clear()
        return grown

    def drop(self, uid: int) -> None:
        """The partition's topic was deleted; `is_gone` reports that from now on."""
        self._tail.drop(uid)
        state = self.partitions.pop(uid, None)
        if state is not None:
            state.dropped = True
            self._grown[uid] = None  # fetches that wait for it should look again

    # -- checkpoints --------------------------------------------------------------------------

    def chunks(self, *, local: bool) -> Iterator[Chunk]:
        """The parts of this machine, each in its state when the iterator is advanced; entries may
        be applied in between. With `local`, parts that only this node can use are included.

        One checkpoint at a time: when another is begun, this one must not be continued. The first
        part's slot is the base of this machine.
        """
        count, indexes = 1, 0
        yield Chunk(*_LEASE, self._seen(_LEASE), encode_lease(self._lease))
        for kind, pieces in self._stores():
            slot = self._seen((kind, 0))
            for number, piece in enumerate(pieces):
                yield Chunk(kind, number, slot, piece)
                count += 1
        for uid in sorted(self.partitions):
            state = self.partitions.get(uid)
            if state is None or state.blank:  # dropped since, or nothing to remember
                continue
            slot = self._seen((ChunkKind.PARTITION, uid))
            pieces = index_pieces(state.index, state.index.stop)
            yield Chunk(ChunkKind.PARTITION, uid, slot, encode_partition(state))
            count += 1
            for piece in pieces if local else ():
                yield Chunk(ChunkKind.INDEX, uid, slot, piece)
                indexes += 1
        yield Chunk(ChunkKind.END, count, self.applied, encode_end(indexes))

    def _seen(self, part: tuple[ChunkKind, int]) -> Slot:
        """The slot of a part: after a restore it may be ahead of what is applied. A part that was
        not in the checkpoint was blank, and at least at the slot of the lease."""
        if not self._floor_max:
            return self.applied
        return max(self.applied, self._floors.get(part, self._floors[_LEASE]))

    def restore(self, base: Slot, chunks: Iterable[Chunk], *, log_from: int | None = None) -> None:
        """Replace the state by a checkpoint's, to continue with the slot after `base`.

        The log has moved on since: it now begins at position `log_from`, and what lay below is in
        the cold store. Without `log_from` the cold store is asked how far it reaches, which may
        read a file per partition.

        Known partitions stay the same objects, since fetches may wait on them. Chunks that are made
        and used elsewhere are skipped.

        Raises:
            ImageError: if this is no complete checkpoint; the machine is unusable then.
        """
        assert base >= self.applied, f"group {self.group}: back from {self.applied} to {base}"
        restoring = _Restoring(self.group, base)
        for chunk in chunks:
            if chunk.kind not in (ChunkKind.REPLICA, ChunkKind.COLD):
                self._take_chunk(restoring, chunk)
        if not restoring.ended:
            raise ImageError(f"group {self.group}: a checkpoint without an end")
        self._restore_stores(restoring.pieces)
        for uid in [uid for uid, one in self.partitions.items() if not one.blank]:
            if uid not in restoring.partitions:
                self.drop(uid)  # its topic was deleted before the checkpoint
        for uid in restoring.partitions:  # what the log had then, it may have given up since
            state = self.partitions[uid]
            if log_from is not None:
                state.index.drop_before(state.index.below(log_from))
            elif len(state.index):
                state.mark_tiered(self._cold.end(uid) or 0)
        self.applied = base
        self._floors = restoring.floors
        self._floor_max = max(self._floors.values())
        if self._floor_max <= base:
            self._forget_floors()

    def _take_chunk(self, restoring: "_Restoring", chunk: Chunk) -> None:
        kind, key = chunk.kind, chunk.key
        restoring.check(chunk)
        if kind == ChunkKind.LEASE:
            self._lease = decode_lease(chunk.body)
            restoring.floors[_LEASE] = chunk.slot
        elif kind in _IN_PIECES:
            restoring.pieces.setdefault(kind, []).append(memoryview(chunk.body))
            restoring.floors[kind, 0] = chunk.slot
        elif kind != ChunkKind.END and not self._is_gone(key):
            self._restore_partition(chunk, restoring.partitions)
            restoring.floors[ChunkKind.PARTITION, key] = chunk.slot

    def _restore_partition(self, chunk: Chunk, restored: set[int]) -> None:
        uid = chunk.key
        if chunk.kind == ChunkKind.INDEX:
            if uid not in restored:
                raise ImageError(f"an index of partition {uid}, which has no other chunk")
            load_index(self.partitions[uid], chunk.body)
            return
        if uid in restored or uid > UID_MAX:
            raise ImageError(f"partition {uid} is there twice, or cannot be")
        load_partition(self.partition(uid), chunk.body)
        restored.add(uid)
        self._tail.drop(uid)
        self._grown[uid] = None

    def _restore_stores(self, pieces: dict[ChunkKind, list[memoryview]]) -> None:
        registry = pieces.get(ChunkKind.REGISTRY, [])
        if bool(registry) != (self._registry is not None):
            raise ImageError(f"group {self.group}: a registry where none belongs, or none")
        try:
            if self._registry is not None:
                self._registry.install(decode_pieces(registry))
            self.consumer_groups = GroupStore.restore(pieces.get(ChunkKind.CONSUMER_GROUPS, []))
        except (CommandError, PackingError) as error:
            raise ImageError(f"group {self.group}: {error}") from error

    def _forget_floors(self) -> None:
        self._floors, self._floor_max = {}, SLOT_ZERO

    def _stores(self) -> Iterator[tuple[ChunkKind, Iterator[bytes]]]:
        if self._registry is not None:
            yield ChunkKind.REGISTRY, encode_pieces(self._registry.image())
        yield ChunkKind.CONSUMER_GROUPS, self.consumer_groups.pieces()

    # -- commands -----------------------------------------------------------------------------

    def _apply_all(
        self, payload: tuple[Buffer, ...], start: int, keep: bool, answer: bool
    ) -> list[bytes]:
        """The commands of an entry, in order; where there are many, usual batches are not parsed
        first."""
        results: list[bytes] = []
        if len(payload) == 1 and self.on_records is None and not alone(payload[0]):
            (chunk,) = payload
            at = self._append_rows(chunk, start, keep, results if answer else None)
            if at == len(chunk):
                return results
            payload, start = (memoryview(chunk)[at:],), start + at
        for command in parse(payload):
            results.append(self._apply(command, start, keep))  # noqa: PERF401  often only one
        return results

    def _append_rows(
        self, payload: Buffer, start: int, keep: bool, results: list[bytes] | None
    ) -> int:
        """Append batches up to an unusual one or another command; return where that begins."""
        at, end = 0, len(payload)
        while end - at >= RECORDS_HEAD.size:
            _, kind, uid = RECORDS_HEAD.unpack_from(payload, at)
            state = self.partitions.get(uid) if kind == _RECORDS else None
            if state is None:
                break
            number = state.index.stop
            bases, places, sizes, at = state.append_row(payload, at, start, self._lease.epoch)
            if not bases:
                break
            self._grown[uid] = None
            if keep:
                view = memoryview(payload)
                batches = [
                    view[place : place + size] for place, size in zip(places, sizes, strict=True)
                ]
                self._tail.append_row(uid, number, batches)
            else:
                self._tail.drop(uid)  # what is kept must reach to the end
            if results is not None:
                time_ms = _NO_LOG_APPEND_TIME
                results += [RECORDS_RESULT.pack(_NO_ERROR, base, time_ms) for base in bases]
        return at

    def _apply(self, command: Command, start: int, keep: bool) -> bytes:
        kind = command.kind
        if kind == CommandKind.RECORDS:
            return self._apply_records(command, start, keep)
        if kind == CommandKind.CONSUMER_GROUP:
            if len(command.body) > 1 and command.body[1] > _COORDINATOR_KIND_LAST:
                raise self._later(f"a command of consumer groups of kind {command.body[1]}")
            return self.consumer_groups.apply(command.body)
        if kind == CommandKind.REGISTRY and self._registry is not None:
            try:
                return self._registry.apply(command.body, self.applied)
            except LaterVersionError as error:
                raise self._later(str(error)) from error
        if kind == CommandKind.DELETE_RECORDS:
            return self._delete_records(command.body)
        if kind == CommandKind.ADMIT:
            return self._admit(command.body)
        if kind == CommandKind.FENCED:
            if len(command.body) > FENCED_KIND_AT and command.body[FENCED_KIND_AT] > _KIND_LAST:
                raise self._later(f"a fenced command of kind {command.body[FENCED_KIND_AT]}")
            epoch, inner = parse_fenced(command)
            ours = epoch == self._lease.epoch
            return self._apply(inner, start, keep) if ours else _PASSED[inner.kind]
        if kind > _KIND_LAST:
            raise self._later(f"a command of kind {kind}")
        raise DamagedEntryError(
            f"group {self.group}, slot {self.applied}: no command of kind {kind} belongs here"
        )

    def _later(self, what: str) -> DirectoryRefused:
        """The other nodes have applied what this one cannot read: it must not go on without it, now
        or after a restart."""
        return DirectoryRefused(
            f"the log of Paxos group {self.group} has, in slot {self.applied}, {what}: a later "
            "version of Evenkeel wrote it after the cluster version was raised; start this node "
            "with that version (docs/upgrades.md)"
        )

    def _apply_records(self, command: Command, start: int, keep: bool) -> bytes:
        _, uid, batch, at = command
        state = self.partitions.get(uid)
        if state is None:
            if self._is_gone(uid):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return RECORDS_RESULT.pack(error, -1, _NO_LOG_APPEND_TIME)
            state = self.partition(uid)
        error, base_offset, number, append_time_ms = state.append(
            batch, start + at, self._lease.epoch
        )
        if number is not None:
            self._grown[uid] = None
            if self.on_records is not None:
                self.on_records(uid, batch)
            if keep:
                self._tail.append(uid, number, batch)
            else:
                self._tail.drop(uid)  # what is kept must reach to the end
        elif error in _THERE_ALREADY:
            self._statistics.duplicates += 1
        return RECORDS_RESULT.pack(error, base_offset, append_time_ms)

    def _admit(self, body: memoryview) -> bytes:
        uid, producer_id, epoch, first = parse_admit(body)
        if self._is_gone(uid):
            return ADMIT_RESULT.pack(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.partition(uid).producers.admit(producer_id, epoch, first)
        return ADMIT_RESULT.pack(ErrorCode.NONE)

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
            self._grown[uid] = None  # fetches that wait below the new start should look again
        return DELETE_RECORDS_RESULT.pack(ErrorCode.NONE, state.log_start)
