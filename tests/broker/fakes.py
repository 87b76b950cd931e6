"""A broker's surroundings, made of plain data: clocks, timers, replies, a shared log.

`FakeCluster` is a log that every node applies. What a node submits is queued, and `settle` chooses
and applies it everywhere in order, so a story decides when. The story also sets the masters. The
rules of the ports (who may be answered, what is forwarded) are those of broker/proposals/intake.py.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import attrs

from broker.ordering_barriers import CLIENT_REACTION_NS
from broker.ports import Connection
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome, Pending
from broker.state_machine.partition import CopyPlan
from paxos import entry as entries
from paxos.entry import BeMaster, Buffer, Entry
from paxos.ids import MS, NOBODY, SLOT_ZERO, GroupId, Incarnation, NodeId, Now, Slot
from storage.cold.format import ColdSegment
from storage.errors import StorageError, WalDamaged
from wire.records.batch import PATCHED_BYTES, patched_head

T = TypeVar("T")
START_WALL_NS = 1_700_000_000_000_000_000


@attrs.define(eq=False)
class FakeClock:
    boot_ns: int = 1_000 * MS
    trusted: bool = True
    wall_offset_ns: int = START_WALL_NS

    def now(self) -> Now:
        return Now(self.wall_offset_ns + self.boot_ns, self.boot_ns, self.trusted)


class FakeTimers:
    """Timers on a clock that only `advance` moves."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._serial = 0

    def call_at(self, boot_ns: int, callback: Callable[[], None]) -> object:
        self._serial += 1
        heapq.heappush(self._heap, (boot_ns, self._serial, callback))
        return self._serial

    def cancel(self, handle: object) -> None:
        assert isinstance(handle, int)
        self._cancelled.add(handle)

    def next_boot_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def next_only(self) -> None:
        """Call only the next one: what becomes due by it belongs to the next round."""
        _, serial, callback = heapq.heappop(self._heap)
        if serial not in self._cancelled:
            callback()
        self._cancelled.discard(serial)

    def fire(self) -> None:
        """Call everything that is due now, including what becomes due meanwhile."""
        while self._heap and self._heap[0][0] <= self.clock.boot_ns:
            _, serial, callback = heapq.heappop(self._heap)
            if serial not in self._cancelled:
                callback()
            self._cancelled.discard(serial)


@attrs.define(eq=False)
class FakeReply:
    """Remembers the one answer of a request and refuses a second one."""

    frame: bytes | None = None
    silent: bool = False
    closed: str | None = None
    hurry: Callable[[], None] | None = None
    producer_id: int = -1
    held_back: list[GroupId] = attrs.Factory(list)
    stopped: int = 0
    muted_until_ns: int = 0
    hung_up: bool = False
    is_proved: bool = False
    room: int = 1 << 40
    connection: Connection = attrs.Factory(Connection)

    @property
    def settled(self) -> bool:
        return self.frame is not None or self.silent or self.closed is not None

    def complete(self, chunks: list[Buffer]) -> None:
        assert not self.settled, "a request is answered once"
        self.frame = b"".join(chunks)

    def nothing(self) -> None:
        assert not self.settled, "a request is answered once"
        self.silent = True

    def when_waited(self, hurry: Callable[[], None]) -> None:
        self.hurry = hurry

    def produces(self, producer_id: int) -> None:
        self.producer_id = producer_id

    def refused(self, topic: str, index: int) -> None:
        self.connection.refused(topic, index)

    def hold_back(self, group: GroupId) -> None:
        self.held_back.append(group)

    def stop_reading(self) -> None:
        self.stopped += 1

    def read_on(self) -> None:
        assert self.stopped
        self.stopped -= 1

    def mute(self, until_boot_ns: int) -> None:
        self.muted_until_ns = until_boot_ns

    def close(self, reason: str) -> None:
        assert self.closed is None
        self.closed = reason

    def proved(self) -> None:
        self.is_proved = True

    def has_hung_up(self) -> bool:
        return self.hung_up


def know_refusals(connection: Connection) -> None:
    """The client has read every answer so far and had time to react to it."""
    for boot_ns in (1, 1 + CLIENT_REACTION_NS):
        connection.seen(connection.refusals, boot_ns)


