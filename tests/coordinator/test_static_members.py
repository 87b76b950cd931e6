"""Static membership (KIP-345, KIP-814): a member that restarts keeps its place."""

import struct

import pytest

from coordinator.model import (
    NO_MEMBER,
    ErrorCode,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    Protocol,
    SyncGroupResponse,
)
from tests.coordinator.world import SESSION_MS, Client, World, share, stable_group


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """A ConsumerProtocolSubscription v0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return (
        struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data
    )


def a_static_group(world: World) -> tuple[Client, Client]:
    offer = (Protocol("range", subscription("t")),)
    anna = Client(world, "anna", instance_id="i-anna", protocols=offer)
    bert = Client(world, "bert", instance_id="i-bert", protocols=offer)
    stable_group(world, anna, bert)
    return anna, bert


def restarted(client: Client) -> Client:
    return Client(
        client.world,
        client.name,
        instance_id=client.instance_id,
        protocols=client.protocols,
        skips=client.skips,
    )


def test_a_static_follower_restarts_without_a_rebalance() -> None:
    """New id, old place: same generation, same assignment, and nobody else notices."""
    world = World()
    anna, bert = a_static_group(world)
    new = restarted(bert)
    joined = new.learn(new.join())
    assert new.member_id != bert.member_id
    assert (joined.generation, joined.leader) == (1, anna.member_id)
    assert new.synced(new.sync()) == b"bert"
    assert anna.heartbeat() == ErrorCode.NONE
    assert world.coordinator.statistics().rebalances == 1


def test_the_former_self_is_fenced() -> None:
    """Two processes with one instance id: the younger wins, the older stops for good."""
    world = World()
    _, bert = a_static_group(world)
    new = restarted(bert)
    new.learn(new.join())
    assert bert.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert bert.commit(5) == ErrorCode.FENCED_INSTANCE_ID
    assert world.answer(bert.sync(), SyncGroupResponse).error == ErrorCode.FENCED_INSTANCE_ID
    assert world.answer(bert.send_join(), JoinGroupResponse).error == ErrorCode.FENCED_INSTANCE_ID
    assert bert.left(bert.leave()) == ErrorCode.FENCED_INSTANCE_ID
    assert new.heartbeat() == ErrorCode.NONE
    assert new.commit(5) == ErrorCode.NONE


def test_the_new_id_is_in_the_log_before_anyone_uses_it() -> None:
    """Otherwise the next coordinator would fence the living and keep the dead."""
    world = World()
    _, bert = a_static_group(world)
    world.auto_commit = False
    new = restarted(bert)
    token = new.join()
    assert token not in world.answers
    world.commit()
    new.learn(token)
    world.fail_over()
    assert new.heartbeat() == ErrorCode.NONE
    assert bert.heartbeat() == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("skips", [True, False])
def test_a_restarted_leader_makes_no_new_assignment(skips: bool) -> None:
    """It is told to skip it (KIP-814), or, if its version is too old for that, that it does not
    lead."""
    world = World()
    anna, bert = a_static_group(world)
    new = restarted(anna)
    new.skips = skips
    joined = new.learn(new.join())
    if skips:
        assert (joined.skip_assignment, joined.leader) == (True, new.member_id)
        assert {m.member_id for m in joined.members} == {new.member_id, bert.member_id}
    else:
        assert (joined.skip_assignment, joined.leader) == (False, anna.member_id)
        assert joined.members == ()
    assert new.synced(new.sync()) == b"anna"
    assert bert.heartbeat() == ErrorCode.NONE


def test_a_restart_with_other_topics_does_rebalance() -> None:
    world = World()
    anna, bert = a_static_group(world)
    new = restarted(bert)
    new.protocols = (Protocol("range", subscription("t", "u")),)
    token = new.join()
    assert token not in world.answers
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    anna.learn(anna.join())
    new.learn(token)
    share(world, anna, new)


def test_a_restart_with_other_user_data_does_not_rebalance() -> None:
    """A sticky assignor's memory is lost with the process; its topics are not."""
    world = World()
    anna, bert = a_static_group(world)
    new = restarted(bert)
    new.protocols = (Protocol("range", subscription("t", user_data=b"fresh")),)
    new.learn(new.join())
    assert anna.heartbeat() == ErrorCode.NONE


def test_a_restart_in_the_middle_of_a_rebalance_takes_part_in_it() -> None:
    """The plan under way names the old id, so it is made again."""
    world = World()
    anna, bert = a_static_group(world)
    carl = Client(world, "carl", protocols=anna.protocols)
    third = carl.join()
    old = bert.send_join()
    new = restarted(bert)
    token = new.join()
    assert world.answer(old, JoinGroupResponse).error == ErrorCode.FENCED_INSTANCE_ID
    anna.learn(anna.join())
    carl.learn(third)
    new.learn(token)
    newer = restarted(new)
    token = newer.join()
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first, third = anna.join(), carl.join()
    for client, answer in ((anna, first), (carl, third), (newer, token)):
        assert client.learn(answer).generation == 3
    share(world, anna, carl, newer)


def test_a_static_member_does_not_have_to_rejoin_in_time() -> None:
    """It keeps its place through a rebalance it misses, until its session ends."""
    world = World()
    anna, bert = a_static_group(world)
    first = anna.join()
    world.pass_time(SESSION_MS - 1)
    bert.heartbeat()
    for _ in range(6):
        world.pass_time(SESSION_MS - 1)
        bert.heartbeat()
    assert {m.instance_id for m in anna.learn(first).members} == {"i-anna", "i-bert"}
    assert bert.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert bert.learn(bert.join()).generation == 2
    share(world, anna, bert)


def test_an_operator_removes_a_static_member_by_its_instance() -> None:
    """removeMembersFromConsumerGroup names no member id."""
    world = World()
    anna, bert = a_static_group(world)
    leaving = (
        LeavingMember(NO_MEMBER, "i-bert", "decommissioned"),
        LeavingMember(NO_MEMBER, "i-nobody"),
    )
    token = world.ask(LeaveGroup(group=anna.group, members=leaving))
    errors = [one.error for one in world.answer(token, LeaveGroupResponse).members]
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert bert.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert anna.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
