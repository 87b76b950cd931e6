"""Replicas assigned by hand choose the Paxos groups that partitions live in."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from balancer.registry.commands import SetPlacement
from balancer.registry.records import Partition
from balancer.registry.registry import Registry
from balancer.registry.versions import RaiseClusterVersion
from broker.formats import FormatGate
from broker.handlers.topics import topics
from broker.proposals.intake import Done, Outcome
from paxos.ids import GroupId, NodeId
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

IDEAL = {0: 1, 1: 1, 2: 2, 3: 3, 4: 1, 5: 2, 6: 3}


def world_of(nodes: int = 3, replicas: int = 3) -> World:
    """Six groups; their ideal masters are nodes 1, 2, 3, 1, 2, 3 where these are members."""
    world = World(nodes=nodes, groups=6, replicas=replicas)
    registry = world[1].registry
    ideal = {
        GroupId(group): NodeId(node)
        for group, node in IDEAL.items()
        if node in registry.replica_set(GroupId(group))
    }
    world.run(SetPlacement(None, ideal))
    return world


def assigned(name: str, *rows: list[int]) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(at, nodes) for at, nodes in enumerate(rows)]
    return CreatableTopic(name, -1, -1, assignments)


def create(world: World, topic: CreatableTopic, **fields: bool) -> tuple[int, str | None]:
    result = world.ask(2, CreateTopicsRequest([topic], **fields), 7).topics[0]
    return result.error_code, result.error_message


def groups_of(world: World, name: str) -> list[int]:
    return [place.group for place in world[1].registry.topics[name].partitions]


def test_the_node_named_first_is_the_preferred_leader() -> None:
    """This is how kminion makes a topic with a partition for every node to lead."""
    world = world_of()
    assert create(world, assigned("t", [3, 1, 2], [2, 3, 1], [1, 2, 3], [3, 2, 1])) == (0, None)
    groups = groups_of(world, "t")
    assert [IDEAL[group] for group in groups] == [3, 2, 1, 3]
    assert len(set(groups)) == 4
    topic = MetadataRequestTopic(name="t")
    [described] = world.ask(1, MetadataRequest([topic]), 12).topics
    assert [one.replica_nodes for one in described.partitions] == [
        [3, 1, 2],
        [2, 1, 3],
        [1, 2, 3],
        [3, 1, 2],
    ]


def test_fewer_replicas_than_the_cluster_has_get_those_of_the_cluster() -> None:
    world = world_of()
    result = world.ask(1, CreateTopicsRequest([assigned("t", [2], [2], [2])]), 7).topics[0]
    assert (result.num_partitions, result.replication_factor) == (3, 3)
    assert sorted(groups_of(world, "t")) == [2, 2, 5]


def test_only_groups_with_all_these_members() -> None:
    """Of five nodes each group has three."""
    world = world_of(nodes=5)
    registry = world[1].registry
    sets = {group: registry.replica_set(GroupId(group)) for group in range(1, 7)}
    wanted = sets[3]
    assert create(world, assigned("t", list(wanted), list(wanted))) == (0, None)
    assert {sets[group] for group in groups_of(world, "t")} == {wanted}
    nowhere = next(
        [a, b, c]
        for a in range(1, 6)
        for b in range(a + 1, 6)
        for c in range(b + 1, 6)
        if (a, b, c) not in sets.values()
    )
    error, text = create(world, assigned("u", list(wanted), nowhere))
    assert error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert text is not None
    assert "no Paxos group has" in text
    assert world[1].registry.topic("u") is None


@pytest.mark.parametrize(
    ("topic", "error", "why"),
    [
        (assigned("t", [1, 2, 9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such node"),
        (assigned("t", [1, 2, 3, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there are 3"),
        (assigned("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "names no node"),
        (assigned("t", [1], [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "as many"),
        (
            CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "0, 1, 2",
        ),
        (
            CreatableTopic("t", 1, -1, [CreatableReplicaAssignment(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "must be -1",
        ),
        (
            CreatableTopic("t", -1, 1, [CreatableReplicaAssignment(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "must be -1",
        ),
    ],
)
def test_what_is_no_assignment(topic: CreatableTopic, error: ErrorCode, why: str) -> None:
    for validate_only in (True, False):
        world = world_of()
        got, text = create(world, topic, validate_only=validate_only)
        assert got == error
        assert why in (text or "")


def test_more_than_a_request_may_assign() -> None:
    world = world_of()
    rows = [[1]] * 1_001
    got, text = create(world, assigned("t", *rows))
    assert got == ErrorCode.INVALID_REQUEST
    assert "1001" in (text or "")


def grow(world: World, count: int, *rows: list[int]) -> tuple[int, str | None]:
    assignments = [CreatePartitionsAssignment(nodes) for nodes in rows]
    asked = CreatePartitionsTopic("t", count, assignments)
    result = world.ask(3, CreatePartitionsRequest([asked], 5_000), 3).results[0]
    return result.error_code, result.error_message


def test_new_partitions_too() -> None:
    world = world_of()
    create(world, assigned("t", [1, 2, 3]))
    assert grow(world, 3, [2, 1, 3], [3, 1, 2]) == (0, None)
    assert [IDEAL[group] for group in groups_of(world, "t")] == [1, 2, 3]
    error, text = grow(world, 5, [1, 2, 3])
    assert error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "only 1 assignment(s)" in (text or "")


def test_fewer_partitions_are_refused_in_plain_words() -> None:
    world = world_of()
    create(world, CreatableTopic("t", 4, 3))
    for count, words in (
        (4, "Topic already has 4 partition(s)"),
        (2, "The topic t currently has 4 partition(s); 2 would not be an increase"),
    ):
        asked = CreatePartitionsTopic("t", count)
        [result] = world.ask(3, CreatePartitionsRequest([asked], 5_000), 3).results
        assert (result.error_code, result.error_message) == (ErrorCode.INVALID_PARTITIONS, words)


def gated(world: World, node: int) -> FormatGate:
    """The node's engine asks before it writes, as a real one does."""
    groups, registry = world[node].groups, world[node].registry
    gate = FormatGate(lambda: registry.cluster_version.version, lambda: "node 3 is older")
    submit: Any = groups.submit

    def submitted(group: GroupId, chunks: Any, done: Callable[[Outcome], None], **how: Any) -> None:
        refusal = gate.refusal(chunks[0])
        if refusal is None:
            submit(group, chunks, done, **how)
        else:
            done(Done(refusal))

    groups.submit = submitted  # type: ignore[method-assign]
    return gate


