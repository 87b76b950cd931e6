"""Nodes with the production broker: real frames in, real frames out, over the simulated core.

This joins for a simulated node everything that node.py and runtime/shell.py join for a real one:
the registry, one `GroupMachine` for each group, the memory tail, parked fetches, the group
coordinators and the table of APIs. The node is their `Groups`, `Timers` and `LogReader`.

A connection behaves as TCP does: frames arrive once and in the order they were sent, or a frame is
lost and none arrives after it. So whatever the network loses between a client and a node ends the
connection, and the client has to open a new one.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs

from balancer.registry.registry import Registry
from broker.api import ApiTable
from broker.client_software import software
from broker.config import BrokerConfig
from broker.delayed.delayed_fetches import DelayedFetches
from broker.groups.consumer_groups import ConsumerGroups, TopicsOf, paxos_group_of
from broker.groups.forwarded_requests import RequestForwarding
from broker.ports import NO_COLD, ColdReader, Connection
from broker.proposals.intake import FailureReason, Forward, NotDone, Outcome, Pending
from broker.requests.context import Broker
from broker.state_machine.checkpoint_chunks import decode_chunk, encode_chunk
from broker.state_machine.machine import GroupMachine
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.limits import CoordinatorConfig
from coordinator.model import GroupNotice
from paxos.entry import Buffer, Entry
from paxos.ids import NOBODY, REGISTRY_GROUP, GroupId, Incarnation, NodeId, Now, Slot
from paxos.liveness import progress
from paxos.step import FetchState, Step
from simulator.environment.clock import Clock
from simulator.environment.dice import dice
from simulator.environment.request_links import Carried, Confirmed, RequestLinks
from simulator.node.balancing import ALIVE_NS
from simulator.node.disk import Disk
from simulator.node.group_state import Forwarded
from simulator.node.jobs import BackgroundWorker, Fetcher
from simulator.node.node import SimNode
from simulator.node.registry_client import CLUSTER, RegistryClient
from simulator.node.surroundings import Surroundings
from simulator.node.upkeep import Upkeep
from simulator.node.wal_disk import WalDisk

SESSION_MS_MIN: Final = 1_000
COORDINATOR: Final = CoordinatorConfig(
    initial_rebalance_delay_ms=50,
    session_timeout_ms_min=SESSION_MS_MIN,
    pause_ms_max=500,
    grace_ms=300,
    wait_records_every_ms=250,
)
LATE_PPM: Final = 50_000
"""Boot clocks are off in rate, and a timer may be late but never early."""
CLOSED: Final = 2**62
"""No frame of a connection has this number."""
CLIENT_HOST: Final = "198.51.100.7"


class Asked(NamedTuple):
    """A request frame: the `number`th of its client's `connection`th connection to this node."""

    connection: int
    number: int
    frame: bytes
    knows: int = 0
    """How many refusals of the connection were known when this was sent, as TCP acknowledges."""


class Answer(NamedTuple):
    """A response frame, including its length prefix; empty if the connection was closed."""

    connection: int
    frame: bytes
    refusals: tuple[int, ...] = ()
    """The numbers, counted in the connection, of the refusals that it reports."""


def _of_our_client() -> Connection:
    connection = Connection()
    connection.software = software("evenkeel")
    return connection


@attrs.define(eq=False)
class _Connection:
    number: int
    known: int = 0
    expected: int = 0
    early: dict[int, Asked] = attrs.Factory(dict)
    """Frames that overtook others, or are not read yet."""
    held_by: GroupId | None = None
    looked_at: int = 0
    hurry: Callable[[], None] | None = None
    memory: Connection = attrs.Factory(_of_our_client)


