"""The coordinator of a consumer group moves to another node, or to one that is not ready yet."""

import pytest

from broker.groups.consumer_groups import SWEEP_EVERY_NS
from broker.proposals.intake import FailureReason, NotDone
from paxos.ids import MS
from tests.broker.group_members import (
    Member,
    commit_under_way,
    coordinator_of,
    error_of,
    paxos_group,
    two_members,
    world_with_topic,
)
from tests.broker.world import Asked, World
from wire.error_codes import ErrorCode
from wire.messages.group_admin import (
    DeleteGroupsRequest,
    ListGroupsRequest,
)
from wire.messages.membership import (
    HeartbeatRequest,
)
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)


def test_nothing_is_answered_on_a_mastership_that_has_ended() -> None:
    """The commit is chosen, but when its result arrives this node may not act any more (R14). It
    must not claim that the commit failed either (F2)."""
    world = world_with_topic()
    one, _ = two_members(world)
    group = paxos_group(world)
    asked = commit_under_way(world, one, 42)
    world[1].groups.asleep.add(group)
    world.cluster.settle()
    assert not asked.settled
    world.cluster.install(group, 2)
    assert error_of(asked) == ErrorCode.REQUEST_TIMED_OUT
    one.node = coordinator_of(world)
    assert one.committed() == 42


def test_during_a_handover_nobody_is_sent_in_a_circle() -> None:
    """Until the Steal is chosen, all other nodes still name this one: so it delays its "not me"."""
    world = world_with_topic()
    one, other = two_members(world)
    group = paxos_group(world)
    world[1].groups.asleep.add(group)
    world.masters_changed()
    heartbeat = world.send(1, HeartbeatRequest("g", one.generation, one.member_id), 3)
    commit = commit_under_way(world, other, 5)
    world.advance(100)
    assert not heartbeat.settled
    assert coordinator_of(world, ask=3) == 1
    world.cluster.install(group, 3)
    assert heartbeat.response.error_code == error_of(commit) == ErrorCode.NOT_COORDINATOR
    assert coordinator_of(world, ask=2) == 3


LATE = {
    "commit": lambda: OffsetCommitRequest(
        "g",
        topics=[OffsetCommitRequestTopic("orders", [OffsetCommitRequestPartition(0, 40)])],
    ),
    "delete the group": lambda: DeleteGroupsRequest(["g"]),
    "delete the offset": lambda: OffsetDeleteRequest(
        "g", [OffsetDeleteTopic("orders", [OffsetDeletePartition(0)])]
    ),
}
VERSIONS = {"commit": 8, "delete the group": 2, "delete the offset": 0}


@pytest.mark.parametrize("what", LATE)
def test_what_an_earlier_master_decided_does_not_undo_what_a_later_one_acknowledged(
    what: str,
) -> None:
    """F1: the command was in a queue, on a link, or in a slot that the next master recovered."""
    world = world_with_topic()
    group = paxos_group(world)
    simple = Member(world)
    assert simple.commit(30) == ErrorCode.NONE
    asked = world.send(1, LATE[what](), VERSIONS[what])
    stuck = world.cluster.queues.pop(group)
    assert stuck
    assert not asked.settled
    world.cluster.install(group, 2)
    assert not asked.settled, "nobody knows yet"
    simple.node = 2
    assert simple.commit(50) == ErrorCode.NONE
    world.cluster.queues[group] = stuck
    world.cluster.settle()
    assert simple.committed() == 50
    response = asked.response
    if what == "commit":
        assert error_of(asked) == ErrorCode.NOT_COORDINATOR
    else:
        first = response.results[0] if what == "delete the group" else response
        assert first.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("why", [FailureReason.NOT_MASTER, FailureReason.UNKNOWN])
def test_who_waits_through_a_change_of_masters_hears_what_became_of_the_commit(
    why: FailureReason,
) -> None:
    """F2: a definite failure if the commit was never proposed; otherwise a time-out."""
    world = world_with_topic()
    group = paxos_group(world)
    one = Member(world)
    asked = commit_under_way(world, one, 40)
    (submitted,) = world.cluster.queues.pop(group)
    world.cluster.install(group, 2)
    assert not asked.settled
    submitted.done(NotDone(why))
    unknown = why is FailureReason.UNKNOWN
    assert error_of(asked) == (
        ErrorCode.REQUEST_TIMED_OUT if unknown else ErrorCode.NOT_COORDINATOR
    )


