"""Consumer groups through real frames: rebalances, commits, and coordinators that move.

A group "g" hashes to some Paxos group; `coordinator_of` asks FindCoordinator, as clients do.
"""

import pytest

from balancer.registry.registry import Registry
from broker.groups.consumer_groups import paxos_group_of
from coordinator.limits import DAY_MS, CoordinatorConfig
from coordinator.model import ConsumerGroupId
from paxos.ids import MS
from tests.broker.group_members import (
    SESSION_MS,
    Member,
    coordinator_of,
    paxos_group,
    two_members,
    world_with_topic,
)
from tests.broker.world import World
from wire.apis import APIS, ApiKey
from wire.error_codes import ErrorCode
from wire.messages.assigned_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from wire.messages.membership import (
    FindCoordinatorRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)


def test_the_life_of_a_group() -> None:
    """Two members join, get shares, live and commit; one leaves and the other gets everything."""
    world = world_with_topic()
    one, other = two_members(world)
    assert one.heartbeat() == other.heartbeat() == ErrorCode.NONE
    assert one.commit(17) == ErrorCode.NONE
    assert one.committed() == other.committed() == 17
    assert one.committed(partition=1) == -1
    assert other.leave() == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    asked = one.join()
    world.advance(200)
    response = one.joined(asked)
    assert [member.member_id for member in response.members] == [one.member_id]
    assert one.sync({one.member_id: b"all"}).response.assignment == b"all"
    assert one.leave(version=5) == ErrorCode.NONE
    assert one.committed() == 17


def test_a_steal_of_the_coordinator_is_no_rebalance() -> None:
    """The old master says so, and the new one is found; generation and assignment stay."""
    world = world_with_topic()
    one, other = two_members(world)
    generation = one.generation
    assert one.commit(5) == ErrorCode.NONE
    world.cluster.install(paxos_group(world), 2)
    assert one.heartbeat() == ErrorCode.NOT_COORDINATOR
    assert one.commit(6) == ErrorCode.NOT_COORDINATOR
    for member in (one, other):
        member.node = coordinator_of(world)
        assert member.node == 2
        assert member.heartbeat() == ErrorCode.NONE
        assert member.generation == generation
    assert one.sync().response.assignment == b"0,1"
    assert one.committed() == 5
    assert one.commit(7) == ErrorCode.NONE
    assert other.committed() == 7
    world.advance(5_000)
    assert one.heartbeat() == other.heartbeat() == ErrorCode.NONE
    world.cluster.install(paxos_group(world), 1)
    assert one.heartbeat(node=1) == ErrorCode.NONE
    assert one.heartbeat(node=2) == ErrorCode.NOT_COORDINATOR


def test_a_steal_in_the_middle_of_a_rebalance() -> None:
    """Members that wait in JoinGroup get NOT_COORDINATOR at once, and join again at the new one."""
    world = world_with_topic()
    one, other = two_members(world)
    newcomer = Member(world)
    waiting = newcomer.join()
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    world.cluster.install(paxos_group(world), 3)
    assert waiting.response.error_code == ErrorCode.NOT_COORDINATOR
    newcomer.member_id = ""
    members = (newcomer, one, other)
    for member in members:
        member.node = coordinator_of(world)
    asked = [member.join() for member in members]
    world.advance(200)
    generations = {
        member.joined(one).generation_id for member, one in zip(members, asked, strict=True)
    }
    assert len(generations) == 1


def test_members_are_not_lost_while_their_coordinator_is_away() -> None:
    """Sessions start anew at the new coordinator, and members that never come back time out
    there."""
    world = world_with_topic()
    one, _ = two_members(world)
    world.cluster.install(paxos_group(world), None)
    world.advance(SESSION_MS * 2, step_ms=100)
    world.cluster.install(paxos_group(world), 2)
    one.node = coordinator_of(world)
    assert one.heartbeat() == ErrorCode.NONE
    world.advance(SESSION_MS - 1_000, step_ms=100)
    assert one.heartbeat() == ErrorCode.NONE
    world.advance(2_000, step_ms=100)
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    asked = one.join()
    world.advance(200)
    assert len(one.joined(asked).members) == 1


