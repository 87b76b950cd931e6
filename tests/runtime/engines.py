"""Three engines in one thread: a small deterministic network between them, real logs below them.

Everything is production code except the links (messages are encoded, queued, decoded), the disk
(storage.disk.memory) and the log writer's thread. `Writer` works when the network says so, and can
be held, to look at a node whose batch is not durable yet. Time passes only in `advance`.
"""

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from broker.config import IntakeConfig
from broker.proposals.commands import CommandKind, opaque
from broker.proposals.intake import Done, NotDone, Outcome, Pending
from broker.state_machine.checkpoint_chunks import Chunk
from coordinator.model import ConsumerGroupId
from coordinator.replicated.commands import DropGroup, encode
from paxos import codec
from paxos.entry import Buffer, Entry
from paxos.ids import MS, GroupId, NodeId, Now, Slot
from paxos.messages import Message, StealRequest
from paxos.multigroup import MultiGroup
from paxos.state.core import Recovered
from paxos.step import Notice
from paxos.timing import Timing
from runtime.disk.scrubber import Scrubber
from runtime.engine.engine import Engine
from runtime.membership.admission import Verdict
from runtime.system.clock import Clock
from storage.disk.memory import MemoryDisk
from storage.errors import StorageFailed
from storage.identity import boot
from storage.log.model import WalConfig, WriteBatch
from storage.log.opening import open_wal
from storage.log.wal import Wal
from tests.runtime.doubles import FakeSystemClock, Recorder

GROUP = GroupId(1)
TICK_MS = 20
SETTLE_ROUNDS_MAX = 10_000
TIMING = Timing()


def command(text: str, pad: int = 0) -> tuple[Buffer, ...]:
    """A command that any node accepts; the state machine here only records it."""
    name = ConsumerGroupId(text + "." * pad)
    return opaque(CommandKind.CONSUMER_GROUP, encode(DropGroup(name)))


class Writer:
    """A log writer (runtime.disk.log_writer) that works in this thread, when told to."""

    def __init__(self, wal: Wal) -> None:
        self._wal = wal
        self._todo: WriteBatch | None = None
        self._done: WriteBatch | None = None
        self._failure: StorageFailed | None = None
        self.busy = False
        self.held = False
        self.durations_s: list[float] = []

    def submit(self, batch: WriteBatch) -> None:
        assert not self.busy, "one batch at a time"
        self.busy, self._todo = True, batch

    @property
    def has_work(self) -> bool:
        return self._todo is not None and not self.held

    def work(self) -> None:
        batch, self._todo = self._todo, None
        assert batch is not None
        try:
            self._wal.write(batch)
            self._done = batch
        except StorageFailed as failure:
            self._failure = failure

    def take_done(self) -> WriteBatch | None:
        if self._failure is not None:
            raise self._failure
        done, self._done = self._done, None
        if done is not None:
            self.busy = False
        return done

    def prepare_soon(self) -> None:
        self._wal.prepare_next()


class Ledger:
    """A state machine that remembers its input; its results say where that was."""

    def __init__(self) -> None:
        self.lines: list[tuple[Slot, bytes]] = []
        self.applied = 0
        self.relocated: list[tuple[int, int]] = []

    def apply(
        self, slot: Slot, entry: Entry, position: int, *, keep_in_tail: bool, answer: bool
    ) -> list[bytes]:
        assert slot == self.applied + 1
        self.applied = slot
        payload = b"".join(entry.payload())
        results = []
        while payload:
            size = 5 + int.from_bytes(payload[:4], "big")
            self.lines.append((slot, payload[:size]))
            results.append(b"%d" % len(self.lines))
            payload = payload[size:]
        return results

    def restore(self, base: Slot, chunks: list[Chunk]) -> None:
        """A peer's state; its lines do not matter here."""
        self.applied = base

    def relocate(self, entry: Entry, old: int, new: int) -> None:
        self.relocated.append((old, new))

    def texts(self) -> list[str]:
        return [line[9:].decode().rstrip(".") for _, line in self.lines]


class Sent(NamedTuple):
    source: NodeId
    target: NodeId
    message: Message


