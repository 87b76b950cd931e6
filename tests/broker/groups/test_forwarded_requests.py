"""What members ask their former coordinator is passed on to the new one."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest

from broker.groups import forwarded_requests
from broker.groups.consumer_groups import paxos_group_of
from broker.groups.forwarded_requests import RequestForwarding, Verdict
from broker.proposals.intake import FailureReason, NotDone
from coordinator import carried, model
from paxos.ids import MS, GroupId, Incarnation, NodeId
from tests.broker.group_members import (
    Member,
    commit_under_way,
    error_of,
    paxos_group,
    two_members,
    world_with_topic,
)
from tests.broker.world import CLIENT_HOST, Asked, World
from wire.error_codes import ErrorCode
from wire.messages.assigned_groups import ConsumerGroupHeartbeatRequest
from wire.messages.group_admin import DescribeGroupsRequest
from wire.messages.membership import HeartbeatRequest, LeaveGroupRequest
from wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)


class Links:
    """One node's links; what it sends waits until `Links.deliver`."""

    def __init__(self, net: "Net", me: NodeId) -> None:
        self._net, self._me = net, me

    def takes(self, to: NodeId) -> bool:
        return to not in self._net.cut

    def ask(
        self, to: NodeId, number: int, group: GroupId, epoch: int, until_wall_ns: int, body: bytes
    ) -> bool:
        asked = (self._me, number, group, epoch, until_wall_ns, body)
        self._net.send(to, lambda forwarding: forwarding.on_request(*asked))
        self._net.asked += 1
        return True

    def answer(self, to: NodeId, number: int, verdict: Verdict, body: bytes) -> None:
        answer = (self._me, number, verdict, body)
        self._net.send(to, lambda forwarding: forwarding.on_answer(*answer))


