"""Clients are told the addresses of the listener that they came by, and of no other."""

import pytest

from balancer.registry.listeners import SetListeners
from balancer.registry.security import ListenerAddress
from broker.ports import Connection
from broker.requests.leader_hints import endpoints
from broker.security.listeners import ClientListener, SecurityProtocol
from paxos.ids import GroupId, NodeId
from tests.broker.fakes import FakeReply
from tests.broker.handlers.test_metadata import by_name, world_with_topic
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch
from wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.membership import FindCoordinatorRequest
from wire.messages.metadata import DescribeClusterRequest, MetadataRequest

TLS = ClientListener("TLS", SecurityProtocol.SSL)
PLAIN_ADDRESSES = [(node, f"node-{node}", 9000 + node) for node in (1, 2, 3)]
TLS_ADDRESSES = [(node, f"tls-{node}", 9100 + node) for node in (1, 2, 3)]


@pytest.fixture
def world() -> World:
    """Three nodes with both listeners; the client "tls" comes by TLS."""
    made = world_with_topic()
    for node in (1, 2, 3):
        set_listeners(made, node, "PLAINTEXT", "TLS")
        made._connections[node, "tls"] = Connection(TLS)
    return made


def set_listeners(world: World, node: int, *names: str) -> None:
    known = {
        "PLAINTEXT": ListenerAddress("PLAINTEXT", 0, f"node-{node}", 9000 + node),
        "TLS": ListenerAddress("TLS", 1, f"tls-{node}", 9100 + node),
    }
    world.run(SetListeners(NodeId(node), tuple(known[name] for name in names)))


def brokers(world: World, client: str, version: int = 12) -> list[tuple[int, str, int]]:
    """As Metadata about all topics names them: that answer is cached."""
    answer = world.ask(2, MetadataRequest(None), version, client=client)
    return [(one.node_id, one.host, one.port) for one in answer.brokers]


def test_cached_answers_are_those_of_the_listener(world: World) -> None:
    for _ in range(2):
        assert brokers(world, "tls") == TLS_ADDRESSES
        assert brokers(world, "test") == PLAIN_ADDRESSES
    set_listeners(world, 3, "PLAINTEXT")
    assert brokers(world, "tls") == TLS_ADDRESSES[:2]
    assert brokers(world, "test") == PLAIN_ADDRESSES


def test_a_node_without_records_has_the_plain_listener_only(world: World) -> None:
    set_listeners(world, 2)
    assert brokers(world, "test") == PLAIN_ADDRESSES
    assert brokers(world, "tls") == [TLS_ADDRESSES[0], TLS_ADDRESSES[2]]


def test_a_listener_that_the_plain_client_has_not_is_left_out(world: World) -> None:
    set_listeners(world, 1, "TLS")
    assert brokers(world, "test") == PLAIN_ADDRESSES[1:]


@pytest.mark.parametrize(
    ("version", "error"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_master_without_the_listener_is_no_leader(
    world: World, version: int, error: ErrorCode
) -> None:
    set_listeners(world, 1, "PLAINTEXT")
    answer = world.ask(2, by_name("orders"), version, client="tls")
    assert {(one.error_code, one.leader_id) for one in answer.topics[0].partitions} == {(error, -1)}
    assert answer.controller_id == 2, "one that the client can reach"
    plain = world.ask(2, by_name("orders"), version)
    assert {one.leader_id for one in plain.topics[0].partitions} == {1}


def test_other_answers_and_hints_name_the_same_addresses(world: World) -> None:
    cluster = world.ask(2, DescribeClusterRequest(), 1, client="tls")
    assert [(one.broker_id, one.host, one.port) for one in cluster.brokers] == TLS_ADDRESSES
    found = world.ask(2, FindCoordinatorRequest(coordinator_keys=["g"]), 4, client="tls")
    (coordinator,) = found.coordinators
    assert (coordinator.host, coordinator.port) == ("tls-1", 9101)
    reply = FakeReply(connection=Connection(TLS))
    (hint,) = endpoints(world[2].broker, reply, [LeaderIdAndEpoch(3, 1), None])
    assert (hint.node_id, hint.host, hint.port) == TLS_ADDRESSES[2]
    set_listeners(world, 3, "PLAINTEXT")
    assert endpoints(world[2].broker, reply, [LeaderIdAndEpoch(3, 1)]) == []


def test_a_coordinator_without_the_listener_is_not_available(world: World) -> None:
    set_listeners(world, 1, "PLAINTEXT")
    asked = world.send(2, FindCoordinatorRequest(coordinator_keys=["g"]), 4, client="tls")
    world.advance(2_000)
    (coordinator,) = asked.response.coordinators
    assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_settings_of_a_node_name_all_listeners(world: World) -> None:
    wanted = [DescribeConfigsResource(4, "2", None)]
    answer = world.ask(2, DescribeConfigsRequest(wanted), 4)
    values = {one.name: one.value for one in answer.results[0].configs}
    assert values["advertised.listeners"] == "PLAINTEXT://node-2:9002,TLS://tls-2:9102"
    assert values["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,TLS:SSL"


def test_listeners_that_nobody_could_use_are_refused_and_a_removed_node_has_none(
    world: World,
) -> None:
    registry = world[1].registry
    for wrong in (
        SetListeners(NodeId(9), ()),
        SetListeners(NodeId(1), (ListenerAddress("", 0, "h", 1),)),
        SetListeners(NodeId(1), (ListenerAddress("A", 4, "h", 1),)),
        SetListeners(NodeId(1), (ListenerAddress("A", 0, "", 1),)),
        SetListeners(NodeId(1), (ListenerAddress("A", 0, "h", 0),)),
        SetListeners(NodeId(1), (ListenerAddress("A", 0, "h", 1),) * 2),
    ):
        before = registry.security
        world.run(wrong)
        assert registry.security == before
    assert GroupId(0) in registry.groups
