"""Carries out the effects of the machines of broker.transfer: the node's half of a state transfer.

Sink and source decide; here are their queries to this node, the threads that read and write for
them, and the order that makes a transfer safe: first the data, then the checkpoint, both durable,
and then the state machine, the log and the replica in one step on the loop.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from balancer.registry.registry import Registry
from broker.lifecycle.tiering import Tiering, written
from broker.lifecycle.token_bucket import TokenBucket
from broker.ports import Journal, Worker
from broker.reads.batch_copy import copy, whole
from broker.reads.stored_batch import Batch
from broker.state_machine.checkpoint_chunks import (
    PORTABLE,
    Chunk,
    ChunkKind,
    ImageError,
    base_of,
    decode_chunk,
)
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import PartitionState
from broker.state_machine.partition_image import extent_of
from broker.topic_configs import is_compacted
from broker.transfer.effects import (
    Append,
    Fetched,
    Install,
    NotFetched,
    Open,
    Read,
    Repair,
    Restart,
    Save,
    Send,
    SinkEffect,
    TierAll,
)
from broker.transfer.messages import AskData, AskManifest, AskState, Message, Part, RefusalReason
from broker.transfer.sink import Candidate, Sink
from broker.transfer.source import Source
from paxos.base import Base, BaseError
from paxos.ids import MS, SLOT_ZERO, GroupId, NodeId, Now, Slot
from paxos.multigroup import MultiGroup
from paxos.step import FetchState
from storage.checkpoints import CheckpointFiles
from storage.cold.store import ColdStore
from storage.errors import ColdDamaged, DiskFull, NotInLog, StorageError
from storage.log.wal import Wal

READ_BATCHES_MAX: Final = 1024
RENEW_EVERY_NS: Final = 2_000 * MS
"""A peer's questions make this node write a checkpoint of a group no more often."""


class Links(Protocol):
    def catch_up(self, to: NodeId, message: Message) -> None: ...

    def connected(self, node: NodeId) -> bool: ...


class Node(Protocol):
    """This node's Paxos groups and its log."""

    @property
    def multi(self) -> MultiGroup: ...

    @property
    def wal(self) -> Wal: ...

    @property
    def takes_part(self) -> bool:
        """Whether it may send anything to its peers."""

    def boot_ns(self) -> int: ...

    def now(self) -> Now: ...

    def master(self, group: GroupId) -> NodeId | None: ...

    def end_round(self) -> object:
        """Carry out the effects of this round's events."""

    def install(self, now: Now, group: GroupId, base: Base) -> None:
        """The state machine has taken over a peer's state, which is a checkpoint here: have the log
        and the replica follow at once."""


class States(Protocol):
    """The checkpoints of this node; none is made of the groups in `held`."""

    held: set[GroupId]

    def newest(self, group: GroupId) -> Slot | None:
        """The slot of the newest one."""

    def forget(self, group: GroupId) -> None:
        """The one being made is worthless."""

    def came(self, now_ns: int, group: GroupId, slot: Slot, size: int) -> None:
        """One came from a peer, and is durable."""

    def soon(self, group: GroupId) -> None:
        """Make the next one of this group."""


def take_over(
    node: Node, machines: Mapping[GroupId, GroupMachine], group: GroupId, chunks: list[Chunk]
) -> Slot | None:
    """Continue from a peer's state; return its slot, or None if this node has got as far meanwhile.

    In this very round the replica may have learnt entries that its machine gets only when the round
    ends: so it ends first. After that nothing comes in between: it is one step.
    """
    node.end_round()
    replica, machine = node.multi.replicas.get(group), machines.get(group)
    base = base_of(chunks)
    if replica is None or machine is None or base.slot <= replica.learner.applied:
        return None
    assert machine.applied == replica.learner.applied
    machine.restore(base.slot, chunks)
    node.install(node.now(), group, base)
    return base.slot