class Net:
    """All nodes of a world know how to pass requests on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked = 0
        self.cut: set[int] = set()
        self.held = False
        self.queue: deque[tuple[NodeId, Callable[[RequestForwarding], None]]] = deque()
        self.nodes: dict[NodeId, RequestForwarding] = {}
        for number, node in world.nodes.items():
            here = node.consumer_groups
            here._group_of = partial(paxos_group_of, node.registry)
            here.forwarding = self.nodes[number] = RequestForwarding(
                number, Incarnation(7), node.groups, here, Links(self, number)
            )
        settle = world.cluster.settle

        def settled() -> None:
            """The log moves on, and so do the links, until nothing is left."""
            settle()
            while self.queue and not self.held:
                self.deliver(1)
                settle()

        world.cluster.settle = settled  # type: ignore[method-assign]

    def __getitem__(self, node: int) -> RequestForwarding:
        return self.nodes[NodeId(node)]

    def send(self, to: NodeId, what: Callable[[RequestForwarding], None]) -> None:
        self.queue.append((to, what))

    def deliver(self, count: int | None = None) -> None:
        for _ in range(len(self.queue) if count is None else count):
            to, what = self.queue.popleft()
            what(self.nodes[to])


@pytest.fixture
def net() -> Net:
    return Net(world_with_topic())


def test_a_move_of_the_coordinator_is_not_noticed(net: Net) -> None:
    """Whatever members ask the old node is answered by the new one, again and again."""
    world = net.world
    one, other = two_members(world)
    generation = one.generation
    for move, master in enumerate([2, 3, 1, 3, 2]):
        world.cluster.install(paxos_group(world), master)
        assert one.heartbeat() == other.heartbeat() == ErrorCode.NONE
        assert one.commit(10 + move) == ErrorCode.NONE
        assert other.committed() == 10 + move
        assert one.sync().response.assignment == b"0,1"
        world.advance(2_000)
    assert one.generation == other.generation == generation
    assert net[1].statistics.forwarded == net.asked > 0
    assert not net[1].statistics.returned
    assert other.leave() == ErrorCode.NONE
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    asked = one.join()
    world.advance(200)
    assert [member.member_id for member in one.joined(asked).members] == [one.member_id]


def test_sessions_are_kept_by_what_is_passed_on_and_by_nothing_else(net: Net) -> None:
    world = net.world
    one, other = two_members(world)
    world.cluster.install(paxos_group(world), 3)
    for _ in range(8):
        world.advance(2_000)
        assert one.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert other.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_new_coordinator_knows_the_client_and_its_address(net: Net) -> None:
    """DescribeGroups shows who the member is, not the node that has passed its request on."""
    world = net.world
    first = Member(world)
    assert first.commit(1) == ErrorCode.NONE
    world.cluster.install(paxos_group(world), 2)
    member = Member(world)
    member.node = 1
    asked = member.join()
    world.advance(200)
    member.joined(asked)
    (group,) = world.ask(2, DescribeGroupsRequest(["g"]), 5).groups
    (described,) = group.members
    assert described.client_id == "app"
    assert described.client_host == f"/{CLIENT_HOST}"


def test_members_that_wait_for_others_wait_at_the_new_coordinator(net: Net) -> None:
    """A rebalance that is going on when the coordinator moves, twice, ends without an error."""
    world = net.world
    one, other = two_members(world)
    joined = one.join()
    assert not joined.settled
    for master in (2, 3):
        world.cluster.install(paxos_group(world), master)
        world.cluster.settle()
        world.advance(100)
        assert not joined.settled
    second = other.join()
    world.advance(200)
    responses = one.joined(joined), other.joined(second)
    assert len({response.generation_id for response in responses}) == 1
    leader, follower = (one, other) if responses[0].members else (other, one)
    waiting = follower.sync()
    world.cluster.install(paxos_group(world), 2)
    world.cluster.settle()
    assert not waiting.settled
    leader.sync({leader.member_id: b"a", follower.member_id: b"b"})
    assert waiting.response.assignment == b"b"


def test_a_member_of_the_new_protocol_keeps_its_epoch(net: Net) -> None:
    """KIP-848: ConsumerGroupHeartbeat, and OffsetFetch with a member and its epoch."""
    world = net.world
    join = ConsumerGroupHeartbeatRequest(
        "g", "me", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"],
        topic_partitions=[],
    )  # fmt: skip
    epoch = world.ask(1, join, 1).member_epoch
    world.cluster.install(paxos_group(world), 2)
    beat = ConsumerGroupHeartbeatRequest("g", "me", epoch)
    answer = world.ask(1, beat, 1)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)
    topics = [OffsetFetchRequestTopic("orders", [0])]
    asked = OffsetFetchRequestGroup("g", topics=topics, member_id="me", member_epoch=epoch)
    (group,) = world.ask(1, OffsetFetchRequest(groups=[asked]), 9).groups
    assert group.error_code == ErrorCode.NONE
    stale = attrs.evolve(asked, member_epoch=epoch - 1)
    (group,) = world.ask(1, OffsetFetchRequest(groups=[stale]), 9).groups
    assert group.error_code == ErrorCode.STALE_MEMBER_EPOCH


def test_what_operators_ask_is_not_passed_on(net: Net) -> None:
    world = net.world
    two_members(world)
    world.cluster.install(paxos_group(world), 2)
    (group,) = world.ask(1, DescribeGroupsRequest(["g"]), 5).groups
    assert group.error_code == ErrorCode.NOT_COORDINATOR


def test_only_a_former_coordinator_passes_requests_on(net: Net) -> None:
    world = net.world
    one, _ = two_members(world)
    assert one.heartbeat(node=3) == ErrorCode.NOT_COORDINATOR
    assert not net.asked


def test_a_node_that_cannot_be_asked_is_not_asked(net: Net) -> None:
    """There is no link, or the node runs an older release: the client is sent away, as ever."""
    world = net.world
    one, _ = two_members(world)
    net.cut = {2}
    world.cluster.install(paxos_group(world), 2)
    assert one.heartbeat() == ErrorCode.NOT_COORDINATOR
    assert one.commit(6) == ErrorCode.NOT_COORDINATOR
    assert not net.asked


def heartbeat(world: World, member: Member) -> Asked:
    request = HeartbeatRequest("g", member.generation, member.member_id)
    return world.send(member.node, request, 3)


def test_a_lost_link_is_a_lost_answer(net: Net) -> None:
    """Nobody knows whether the commit was made [F2]; everything else may simply be repeated."""
    world = net.world
    one, other = two_members(world)
    world.cluster.install(paxos_group(world), 2)
    net.held = True
    commit, beat = commit_under_way(world, one, 42), heartbeat(world, other)
    net.deliver()
    net.queue.clear()
    assert not commit.settled
    net[1].lost(NodeId(2))
    assert error_of(commit) == ErrorCode.REQUEST_TIMED_OUT
    assert beat.response.error_code == ErrorCode.NOT_COORDINATOR
    net.held = False
    world.cluster.settle()
    assert one.committed() == 42
    assert (net[1].under_way, net[2].guests) == (0, 0)


def test_a_late_answer_is_no_answer(net: Net) -> None:
    world = net.world
    one, _ = two_members(world)
    world.cluster.install(paxos_group(world), 2)
    net.held = True
    commit = commit_under_way(world, one, 42)
    world.advance(forwarded_requests.ANSWER_NS // MS - 1_000, step_ms=100)
    assert not commit.settled
    world.advance(1_200, step_ms=100)
    assert error_of(commit) == ErrorCode.REQUEST_TIMED_OUT
    net.held = False
    world.cluster.settle()
    assert one.committed() == -1, "it was too old when it came"


def test_a_request_that_comes_late_does_not_undo_what_was_committed_since(net: Net) -> None:
    """F1: its client was told that nobody knows, and has committed something newer elsewhere."""
    world = net.world
    one = Member(world)
    assert one.commit(1) == ErrorCode.NONE
    world.cluster.install(paxos_group(world), 2)
    net.held = True
    commit = commit_under_way(world, one, 30)
    world.advance(forwarded_requests.FRESH_NS // MS + 100)
    one.node = 2
    assert one.commit(50) == ErrorCode.NONE
    net.held = False
    world.cluster.settle()
    assert error_of(commit) == ErrorCode.NOT_COORDINATOR
    assert one.committed() == 50
    assert net[2].statistics.refused == 1


def test_only_the_mastership_that_is_meant_takes_a_request(net: Net) -> None:
    """While it was on its way the group has moved on: its client's node finds the next master."""
    world = net.world
    one, _ = two_members(world)
    world.cluster.install(paxos_group(world), 2)
    net.held = True
    commit = commit_under_way(world, one, 8)
    world.cluster.install(paxos_group(world), 3)
    world.cluster.install(paxos_group(world), 2)
    net.held = False
    world.cluster.settle()
    assert error_of(commit) == ErrorCode.NONE
    assert (net[1].statistics.forwarded, net[1].statistics.returned) == (2, 1)
    assert one.committed() == 8


