"""Members of the classic protocol and of KIP-848 in one group: upgrade, downgrade, and between.

Kafka's rules, with a coordinator that may move at any moment. Nobody loses a partition that it has
not given up, no partition has two owners, and commits go on under the number that a member knows.
"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.model import (
    DescribeAssigned,
    DescribeAssignedResponse,
    ErrorCode,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    MemberId,
    OffsetCommit,
    OffsetCommitResponse,
    PartitionOffset,
    ProposalFailure,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
    TopicOffsets,
)
from coordinator.subscription import (
    SubscriptionError,
    read_assignment,
    read_subscription,
    subscribed_topics,
    write_assignment,
)
from coordinator.topics import Topics
from tests.coordinator.mixed import Classic, subscription
from tests.coordinator.test_assigned_groups import BEAT_MS, GROUP, ORDERS, Consumer, world_of
from tests.coordinator.world import WALL_MS, Client, World

Any = Classic | Consumer


def turn(*members: Any) -> None:
    for one in members:
        one.step() if isinstance(one, Classic) else one.beat()
        exclusive(*members)


def settle(world: World, *members: Any, turns: int = 12) -> None:
    for _ in range(turns):
        turn(*members)
        world.pass_time(BEAT_MS)


def exclusive(*members: Any) -> None:
    held = [part for one in members for part in one.held]
    assert len(set(held)) == len(held), "two consume the same partition"


def everything(*members: Any) -> list[int]:
    return sorted(number for one in members for number in one.numbers)


def kind(world: World) -> tuple[str, str]:
    (listed,) = world.listed()
    return listed.type, listed.state


def commit(world: World, member: str, epoch: int, number: int, offset: int) -> ErrorCode:
    token = world.ask(
        OffsetCommit(
            group=GROUP,
            generation=epoch,
            member_id=MemberId(member),
            commit_wall_ms=WALL_MS,
            topics=(TopicOffsets("orders", (PartitionOffset(number, offset),)),),
        )
    )
    world.commit()
    return world.answer(token, OffsetCommitResponse).topics[0].partitions[0].error


def classic_group(world: World, *members: Classic) -> None:
    settle(world, *members)
    assert kind(world) == ("classic", "Stable")
    assert everything(*members) == [0, 1, 2, 3]


@pytest.mark.parametrize("way", ["eager", "cooperative"])
def test_a_rolling_upgrade_and_back(way: str) -> None:
    """One by one the members change to the new protocol, and one by one back."""
    world = world_of()
    a, b = Classic(world, "a", way), Classic(world, "b", way)
    classic_group(world, a, b)
    new_a, new_b = Consumer(world, "new a"), Consumer(world, "new b")
    a.leave()
    new_a.beat()
    settle(world, b, new_a)
    assert kind(world) == ("consumer", "Stable")
    assert everything(b, new_a) == [0, 1, 2, 3]
    assert len(b.numbers) == 2
    b.leave()
    settle(world, new_a, new_b)
    assert kind(world) == ("consumer", "Stable")
    assert everything(new_a, new_b) == [0, 1, 2, 3]
    new_a.leave()
    settle(world, a, new_b)
    assert kind(world) == ("consumer", "Stable")
    assert everything(a, new_b) == [0, 1, 2, 3]
    new_b.leave()
    settle(world, a, b)
    assert kind(world) == ("classic", "Stable")
    assert everything(a, b) == [0, 1, 2, 3]
    assert (a.lost, b.lost) == (0, 0)


def test_a_classic_member_goes_on_while_the_group_changes_its_kind() -> None:
    """It learns of the newcomer by its heartbeat, commits until then, and rejoins once."""
    world = world_of()
    one = Classic(world, "one", "cooperative")
    classic_group(world, one)
    joins, generation = one.joins, one.generation
    two = Consumer(world, "two")
    two.beat()
    assert two.numbers == []
    assert commit(world, one.member_id, generation, 3, 7) == ErrorCode.NONE
    assert one.numbers == [0, 1, 2, 3]
    settle(world, one, two)
    assert one.errors[-1] == ErrorCode.REBALANCE_IN_PROGRESS
    assert (len(one.numbers), len(two.numbers)) == (2, 2)
    assert one.joins == joins + 2, "once for the plan, and once when it has given up its half"
    gone = two.numbers[0]
    assert commit(world, one.member_id, one.generation, one.numbers[0], 8) == ErrorCode.NONE
    assert commit(world, one.member_id, generation, one.numbers[0], 9) == ErrorCode.NONE
    assert commit(world, one.member_id, generation, gone, 9) == ErrorCode.ILLEGAL_GENERATION
    assert commit(world, "two", two.epoch, gone, 9) == ErrorCode.NONE
    assert commit(world, "two", two.epoch - 1, gone, 9) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_classic_member_joins_a_group_of_the_new_kind() -> None:
    world = world_of()
    one, two = Consumer(world, "one"), Classic(world, "two", version=0)
    one.beat()
    settle(world, one, two)
    assert (len(one.numbers), len(two.numbers)) == (2, 2)
    described = world.answer(world.ask(DescribeAssigned(group=GROUP)), DescribeAssignedResponse)
    assert {m.client_id: m.classic for m in described.members} == {"": False, "two": True}
    assert described.state == "Stable"


def test_while_a_node_could_not_read_it_nobody_changes_a_groups_kind() -> None:
    """The client tries again until the cluster version has risen; the group goes on as it is."""
    world = world_of()
    world.no_mixing = "the cluster is at version 1"
    one, new = Classic(world, "one"), Consumer(world, "new")
    classic_group(world, one)
    before = len(world.log)
    for _ in range(3):
        assert new.beat().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert len(world.log) == before, "nothing of it is written"
    settle(world, one)
    assert kind(world) == ("classic", "Stable")
    assert everything(one) == [0, 1, 2, 3]
    world.no_mixing = ""
    settle(world, one, new)
    assert kind(world) == ("consumer", "Stable")
    world.no_mixing = "the cluster is at version 1"
    settle(world, one, new, Classic(world, "two"))
    assert kind(world) == ("consumer", "Stable"), "what everybody has read already goes on"
    assert one.lost == 0


def test_while_a_node_could_not_read_it_no_classic_member_joins_the_new_kind() -> None:
    world = world_of()
    world.no_mixing = "the cluster is at version 1"
    one, two = Consumer(world, "one"), Classic(world, "two")
    settle(world, one)
    answer = world.answer(two.join(), JoinGroupResponse)
    assert answer.error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    settle(world, one)
    assert everything(one) == [0, 1, 2, 3]
    world.no_mixing = ""
    settle(world, one, two)
    assert (len(one.numbers), len(two.numbers)) == (2, 2)


def test_the_log_has_it_before_anybody_hears_of_it() -> None:
    """The join of the new kind, and the leave that makes the group classic again."""
    world = world_of()
    one = Classic(world, "one", "cooperative")
    classic_group(world, one)
    world.auto_commit = False
    two = Consumer(world, "two")
    token = two.begin()
    assert token not in world.answers
    one.step()  # its heartbeat
    assert one.errors[-1] == ErrorCode.REBALANCE_IN_PROGRESS
    world.commit()
    two.finish(token)
    world.auto_commit = True
    settle(world, one, two)
    world.auto_commit = False
    token = two.begin_leave()
    assert token not in world.answers
    world.commit()
    assert token in world.answers
    assert kind(world)[0] == "classic"


def test_a_group_whose_change_of_kind_is_lost_stays_what_it_was() -> None:
    world = world_of()
    one = Classic(world, "one", "cooperative")
    classic_group(world, one)
    world.auto_commit = False
    two = Consumer(world, "two")
    token = two.begin()
    world.fail(ProposalFailure.UNKNOWN)
    assert two.finish(token).error == ErrorCode.NOT_COORDINATOR
    assert kind(world) == ("classic", "Stable")
    world.auto_commit = True
    one.step()
    assert one.member, "it noticed nothing"
    settle(world, one, two)
    assert (len(one.numbers), len(two.numbers)) == (2, 2)
    world.auto_commit = False
    token = two.begin_leave()
    world.fail(ProposalFailure.UNKNOWN)
    assert kind(world)[0] == "consumer"
    world.auto_commit = True
    settle(world, one, two)
    assert everything(one, two) == [0, 1, 2, 3]


@pytest.mark.parametrize("lose", [True, False])
def test_a_coordinator_that_moves_in_the_middle(lose: bool) -> None:
    """Before, during and after the change, in both directions."""
    world = world_of()
    one, two = Classic(world, "one", "cooperative"), Consumer(world, "two")
    classic_group(world, one)
    world.auto_commit = False
    token = two.begin()
    world.fail_over(lose=lose)
    assert two.finish(token).error == ErrorCode.NOT_COORDINATOR
    world.auto_commit = True
    settle(world, one, two)
    assert everything(one, two) == [0, 1, 2, 3]
    world.fail_over()
    joins = one.joins
    settle(world, one, two)
    assert one.joins == joins, "a move costs no rejoin"
    world.auto_commit = False
    two.begin_leave()
    world.fail_over(lose=lose)
    world.auto_commit = True
    settle(world, one)
    if lose:  # it left, and nobody wrote that down: its session has to end
        world.pass_time(60_000)
        settle(world, one)
    assert kind(world) == ("classic", "Stable")
    assert one.numbers == [0, 1, 2, 3]


def test_the_last_of_the_new_kind_falls_silent() -> None:
    world = world_of()
    one, two = Classic(world, "one", "cooperative"), Consumer(world, "two")
    classic_group(world, one)
    settle(world, one, two)
    for _ in range(60):
        one.step()
        world.pass_time(BEAT_MS)
    assert kind(world) == ("classic", "Stable")
    assert one.numbers == [0, 1, 2, 3]
    assert one.lost == 0


def test_a_silent_classic_member_is_removed_after_the_session_it_chose() -> None:
    world = world_of()
    one = Classic(world, "one", "cooperative", session_ms=10_000)
    classic_group(world, one)
    two = Consumer(world, "two")
    settle(world, one, two)
    assert len(two.numbers) == 2
    world.pass_time(8_000)
    two.beat()
    assert len(two.numbers) == 2
    world.pass_time(3_000)
    two.beat()
    two.beat()
    assert two.numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("step", ["rejoin", "sync"])
def test_a_classic_member_that_does_not_do_the_next_thing_is_removed(step: str) -> None:
    """It was told to join again and only beats; or it has joined and does not ask for its share."""
    world = world_of()
    one = Classic(world, "one", "cooperative", rebalance_ms=5_000)
    classic_group(world, one)
    two = Consumer(world, "two")
    two.beat()
    if step == "sync":
        one.join()
    for _ in range(8):
        two.beat()
        beat = Client(world, "one", group=GROUP)
        beat.member_id, beat.generation = one.member_id, one.generation
        beat.heartbeat()
        world.pass_time(BEAT_MS)
    two.beat()
    assert two.numbers == [0, 1, 2, 3]


def test_a_member_that_changes_its_protocol_under_its_id_has_nothing_to_do_next() -> None:
    """It was told to join again, and does so by the new protocol."""
    world = world_of()
    one = Classic(world, "one", "cooperative", rebalance_ms=5_000)
    classic_group(world, one)
    two = Consumer(world, "two")
    two.beat()
    one.step()
    assert one.errors[-1] == ErrorCode.REBALANCE_IN_PROGRESS
    new = Consumer(world, one.member_id)
    one.stop()
    for _ in range(10):
        new.beat()
        two.beat()
        world.pass_time(BEAT_MS)
    assert (new.error, two.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert everything(new, two) == [0, 1, 2, 3]
    assert len(new.numbers) == 2


def test_static_members_change_protocol_in_their_place() -> None:
    """The same instance returns with the other protocol, both ways: same partitions, no rejoin for
    the others, the former process is fenced, and the group changes its kind."""
    world = world_of()
    old = Classic(world, "old", "cooperative", instance="i")
    other = Classic(world, "other", "cooperative", instance="j")
    classic_group(world, old, other)
    had, former = old.numbers, old.member_id
    new = Consumer(world, "new", instance="i")
    new.beat()
    settle(world, other, new)
    assert (new.numbers, kind(world)[0]) == (had, "consumer")
    assert fenced(world, former, "i") == ErrorCode.FENCED_INSTANCE_ID
    joins = other.joins
    old.stop()
    new.leave(-2)
    settle(world, old, other)
    assert kind(world) == ("classic", "Stable")
    assert old.numbers == had
    assert other.joins == joins, "a static member that returns costs the others nothing"


def test_a_static_member_of_the_new_kind_that_has_not_left_is_replaced_by_a_classic_one() -> None:
    """As in Kafka: joining without a member id under an instance id takes the place at once."""
    world = world_of()
    new, other = Consumer(world, "new", instance="i"), Consumer(world, "other")
    new.beat()
    for _ in range(5):
        new.beat()
        other.beat()
    had, new.held = new.numbers, frozenset()
    old = Classic(world, "old", "cooperative", instance="i")
    settle(world, old, other)
    assert old.numbers == had
    assert new.beat().error == ErrorCode.FENCED_INSTANCE_ID
    assert kind(world)[0] == "consumer"


def fenced(world: World, member: MemberId, instance: str) -> ErrorCode:
    client = Client(world, "x", group=GROUP, instance_id=instance)
    client.member_id, client.generation = member, 1
    return client.heartbeat()


@pytest.mark.parametrize("phase", ["waiting for others", "waiting for the leader"])
def test_an_upgrade_in_the_middle_of_a_classic_rebalance(phase: str) -> None:
    """Who waits is told to join again; nobody holds what another one is given."""
    world = world_of()
    one, two = Classic(world, "one", "cooperative"), Classic(world, "two", "cooperative")
    classic_group(world, one, two)
    three = Classic(world, "three", "cooperative")
    three.join()
    three.step()
    one.step()
    one.join()
    if phase == "waiting for the leader":
        two.step()
        two.join()
    new = Consumer(world, "new")
    new.beat()
    exclusive(one, two, three, new)
    settle(world, one, two, three, new)
    assert kind(world) == ("consumer", "Stable")
    assert everything(one, two, three, new) == [0, 1, 2, 3]
    assert all(len(member.numbers) == 1 for member in (one, two, three, new))


def test_a_newcomer_that_claims_a_later_generation_takes_nothing_from_who_was_there() -> None:
    world = world_of()
    one, two = Classic(world, "one", "cooperative"), Classic(world, "two", "cooperative")
    classic_group(world, one, two)
    had = one.held
    liar = Classic(world, "a liar", "cooperative", generation=2**31 - 1, held_names=one.held_names)
    liar.join()
    liar.step()  # with the id that it was given
    one.step()
    one.join()
    new = Consumer(world, "new")
    new.beat()  # while two has not joined again
    liar.held_names = frozenset()
    settle(world, one, two, liar, new)
    assert kind(world) == ("consumer", "Stable")
    assert one.held <= had, "it kept what it had, and gave some away"
    assert len(one.numbers) == 1


def test_members_that_share_no_protocol_are_refused() -> None:
    world = world_of()
    one, two = Consumer(world, "one"), Classic(world, "two", "cooperative")
    settle(world, one, two)
    other = Classic(world, "other", "eager")
    answer = world.answer(other.join(), JoinGroupResponse)
    assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    strange = Client(world, "x", group=GROUP, protocols=(Protocol("range", b"?"),))
    answer = world.answer(strange.send_join(), JoinGroupResponse)
    assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    settle(world, one, two)
    assert everything(one, two) == [0, 1, 2, 3]


def test_a_group_that_cannot_be_read_is_not_upgraded() -> None:
    """Kafka Connect's workers, or consumers with a subscription of their own making."""
    world = world_of()
    client = Client(world, "one", group=GROUP)
    token = client.join()
    world.pass_time(1_000)
    client.learn(token)
    new = Consumer(world, "new")
    assert new.beat().error == ErrorCode.GROUP_ID_NOT_FOUND
    client.synced(client.sync({client.member_id: b"x"}))
    assert client.heartbeat() == ErrorCode.NONE
    assert new.beat().error == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_of_the_new_kind_that_was_removed_upgrades_the_group_again() -> None:
    """Kafka answers GROUP_ID_NOT_FOUND, on which its own client gives up for good."""
    world = world_of()
    one, two = Classic(world, "one", "cooperative"), Consumer(world, "two")
    classic_group(world, one)
    settle(world, one, two)
    for _ in range(60):
        one.step()
        world.pass_time(BEAT_MS)
    assert kind(world)[0] == "classic"
    assert two.beat().error == ErrorCode.UNKNOWN_MEMBER_ID
    settle(world, one, two)
    assert (len(one.numbers), len(two.numbers)) == (2, 2)