class _Reply:
    """One request's way back to its client (broker.ports.Reply)."""

    def __init__(self, node: "BrokerNode", client: int, connection: _Connection) -> None:
        self._node, self._client, self._connection = node, client, connection
        self._settled = False
        self._refusals: tuple[int, ...] = ()

    def complete(self, chunks: list[Buffer]) -> None:
        self._answer(b"".join(chunks))

    def nothing(self) -> None:
        assert not self._settled, "a request is answered once"
        self._settled = True

    @property
    def connection(self) -> Connection:
        return self._connection.memory

    def when_waited(self, hurry: Callable[[], None]) -> None:
        self._connection.hurry = hurry

    def produces(self, producer_id: int) -> None:
        """Only used to limit connections; here nothing limits them."""

    def refused(self, topic: str, index: int) -> None:
        self._refusals += (self._connection.memory.refused(topic, index),)

    @property
    def room(self) -> int:
        return 1 << 40

    def hold_back(self, group: GroupId) -> None:
        self._connection.held_by = group

    def stop_reading(self) -> None:
        self._connection.looked_at += 1

    def read_on(self) -> None:
        """Frames that have come meanwhile are read with the next tick."""
        self._connection.looked_at -= 1

    def mute(self, until_boot_ns: int) -> None:
        raise AssertionError("nobody has a quota in these worlds")

    def close(self, reason: str) -> None:
        self._node.world.trace.note(self._node.world.loop.now_ns, "closed", self._client, reason)
        self._connection.expected = CLOSED
        self._answer(b"")

    def proved(self) -> None:
        """Nobody has to prove anything here."""

    def has_hung_up(self) -> bool:
        return self._node.has_hung_up(self._client, self._connection)

    def _answer(self, frame: bytes) -> None:
        assert not self._settled, "a request is answered once"
        self._settled = True
        world, me = self._node.world, self._node.me
        world.trace.mix(frame)
        answer = Answer(self._connection.number, frame, self._refusals)
        world.network.send(me, self._client, answer)


class _Watchable(Pending):
    """A produced batch with a `done` that the observer can replace."""

    ordered = True

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.chunks, pending.size, pending.done, anywhere=pending.anywhere)
        self.pending = pending

    def overtakes(self) -> bool:
        return self.pending.overtakes()

    def misses_move(self, moved_ns: int, now_ns: int) -> bool:
        return self.pending.misses_move(moved_ns, now_ns)


class _LogDir:
    path = "/simulated"

    def volume(self) -> tuple[int, int]:
        raise OSError("a simulated disk has no volume")


READS_LATE: Final = 0.3
"""The share of reads of the log and of cold data that are not in memory."""