def test_a_wall_clock_that_jumps_costs_nobody_its_session() -> None:
    """Session deadlines use the monotonic clock; the wall clock is only for what is written
    down."""
    world = world_with_topic()
    members = two_members(world)
    for days in (1, -3, 2):
        world.cluster.clock.wall_offset_ns += days * DAY_MS * MS
        world.advance(SESSION_MS // 2, step_ms=500)
        assert [member.heartbeat() for member in members] == [ErrorCode.NONE, ErrorCode.NONE]
    world.advance(SESSION_MS, step_ms=500)
    assert members[0].heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_strangers_and_latecomers() -> None:
    world = world_with_topic()
    one, other = two_members(world)
    stranger = Member(world)
    stranger.member_id, stranger.generation = "nobody", one.generation
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    one.generation -= 1
    assert one.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert one.commit(1) == ErrorCode.ILLEGAL_GENERATION
    assert other.commit(1, topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.commit(1, partition=4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_static_member_restarts_without_a_rebalance() -> None:
    """KIP-345 on the wire: same instance, new member id, same assignment; nobody else notices."""
    world = world_with_topic()
    members = [Member(world, instance="a"), Member(world, instance="b")]
    asked = [member.join() for member in members]
    world.advance(200)
    for member, one in zip(members, asked, strict=True):
        member.joined(one)
    leader = next(m for m, one in zip(members, asked, strict=True) if one.response.members)
    follower = next(member for member in members if member is not leader)
    leader.sync({leader.member_id: b"0,1", follower.member_id: b"2,3"})
    follower.sync()
    generation, old_id = follower.generation, follower.member_id
    follower.member_id = ""
    follower.joined(follower.join())
    assert follower.generation == generation
    assert follower.member_id != old_id
    assert follower.sync().response.assignment == b"2,3"
    assert leader.heartbeat() == ErrorCode.NONE


@pytest.mark.parametrize(("kind", "name"), [(None, "range"), ("consumer", None), (None, None)])
def test_a_sync_names_its_protocol(kind: str | None, name: str | None) -> None:
    """From version 5 on, as in Kafka (KIP-559); an earlier one cannot, and is answered."""
    world = world_with_topic()
    member = Member(world)
    asked = member.join()
    world.advance(200)
    member.joined(asked)
    share = [SyncGroupRequestAssignment(member.member_id, b"all")]
    request = SyncGroupRequest(
        member.group, member.generation, member.member_id, None, kind, name, share
    )
    response = world.ask(member.node, request, 5)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert response.assignment == b""
    assert member.heartbeat() == ErrorCode.NONE
    assert world.ask(member.node, request, 4).assignment == b"all"


@pytest.mark.parametrize("version", range(APIS[ApiKey.JOIN_GROUP].accepted.last + 1))
def test_every_version_of_the_group_protocol(version: int) -> None:
    """A lone member lives its whole life with the versions that a client of that age uses."""
    world = world_with_topic()
    member = Member(world)
    asked = member.join(version)
    world.advance(200)
    response = member.joined(asked)
    assert response.protocol_name == "range"
    assert member.sync({member.member_id: b"all"}, min(version, 5)).response.assignment == b"all"
    assert member.heartbeat(version=min(version, 4)) == ErrorCode.NONE
    refused = Member(world)
    refused.member_id = "nobody"
    error = refused.join(version).response
    assert error.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert error.protocol_name == (None if version >= 7 else "")
    assert member.leave(min(version, 5)) == ErrorCode.NONE


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_into_a_group_that_is_not_there(version: int) -> None:
    world = world_with_topic()
    topics = [OffsetCommitRequestTopic("orders", [OffsetCommitRequestPartition(1, 9)])]
    request = OffsetCommitRequest("g", 3, "someone", topics=topics)
    [topic] = world.ask(coordinator_of(world), request, version).topics
    known = version >= 9
    assert topic.partitions[0].error_code == (
        ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
    )


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_in_every_version(version: int) -> None:
    world = world_with_topic()
    partitions = [OffsetCommitRequestPartition(1, 9, committed_metadata="m")]
    topics = [OffsetCommitRequestTopic("orders", partitions)]
    request = OffsetCommitRequest("g", retention_time_ms=1_000, topics=topics)
    response = world.ask(1, request, version)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = [OffsetFetchRequestTopic("orders", [0, 1])]
    if version >= 8:
        groups = [OffsetFetchRequestGroup("g", topics=wanted), OffsetFetchRequestGroup("h")]
        first, second = world.ask(1, OffsetFetchRequest(groups=groups), version).groups
        assert (second.group_id, second.topics, second.error_code) == ("h", [], ErrorCode.NONE)
        fetched = first.topics
    else:
        fetched = world.ask(1, OffsetFetchRequest("g", topics=wanted), version - 1).topics
    offsets = [(one.partition_index, one.committed_offset) for one in fetched[0].partitions]
    assert offsets == [(0, -1), (1, 9)]
    everything = world.ask(1, OffsetFetchRequest("g", topics=None), 7)
    assert [one.committed_offset for one in everything.topics[0].partitions] == [9]


def test_the_oldest_offset_fetch_has_its_error_at_each_partition() -> None:
    world = world_with_topic()
    wanted = [OffsetFetchRequestTopic("orders", [0, 1])]
    response = world.ask(2, OffsetFetchRequest("g", topics=wanted), 1)
    errors = [one.error_code for one in response.topics[0].partitions]
    assert errors == [ErrorCode.NOT_COORDINATOR] * 2


@pytest.mark.parametrize("version", range(5))
def test_find_coordinator_in_every_version(version: int) -> None:
    world = World()
    request = FindCoordinatorRequest("g", coordinator_keys=["g", "h"])
    response = world.ask(3, request, version)
    found = response.coordinators if version >= 4 else [response]
    assert [one.node_id for one in found] == [1] * len(found)
    if version >= 1:
        refused = FindCoordinatorRequest("tx", 1, coordinator_keys=["tx"])
        response = world.ask(3, refused, version)
        one = response.coordinators[0] if version >= 4 else response
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # what librdkafka gives up on
        assert one.error_code == (denied if version < 3 else ErrorCode.UNSUPPORTED_VERSION)
        assert "transactions are not supported" in one.error_message
        strange = world.ask(3, FindCoordinatorRequest("x", 2), 2)
        assert strange.error_code == ErrorCode.INVALID_REQUEST


def test_find_coordinator_waits_for_one() -> None:
    world = World()
    group = paxos_group(world)
    world.cluster.install(group, None)
    asked = world.send(2, FindCoordinatorRequest("g"), 2)
    hopeless = world.send(2, FindCoordinatorRequest("g"), 2)
    world.advance(500)
    assert not asked.settled
    world.cluster.install(group, 3)
    world.advance(20)
    assert asked.response.node_id == hopeless.response.node_id == 3
    world.cluster.install(group, None)
    asked = world.send(2, FindCoordinatorRequest("g"), 2)
    world.advance(1_020)
    assert asked.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_before_the_cluster_is_founded_nobody_coordinates() -> None:
    assert paxos_group_of(Registry(), "g") is None


def test_groups_are_listed_described_and_deleted_where_they_live() -> None:
    """Every node reports its own groups; together they report all."""
    world = world_with_topic()
    one, other = two_members(world)
    names = [f"simple-{number}" for number in range(8)]
    for name in names:
        partitions = [OffsetCommitRequestPartition(0, 1)]
        topics = [OffsetCommitRequestTopic("orders", partitions)]
        world.ask(1, OffsetCommitRequest(name, topics=topics), 8)
    for group in range(1, 5):
        world.cluster.install(group, 1 + group % 3)
    listed: list[str] = []
    for node in (1, 2, 3):
        groups = world.ask(node, ListGroupsRequest(), 5).groups
        listed += [one.group_id for one in groups]
        assert {one.group_type for one in groups} <= {"classic"}
    assert sorted(listed) == sorted(["g", *names])
    node = coordinator_of(world)
    stable = world.ask(node, ListGroupsRequest(["stable"]), 5).groups
    assert [(one.group_id, one.group_state) for one in stable] == [("g", "Stable")]
    assert world.ask(node, ListGroupsRequest(types_filter=["consumer"]), 5).groups == []
    described = world.ask(node, DescribeGroupsRequest(["g"], True), 5).groups[0]
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert {one.member_id for one in described.members} == {one.member_id, other.member_id}
    assert {one.client_host for one in described.members} == {"/198.51.100.7"}
    assert described.authorized_operations > 0
    elsewhere = world.ask(1 + node % 3, DescribeGroupsRequest(["g"]), 5).groups[0]
    assert elsewhere.error_code == ErrorCode.NOT_COORDINATOR
    deleted = world.ask(node, DeleteGroupsRequest(["g", "g"]), 2).results
    assert [(one.group_id, one.error_code) for one in deleted] == [("g", ErrorCode.NON_EMPTY_GROUP)]
    for name in names:
        result = world.ask(coordinator_of(world, name), DeleteGroupsRequest([name]), 2).results[0]
        assert result.error_code == ErrorCode.NONE


def test_an_operator_forgets_how_far_a_group_has_come() -> None:
    """Not while a member subscribes to the topic; these members do not even say what they subscribe
    to."""

    def delete(*partitions: int) -> OffsetDeleteResponse:
        topic = OffsetDeleteTopic("orders", [OffsetDeletePartition(one) for one in partitions])
        node = coordinator_of(world)
        return world.ask(node, OffsetDeleteRequest("g", [topic]), 0)  # type: ignore[no-any-return]

    world = world_with_topic()
    assert delete(0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    one, two = two_members(world)
    one.commit(7)
    one.commit(8, partition=1)
    used = delete(0).topics[0].partitions[0]
    assert used.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert one.committed() == 7
    for member in (one, two):
        member.leave()
    gone = delete(0, 3, 77, -1)
    assert gone.error_code == ErrorCode.NONE
    (topic,) = gone.topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    told = [(one.partition_index, one.error_code) for one in topic.partitions]
    assert told == [(0, 0), (3, 0), (77, unknown), (-1, unknown)]
    assert (one.committed(), one.committed(1)) == (-1, 8)


def test_offsets_that_nobody_needs_any_more_are_swept() -> None:
    """After the retention time the coordinator removes the offsets of an empty group, through the
    log."""
    world = world_with_topic()
    topics = [OffsetCommitRequestTopic("orders", [OffsetCommitRequestPartition(0, 1)])]
    world.ask(1, OffsetCommitRequest("g", topics=topics), 8)
    stores = [node.machines[paxos_group(world)].consumer_groups for node in world.nodes.values()]
    assert [len(store) for store in stores] == [1, 1, 1]
    world.advance(120_000, step_ms=10_000)
    retention_ms = CoordinatorConfig().offsets_retention_ms
    world.advance(retention_ms + 180_000, step_ms=retention_ms)
    world.advance(1_200_000, step_ms=10_000)
    assert [len(store) for store in stores] == [0, 0, 0]


def test_offsets_expire_though_masters_move_more_often_than_they_look() -> None:
    """A node looks once a minute by the clock, not a minute after it became master."""
    world = world_with_topic()
    topics = [OffsetCommitRequestTopic("orders", [OffsetCommitRequestPartition(0, 1)])]
    world.ask(1, OffsetCommitRequest("g", topics=topics), 8)
    group = paxos_group(world)
    stores = [node.machines[group].consumer_groups for node in world.nodes.values()]
    retention_ms = CoordinatorConfig().offsets_retention_ms

    def moving(times: int) -> None:
        for turn in range(times):
            world.cluster.install(group, turn % 3 + 1)
            world.advance(30_000, step_ms=10_000)

    moving(9)
    world.cluster.install(group, None)
    world.advance(retention_ms + 180_000, step_ms=retention_ms)
    moving(45)
    assert [len(store) for store in stores] == [0, 0, 0]


def test_a_new_topic_begins_without_the_offsets_of_its_namesake() -> None:
    """Otherwise its readers would skip everything before the old topic's position."""
    world = world_with_topic()
    one, two = two_members(world)
    one.commit(1_000)
    assert one.committed() == 1_000
    deleted = world.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState("orders")]), 6)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    world.ask(1, CreateTopicsRequest([CreatableTopic("orders", 4, -1)]), 7)
    world.advance(20)
    assert one.committed() == -1
    assert (one.heartbeat(), two.heartbeat()) == (0, 0)
    one.commit(7)
    world.ask(1, CreateTopicsRequest([CreatableTopic("others", 4, -1)]), 7)
    world.advance(20)
    assert one.committed() == 7


def test_offsets_do_not_come_back_where_nobody_coordinated_while_the_topic_was_made_anew() -> None:
    """No coordinator saw the deletion, and the next coordinator is another node."""
    world = world_with_topic()
    one, _ = two_members(world)
    one.commit(1_000)
    group = paxos_group_of(world[1].registry, "g")
    assert group is not None
    world.cluster.install(group, None)
    deleted = world.ask(1, DeleteTopicsRequest(topics=[DeleteTopicState("orders")]), 6)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    world.ask(1, CreateTopicsRequest([CreatableTopic("orders", 4, -1)]), 7)
    world.advance(20)
    world.cluster.install(group, 2)
    everything = world.ask(2, OffsetFetchRequest("g", topics=None), 7)
    assert everything.topics == []
    world.advance(40)
    stored = world[2].machines[group].consumer_groups.get(ConsumerGroupId("g"))
    assert stored is not None
    assert stored.offsets == {}


def test_statistics_and_notices_of_a_consumer_group() -> None:
    world = world_with_topic()
    groups = world[1].consumer_groups
    two_members(world)
    statistics = dict(groups.statistics())
    assert statistics[paxos_group(world)].members == 2
    assert [notice.what for group, notice in world[1].notices if group == paxos_group(world)]


def test_a_group_that_the_broker_shares_out_is_joined_and_described() -> None:
    """Its description names its members' hosts, as for a classic group."""
    world = world_with_topic()
    node = coordinator_of(world)
    join = ConsumerGroupHeartbeatRequest(
        "g",
        "me",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    joined = world.ask(node, join, 1)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.NONE, "me", 1)
    (given,) = joined.assignment.topic_partitions
    assert sorted(given.partitions) == [0, 1, 2, 3]
    (group,) = world.ask(node, ConsumerGroupDescribeRequest(["g"]), 1).groups
    (member,) = group.members
    assert (group.group_state, member.member_id) == ("Stable", "me")
    assert member.client_host == "/198.51.100.7"
    assert member.assignment.topic_partitions[0].topic_name == "orders"


def test_its_states_are_listed_by_name_in_any_case() -> None:
    """A second member that waits for what the first one has not given up yet."""
    world = world_with_topic()
    node = coordinator_of(world)
    for member in ("one", "two"):
        join = ConsumerGroupHeartbeatRequest(
            "g",
            member,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        assert world.ask(node, join, 1).error_code == ErrorCode.NONE
    for name in ("reconciling", "Reconciling", "RECONCILING"):
        (group,) = world.ask(node, ListGroupsRequest([name]), 5).groups
        assert (group.group_id, group.group_state) == ("g", "Reconciling")
    assert world.ask(node, ListGroupsRequest(["stable"]), 5).groups == []


def test_a_member_of_such_a_group_says_who_it_is() -> None:
    """From the version on that can carry it: its own id (KIP-1082), and whose offsets it asks
    for."""
    world = world_with_topic()
    node = coordinator_of(world)
    join = ConsumerGroupHeartbeatRequest(
        "g",
        "",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    assert world.ask(node, join, 1).error_code == ErrorCode.INVALID_REQUEST
    joined = world.ask(node, join, 0)
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)
    answers = []
    for member, epoch in ((joined.member_id, 1), (joined.member_id, 2), ("liar", 1), (None, -1)):
        asked = OffsetFetchRequestGroup("g", topics=None, member_id=member, member_epoch=epoch)
        (group,) = world.ask(node, OffsetFetchRequest(groups=[asked]), 9).groups
        answers.append(group.error_code)
    assert answers == [
        ErrorCode.NONE,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize("version", [1, 7, 8, 9])
def test_a_fetch_of_very_many_offsets_is_served_in_portions(version: int) -> None:
    """A frame of a megabyte names a quarter of a million partitions, each with 4 kB of metadata."""
    world = world_with_topic()
    node = coordinator_of(world)
    partitions = [OffsetCommitRequestPartition(0, 5, 3, "note")]
    commit = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("orders", partitions)])
    assert not world.ask(node, commit, 8).topics[0].partitions[0].error_code
    topics = [OffsetFetchRequestTopic("orders", [0] * 2_010), OffsetFetchRequestTopic("u", [1])]
    groups = [OffsetFetchRequestGroup("g", topics=topics)]
    if version < 8:
        asked = world.send(node, OffsetFetchRequest("g", topics=topics), version)
    else:
        asked = world.send(node, OffsetFetchRequest(groups=groups), version)
    assert not asked.settled, "it was served in one piece"
    for _ in range(200):
        world.cluster.advance(10)
    answer = asked.response
    told = answer.topics if version < 8 else answer.groups[0].topics
    assert [one.name for one in told] == ["orders", "u"]
    assert [one.committed_offset for one in told[0].partitions] == [5] * 2_010
    assert [one.committed_offset for one in told[1].partitions] == [-1]
