"""A topic, and members of consumer groups that speak the group protocol one request at a time."""

from typing import Any

from broker.groups.consumer_groups import paxos_group_of
from paxos.ids import GroupId
from tests.broker.world import Asked, World
from wire.error_codes import ErrorCode
from wire.messages.membership import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
)

SESSION_MS = 10_000


def world_with_topic(**settings: Any) -> World:
    world = World(**settings)
    world.ask(1, CreateTopicsRequest([CreatableTopic("orders", 4, -1)]), 7)
    return world


def paxos_group(world: World, name: str = "g") -> GroupId:
    group = paxos_group_of(world[1].registry, name)
    assert group is not None
    return group


def coordinator_of(world: World, name: str = "g", *, ask: int = 1) -> int:
    response = world.ask(ask, FindCoordinatorRequest(name), 2)
    assert response.error_code == ErrorCode.NONE
    assert (response.host, response.port) == (f"node-{response.node_id}", 9000 + response.node_id)
    return int(response.node_id)


class Member:
    """A client's side of the group protocol, one request at a time."""

    def __init__(self, world: World, *, instance: str | None = None, group: str = "g") -> None:
        self.world = world
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.node = coordinator_of(world, group)

    def join(self, version: int = 5) -> Asked:
        request = JoinGroupRequest(
            self.group,
            SESSION_MS,
            SESSION_MS,
            self.member_id,
            self.instance,
            "consumer",
            [JoinGroupRequestProtocol("range", b"subscription of " + self.member_id.encode())],
        )
        asked = self.world.send(self.node, request, version, client="app")
        self.world.cluster.settle()
        if asked.settled and asked.response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = asked.response.member_id
            return self.join(version)
        return asked

    def joined(self, asked: Asked) -> JoinGroupResponse:
        response: JoinGroupResponse = asked.response
        assert response.error_code == ErrorCode.NONE
        self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def sync(self, assignments: dict[str, bytes] | None = None, version: int = 3) -> Asked:
        shares = [SyncGroupRequestAssignment(*one) for one in (assignments or {}).items()]
        request = SyncGroupRequest(
            self.group,
            self.generation,
            self.member_id,
            self.instance,
            "consumer",
            "range",
            shares,
        )
        asked = self.world.send(self.node, request, version)
        self.world.cluster.settle()
        return asked

    def heartbeat(self, *, node: int | None = None, version: int = 3) -> int:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        return int(self.world.ask(node or self.node, request, version).error_code)

    def commit(self, offset: int, *, topic: str = "orders", partition: int = 0) -> int:
        partitions = [OffsetCommitRequestPartition(partition, offset, 3, "note")]
        request = OffsetCommitRequest(
            self.group,
            self.generation,
            self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(topic, partitions)],
        )
        response = self.world.ask(self.node, request, 8)
        return int(response.topics[0].partitions[0].error_code)

    def committed(self, partition: int = 0) -> int:
        topics = [OffsetFetchRequestTopic("orders", [partition])]
        response = self.world.ask(self.node, OffsetFetchRequest(self.group, topics=topics), 7)
        assert response.error_code == ErrorCode.NONE
        return int(response.topics[0].partitions[0].committed_offset)

    def leave(self, version: int = 1) -> int:
        members = [MemberIdentity(self.member_id, self.instance)]
        request = LeaveGroupRequest(self.group, self.member_id, members)
        response = self.world.ask(self.node, request, version)
        return int(response.error_code)


def two_members(world: World) -> tuple[Member, Member]:
    """A stable generation in which each has half of the partitions; the leader is first."""
    one, other = Member(world), Member(world)
    asked = one.join(), other.join()
    world.advance(200)
    first, second = one.joined(asked[0]), other.joined(asked[1])
    assert first.generation_id == second.generation_id
    if second.leader == other.member_id:
        one, other, first, second = other, one, second, first
    assert {member.member_id for member in first.members} == {one.member_id, other.member_id}
    assert second.members == []
    waiting = other.sync()
    assert not waiting.settled
    leader = one.sync({one.member_id: b"0,1", other.member_id: b"2,3"})
    assert (leader.response.assignment, waiting.response.assignment) == (b"0,1", b"2,3")
    return one, other


def commit_under_way(world: World, member: Member, offset: int) -> Asked:
    partitions = [OffsetCommitRequestPartition(0, offset)]
    topics = [OffsetCommitRequestTopic("orders", partitions)]
    request = OffsetCommitRequest("g", member.generation, member.member_id, topics=topics)
    return world.send(member.node, request, 8)


def error_of(asked: Asked) -> int:
    return int(asked.response.topics[0].partitions[0].error_code)