class BrokerNode(SimNode):
    """Implements broker.ports.Groups, Timers and LogReader."""

    broker: Broker

    def __init__(self, world: Surroundings, me: NodeId, disk: Disk, clock: Clock) -> None:
        super().__init__(world, me, disk, clock)
        self.upkeep: Upkeep | None = None
        self._linked: dict[NodeId, tuple[int, int, dict[int, Forwarded]]] = {}
        """By forwarding node: its link, the number it goes on with, and what came early."""
        self._links: dict[NodeId, tuple[int, int, int, set[int]]] = {}
        """To another node: the link, the next number on it, whose life, and what was sent."""
        self._links_made = 0

    def begin_life(self) -> None:
        world = self.world
        options, members = world.options, world.members
        statistics, tail, registry = BrokerStatistics(), Tail(options.tail_bytes), Registry()
        cold = self.cold
        self.machines = {
            group: GroupMachine(
                group,
                tail=tail,
                statistics=statistics,
                registry=registry if group == REGISTRY_GROUP else None,
                cold=cold,
            )
            for group in members
        }
        config = BrokerConfig(
            cluster_id=CLUSTER,
            groups_count=max(members),
            replication=options.members,
            read_ahead_from_bytes=1,
        )
        late = dice(options.seed, "late reads", self.me, self.life)
        self.disk.reads_late = lambda: self.disk.hung or late.random() < READS_LATE
        chance = dice(options.seed, "topic ids", self.me, self.life)
        secrets = dice(options.seed, "member ids", self.me, self.life)
        self.broker = Broker(
            me=self.me,
            config=config,
            groups=self,
            log=self.disk,
            log_dir=_LogDir(),
            timers=self,
            background=BackgroundWorker(self, "aside"),
            fetcher=Fetcher(self),
            registry=registry,
            machines=self.machines,
            tail=tail,
            delayed_fetches=DelayedFetches(self, self, config.parked_fetches_max),
            consumer_groups=ConsumerGroups(
                self,
                self.machines,
                COORDINATOR,
                self._group_notice,
                TopicsOf(registry),
                lambda: secrets.randbytes(16),
                partial(paxos_group_of, registry),
            ),
            statistics=statistics,
            new_topic_id=lambda: chance.randbytes(16),
            on_bug=_raise,
        )
        self._api = ApiTable(self.broker)
        self.request_links = RequestLinks(self, self.life)
        here = self.broker.consumer_groups
        here.forwarding = self.request_links.forwarding = RequestForwarding(
            self.me, Incarnation(self.life), self, here, self.request_links
        )
        self._links.clear()
        self._linked = {node: (link, CLOSED, {}) for node, (link, _, _) in self._linked.items()}
        self._client = RegistryClient(self, registry)
        self._connections: dict[int, _Connection] = {}
        self._timers = 0
        self._armed: set[object] = set()

    @property
    def cold(self) -> ColdReader:
        cold = self.disk.cold if isinstance(self.disk, WalDisk) else None
        return cold or NO_COLD

    def booted(self) -> None:
        self.upkeep = None
        if self.world.settles:
            assert isinstance(self.disk, WalDisk)
            self.upkeep = Upkeep(self, self.disk)

    def left(self, group: GroupId) -> None:
        if self.upkeep is not None:
            self.upkeep.left(group, self.machines[group])

    def state_needed(self, fetch: FetchState) -> bool:
        if self.upkeep is not None:
            self.upkeep.fetch(fetch)
        return self.upkeep is not None

    def caught_up_with(self, source: NodeId, frame: bytes) -> None:
        assert self.upkeep is not None
        self.upkeep.received(source, frame)

    def begin_group(self, group: GroupId) -> None:
        assert group != REGISTRY_GROUP
        for uid in list(self.machines[group].partitions):
            self.machines[group].drop(uid)
        tail, statistics = self.broker.tail, self.broker.statistics
        self.machines[group] = GroupMachine(group, tail=tail, statistics=statistics, cold=self.cold)

    def _group_notice(self, group: GroupId, notice: GroupNotice) -> None:
        world = self.world
        world.statistics[f"consumer group {notice.what}"] += 1
        world.trace.note(world.loop.now_ns, notice.what, self.me, group, *notice[1:])
        world.deaths.notice(notice.what, notice.detail, COORDINATOR.grace_ms)

    # -- what the core reports ----------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        return self.broker.registry

    def apply(self, group: GroupId, slot: Slot, entry: Entry, *, live: bool) -> list[bytes]:
        machine = self.machines[group]
        position = self.disk.place(group, slot, entry)
        keep = live and self.groups[group].mastership_seen[0]
        seen = slot <= machine.seen_to
        results = machine.apply(slot, entry, position, keep_in_tail=keep)
        if seen:
            results = []  # parts of it have seen this slot, and say nothing
        if not live:
            machine.take_grown()
        return results

    def parts(self, group: GroupId) -> Iterator[bytes]:
        return map(encode_chunk, self.machines[group].chunks(local=True))

    def restore(self, group: GroupId, base: Slot, parts: Sequence[bytes]) -> None:
        chunks = [decode_chunk(part) for part in parts]
        log_from = self.disk.log_from if isinstance(self.disk, WalDisk) else None
        self.machines[group].restore(base, chunks, log_from=log_from)

    def _carry_out(self, now: Now, step: Step) -> None:
        super()._carry_out(now, step)
        for group in dict.fromkeys(applied.group for applied in step.applied):
            if group == REGISTRY_GROUP:
                self.broker.delayed_operations.look()
            grown = self.machines[group].take_grown()
            if grown:
                self.broker.delayed_fetches.appended(grown)

    def masters_changed(self, now: Now) -> None:
        self.broker.consumer_groups.masters_changed(now)
        self.broker.unknown_producers.masters_changed(now)
        self.broker.delayed_fetches.masters_changed()
        self.broker.delayed_operations.look()

    def before_handover(self, ident: GroupId) -> None:
        self.broker.consumer_groups.handing_over(ident)

    def keep_house(self, now: Now) -> None:
        self._client.tick(now)
        for client, connection in list(self._connections.items()):
            connection.memory.seen(connection.known, now.boot_ns)
            if connection.held_by is not None or connection.early:
                self._read(client, connection)
        self.request_links.tick()
        self.broker.consumer_groups.tick(now)
        self.broker.retention.tick(now)
        if self.upkeep is not None:
            self.upkeep.tick(now)

    def numbered(self, to: NodeId, message: Forwarded) -> Forwarded:
        """Links are TCP: messages come once and in order, or none comes after a lost one."""
        link, number = self._links.get(to, (0, 0))[:2]
        if not link:
            self._links_made += 1
            link, number = self.life << 32 | self._links_made, 0
        under_way = self._links[to][3] if to in self._links else set[int]()
        under_way.add(message.ident)
        self._links[to] = (link, number + 1, self.world.nodes[to].life, under_way)
        return message._replace(link=link, number=number)

    def _forward(self, group: GroupId, forward: Forward) -> None:
        link = self._links.get(forward.to)
        if link is not None and link[2] != self.world.nodes[forward.to].life:
            self._link_lost(forward.to)
        if forward.pending.overtakes():
            forward.pending.done(NotDone(FailureReason.OVERLOADED, self.me))
        else:
            super()._forward(group, forward)

    def _forward_timed_out(self, ident: int) -> None:
        """Something was lost on the way: nothing that was sent behind it arrives, either."""
        if ident in self._forwarded:
            for to, (_, _, _, under_way) in list(self._links.items()):
                if ident in under_way:
                    self._link_lost(to)

    def _link_lost(self, to: NodeId) -> None:
        for ident in sorted(self._links.pop(to, (0, 0, 0, set[int]()))[3]):
            self._settle(ident, NotDone(FailureReason.UNKNOWN))

    def _on_forwarded(self, source: NodeId, what: Forwarded) -> None:
        link, expected, early = self._linked.get(source, (0, 0, dict[int, Forwarded]()))
        if what.link > link:
            link, expected, early = what.link, 0, {}
        if what.link == link and what.number >= expected:
            early[what.number] = what
        self._linked[source] = (link, expected, early)
        while (what_next := early.pop(expected, None)) is not None:
            expected += 1
            self._linked[source] = (link, expected, early)
            super()._on_forwarded(source, what_next)

    # -- what clients ask ---------------------------------------------------------------------

    def asked(self, client: int, what: object) -> None:
        if type(what) is Carried:
            handle = partial(self.request_links.handle, NodeId(client))
            received = self.request_links.received
            received(NodeId(client), what, partial(self.enter, handle))
            return
        if type(what) is Confirmed:
            self.request_links.confirmed(NodeId(client), what)
            return
        assert type(what) is Asked
        connection = self._connections.get(client)
        if connection is None or connection.number < what.connection:
            connection = self._connections[client] = _Connection(what.connection)
        if connection.number != what.connection or what.number < connection.expected:
            return  # of an earlier connection, or here already
        connection.early[what.number] = what
        self._read(client, connection)

    def has_hung_up(self, client: int, connection: _Connection) -> bool:
        """As far as this node can know: its client has opened another connection."""
        return self._connections.get(client) is not connection

    def _read(self, client: int, connection: _Connection) -> None:
        while not connection.looked_at and (
            connection.held_by is None or self.groups[connection.held_by].intake.room
        ):
            connection.held_by = None
            asked = connection.early.pop(connection.expected, None)
            if asked is None:
                return
            connection.expected += 1
            connection.known = max(connection.known, asked.knows)
            connection.memory.seen(connection.known, self.now().boot_ns)
            self._handle(client, connection, asked.frame)

    def _handle(self, client: int, connection: _Connection, frame: bytes) -> None:
        hurry, connection.hurry = connection.hurry, None
        if hurry is not None:
            self.enter(hurry)
        self.world.deaths.heard(frame)
        reply = _Reply(self, client, connection)
        self.enter(self._api.handle_frame, memoryview(frame), True, CLIENT_HOST, reply)

    # -- broker.ports.Groups ------------------------------------------------------------------

    def acting(self, group: GroupId) -> bool:
        held = self.groups.get(group)
        return held is not None and held.replica.acting(self.now())

    def epoch(self, group: GroupId) -> int:
        held = self.groups.get(group)
        return -1 if held is None else held.replica.lease.epoch

    def master(self, group: GroupId) -> NodeId | None:
        held = self.groups.get(group)
        if held is None or held.replica.lease.holder == NOBODY:
            return None
        lease = held.replica.lease
        return None if lease.free(self.now(), 0) else lease.holder

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        held = self.groups.get(group)
        return () if held is None else held.replica.members

    def alive(self) -> frozenset[NodeId]:
        now = self.now().boot_ns
        heard = (node for node, at in self.core.heard.items() if now - at < ALIVE_NS)
        return frozenset([self.me, *heard])

    def caught_up(self, group: GroupId) -> bool:
        held = self.groups.get(group)
        return held is not None and held.replica.ready()

    def moved_ns(self, group: GroupId) -> int:
        held = self.groups.get(group)
        return 0 if held is None else held.intake.successor.moved_ns(self.now())

    def passes_on(self, group: GroupId) -> bool:
        held = self.groups.get(group)
        if held is None:
            return False
        return held.intake.successor.gets_all(self.now(), held.replica, self.master(group))

    def ask_index(self, group: GroupId, told: Callable[[bool], None]) -> None:
        """All clients of these worlds act on hints, and do not need it."""
        told(False)

    def is_current(self, group: GroupId) -> bool:
        held = self.groups.get(group)
        return held is not None and progress.is_current(held.replica, self.now())

    def lacks_entries(self, group: GroupId) -> bool:
        held = self.groups.get(group)
        return held is None or held.replica.learner.behind

    def known_to_have_applied(self, group: GroupId, slot: Slot) -> bool:
        held = self.groups.get(group)
        if held is None:
            return True
        others = self.alive() & set(held.replica.members) - {self.me}
        return all(held.replica.peer(node).applied >= slot for node in others)

    def submit(
        self,
        group: GroupId,
        chunks: tuple[Buffer, ...],
        done: Callable[[Outcome], None],
        *,
        anywhere: bool = False,
    ) -> None:
        self.command(group, Pending(chunks, sum(map(len, chunks)), done), anywhere=anywhere)

    def take(self, group: GroupId, pending: Pending) -> bool:
        self.command(group, _Watchable(pending), anywhere=pending.anywhere)
        return self.groups[group].intake.backlogged

    # -- broker.ports.Timers ------------------------------------------------------------------

    def call_at(self, boot_ns: int, callback: Callable[[], None]) -> object:
        self._timers += 1
        self._armed.add(self._timers)
        delay_ns = max(0, boot_ns - self.now().boot_ns)
        delay_ns += delay_ns * LATE_PPM // 1_000_000
        self.world.loop.after(delay_ns, self._timer, self.life, self._timers, callback)
        return self._timers

    def cancel(self, handle: object) -> None:
        self._armed.discard(handle)

    def _timer(self, life: int, handle: int, callback: Callable[[], None]) -> None:
        loop = self.world.loop
        if not self._alive(life) or handle not in self._armed:
            return
        if loop.now_ns < self.paused_until:
            loop.at(self.paused_until, self._timer, life, handle, callback)
        else:
            self._armed.remove(handle)
            self.enter(callback)


def _raise(_where: str, error: Exception) -> None:
    """A handler's bug ends the world, and so does a checker's finding inside a handler."""
    raise error
