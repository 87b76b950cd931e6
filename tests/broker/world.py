"""Brokers side by side over one FakeCluster, addressed with real frames.

    world = World(nodes=3, groups=4)
    reply = world.ask(1, MetadataRequest(topics=None), version=12)
    metadata = world.answer(reply)

Everything but disk, network and time is real: registry, state machines, handlers, codec.
"""

from typing import Any

from balancer.registry.codec import encode_command
from balancer.registry.commands import Command, Decided, FoundCluster, NoteMembers, RegisterNode
from balancer.registry.records import Address
from balancer.registry.registry import Registry
from broker.api import HANDLERS, ApiTable
from broker.client_software import software
from broker.config import BrokerConfig
from broker.delayed.delayed_fetches import DelayedFetches
from broker.groups.consumer_groups import ConsumerGroups, TopicsOf
from broker.ports import Connection
from broker.proposals.commands import CommandKind, opaque
from broker.requests.context import Broker
from broker.state_machine.machine import GroupMachine
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.limits import CoordinatorConfig
from coordinator.model import GroupNotice
from paxos.entry import Entry
from paxos.ids import REGISTRY_GROUP, GroupId, Incarnation, NodeId, Slot
from storage.errors import StorageError
from tests.broker.fakes import FakeBackground, FakeCluster, FakeCold, FakeReply
from wire.apis import APIS, ApiKey, Request, Response, decode_response, encode_request

CLIENT_HOST = "198.51.100.7"
KAFKA_PORT = 9000
SERVED = [api for api in APIS.values() if api.key in {*HANDLERS, ApiKey.API_VERSIONS}]