def test_who_may_say_what() -> None:
    """Generation, member, instance and protocol are checked as in a classic group."""
    world = world_of()
    one, two = Consumer(world, "one"), Classic(world, "two", "cooperative", instance="i")
    settle(world, one, two)

    def sync(**changes: object) -> ErrorCode:
        right: dict[str, object] = {
            "group": GROUP,
            "member_id": two.member_id,
            "generation": two.generation,
            "instance_id": "i",
            "protocol_type": "consumer",
            "protocol_name": "cooperative-sticky",
        }
        token = world.ask(SyncGroup(**(right | changes)))  # type: ignore[arg-type]  # by name
        return world.answer(token, SyncGroupResponse).error

    assert sync() == ErrorCode.NONE
    assert sync(generation=two.generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert sync(member_id=MemberId("nobody")) == ErrorCode.FENCED_INSTANCE_ID
    assert sync(member_id=MemberId("one"), instance_id=None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(protocol_name="range") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def leave(member: str, instance: str | None) -> ErrorCode:
        leaving = (LeavingMember(MemberId(member), instance),)
        token = world.ask(LeaveGroup(group=GROUP, members=leaving))
        return world.answer(token, LeaveGroupResponse).members[0].error

    assert leave("one", None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave("nobody", "i") == ErrorCode.FENCED_INSTANCE_ID
    assert leave("", "j") == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave("", "i") == ErrorCode.NONE, "an operator removes it by its instance id"
    settle(world, one)
    assert one.numbers == [0, 1, 2, 3]


def test_the_bytes_of_the_consumer_protocol() -> None:
    """All versions are read, later ones as far as they are known; what was cut off is refused."""
    owned = frozenset((("a", 1), ("a", 2), ("b", 0)))
    for version in range(5):
        data = subscription(("a", "b"), owned, 7, version, rack="r")
        said = read_subscription(data)
        assert said.topics == ("a", "b")
        assert subscribed_topics(data) == frozenset("ab")
        assert said.owned == (owned if version >= 1 else frozenset())
        assert said.generation == (7 if version >= 2 else -1)
        assert said.rack_id == ("r" if version >= 3 else None)
    assert read_subscription(subscription(("a",), version=1)[:-4]).owned == frozenset(), "sarama"
    assert read_assignment(write_assignment(3, owned)) == owned
    assert write_assignment(1, [("a", 1)]) == (
        b"\0\1" + struct.pack(">i", 1) + b"\0\1a" + struct.pack(">iii", 1, 1, -1)
    )
    assert read_assignment(b"") == frozenset()
    for bad in (b"", b"\0", b"\xff\xff" + bytes(8), b"\0\0\0\0\0\1", b"\0\0\0\0\0\1\0\1\xff"):
        with pytest.raises(SubscriptionError):
            read_subscription(bad)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["eager", "cooperative"]),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("bbbbbbbblsfgwt")), max_size=80),
)
def test_whatever_happens_no_partition_has_two_owners(
    way: str, script: list[tuple[int, str]]
) -> None:
    """Members of both kinds step, leave, restart; static ones change their protocol; the
    coordinator moves; topics grow."""
    world = world_of(5)
    members: list[Any] = [Consumer(world, f"new {number}") for number in range(3)]
    members += [Classic(world, f"old {number}", way) for number in range(3)]
    for who, what in script:
        one = members[who]
        if what == "b":
            one.step() if isinstance(one, Classic) else one.beat()
        elif what == "l" and (isinstance(one, Classic) or one.epoch):
            one.leave()
        elif what == "s" and isinstance(one, Consumer):
            one.epoch, one.held, one.said = 0, frozenset(), None
        elif what == "f":
            world.fail_over()
        elif what == "g":
            count = world.topics.ids["orders"][1] + 1
            ids = {**world.topics.ids, "orders": (ORDERS, count)}
            world.topics = Topics(world.topics.version + 1, ids)
        elif what == "w":
            world.pass_time(BEAT_MS)
            world.commit()
        exclusive(*members)
    settle(world, *members, turns=25)
    assert everything(*members) == list(range(world.topics.ids["orders"][1]))