class _Submitted(NamedTuple):
    node: NodeId
    chunks: tuple[Buffer, ...]
    done: Callable[[Outcome], None]


Apply = Callable[[NodeId, GroupId, Slot, Entry], list[bytes]]
"""Apply one chosen entry on one node; a result for each of its commands."""


class FakeCluster:
    """One log per group, shared by the nodes; every command is an entry of its own."""

    def __init__(self, nodes: tuple[int, ...], apply: Apply) -> None:
        self.clock = FakeClock()
        self.nodes = {NodeId(node): FakeGroups(self, NodeId(node)) for node in nodes}
        self.timers = FakeTimers(self.clock)
        self.masters: dict[GroupId, NodeId | None] = {}
        self.epochs: dict[GroupId, int] = {}
        self.members: dict[GroupId, tuple[NodeId, ...]] = {}
        """The members of groups that are not on all nodes; every node applies every group all the
        same."""
        self.slots: dict[GroupId, Slot] = {}
        self._lease_slots: dict[GroupId, Slot] = {}
        self.queues: dict[GroupId, deque[_Submitted]] = {}
        self.dead: set[NodeId] = set()
        """Nodes that nobody can hear."""
        self.lagging: set[NodeId] = set()
        """Nodes that apply nothing until they are removed from here and `catch_up` is called."""
        self._missed: dict[NodeId, list[tuple[GroupId, Slot, Entry]]] = {}
        self._apply = apply
        self.on_masters_changed: list[Callable[[], None]] = []

    def install(self, group: int, master: int | None) -> None:
        """Apply a lease entry: from now on this node, or nobody, is master of the group."""
        paxos_group = GroupId(group)
        holder = NOBODY if master is None else NodeId(master)
        self.masters[paxos_group] = None if master is None else holder
        if master is not None:
            slot = self._next_slot(paxos_group)
            before = self._lease_slots.get(paxos_group, SLOT_ZERO)
            lease = BeMaster(holder, Incarnation(slot), before, START_WALL_NS * 2)
            self._lease_slots[paxos_group] = slot
            self.epochs[paxos_group] = self.epochs.get(paxos_group, 0) + 1
            self._apply_everywhere(paxos_group, slot, entries.be_master(lease), holder)
        for callback in self.on_masters_changed:
            callback()

    def settle(self) -> None:
        """Choose and apply everything that was submitted, and everything that its answers cause."""
        while any(self.queues.values()):
            for group in sorted(self.queues):
                queue = self.queues[group]
                while queue:
                    self._choose(group, queue.popleft())

    def advance(self, ms: int, *, step_ms: int = 10) -> None:
        """Time passes in small steps; in each, timers fire and the log moves on."""
        for _ in range(0, ms, step_ms):
            self.clock.boot_ns += step_ms * MS
            self.timers.fire()
            self.settle()

    def catch_up(self, node: int) -> None:
        self.lagging.discard(NodeId(node))
        for group, slot, entry in self._missed.pop(NodeId(node), []):
            self._apply(NodeId(node), group, slot, entry)

    def _choose(self, group: GroupId, submitted: _Submitted) -> None:
        master = self.masters.get(group)
        if master is None:
            submitted.done(NotDone(FailureReason.UNKNOWN, None))
            return
        slot = self._next_slot(group)
        results = self._apply_everywhere(group, slot, entries.batch(submitted.chunks), master)
        assert all(result == results[0] for result in results), "replicas disagree"
        asker = self.nodes[submitted.node]
        if asker.answers_to_lose:
            asker.answers_to_lose -= 1
            submitted.done(NotDone(FailureReason.UNKNOWN, master))
        else:
            submitted.done(Done(results[0][0]))

    def _apply_everywhere(
        self, group: GroupId, slot: Slot, entry: Entry, master: NodeId
    ) -> list[list[bytes]]:
        results = []
        for node in self.nodes:
            if node in self.lagging and node != master:
                self._missed.setdefault(node, []).append((group, slot, entry))
            else:
                results.append(self._apply(node, group, slot, entry))
        return results

    def _next_slot(self, group: GroupId) -> Slot:
        self.slots[group] = Slot(self.slots.get(group, SLOT_ZERO) + 1)
        return self.slots[group]


