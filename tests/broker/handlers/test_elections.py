"""ElectLeaders as Kafka defines it, and what it does here."""

import pytest

from balancer.registry.commands import DrainNode, PauseBalancer, SetPlacement
from paxos.ids import GroupId, NodeId
from tests.broker.world import Asked, World
from wire.error_codes import ErrorCode
from wire.messages import placement, topics

PARTITIONS = 4
"""Partition p lives in group p + 1."""


@pytest.fixture
def world() -> World:
    """Node 1 is master of everything; the ideal nodes are 1, 2, 3, 1, 2."""
    world = World(nodes=3, groups=4)
    create = topics.CreateTopicsRequest([topics.CreatableTopic("t", PARTITIONS, -1)])
    world.ask(1, create, 7)
    ideal = {GroupId(group): NodeId(1 + group % 3) for group in range(5)}
    world.run(SetPlacement(None, ideal))
    return world


def elect(
    world: World,
    partitions: list[int] | None,
    *,
    version: int = 2,
    kind: int = 0,
    timeout_ms: int = 500,
    topic: str = "t",
) -> Asked:
    named = None if partitions is None else [placement.ElectTopicPartitions(topic, partitions)]
    request = placement.ElectLeadersRequest(kind, named, timeout_ms)
    asked = world.send(1, request, version)
    world.cluster.settle()
    return asked


def elected(asked: Asked) -> dict[int, ErrorCode]:
    return {
        one.partition_id: ErrorCode(one.error_code)
        for topic in asked.response.replica_election_results
        for one in topic.partition_result
    }


def moved(world: World, group: int, node: int) -> None:
    """The balancer has stolen the group."""
    world.cluster.install(group, node)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_waits_for_the_steal_to_the_ideal_master(world: World, version: int) -> None:
    asked = elect(world, [0, 1], version=version)
    assert not asked.settled
    moved(world, 1, 2)
    world.advance(50)
    assert not asked.settled
    moved(world, 2, 3)
    world.advance(50)
    assert elected(asked) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}
    assert not world[1].bugs


def test_what_is_not_moved_in_time_is_said_partition_by_partition(world: World) -> None:
    asked = elect(world, [0, 1, 2])
    moved(world, 1, 2)
    world.advance(600)
    assert elected(asked) == {
        0: ErrorCode.NONE,
        1: ErrorCode.REQUEST_TIMED_OUT,
        2: ErrorCode.ELECTION_NOT_NEEDED,
    }


def test_for_all_partitions_only_those_that_were_elected_are_told(world: World) -> None:
    """As in Kafka; partition 2 already has its preferred leader."""
    asked = elect(world, None)
    for group, node in ((1, 2), (2, 3), (4, 2)):
        moved(world, group, node)
    world.advance(50)
    assert elected(asked) == {0: ErrorCode.NONE, 1: ErrorCode.NONE, 3: ErrorCode.NONE}


def test_what_no_steal_will_do_is_refused_at_once(world: World) -> None:
    """No such partition, a paused group, a draining ideal node, a paused balancer."""
    world.run(PauseBalancer(True, GroupId(2)))
    world.run(DrainNode(NodeId(2), True))
    asked = elect(world, [0, 1, 9])
    assert elected(asked) == {
        0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    world.run(DrainNode(NodeId(2), False))
    world.run(PauseBalancer(True))
    assert elected(elect(world, [0])) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elected(elect(world, [0], topic="u")) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_nobody_is_elected_uncleanly(world: World) -> None:
    assert elected(elect(world, [0], kind=1)) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    del world.cluster.masters[GroupId(1)]
    assert elected(elect(world, [0], kind=1)) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


@pytest.mark.parametrize("kind", [-1, 2, 9])
@pytest.mark.parametrize("partitions", [[0, 1], None])
def test_an_election_of_no_kind_is_refused(
    world: World, kind: int, partitions: list[int] | None
) -> None:
    """As in Kafka, and before anything waits: it is not taken for one of the preferred leader."""
    asked = elect(world, partitions, kind=kind)
    assert asked.response.error_code == ErrorCode.INVALID_REQUEST
    assert elected(asked) == dict.fromkeys(partitions or (), ErrorCode.INVALID_REQUEST)
