"""Partition reassignment as Kafka defines it, and what it does to groups."""

from typing import Any

import pytest

from balancer.registry.commands import PinGroup, RemoveNode, SetPlacement
from balancer.registry.registry import Registry
from paxos.ids import GroupId, NodeId
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages import metadata, placement, topics

PARTITIONS = 4
"""Partition p lives in group p + 1."""


def made(world: World) -> World:
    """Node 1 is master of everything; there is a topic, and a placement."""
    create = topics.CreateTopicsRequest([topics.CreatableTopic("t", PARTITIONS, -1)])
    world.ask(1, create, 7)
    nodes = len(world.nodes)
    ideal = {GroupId(group): NodeId(1 + group % nodes) for group in range(PARTITIONS + 1)}
    world.run(SetPlacement(None, ideal))
    return world


@pytest.fixture
def world() -> World:
    """All nodes have all groups, as in a cluster from before there were replica sets."""
    return made(World(nodes=3, groups=PARTITIONS))


@pytest.fixture
def five() -> World:
    """Five founders; partition 0 is in group 1 on nodes 2, 3 and 4, with node 2 as ideal node."""
    return made(World(nodes=5, groups=PARTITIONS, replicas=3))


def reassign(world: World, *wishes: tuple[int, list[int] | None]) -> dict[int, ErrorCode]:
    request = placement.AlterPartitionReassignmentsRequest(
        1_000,
        topics=[
            placement.ReassignableTopic(
                "t", [placement.ReassignablePartition(index, nodes) for index, nodes in wishes]
            )
        ],
    )
    asked = world.send(1, request, 0)
    world.cluster.settle()
    world.advance(100)
    assert not world[1].bugs
    return {
        one.partition_index: ErrorCode(one.error_code)
        for topic in asked.response.responses
        for one in topic.partitions
    }


def under_way(world: World, topics: list[str] | None = None) -> dict[int, list[int]]:
    named = (
        None
        if topics is None
        else [
            placement.ListPartitionReassignmentsTopic(name, list(range(PARTITIONS)))
            for name in topics
        ]
    )
    request = placement.ListPartitionReassignmentsRequest(1_000, named)
    response = world.ask(1, request, 0)
    return {
        one.partition_index: list(one.replicas)
        for topic in response.topics
        for one in topic.partitions
    }


def of_partition(world: World, number: int = 0) -> Any:
    """Metadata's answer for it."""
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    return world.ask(1, request, 12).topics[0].partitions[number]