class FakeGroups:
    """The Groups port of one node of a FakeCluster."""

    def __init__(self, cluster: FakeCluster, me: NodeId) -> None:
        self.cluster = cluster
        self.me = me
        self.behind: set[GroupId] = set()
        """Groups in which this master has not yet applied everything."""
        self.outdated: set[GroupId] = set()
        """Groups in which this node knows that others have applied more."""
        self.asleep: set[GroupId] = set()
        """Groups whose lease this node holds but may not act on (its clock is past the margin)."""
        self.former: set[GroupId] = set()
        """Groups that this node has handed to other nodes."""
        self.moved: dict[GroupId, int] = {}
        self.passing: set[GroupId] = set()
        """When it handed them over, where clients may not know it yet."""
        self.questions: list[Callable[[bool], None]] = []
        """Of those who want to know how far its copy must be; a story answers them."""
        self.backlogged: set[GroupId] = set()
        """Groups that apply backpressure to their clients."""
        self.refuse: FailureReason | None = None
        """Why everything submitted here is refused before it is queued."""
        self.answers_to_lose = 0
        """How many commands will be applied without an answer to their submitter."""

    def now(self) -> Now:
        return self.cluster.clock.now()

    def acting(self, group: GroupId) -> bool:
        return self.cluster.masters.get(group) == self.me and group not in self.asleep

    def epoch(self, group: GroupId) -> int:
        return self.cluster.epochs.get(group, 0)

    def master(self, group: GroupId) -> NodeId | None:
        return self.cluster.masters.get(group)

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        return self.cluster.members.get(group) or tuple(sorted(self.cluster.nodes))

    def alive(self) -> frozenset[NodeId]:
        return frozenset(self.cluster.nodes) - self.cluster.dead

    def moved_ns(self, group: GroupId) -> int:
        return self.moved.get(group, 0)

    def passes_on(self, group: GroupId) -> bool:
        return group in self.passing

    def ask_index(self, group: GroupId, told: Callable[[bool], None]) -> None:
        self.questions.append(told)

    def caught_up(self, group: GroupId) -> bool:
        return group not in self.behind

    def is_current(self, group: GroupId) -> bool:
        return group not in self.outdated

    def lacks_entries(self, group: GroupId) -> bool:
        return group in self.outdated

    def known_to_have_applied(self, group: GroupId, slot: Slot) -> bool:
        return not any(
            missed_group == group and missed_slot <= slot
            for node in self.alive() & self.cluster.lagging
            for missed_group, missed_slot, _ in self.cluster._missed.get(node, ())
        )

    def submit(
        self,
        group: GroupId,
        chunks: tuple[Buffer, ...],
        done: Callable[[Outcome], None],
        *,
        anywhere: bool = False,
    ) -> None:
        master = self.master(group)
        if self.refuse is not None:
            done(NotDone(self.refuse, master))
        elif self.acting(group) or (anywhere and master not in (None, self.me)):
            queue = self.cluster.queues.setdefault(group, deque())
            queue.append(_Submitted(self.me, chunks, done))
        else:
            done(NotDone(FailureReason.NOT_MASTER, master))

    def take(self, group: GroupId, pending: Pending) -> bool:
        moved_ns = self.moved_ns(group)
        misses = moved_ns > 0 and pending.misses_move(moved_ns, self.now().boot_ns)
        anywhere = (pending.anywhere and group in self.former) or misses
        self.submit(group, pending.chunks, pending.done, anywhere=anywhere)
        return group in self.backlogged


def unused(*_: Any, **__: Any) -> Any:
    """For ports that a story never uses: a call is an error in the story."""
    raise AssertionError("this port is not used in this story")