def test_while_a_node_cannot_read_it_the_client_gets_the_reason_and_tries_again() -> None:
    world = world_of()
    gated(world, 2)
    reply = world.send(2, CreateTopicsRequest([assigned("t", [3, 1, 2])], timeout_ms=9_000), 7)
    world.advance(1_000)
    assert not reply.settled, "in a new cluster it is a matter of a moment"
    world.advance(3_000)
    (topic,) = reply.response.topics
    assert topic.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert topic.error_message.startswith("this needs cluster version 2, and the cluster is at 1")
    assert "node 3 is older" in topic.error_message
    assert "t" not in world[1].registry.topics


def test_it_is_carried_out_as_soon_as_the_cluster_version_allows_it() -> None:
    world = world_of()
    gated(world, 2)
    reply = world.send(2, CreateTopicsRequest([assigned("t", [3, 1, 2])], timeout_ms=9_000), 7)
    world.advance(500)
    world.run(RaiseClusterVersion(2))
    world.advance(1_000)
    assert [topic.error_code for topic in reply.response.topics] == [0]
    assert groups_of(world, "t")


def test_what_needs_no_later_version_is_carried_out_at_once() -> None:
    world = world_of()
    gated(world, 2)
    assert create(world, CreatableTopic("t", 2, 3)) == (0, None)