class FakeLog:
    """Entries one after the other, in memory."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.soon: list[tuple[int, int]] = []
        self.late = False
        """Nothing is in memory: reads have to wait for the disk."""

    def append(self, entry: Entry) -> int:
        position = len(self.data)
        for chunk in entry.chunks:
            self.data += chunk
        return position

    def read_span(self, position: int, size: int) -> memoryview:
        assert position + size <= len(self.data)
        return memoryview(bytes(self.data[position : position + size]))

    def read_span_now(self, position: int, size: int) -> memoryview | None:
        try:
            return None if self.late else self.read_span(position, size)
        except StorageError:
            return None

    def read_soon(self, position: int, size: int) -> None:
        self.soon.append((position, size))


class FakeLogDir:
    path = "/data"

    def __init__(self) -> None:
        self.broken = False

    def volume(self) -> tuple[int, int]:
        if self.broken:
            raise OSError("the volume is gone")
        return 1_000_000, 400_000


class Node:
    """One broker and everything below it."""

    def __init__(self, world: "World", node: NodeId, config: BrokerConfig) -> None:
        self.log = FakeLog()
        self.log_dir = FakeLogDir()
        self.registry = Registry()
        self.statistics = BrokerStatistics()
        self.tail = Tail(bytes_max=1 << 20)
        self.cold = FakeCold()
        self.background = FakeBackground()
        self.fetcher = FakeBackground()
        self.bugs: list[tuple[str, Exception]] = []
        self.notices: list[tuple[GroupId, GroupNotice]] = []
        self.machines = {
            group: GroupMachine(
                group,
                tail=self.tail,
                statistics=self.statistics,
                registry=self.registry if group == REGISTRY_GROUP else None,
                is_gone=self.registry.is_gone,
                cold=self.cold,
            )
            for group in map(GroupId, range(config.groups_count + 1))
        }
        self.groups = world.cluster.nodes[node]
        self.consumer_groups = ConsumerGroups(
            self.groups,
            self.machines,
            CoordinatorConfig(),
            lambda group, notice: self.notices.append((group, notice)),
            TopicsOf(self.registry),
            lambda: b"%d" % node,
        )
        self.broker = Broker(
            me=node,
            config=config,
            groups=self.groups,
            log=self.log,
            timers=world.cluster.timers,
            background=self.background,
            fetcher=self.fetcher,
            registry=self.registry,
            machines=self.machines,
            tail=self.tail,
            delayed_fetches=DelayedFetches(
                self.groups, world.cluster.timers, config.parked_fetches_max
            ),
            consumer_groups=self.consumer_groups,
            statistics=self.statistics,
            new_topic_id=world.new_topic_id,
            log_dir=self.log_dir,
            on_bug=lambda where, error: self.bugs.append((where, error)),
        )
        self.api = ApiTable(self.broker)


class World:
    """`nodes` brokers numbered from 1, all registered; node 1 is master of every group.

    With `replicas` they are founders, and every group has that many members, by the registry and in
    everybody's view; here all nodes apply all groups.
    """

    def __init__(
        self, nodes: int = 3, groups: int = 4, *, replicas: int = 0, **settings: Any
    ) -> None:
        self.cluster = FakeCluster(tuple(range(1, nodes + 1)), self._apply)
        self._topic_ids = 0
        self._connections: dict[tuple[int, str], Connection] = {}
        """A client keeps its connections: what a node remembers about them matters
        (produce_usual)."""
        config = BrokerConfig(cluster_id="evenkeel-test", groups_count=groups, **settings)
        self.nodes = {node: Node(self, node, config) for node in self.cluster.nodes}
        self.cluster.on_masters_changed.append(self.masters_changed)
        for group in range(groups + 1):
            self.cluster.install(group, 1)
        founders = tuple(sorted(self.nodes)) if replicas else ()
        found = FoundCluster(config.cluster_id, groups, founders, replicas)
        self.run(Decided(Slot(0), found))
        if replicas:
            registry = self[1].registry
            self.cluster.members = {
                GroupId(group): registry.members(GroupId(group)) for group in registry.groups
            }
        for number in range(1, nodes + 1):
            self.run(register(number))

    def __getitem__(self, node: int) -> Node:
        return self.nodes[NodeId(node)]

    # -- the cluster ------------------------------------------------------------------------------

    def _apply(self, node: NodeId, group: GroupId, slot: Slot, entry: Entry) -> list[bytes]:
        one = self.nodes[node]
        return one.machines[group].apply(slot, entry, one.log.append(entry))

    def new_topic_id(self) -> bytes:
        self._topic_ids += 1
        return self._topic_ids.to_bytes(16, "big")

    def masters_changed(self) -> None:
        for node in self.nodes.values():
            node.consumer_groups.masters_changed(self.cluster.clock.now())
            node.broker.unknown_producers.masters_changed(self.cluster.clock.now())

    def settle_log(self, node: int, below: int | None = None) -> None:
        """Data below a position of a node's log moves to its cold store, and out of memory."""
        one = self[node]
        for machine in one.machines.values():
            for state in machine.partitions.values():
                plan = state.copy_plan(len(one.log.data) if below is None else below)
                if plan is not None:
                    one.cold.settle(plan, one.log.read_span)
                    state.mark_tiered(plan.end)
                    one.tail.drop(state.uid)

    def run(self, command: Command) -> None:
        """Apply a command of the registry everywhere."""
        chunks = opaque(CommandKind.REGISTRY, encode_command(command))
        self.cluster.nodes[NodeId(1)].submit(REGISTRY_GROUP, chunks, lambda _: None, anywhere=True)
        self.cluster.settle()

    def members_are(self, group: int, slot: int, *nodes: int) -> None:
        """The group's log has these members, and its master has noted it."""
        members = tuple(NodeId(node) for node in nodes)
        self.cluster.members[GroupId(group)] = members
        self.run(NoteMembers(GroupId(group), Slot(slot), members))

    def advance(self, ms: int, *, step_ms: int = 10) -> None:
        for _ in range(0, ms, step_ms):
            self.cluster.advance(step_ms, step_ms=step_ms)
            for node in self.nodes.values():
                node.consumer_groups.tick(self.cluster.clock.now())
            self.cluster.settle()

    # -- clients ----------------------------------------------------------------------------------

    def send(
        self,
        node: int,
        message: Request,
        version: int,
        *,
        client: str = "test",
        hung_up: bool = False,
    ) -> "Asked":
        """Ask a node; nothing else happens: no time passes, nothing is chosen."""
        frame = b"".join(encode_request(message, version, 7, client))[4:]
        api = next(api for api in APIS.values() if api.request is type(message))
        asked = Asked(int(api.key), version)
        asked.reply.hung_up = hung_up
        asked.reply.connection = self.connection(node, client)
        self[node].api.handle_frame(memoryview(frame), True, CLIENT_HOST, asked.reply)
        return asked

    def connection(self, node: int, client: str) -> Connection:
        return self._connections.setdefault((node, client), _well_informed())

    def ask(self, node: int, message: Request, version: int, *, client: str = "test") -> Any:
        """Ask, let the log move on, and return the answer, which must be there by then."""
        asked = self.send(node, message, version, client=client)
        self.cluster.settle()
        assert not self[node].bugs, self[node].bugs
        return asked.response


def _well_informed() -> Connection:
    """Of a client that has named its library; another one says what it is by ApiVersions."""
    connection = Connection()
    connection.software = software("evenkeel")
    return connection


class Asked:
    """A request under way."""

    def __init__(self, api_key: int, version: int) -> None:
        self.reply = FakeReply()
        self._api_key = api_key
        self._version = version

    @property
    def settled(self) -> bool:
        return self.reply.settled

    @property
    def response(self) -> Any:
        frame = self.reply.frame
        assert frame is not None, f"no answer yet, closed: {self.reply.closed}"
        size = int.from_bytes(frame[:4], "big")
        assert size == len(frame) - 4
        assert int.from_bytes(frame[4:8], "big") == 7
        response: Response = decode_response(self._api_key, self._version, memoryview(frame)[4:])
        return response


def register(node: int) -> RegisterNode:
    kafka, peer = Address(f"node-{node}", KAFKA_PORT + node), Address(f"node-{node}", 1)
    return RegisterNode(NodeId(node), Incarnation(1), kafka, peer, peer)