class Links:
    """One node's half of the network (runtime.engine.ports.Links)."""

    def __init__(self, net: "Net", me: NodeId) -> None:
        self._net, self._me = net, me
        self._frames: dict[NodeId, list[Buffer]] = {}
        self.flushes = 0

    def connected(self, node: NodeId) -> bool:
        return self._net.linked(self._me, node)

    def send(self, to: NodeId, message: Message) -> None:
        if self.connected(to):
            self._net.sent.append(Sent(self._me, to, message))
            codec.encode(message, self._frames.setdefault(to, []))

    def send_bulk(self, to: NodeId, message: Message) -> None:
        self.send(to, message)

    def takes_bulk(self, to: NodeId) -> bool:
        return self.connected(to)

    def forward(
        self,
        to: NodeId,
        number: int,
        group: GroupId,
        handing: bool,
        chunks: tuple[Buffer, ...],
        size: int,
    ) -> bool:
        if not self.connected(to) or self._net.queue_full:
            return False
        data = b"".join(chunks)
        assert len(data) == size
        self._net.forwards.append((self._me, to, number))
        self._net.put(
            self._me,
            to,
            lambda engine: engine.on_forward(self._me, number, group, handing, memoryview(data)),
        )
        return True

    def answer_forward(self, to: NodeId, number: int, outcome: Outcome) -> None:
        if self._net.lose_answers:
            return
        self._net.put(self._me, to, lambda engine: engine.on_forwarded(self._me, number, outcome))

    def answer_life(self, to: NodeId, verdict: Verdict) -> None:
        self._net.put(self._me, to, lambda engine: engine.on_verdict(self._me, verdict))

    def flush(self) -> None:
        self.flushes += 1
        frames, self._frames = self._frames, {}
        for to, buffers in frames.items():
            self._net.put(self._me, to, self._frame(b"".join(buffers)))

    def _frame(self, data: bytes) -> Callable[[Engine], None]:
        def deliver(engine: Engine) -> None:
            engine.on_messages(self._me, codec.decode_all(memoryview(data)))

        return deliver


class Hooks:
    """Records the engine's calls; lets masters go unless told otherwise."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.acting_changed = 0
        self.applied: list[set[GroupId]] = []
        self.allows: bool | None = True
        self.asked = 0
        self.engine: Engine | None = None

    def on_notice(self, now: Now, notice: Notice) -> None:
        self.notices.append(notice)

    def may_hand_over(self, now: Now, sender: NodeId, request: StealRequest) -> bool | None:
        self.asked += 1
        return self.allows

    def begin_handover(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        assert self.engine is not None
        self.engine.hand_over(now, sender, request)

    def masters_changed(self, now: Now) -> None:
        self.acting_changed += 1

    def groups_applied(self, now: Now, groups: set[GroupId]) -> None:
        self.applied.append(groups)


class Member:
    """One node: an engine over its log; a restart replaces everything else."""

    def __init__(self, net: "Net", node: NodeId, disk: MemoryDisk) -> None:
        self.net, self.node, self.disk = net, node, disk
        self.up = False
        self.inbox: deque[Callable[[Engine], None]] = deque()
        self.boot()

    def boot(self) -> None:
        net = self.net
        identity = boot(self.disk, "test", self.node)
        config = WalConfig(segment_bytes=net.segment)
        self.wal, recovered = open_wal(self.disk, identity, config, net.groups)
        self.writer, self.hooks, self.recorder = Writer(self.wal), Hooks(), Recorder()
        self.clock = Clock(TIMING.margin_ns, net.system)
        dice = Random(f"{self.node} {identity.incarnation}")
        self.multi = MultiGroup(self.node, identity.incarnation, TIMING, dice)
        self.engine = Engine(
            self.multi, self.wal, self.writer, self.clock, net.intake, self.recorder.journal
        )
        self.scrubber = self.engine.scrubber = Scrubber(
            self.wal, lambda: None, self.recorder.journal, bytes_per_s=0, every_s=1
        )
        self.engine.repairs.at_boot(recovered.damage)
        self.links = Links(net, self.node)
        self.engine.links, self.engine.hooks = self.links, self.hooks
        self.hooks.engine = self.engine
        self.ledgers: dict[GroupId, Ledger] = {}
        for group in net.groups:
            found = recovered.groups.get(group)
            known = None
            if found is not None:
                known = Recovered(
                    promised=found.promised,
                    votes=found.votes,
                    learned=found.learned,
                    voting=found.voting,
                    floor=found.floor,
                    proven=found.proven,
                    lost=found.lost,
                )
                if found.proven > found.applied:
                    self.engine.repairs.recall_to(group, found.proven)
            replica = self.multi.add(group, net.node_ids, known)
            ledger = self.ledgers[group] = net.machine(self.node, group)
            self.engine.add_group(replica, ledger)
            if found is not None:
                for slot, entry, position in self.wal.replay(group, Slot(1), found.applied):
                    replica.replay(self.clock.now(), slot, entry)
                    ledger.apply(slot, entry, position, keep_in_tail=False, answer=False)
            replica.replayed(self.clock.now(), self.engine.step)
        self.inbox.clear()
        self.up = True

    @property
    def ledger(self) -> Ledger:
        return self.ledgers[GROUP]

    @property
    def replica(self) -> Any:
        return self.multi.replicas[GROUP]

    def acting(self, group: GroupId = GROUP) -> bool:
        return self.up and self.engine.acting(group)

    def submit(self, text: str, *, group: GroupId = GROUP, anywhere: bool = False) -> list[Outcome]:
        """Submit a client's command; the outcome is appended to the list."""
        outcomes: list[Outcome] = []
        self.engine.submit(group, command(text), outcomes.append, anywhere=anywhere)
        return outcomes

    def take(self, text: str, *, group: GroupId = GROUP) -> list[Outcome]:
        """The same on the fast path of produce requests."""
        outcomes: list[Outcome] = []
        chunks = command(text)
        pending = Pending(chunks, sum(map(len, chunks)), outcomes.append)
        self.engine.take(group, pending)
        return outcomes

    @property
    def busy(self) -> bool:
        return self.up and bool(self.inbox or self.writer.has_work)

    def round(self) -> None:
        """One round of the data plane."""
        for _ in range(len(self.inbox)):
            self.inbox.popleft()(self.engine)
        self.scrubber.look_at_urgent()
        if self.writer.has_work:
            self.writer.work()
            self.engine.on_durable()
        self.engine.end_round()