def test_a_handover_that_comes_to_nothing_costs_nothing() -> None:
    """The tenure goes on: waiting requests are answered as if nothing had happened."""
    world = world_with_topic()
    one, other = two_members(world)
    group = paxos_group(world)
    joining = Member(world).join()
    held = commit_under_way(world, one, 7)
    world[1].groups.asleep.add(group)
    world.cluster.settle()
    waiting = commit_under_way(world, other, 8)
    world.advance(300)
    assert not held.settled
    assert not waiting.settled
    world[1].groups.asleep.clear()
    world.masters_changed()
    world.cluster.settle()
    assert error_of(held) == ErrorCode.NONE
    assert error_of(waiting) == ErrorCode.NONE
    assert not joining.settled
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_master_whose_lease_has_lapsed_does_not_keep_clients_for_long() -> None:
    world = world_with_topic()
    one, _ = two_members(world)
    world[1].groups.asleep.add(paxos_group(world))
    asked = world.send(1, HeartbeatRequest("g", one.generation, one.member_id), 3)
    world.advance(900)
    assert not asked.settled
    world.advance(200)
    assert asked.response.error_code == ErrorCode.NOT_COORDINATOR
    assert one.heartbeat() == ErrorCode.NOT_COORDINATOR
    world[1].groups.asleep.clear()
    assert one.heartbeat() == ErrorCode.NONE


def master_that_is_behind() -> tuple[World, Member, Asked]:
    """Node 2 has just become master and has not applied everything; a member commits there."""
    world = world_with_topic()
    one, _ = two_members(world)
    group = paxos_group(world)
    world[2].groups.behind.add(group)
    world.cluster.install(group, 2)
    one.node = 2
    return world, one, commit_under_way(world, one, 5)


def test_who_asks_a_master_that_has_not_applied_everything_waits() -> None:
    """librdkafka reports LOAD_IN_PROGRESS of a synchronous commit to its user, so we rarely send
    it."""
    world, one, commit = master_that_is_behind()
    world.advance(900)
    assert not commit.settled
    world[2].groups.behind.clear()
    world.advance(10)
    world.cluster.settle()
    assert error_of(commit) == ErrorCode.NONE
    assert one.committed() == 5


def test_a_master_that_does_not_get_level_asks_for_patience() -> None:
    world, one, commit = master_that_is_behind()
    listing = world.send(2, ListGroupsRequest(), 5)
    world.advance(900)
    assert not commit.settled
    assert not listing.settled
    world.advance(200)
    assert listing.response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert error_of(commit) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert one.heartbeat() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world[2].groups.behind.clear()
    world.masters_changed()
    assert one.heartbeat() == ErrorCode.NONE


def test_a_list_of_groups_has_no_hole_that_nobody_tells() -> None:
    """If a coordinator is down, or there is none, the others report that their lists may be
    incomplete. They stop when another node has those groups."""
    world = World()
    group = paxos_group(world)
    world.cluster.install(group, 2)
    assert world.ask(1, ListGroupsRequest(), 5).error_code == ErrorCode.NONE
    world.cluster.dead.add(2)
    assert world.ask(1, ListGroupsRequest(), 5).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.cluster.install(group, 3)
    assert world.ask(1, ListGroupsRequest(), 5).error_code == ErrorCode.NONE


def test_who_waits_for_a_master_that_loses_the_group_looks_elsewhere() -> None:
    world, _, commit = master_that_is_behind()
    world.advance(100)
    assert not commit.settled
    world.cluster.install(paxos_group(world), 3)
    assert error_of(commit) == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("meanwhile", ["handed over", "refused at once"])
def test_a_round_that_began_earlier_does_not_turn_time_back(meanwhile: str) -> None:
    """Seen with full disks: the balancer gave a group away in the tick in which its coordinator
    looked for old offsets with a later clock reading, and the node crashed."""
    world = world_with_topic()
    two_members(world)
    groups, clock = world[1].broker.consumer_groups, world.cluster.clock
    clock.boot_ns += SWEEP_EVERY_NS
    began = clock.now()
    clock.boot_ns += 5 * MS
    if meanwhile == "handed over":
        assert groups.handing_over(paxos_group(world))
    else:
        world[1].groups.refuse = FailureReason.OVERLOADED
    for _ in range(20):
        groups.tick(began)
    world[1].groups.refuse = None
    world.advance(100)
    assert not world[1].bugs