class FakeCold:
    """A cold store in memory: `broker.ports.ColdReader`, and what tiering does to it."""

    def __init__(self, segment_batches: int = 3) -> None:
        self.batches: dict[int, list[tuple[int, int, int, memoryview]]] = {}
        """For each partition: base, end, greatest timestamp, data."""
        self.damaged: set[int] = set()
        """Base offsets that cannot be read."""
        self.soon: list[tuple[int, int, int]] = []
        self.late = False
        """Nothing is in memory: reads have to wait for the disk."""
        self.known = True
        self._segment_batches = segment_batches

    def settle(self, plan: CopyPlan, read_span: Callable[[int, int], memoryview]) -> None:
        kept = self.batches.setdefault(plan.uid, [])
        for base, end, time_ms, position, size, epoch in plan.batches():
            assert not kept or kept[-1][1] == base
            data = read_span(position, size)
            whole = patched_head(data, base, epoch) + bytes(data[PATCHED_BYTES:])
            kept.append((base, end, time_ms, memoryview(whole)))

    def drop_before(self, uid: int, offset: int) -> None:
        """Remove whole segments below the offset."""
        kept, many = self.batches.get(uid, []), self._segment_batches
        while len(kept) >= many and kept[many - 1][1] <= offset:
            del kept[:many]
        if not kept or kept[-1][1] <= offset:
            self.batches.pop(uid, None)

    def start(self, uid: int) -> int | None:
        kept = self.batches.get(uid)
        return kept[0][0] if kept else None

    def end(self, uid: int) -> int | None:
        kept = self.batches.get(uid)
        return kept[-1][1] if kept else None

    def knows(self, uid: int) -> bool:
        return self.known

    def known_end(self, uid: int) -> int | None:
        return self.end(uid) if self.known else self.start(uid)

    def read_now(self, uid: int, offset: int, bytes_max: int) -> list[memoryview] | None:
        if self.late:
            return None
        try:
            return self.read(uid, offset, bytes_max)
        except WalDamaged:
            return None

    def read(self, uid: int, offset: int, bytes_max: int) -> list[memoryview]:
        found: list[memoryview] = []
        for base, end, _, data in self.batches[uid]:
            if end <= offset:
                continue
            if base in self.damaged:
                if not found:
                    raise WalDamaged("cold", base, "damaged")
                break
            if found and sum(map(len, found)) + len(data) > bytes_max:
                break
            found.append(data)
        return found

    def read_soon(self, uid: int, offset: int, bytes_max: int) -> None:
        self.soon.append((uid, offset, bytes_max))

    def find_time(self, uid: int, timestamp_ms: int, since: int) -> int | None:
        for base, end, time_ms, _ in self.batches.get(uid, []):
            if end > since and time_ms >= timestamp_ms:
                return base
        return None

    def next_latest(
        self, uid: int, since: int, until: int, seen: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        claims = sorted(
            (-time_ms, base)
            for base, end, time_ms, _ in self.batches.get(uid, [])
            if end > since and base < until
        )
        behind = (one for one in claims if seen is None or one > (-seen[0], seen[1]))
        found = next(behind, None)
        return None if found is None else (-found[0], found[1])

    def bytes_of(self, uid: int) -> int:
        return sum(len(one[3]) for one in self.batches.get(uid, ()))

    def bytes_from(self, uid: int, offset: int) -> int:
        return sum(len(data) for _, end, _, data in self.batches.get(uid, []) if end > offset)

    def segments(self, uid: int) -> list[ColdSegment]:
        kept, many = self.batches.get(uid, []), self._segment_batches
        return [
            ColdSegment(
                some[0][0],
                some[-1][1],
                max(time_ms for _, _, time_ms, _ in some),
                sum(len(data) for _, _, _, data in some),
            )
            for some in (kept[at : at + many] for at in range(0, len(kept), many))
        ]


class FakeBackground:
    """Runs every job at once, or, when `held`, when the story says so. It counts rests, and the CPU
    time of jobs, which belongs to another thread."""

    def __init__(self) -> None:
        self.held = False
        self.jobs: deque[Callable[[], None]] = deque()
        self.done = 0
        self.rests = 0
        self.worked_ns = 0

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[StorageError], None] | None = None,
    ) -> None:
        def job() -> None:
            began = time.thread_time_ns()
            try:
                result = work()
            except StorageError as error:
                if failed is None:
                    raise
                failed(error)
            else:
                self.worked_ns += time.thread_time_ns() - began
                done(result)

        self.jobs.append(job)
        if not self.held:
            self.do_one()

    def do_one(self) -> None:
        self.done += 1
        self.jobs.popleft()()

    def rest(self) -> None:
        self.rests += 1