def test_the_group_comes_back_while_a_request_is_on_its_way(net: Net) -> None:
    """It is answered here in the end, and what came behind it waits."""
    world = net.world
    one, _ = two_members(world)
    world.cluster.install(paxos_group(world), 2)
    net.held = True
    first = commit_under_way(world, one, 8)
    world.cluster.install(paxos_group(world), 1)
    second = commit_under_way(world, one, 9)
    assert not second.settled
    net.held = False
    world.cluster.settle()
    assert error_of(first) == error_of(second) == ErrorCode.NONE
    assert one.committed() == 9


def test_nothing_overtakes_a_commit_whose_outcome_the_log_decides(net: Net) -> None:
    """F4: the earlier commit was proposed by the old master, and is refused by the log after the
    later one could have been passed on."""
    world = net.world
    one, other = two_members(world)
    group = paxos_group(world)
    first = commit_under_way(world, one, 5)
    (submitted,) = world.cluster.queues.pop(group)
    world.cluster.install(group, 2)
    second, beat = commit_under_way(world, one, 6), heartbeat(world, other)
    world.cluster.settle()
    assert not any(asked.settled for asked in (first, second, beat))
    submitted.done(NotDone(FailureReason.NOT_MASTER))
    world.cluster.settle()
    assert error_of(first) == error_of(second) == ErrorCode.NONE
    assert beat.response.error_code == ErrorCode.NONE
    assert one.committed() == 6


def test_a_commit_that_waited_for_the_end_of_the_handover_is_passed_on(net: Net) -> None:
    """It was never proposed, and that is certain, although this node could not say so then."""
    world = net.world
    one, _ = two_members(world)
    group = paxos_group(world)
    asked = commit_under_way(world, one, 5)
    (submitted,) = world.cluster.queues.pop(group)
    world[1].groups.asleep.add(group)
    world.masters_changed()
    submitted.done(NotDone(FailureReason.NOT_MASTER))
    world.advance(50)
    assert not asked.settled
    world.cluster.install(group, 3)
    world.cluster.settle()
    assert error_of(asked) == ErrorCode.NONE
    assert one.committed() == 5


def test_the_new_master_may_learn_of_it_a_moment_later(net: Net) -> None:
    """The old one has applied the Steal, and the new one has not: requests wait there, in order."""
    world = net.world
    one, other = two_members(world)
    group = paxos_group(world)
    epoch = world[2].groups.epoch
    known = epoch(group)
    world[2].groups.epoch = lambda asked: known if asked == group else epoch(asked)  # type: ignore[method-assign]
    world.cluster.install(group, 2)
    first, second = commit_under_way(world, one, 5), commit_under_way(world, one, 6)
    world.advance(100)
    assert not first.settled
    world[2].groups.epoch = epoch  # type: ignore[method-assign]
    third = commit_under_way(world, one, 7)
    world.advance(100)
    assert [error_of(asked) for asked in (first, second, third)] == [ErrorCode.NONE] * 3
    assert one.committed() == 7
    assert other.heartbeat() == ErrorCode.NONE