def moves(world: World) -> dict[int, tuple[list[int], list[int], list[int]]]:
    response = world.ask(1, placement.ListPartitionReassignmentsRequest(1_000, None), 0)
    return {
        one.partition_index: (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in response.topics
        for one in topic.partitions
    }


def moved(world: World, group: int, node: int) -> None:
    """The balancer has stolen the group."""
    world.cluster.install(group, node)


def all_home(world: World) -> None:
    for group in range(PARTITIONS + 1):
        moved(world, group, world[1].registry.placement[GroupId(group)])


def test_other_nodes_are_the_groups_new_replica_set_and_the_first_its_master(five: World) -> None:
    """The group's master changes its members step by step; every step is reported as it is."""
    all_home(five)
    assert moves(five) == {}
    assert reassign(five, (0, [5, 3, 4])) == {0: ErrorCode.NONE}
    registry = five[1].registry
    assert registry.replica_set(GroupId(1)) == (3, 4, 5)
    assert (registry.pins, registry.sets_by_hand) == ({1: 5}, {1})
    assert moves(five) == {0: ([5, 3, 4, 2], [5], [2])}
    shown = of_partition(five)
    assert (shown.replica_nodes, shown.isr_nodes) == ([5, 3, 4, 2], [3, 4, 2])
    five.members_are(1, 9, 2, 3, 4, 5)
    assert moves(five) == {0: ([5, 3, 4, 2], [], [2])}
    moved(five, 1, 5)
    five.members_are(1, 10, 3, 4, 5)
    assert moves(five) == {}
    shown = of_partition(five)
    assert (shown.replica_nodes, shown.isr_nodes, shown.leader_id) == ([5, 3, 4], [5, 3, 4], 5)


def test_a_reassignment_is_called_off_and_the_set_is_what_it_was(five: World) -> None:
    all_home(five)
    reassign(five, (0, [5, 3, 4]))
    five.members_are(1, 9, 2, 3, 4, 5)
    assert reassign(five, (0, None)) == {0: ErrorCode.NONE}
    registry = five[1].registry
    assert registry.replica_set(GroupId(1)) == (2, 3, 4)
    assert (registry.pins, registry.sets_by_hand) == ({}, frozenset())
    assert moves(five)[0][1:] == ([], [5]), "who was added already goes again"
    five.members_are(1, 10, 2, 3, 4)
    assert reassign(five, (0, None)) == {0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


def test_calling_off_twice_does_not_begin_the_move_again(five: World) -> None:
    """An admin client repeats a cancellation whose answer it has missed, and so does an operator
    who still sees the partition listed: the way back may take a while."""
    all_home(five)
    reassign(five, (0, [5, 3, 4]))
    five.members_are(1, 9, 2, 3, 4, 5)
    for _ in range(3):
        assert reassign(five, (0, None)) == {0: ErrorCode.NONE}
        assert five[1].registry.replica_set(GroupId(1)) == (2, 3, 4)
    assert moves(five)[0][1:] == ([], [5])


@pytest.mark.parametrize("members", [(2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4), (1, 2, 3, 4, 5)])
def test_a_move_in_place_of_another_is_called_off_to_where_the_group_is(
    five: World, members: tuple[int, ...]
) -> None:
    """As in Kafka: not to the nodes that the first move named and the group never reached."""
    all_home(five)
    reassign(five, (0, [5, 3, 4]))
    reassign(five, (0, [1, 3, 4]))
    five.members_are(1, 9, *members)
    assert reassign(five, (0, None)) == {0: ErrorCode.NONE}
    assert five[1].registry.replica_set(GroupId(1)) == (2, 3, 4)


def test_a_move_after_one_that_was_called_off_is_called_off_to_where_that_one_began(
    five: World,
) -> None:
    all_home(five)
    reassign(five, (0, [5, 3, 4]))
    five.members_are(1, 9, 2, 3, 4, 5)
    reassign(five, (0, None))
    reassign(five, (0, [1, 3, 4]))
    assert reassign(five, (0, None)) == {0: ErrorCode.NONE}
    assert five[1].registry.replica_set(GroupId(1)) == (2, 3, 4)


def test_a_move_after_one_that_was_completed_is_called_off_to_its_nodes(five: World) -> None:
    all_home(five)
    reassign(five, (0, [5, 3, 4]))
    five.members_are(1, 9, 3, 4, 5)
    reassign(five, (0, [2, 3, 4]))
    five.members_are(1, 10, 2, 3, 4, 5)
    assert reassign(five, (0, None)) == {0: ErrorCode.NONE}
    assert five[1].registry.replica_set(GroupId(1)) == (3, 4, 5)


def test_a_move_whose_origin_is_leaving_cannot_be_called_off(five: World) -> None:
    """It goes on; the message says what else can be done."""
    all_home(five)
    reassign(five, (0, [5, 3, 4]))
    five.run(RemoveNode(NodeId(2)))
    assert reassign(five, (0, None)) == {0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert five[1].registry.replica_set(GroupId(1)) == (3, 4, 5)


def test_all_partitions_of_a_group_are_listed_and_none_else(five: World) -> None:
    all_home(five)
    grow = topics.CreatePartitionsRequest(
        [topics.CreatePartitionsTopic("t", 2 * PARTITIONS)], 1_000
    )
    five.ask(1, grow, 3)
    reassign(five, (0, [5, 3, 4]))
    assert set(moves(five)) == {0, 4}
    assert set(under_way(five, ["t"])) == {0}, "as many as are asked for"


def test_nodes_that_cannot_have_it_are_refused_by_name(five: World) -> None:
    five.run(RemoveNode(NodeId(5)))
    before = five[1].registry.version
    for nodes, error, words in (
        ([2, 3, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is no node 9"),
        ([2, 3, 5], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "node 5 is leaving"),
        ([2, 3, 3], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "once"),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "at least one"),
        ([2, 3], ErrorCode.INVALID_REPLICATION_FACTOR, "3 members"),
        ([1, 2, 3, 4], ErrorCode.INVALID_REPLICATION_FACTOR, "3 members"),
    ):
        request = placement.AlterPartitionReassignmentsRequest(
            1_000,
            topics=[placement.ReassignableTopic("t", [placement.ReassignablePartition(0, nodes)])],
        )
        (answer,) = five.ask(1, request, 0).responses[0].partitions
        assert (answer.error_code, words in answer.error_message) == (error, True), nodes
    assert five[1].registry.version == before


def test_who_is_not_heard_is_offline_and_not_in_sync(five: World) -> None:
    five.cluster.dead = {NodeId(3)}
    shown = of_partition(five)
    assert (shown.replica_nodes, shown.isr_nodes) == ([2, 3, 4], [2, 4])
    assert shown.offline_replicas == [3]
    five.cluster.dead = set()
    assert of_partition(five).offline_replicas == []


def test_the_same_nodes_in_another_order_move_the_group(world: World) -> None:
    """The first replica is the preferred leader: the group is pinned there, and Metadata shows
    it."""
    assert reassign(world, (0, [3, 1, 2])) == {0: ErrorCode.NONE}
    registry = world[1].registry
    assert registry.pins == {1: 3}
    assert registry.placement[GroupId(1)] == 3
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    answer = world.ask(2, request, 12)
    assert answer.topics[0].partitions[0].replica_nodes == [3, 1, 2]
    assert under_way(world) == {}, "its master is elsewhere: that is no reassignment"
    moved(world, 1, 3)
    assert 0 not in under_way(world, ["t"])


@pytest.mark.parametrize("order", [[1, 3, 2], [2, 3, 1], [3, 2, 1], [1, 2, 3]])
def test_the_order_that_was_asked_for_is_the_one_that_is_told(
    world: World, order: list[int]
) -> None:
    """kafka-reassign-partitions --verify compares it, on every node, also one that was restarted;
    until the group is pinned otherwise."""
    assert reassign(world, (0, order)) == {0: ErrorCode.NONE}
    assert of_partition(world).replica_nodes == order
    registry = world[1].registry
    again = Registry.restore(registry.snapshot())
    assert again.orders == registry.orders == {1: tuple(order)}
    world.run(PinGroup(GroupId(1), NodeId(2)))
    assert of_partition(world).replica_nodes == [2, 1, 3]
    world.run(PinGroup(GroupId(1), None))
    assert world[1].registry.orders == {}


@pytest.mark.parametrize("nodes", [[1, 2], [1, 2, 3, 4], [1, 1, 2], [], [4, 5, 6]])
def test_other_nodes_than_the_members_are_refused_with_the_members_names(
    world: World, nodes: list[int]
) -> None:
    assert reassign(world, (0, nodes)) == {0: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert world[1].registry.pins == {}


def test_partitions_of_one_group_cannot_go_to_different_nodes(world: World) -> None:
    grow = topics.CreatePartitionsRequest(
        [topics.CreatePartitionsTopic("t", 2 * PARTITIONS)], 1_000
    )
    world.ask(1, grow, 3)
    assert reassign(world, (0, [2, 1, 3]), (4, [3, 1, 2]), (1, [1, 2, 3])) == {
        0: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        4: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        1: ErrorCode.NONE,
    }
    assert reassign(world, (0, [3, 1, 2]), (4, [3, 2, 1])) == dict.fromkeys(
        (0, 4), ErrorCode.INVALID_REPLICA_ASSIGNMENT
    )
    assert reassign(world, (0, [3, 2, 1]), (4, [3, 2, 1])) == dict.fromkeys((0, 4), ErrorCode.NONE)


def test_what_is_not_under_way_cannot_be_called_off(world: World) -> None:
    """A pinned master that has yet to move is none: the listing does not have it either."""
    assert reassign(world, (0, None)) == {0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    world.run(PinGroup(GroupId(1), NodeId(3)))
    assert reassign(world, (0, None)) == {0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    assert world[1].registry.pins == {1: 3}
    assert reassign(world, (9, None)) == {9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_partition_named_twice_is_refused(world: World) -> None:
    assert reassign(world, (0, [3, 1, 2]), (0, [2, 1, 3])) == {0: ErrorCode.INVALID_REQUEST}
    assert reassign(world, (0, [3, 1, 2]), (0, [2, 1, 3]), (0, [1, 2, 3])) == {
        0: ErrorCode.INVALID_REQUEST
    }
    assert world[1].registry.pins == {}