class Net:
    def __init__(
        self,
        nodes: int = 3,
        *,
        groups: tuple[int, ...] = (1,),
        intake: IntakeConfig | None = None,
        segment: int = 1 << 20,
        machine: Callable[[NodeId, GroupId], Ledger] = lambda _node, _group: Ledger(),
    ) -> None:
        self.machine = machine
        self.system = FakeSystemClock()
        self.intake = intake or IntakeConfig()
        self.segment = segment
        self.groups = tuple(GroupId(group) for group in groups)
        self.node_ids = [NodeId(node) for node in range(1, nodes + 1)]
        self.sent: list[Sent] = []
        self.forwards: list[tuple[NodeId, NodeId, int]] = []
        self.lose_answers = self.queue_full = False
        self._cut: set[frozenset[NodeId]] = set()
        self.members = {node: Member(self, node, MemoryDisk()) for node in self.node_ids}
        for a in self.node_ids:
            for b in self.node_ids:
                self._up(a, b)
        self.settle()

    def __getitem__(self, node: int) -> Member:
        return self.members[NodeId(node)]

    # -- links --------------------------------------------------------------------------------

    def linked(self, a: NodeId, b: NodeId) -> bool:
        return a != b and self[a].up and self[b].up and frozenset((a, b)) not in self._cut

    def put(self, source: NodeId, target: NodeId, what: Callable[[Engine], None]) -> None:
        if self.linked(source, target):
            self[target].inbox.append(what)

    def _up(self, a: NodeId, b: NodeId) -> None:
        if self.linked(a, b):
            self[a].engine.peer_up(b, self[b].multi.incarnation)

    def cut(self, a: int, b: int) -> None:
        """The link is lost, with everything on its way; both ends are informed."""
        pair = NodeId(a), NodeId(b)
        self._cut.add(frozenset(pair))
        for one, other in (pair, pair[::-1]):
            if self[one].up:
                self[one].engine.peer_down(other)

    def heal(self, a: int, b: int) -> None:
        self._cut.discard(frozenset((NodeId(a), NodeId(b))))
        self._up(NodeId(a), NodeId(b))
        self._up(NodeId(b), NodeId(a))

    def crash(self, node: int, survives: Callable[[], bool] = lambda: False) -> None:
        """Cut one node's power: only synced data is left."""
        member = self[node]
        member.up = False
        member.disk.crash(survives)
        for other in self.others(node):
            if other.up:
                other.engine.peer_down(NodeId(node))

    def restart(self, node: int) -> None:
        self[node].boot()
        for other in self.others(node):
            self._up(other.node, NodeId(node))
            self._up(NodeId(node), other.node)

    def others(self, node: int) -> list[Member]:
        return [member for member in self.members.values() if member.node != node]

    def up(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.up)

    # -- time ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Rounds until nobody has anything to do (except held writers)."""
        for _ in range(SETTLE_ROUNDS_MAX):
            for member in self.up():
                member.round()
            if not any(member.busy for member in self.up()):
                return
        raise AssertionError("they never come to rest")

    def advance(self, ms: int) -> None:
        for _ in range(0, ms, TICK_MS):
            self.system.advance(TICK_MS * MS)
            for member in self.up():
                member.engine.tick()
            self.settle()

    def until(self, condition: Callable[[], object], ms_max: int = 20_000) -> None:
        for _ in range(0, ms_max, TICK_MS):
            if condition():
                return
            self.advance(TICK_MS)
        raise AssertionError(f"not within {ms_max} ms")

    def elect(self, node: int, group: GroupId = GROUP) -> Member:
        """Wait until this node is master (the others hold back)."""
        for member in self.up():
            member.multi.replicas[group].election.abstaining = member.node != node
        self.until(lambda: self[node].acting(group) and self[node].engine.caught_up(group))
        for member in self.up():
            member.multi.replicas[group].election.abstaining = False
        self.until(lambda: all(m.engine.master(group) == node for m in self.up()))
        return self[node]

    def hand_over(self, source: Member, target: Member, token: int = 1) -> None:
        """The target asks the master for the group."""
        version = target.replica.lease.ver
        target.engine.request_steal(GROUP, source.node, version, token)


def why(outcomes: list[Outcome]) -> str:
    """A client's outcome as one word."""
    (outcome,) = outcomes
    if isinstance(outcome, Done):
        return "done"
    assert isinstance(outcome, NotDone)
    return outcome.why.value