def test_the_topics_of_one_request_are_spread_like_those_of_many() -> None:
    world = world_of()
    made = [assigned(f"t{number}", [1, 2, 3]) for number in range(4)]
    results = world.ask(2, CreateTopicsRequest(made), 7).topics
    assert [one.error_code for one in results] == [0] * 4
    groups = [groups_of(world, topic.name)[0] for topic in made]
    assert sorted(groups) == [1, 1, 4, 4], "those that node 1 leads, in turn"


def test_all_groups_are_looked_at_once_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each topic anew, a thousand topics over 300 groups held the loop for two seconds."""
    world = world_of()
    looked: list[int] = []
    registry = world[2].registry
    before = type(registry).partitions_of_group

    def counted(one: Registry, group: GroupId) -> Mapping[int, Partition]:
        looked.append(group)
        return before(one, group)

    monkeypatch.setattr(type(registry), "partitions_of_group", counted)
    made = [assigned(f"t{number}", [1, 2, 3], [2, 3, 1]) for number in range(100)]
    asked = world.send(2, CreateTopicsRequest(made, validate_only=True), 7)
    world.advance(100)
    assert [one.error_code for one in asked.response.topics] == [0] * 100
    assert len(looked) == 6
    more = CreatePartitionsAssignment([1, 2, 3])
    world.ask(2, CreateTopicsRequest([CreatableTopic(f"u{n}", 1, 1) for n in range(20)]), 7)
    looked.clear()
    grown = [CreatePartitionsTopic(f"u{number}", 2, [more]) for number in range(20)]
    answer = world.ask(2, CreatePartitionsRequest(grown, 1_000, True), 3)
    assert [one.error_code for one in answer.results] == [0] * 20
    assert len(looked) == 6


def test_who_creates_many_topics_lets_others_have_their_turn() -> None:
    """Checked in steps, and what is said of them is put together in another thread."""
    world = world_of()
    made = [CreatableTopic(f"t{number}", 1, 1) for number in range(200)]
    creates = world.send(2, CreateTopicsRequest(made, validate_only=True), 7)
    assert not creates.settled
    world.cluster.settle()
    world.advance(100)
    results = creates.response.topics
    assert [one.error_code for one in results] == [0] * 200
    assert [one.name for one in results] == [topic.name for topic in made]
    assert len(results[0].configs) == len(results[199].configs) > 30


def test_nor_does_who_changes_many() -> None:
    world = world_of()
    for first in range(0, 60, 20):
        made = [CreatableTopic(f"t{number}", 1, 1) for number in range(first, first + 20)]
        world.ask(2, CreateTopicsRequest(made), 7)
    setting = [IncrementalAlterableConfig("retention.ms", 0, "5000")]
    resources = [IncrementalAlterConfigsResource(2, f"t{n}", setting) for n in range(60)]
    alters = world.send(2, IncrementalAlterConfigsRequest(resources, validate_only=True), 1)
    grown = [CreatePartitionsTopic(f"t{number}", 2) for number in range(60)]
    grows = world.send(2, CreatePartitionsRequest(grown, 1_000, True), 3, client="another")
    assert not alters.settled
    assert not grows.settled
    world.advance(100)
    assert [one.error_code for one in alters.response.responses] == [0] * 60
    assert [one.error_code for one in grows.response.results] == [0] * 60


def test_nor_does_who_deletes_many(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    for first in range(0, 60, 20):
        made = [CreatableTopic(f"t{number}", 1, 1) for number in range(first, first + 20)]
        world.ask(2, CreateTopicsRequest(made), 7)
    begun: list[object] = []
    submit = topics.submit

    def counted(*arguments: Any) -> None:
        begun.append(None)
        submit(*arguments)

    monkeypatch.setattr(topics, "submit", counted)
    named = [f"t{number}" for number in range(60)]
    deletes = world.send(2, DeleteTopicsRequest(named, [], 60_000), 5)
    assert len(begun) == topics.TOPICS_STEP
    world.advance(100)
    assert [one.error_code for one in deletes.response.responses] == [0] * 60
    assert len(begun) == 60