class CatchingUp:
    """`scratch` makes a state machine that nothing depends on: a peer's state is tried there before
    it becomes this node's checkpoint."""

    def __init__(
        self,
        node: Node,
        machines: Mapping[GroupId, GroupMachine],
        files: CheckpointFiles,
        cold: ColdStore,
        checkpointing: States,
        tiering: Tiering,
        workers: tuple[Worker, Worker, Worker],
        buckets: tuple[TokenBucket, TokenBucket],
        registry: Registry,
        scratch: Callable[[GroupId], GroupMachine],
        journal: Journal,
    ) -> None:
        self._node, self._machines, self._files, self._cold = node, machines, files, cold
        self._checkpointing, self._tiering = checkpointing, tiering
        self._saver, self._mover, self._reader = workers
        self._registry, self._scratch, self._journal = registry, scratch, journal
        self.links: Links | None = None
        # Answers to questions from an earlier life may still arrive: no number is used twice.
        first_number = (node.multi.incarnation & 0xFFFF_FFFF) << 32
        self.sink = Sink(self, buckets[0], first_number)
        self.source = Source(self, buckets[1])
        tiering.peer_data = self.sink
        self._held: set[GroupId] = set()
        self._renewed_ns: dict[GroupId, int] = {}
        self.bytes_per_s = 0.0
        self._measured = (0, 0)

    # -- events -------------------------------------------------------------------------------

    def want(self, fetch: FetchState) -> None:
        """A replica has found that only a transfer will help."""
        self.sink.want(fetch.group)

    def on_message(self, node: NodeId, message: Message) -> None:
        now_ns = self._node.boot_ns()
        if isinstance(message, AskData | AskManifest | AskState):
            self.source.on_question(now_ns, node, message)
        else:
            self.sink.on_answer(now_ns, node, message)
        self._carry_out()

    def peer_down(self, node: NodeId) -> None:
        self.sink.peer_down(self._node.boot_ns(), node)
        self.source.peer_down(node)

    def dropped(self, group: GroupId) -> None:
        """This node no longer keeps the Paxos group."""
        self.sink.forget(group)
        self._renewed_ns.pop(group, None)
        self._release()

    def tick(self, now_ns: int) -> None:
        if not self._node.takes_part:
            return
        if not self.sink.idle:
            self.sink.tick(now_ns)
        if self.source.busy:
            self.source.tick(now_ns)
        self._carry_out()
        if self._held:
            self._release()
        since_ns, before = self._measured
        if now_ns - since_ns >= 1_000_000_000:
            received = self.sink.statistics.bytes_received
            self.bytes_per_s = (received - before) * 1e9 / (now_ns - since_ns)
            self._measured = (now_ns, received)

    def _release(self) -> None:
        """Return groups whose transfer has ended to normal checkpoints and tiering."""
        for group in [one for one in self._held if not self.sink.catches_up(one)]:
            self._held.discard(group)
            self._tiering.release(group)
            self._checkpointing.held.discard(group)

    def _carry_out(self) -> None:
        while effects := self.sink.take():
            for effect in effects:
                self._do(effect)
        for one in self.source.take():
            if isinstance(one, Send):
                self._send(one)
            elif isinstance(one, Read):
                self._read(one)
            else:
                self._open(one)

    def _send(self, send: Send) -> None:
        assert self.links is not None
        self.links.catch_up(send.to, send.message)

    # -- the sink's queries to this node ------------------------------------------------------

    def applied(self, group: GroupId) -> Slot:
        replica = self._node.multi.replicas.get(group)
        return SLOT_ZERO if replica is None else replica.learner.applied

    def knows_end(self, uid: int) -> bool:
        return self._cold.knows(uid)

    def cold_end(self, uid: int) -> int | None:
        return self._cold.end(uid)

    def compacted(self, uid: int) -> bool:
        place = self._registry.partition(uid)
        topic = None if place is None else self._registry.topics.get(place.topic)
        return topic is not None and is_compacted(topic.configs)

    def part_of(self, chunk: bytes) -> Part | None:
        found = decode_chunk(chunk)
        if found.kind != ChunkKind.PARTITION:
            return None
        return Part(found.key, *extent_of(found.body))

    def candidates(self, group: GroupId) -> Iterable[Candidate]:
        replica = self._node.multi.replicas.get(group)
        if replica is None or self.links is None:
            return
        masters = [self._node.master(one) for one in self._node.multi.replicas]
        for node in replica.others_to_ask():
            if self.links.connected(node):
                yield Candidate(node, replica.peer(node).applied, masters.count(node))

    # -- the sink's effects -------------------------------------------------------------------

    def _do(self, effect: SinkEffect) -> None:
        if isinstance(effect, Send):
            self._send(effect)
        elif isinstance(effect, TierAll):
            self._settle(effect.group)
        elif isinstance(effect, Restart):
            self._mover.submit(partial(self._cold.drop, effect.uid), lambda _: None)
        elif isinstance(effect, Append):
            self._append(effect)
        elif isinstance(effect, Repair):
            self._repair(effect)
        elif isinstance(effect, Fetched):
            self._tiering.fetched(effect.group, effect.uid, effect.end)
        elif isinstance(effect, NotFetched):
            self._tiering.not_fetched(effect.uid)
        elif isinstance(effect, Save):
            self._save(effect)
        else:
            self._install(effect)

    def _settle(self, group: GroupId) -> None:
        if group not in self._held:
            self._journal.warning("state transfer begins", group=group, applied=self.applied(group))
        self._held.add(group)
        self._checkpointing.held.add(group)
        self._checkpointing.forget(group)

        def settled(_: object) -> None:
            self.sink.tiered(self._node.boot_ns(), group)

        # After everything that is on its way to the cold store: then its ends are known.
        learn = partial(self._cold.learn, self._cold.uids())
        self._tiering.tier_all(group, lambda: self._mover.submit(learn, settled))

    def _append(self, effect: Append) -> None:
        def appended(_: int) -> None:
            self.sink.appended(self._node.boot_ns(), effect.size)

        def refused(error: StorageError) -> None:
            if not isinstance(error, DiskFull):
                raise error
            self._journal.warning("no room to catch up", reason=str(error))
            self.sink.not_appended(effect.size)

        rows = [written(one) for one in effect.batches]
        size, ms = self._tiering.segments(effect.uid)
        work = partial(
            self._cold.append,
            effect.uid,
            rows,
            segment_bytes=size,
            segment_ms=ms,
            gaps=True,
            start=effect.start,
        )
        self._mover.submit(work, appended, refused)

    def _repair(self, effect: Repair) -> None:
        def repaired(_: None) -> None:
            what = {"partition": effect.uid, "start": effect.start, "end": effect.end}
            self._journal.info("cold data repaired", **what)

        rows = [written(one) for one in effect.batches]
        work = partial(self._cold.replace, effect.uid, effect.start, effect.end, rows)
        self._mover.submit(work, repaired, self._not_repaired)

    def _not_repaired(self, error: StorageError) -> None:
        """Dropped meanwhile, or there is no room: if it is still damaged, it will be found
        again."""
        if not isinstance(error, NotInLog | DiskFull):
            raise error

    def _save(self, effect: Save) -> None:
        group, chunks = effect.group, effect.chunks
        needs = self._node.wal.kept().stop - 1

        def save() -> Slot:
            decoded = [decode_chunk(chunk) for chunk in chunks]
            base = base_of(decoded)
            self._scratch(group).restore(base.slot, decoded)
            self._files.save(group, base.slot, needs, chunks)
            return base.slot

        def checked() -> Slot | Exception:
            try:
                return save()
            except (ImageError, BaseError) as error:
                return error

        def saved(result: Slot | Exception) -> None:
            now_ns = self._node.boot_ns()
            if isinstance(result, Exception):
                self._journal.error("a peer's state is invalid", group=group, reason=str(result))
                self.sink.not_saved(now_ns, group)
                return
            self._checkpointing.came(now_ns, group, result, sum(map(len, chunks)))
            self.sink.saved(now_ns, group)
            self._carry_out()

        def refused(error: StorageError) -> None:
            if not isinstance(error, DiskFull):
                raise error
            self._journal.warning("no room to catch up", reason=str(error))
            self.sink.not_saved(self._node.boot_ns(), group)

        self._saver.submit(checked, saved, refused)

    def _install(self, effect: Install) -> None:
        group = effect.group
        chunks = [decode_chunk(chunk) for chunk in effect.chunks]
        slot = take_over(self._node, self._machines, group, chunks)
        if slot is not None:
            self._checkpointing.soon(group)  # a restart then finds the log after it as well
            self._journal.warning("state transfer done", group=group, slot=slot)
        self.sink.installed(self._node.boot_ns(), group)

    # -- what a source serves from ------------------------------------------------------------

    def has(self, group: GroupId) -> bool:
        return group in self._machines and not self.sink.catches_up(group)

    def saved(self, group: GroupId) -> Slot | None:
        return self._checkpointing.newest(group)

    def parts(self, group: GroupId) -> tuple[Part, ...]:
        return tuple(
            Part(uid, state.log_start, state.next_offset)
            for uid, state in sorted(self._machines[group].partitions.items())
            if not state.blank
        )

    def _open(self, one: Open) -> None:
        def load() -> list[bytes]:
            checkpoint = self._files.load(one.ask.group)
            chunks = () if checkpoint is None else checkpoint.chunks
            return [chunk for chunk in chunks if decode_chunk(chunk).kind in PORTABLE]

        def loaded(chunks: list[bytes]) -> None:
            now_ns = self._node.boot_ns()
            if chunks:
                self.source.opened(now_ns, one.to, one.ask, chunks)
            else:
                self.source.not_read(one.to, one.ask, RefusalReason.BEHIND)
            self._carry_out()

        self._reader.submit(load, loaded)

    def _read(self, one: Read) -> None:
        ask = one.ask
        machine = self._machines.get(ask.group)
        state = None if machine is None else machine.partitions.get(ask.uid)
        if machine is None or state is None or ask.offset < state.log_start:
            self.source.not_read(one.to, ask, RefusalReason.GONE)
            if machine is not None and (self.saved(ask.group) or SLOT_ZERO) < machine.applied:
                self._renew(ask.group)
        elif ask.offset >= state.next_offset:
            self.source.not_read(one.to, ask, RefusalReason.BEHIND)
        elif not self._cold.knows(ask.uid):
            self.source.not_read(one.to, ask, RefusalReason.BUSY)
        elif ask.offset < (self._cold.end(ask.uid) or 0):
            self._read_cold(one, state)
        elif ask.offset < state.index_start:
            # A peer is to send it to us, too.
            self.source.not_read(one.to, ask, RefusalReason.DAMAGED)
        else:
            self._read_log(one, state)

    def _renew(self, group: GroupId) -> None:
        """Our newest checkpoint may still have what is gone: then the sink would ask for ever."""
        now_ns = self._node.boot_ns()
        if now_ns - self._renewed_ns.get(group, -RENEW_EVERY_NS) >= RENEW_EVERY_NS:
            self._renewed_ns[group] = now_ns
            self._checkpointing.soon(group)

    def _read_cold(self, one: Read, state: PartitionState) -> None:
        ask, until, index_start = one.ask, state.next_offset, state.index_start

        def read() -> tuple[Batch, ...]:
            found = self._cold.batches(ask.uid, ask.offset, ask.bytes_max)
            return tuple(Batch(*batch) for batch in found if batch.end <= until)

        def done(batches: tuple[Batch, ...]) -> None:
            end = batches[-1].end if batches else max(index_start, ask.offset + 1)
            self._answer(one, batches, end)

        def failed(error: StorageError) -> None:
            if not isinstance(error, NotInLog | ColdDamaged):
                raise error
            why = RefusalReason.GONE if isinstance(error, NotInLog) else RefusalReason.DAMAGED
            self.source.not_read(one.to, ask, why)
            self._carry_out()

        self._reader.submit(read, done, failed)

    def _read_log(self, one: Read, state: PartitionState) -> None:
        plan = state.read_plan(one.ask.offset, READ_BATCHES_MAX)

        def read() -> tuple[Batch, ...]:
            copied = copy(self._node.wal, plan, one.ask.bytes_max)
            return tuple(map(whole, copied.batches))

        def done(batches: tuple[Batch, ...]) -> None:
            if batches:
                self._answer(one, batches, batches[-1].end)
                return
            self.source.not_read(one.to, one.ask, RefusalReason.DAMAGED)
            self._carry_out()

        self._reader.submit(read, done)

    def _answer(self, one: Read, batches: tuple[Batch, ...], end: int) -> None:
        """Where offsets are missing between the batches, compaction has removed them: the cold
        store tells a gap that is damage."""
        ends = [one.ask.offset, *(batch.end for batch in batches)]
        starts = [*(batch.base for batch in batches), end]
        gaps = any(start > reached for start, reached in zip(starts, ends, strict=True))
        payload = tuple(batch.data for batch in batches)
        self.source.was_read(one.to, one.ask, end, payload, gaps=gaps)
        self._carry_out()