def test_without_a_master_a_request_waits_for_a_moment_only(net: Net) -> None:
    world = net.world
    one, _ = two_members(world)
    group = paxos_group(world)
    world.cluster.install(group, None)
    beat = heartbeat(world, one)
    world.advance(forwarded_requests.FIND_NS // MS - 100)
    assert not beat.settled
    world.cluster.install(group, 3)
    world.cluster.settle()
    assert beat.response.error_code == ErrorCode.NONE
    world.cluster.install(group, None)
    beat = heartbeat(world, one)
    world.advance(forwarded_requests.FIND_NS // MS + 100)
    assert beat.response.error_code == ErrorCode.NOT_COORDINATOR


def test_for_a_client_that_has_hung_up_nothing_is_done_any_more(net: Net) -> None:
    world = net.world
    one = Member(world)
    group = paxos_group(world)
    assert one.commit(1) == ErrorCode.NONE
    world.cluster.install(group, None)
    commit = commit_under_way(world, one, 9)
    world.advance(50)
    commit.reply.hung_up = True
    world.cluster.install(group, 2)
    world.advance(50)
    one.node = 2
    assert one.committed() == 1


def test_too_many_requests_are_refused(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, and by the node that is asked: the client then looks for its coordinator."""
    world = net.world
    one, other = two_members(world)
    world.cluster.install(paxos_group(world), 2)
    net.held = True
    monkeypatch.setattr(forwarded_requests, "FORWARDED_MAX", 1)
    first, second = heartbeat(world, one), heartbeat(world, other)
    assert second.response.error_code == ErrorCode.NOT_COORDINATOR
    monkeypatch.setattr(forwarded_requests, "GUESTS_MAX", 0)
    net.held = False
    world.cluster.settle()
    assert first.response.error_code == ErrorCode.NOT_COORDINATOR
    assert net[2].statistics.refused == 1


@pytest.mark.parametrize("damage", ["form", "kind", "cut", "other group"])
def test_what_is_not_understood_has_no_effect(net: Net, damage: str) -> None:
    """Another release's words, or a faulty peer's."""
    world = net.world
    two_members(world)
    name = "g" if damage != "other group" else other_group(world)
    body = carried.encode_request(
        model.OffsetCommit(
            group=model.ConsumerGroupId(name),
            commit_wall_ms=0,
            topics=(model.TopicOffsets("orders", (model.PartitionOffset(0, 77),)),),
        )
    )
    body = {
        "form": b"\xff" + body[1:],
        "kind": body[:1] + b"\xff" + body[2:],
        "cut": body[:-1],
    }.get(damage, body)
    group = paxos_group(world)
    epoch = world[1].groups.epoch(group)
    until = world.cluster.clock.now().wall_ns + 10**9
    net.held = True
    net[1].on_request(NodeId(2), 5, group, epoch, until, body)
    assert net[1].statistics.refused == 1
    answers: list[Any] = []
    net[2].on_answer = lambda *answer: answers.append(answer)  # type: ignore[method-assign]
    net.deliver()
    assert answers == [(NodeId(1), 5, Verdict.REFUSED, b"")]
    net.held = False
    world.cluster.settle()
    assert not any(world[1].machines[group].consumer_groups.get(name).offsets for name in "g")
    assert name == "g" or world[1].machines[group].consumer_groups.get(name) is None


def other_group(world: World) -> str:
    """A consumer group that another Paxos group keeps."""
    return next(
        name for name in map(str, range(99)) if paxos_group(world, name) != paxos_group(world)
    )


def test_an_answer_that_nobody_waits_for_is_ignored(net: Net) -> None:
    """Of a node that was not asked, or to a request that was given up."""
    world = net.world
    one, _ = two_members(world)
    world.cluster.install(paxos_group(world), 2)
    net.held = True
    beat = heartbeat(world, one)
    (number,) = net[1]._under_way
    net[1].on_answer(NodeId(3), number, Verdict.REFUSED, b"")
    net[1].on_answer(NodeId(2), number + 1, Verdict.REFUSED, b"")
    assert not beat.settled
    net[1].on_answer(NodeId(2), number, Verdict.ANSWERED, b"no answer")
    assert beat.response.error_code == ErrorCode.NOT_COORDINATOR
    assert net[1].statistics.unanswered == 1


def test_a_member_that_leaves_after_its_last_commit_leaves_after_it(net: Net) -> None:
    """Java's close sends both at once."""
    world = net.world
    one, _ = two_members(world)
    world.cluster.install(paxos_group(world), 3)
    net.held = True
    commit = commit_under_way(world, one, 99)
    leave = world.send(one.node, LeaveGroupRequest("g", one.member_id), 1)
    net.held = False
    world.cluster.settle()
    assert error_of(commit) == leave.response.error_code == ErrorCode.NONE
    assert one.committed() == 99
