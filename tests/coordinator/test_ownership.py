"""Requests that name what belongs to others (docs/ownership.md): a lie costs nobody anything."""

from random import Random

import attrs
import pytest

from coordinator.model import (
    NO_MEMBER,
    AssignedHeartbeat,
    AssignedHeartbeatResponse,
    ConsumerGroupId,
    DescribeAssigned,
    DescribeAssignedResponse,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    MemberId,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionOffset,
    Protocol,
    SyncGroup,
    TopicIdPartitions,
    TopicOffsets,
    TopicPartitions,
)
from coordinator.topics import Topics
from tests.coordinator.world import SESSION_MS, WALL_MS, Client, World, stable_group

SHARED = ConsumerGroupId("shared")
ORDERS = bytes([1]) * 16
HEARTBEAT = AssignedHeartbeat(group=SHARED, member_id=NO_MEMBER, epoch=0)
JOIN = attrs.evolve(HEARTBEAT, rebalance_timeout_ms=20_000, topics=("orders",), owned=())


def world_of_orders() -> World:
    world = World()
    world.topics = Topics(1, {"orders": (ORDERS, 4)})
    return world


def beat(world: World, member: str, epoch: int, **fields: object) -> AssignedHeartbeatResponse:
    request = attrs.evolve(JOIN if epoch == 0 else HEARTBEAT, member_id=member, epoch=epoch)
    return world.answer(
        world.ask(attrs.evolve(request, **fields)),  # type: ignore[arg-type]  # fields by name
        AssignedHeartbeatResponse,
    )


def shares(world: World) -> dict[str, tuple[str | None, list[int]]]:
    """For each member: its instance, and its partitions."""
    answer = world.answer(world.ask(DescribeAssigned(group=SHARED)), DescribeAssignedResponse)
    return {
        one.member_id: (one.instance_id, [n for topic in one.assigned for n in topic.partitions])
        for one in answer.members
    }


def two_instances(world: World) -> None:
    """y of instance b and x of instance a have two partitions each."""
    beat(world, "y", 0, instance_id="b")
    beat(world, "x", 0, instance_id="a")
    for held in ((0, 1, 2, 3), (0, 1)):
        beat(world, "y", 1, instance_id="b", owned=(TopicIdPartitions(ORDERS, held),))
    beat(world, "x", 2, instance_id="a")
    assert shares(world) == {"y": ("b", [0, 1]), "x": ("a", [2, 3])}


# -- groups that the broker assigns (KIP-848) ------------------------------------------------------


@pytest.mark.parametrize("epoch", [2, 1, 7, -1, -2])
def test_who_was_replaced_hears_that_it_is_fenced(epoch: int) -> None:
    """UNKNOWN_MEMBER_ID would make it join again, and the two would take turns."""
    world = world_of_orders()
    two_instances(world)
    assert beat(world, "y", -2, instance_id="b").error == ErrorCode.NONE
    assert beat(world, "new", 0, instance_id="b").error == ErrorCode.NONE
    before = shares(world)
    assert before["new"] == ("b", [0, 1])
    assert beat(world, "y", epoch, instance_id="b").error == ErrorCode.FENCED_INSTANCE_ID
    assert shares(world) == before


@pytest.mark.parametrize(
    ("member", "instance", "error"),
    [
        ("x", "b", ErrorCode.FENCED_INSTANCE_ID),
        ("stranger", "b", ErrorCode.FENCED_INSTANCE_ID),
        ("x", "c", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", "c", ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("epoch", [2, 1, -1, -2])
def test_nobody_goes_on_or_leaves_as_another(
    epoch: int, member: str, instance: str | None, error: ErrorCode
) -> None:
    world = world_of_orders()
    two_instances(world)
    before = shares(world)
    if epoch == -2 and instance is None:
        error = ErrorCode.INVALID_REQUEST
    assert beat(world, member, epoch, instance_id=instance).error == error
    assert shares(world) == before


@pytest.mark.parametrize("instance", ["b", "c"])
@pytest.mark.parametrize("liar", ["x", "z"])
def test_a_member_does_not_become_another_instance(liar: str, instance: str) -> None:
    """It would leave its partitions to others, and its own instance would have no member."""
    world = world_of_orders()
    two_instances(world)
    beat(world, "z", 0)
    beat(world, "y", -2, instance_id="b")
    before = shares(world)
    assert beat(world, liar, 0, instance_id=instance).error == ErrorCode.INVALID_REQUEST
    assert shares(world) == before
    assert beat(world, "x", -1, instance_id="a").error == ErrorCode.NONE
    assert beat(world, "x2", 0, instance_id="a").error == ErrorCode.NONE
    assert beat(world, "y2", 0, instance_id="b").error == ErrorCode.NONE
    assert {one: instance for one, (instance, _) in shares(world).items()} == {
        "x2": "a",
        "y2": "b",
        "z": None,
    }


def test_a_member_that_is_to_name_itself_is_not_named_by_us() -> None:
    """If its answer were lost it would ask once more, and there would be two members for one."""
    world = world_of_orders()
    assert beat(world, "", 0, names_itself=True).error == ErrorCode.INVALID_REQUEST
    assert not world.in_flight
    named = beat(world, "", 0)
    assert (named.error, named.epoch) == (ErrorCode.NONE, 1)
    assert list(shares(world)) == [named.member_id] != [""]


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        ("x", 2, ErrorCode.NONE),
        ("x", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("stranger", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.NONE),
    ],
)
def test_only_a_member_is_told_where_to_begin(member: str, epoch: int, error: ErrorCode) -> None:
    """A removed member that has not heard of it would consume what belongs to another by now. A
    client that does not claim to be a member, such as an operator or a simple consumer, may
    look."""
    world = world_of_orders()
    two_instances(world)
    wanted = (TopicPartitions("orders", (0,)),)
    ask = OffsetFetch(group=SHARED, topics=wanted, member_id=MemberId(member), epoch=epoch)
    assert world.answer(world.ask(ask), OffsetFetchResponse).error == error
    other = attrs.evolve(ask, group=ConsumerGroupId("of nobody"))
    assert world.answer(world.ask(other), OffsetFetchResponse).error == ErrorCode.NONE


def test_who_was_removed_is_not_told_where_to_begin() -> None:
    world = world_of_orders()
    two_instances(world)
    world.pass_time(world.config.consumer_session_timeout_ms)
    ask = OffsetFetch(group=SHARED, topics=None, member_id=MemberId("x"), epoch=2)
    answer = world.answer(world.ask(ask), OffsetFetchResponse)
    assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID


INSTANCES = [None, "a", "b"]
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_claimed_an_instance_is_one_member(seed: int) -> None:
    """Any mixture of names, instances, epochs and partitions; then an honest member gets all."""
    world, chance = world_of_orders(), Random(seed)
    for _ in range(50):
        member, instance = chance.choice("xyz"), chance.choice(INSTANCES)
        epoch = chance.choice([0, 0, -2, -2, -1, 1, 2, 3, 99])
        held = chance.choice([None, (0, 1), (0, 1, 2, 3)])
        claim = None if held is None else (TopicIdPartitions(ORDERS, held),)
        beat(world, member, epoch, instance_id=instance, owned=claim if epoch else ())
        there = shares(world)
        instances = [instance for instance, _ in there.values() if instance is not None]
        assert len(set(instances)) == len(instances)
        for one in INSTANCES[1:]:
            probed = beat(world, "probe", 5, instance_id=one).error
            expected = ErrorCode.FENCED_INSTANCE_ID if one in instances else UNKNOWN
            assert probed == expected, "the instance is somebody else than the group says"
        stored = world.stores[0].get(SHARED)
        if stored is not None and stored.assigned is not None:
            assert stored.assigned.flaw() is None
    world.pass_time(world.config.consumer_session_timeout_ms)
    assert shares(world) == {}
    for instance in INSTANCES:
        if instance is not None:
            fresh = f"of {instance}"
            assert beat(world, fresh, 0, instance_id=instance).error == ErrorCode.NONE
            assert beat(world, fresh, -1, instance_id=instance).error == ErrorCode.NONE
    assert beat(world, "last", 0).error == ErrorCode.NONE
    assert shares(world) == {"last": (None, [0, 1, 2, 3])}


# -- classic groups --------------------------------------------------------------------------------


def test_a_member_id_cannot_be_guessed() -> None:
    """It is the only proof of being that member. The next one does not follow from the last, and a
    cluster that begins anew does not reuse an id of the old one."""
    given_ids = []
    for secret in (b"of one cluster", b"of another"):
        world = World(secret=secret)
        anna, bert = Client(world, "anna"), Client(world, "anna")
        stable_group(world, anna, bert)
        given_ids += [anna.member_id, bert.member_id]
    assert len(set(given_ids)) == 4
    for member_id in given_ids:
        name, chance = member_id.split("-")
        assert (name, len(bytes.fromhex(chance))) == ("anna", 16)


def test_a_member_of_an_earlier_cluster_is_nobody() -> None:
    old = World(secret=b"of the old cluster")
    ghost = Client(old, "anna")
    stable_group(old, ghost)
    world = World(secret=b"of the new one")
    anna = Client(world, "anna")
    stable_group(world, anna)
    ghost.world = world
    assert ghost.generation == anna.generation
    assert ghost.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.commit(7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert ghost.left(ghost.leave()) == ErrorCode.UNKNOWN_MEMBER_ID
    assert anna.heartbeat() == ErrorCode.NONE


class Claims:
    """Anything a client may send to a classic group: every mixture of the existing names."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ids = [NO_MEMBER, MemberId("invented")]

    def say(self, kind: str, member: int, instance: str | None, generation: int) -> None:
        world, group = self.world, SHARED
        member_id = self.ids[member % len(self.ids)]
        if kind == "join":
            token = world.ask(
                JoinGroup(
                    group=group,
                    member_id=member_id,
                    instance_id=instance,
                    session_timeout_ms=SESSION_MS,
                    protocol_type="consumer",
                    protocols=(Protocol("range", b""),),
                    require_known_member_id=True,
                )
            )
            world.pass_time(world.config.initial_rebalance_delay_ms)
            answer = world.answers.get(token)
            if isinstance(answer, JoinGroupResponse) and answer.member_id not in self.ids:
                self.ids.append(answer.member_id)
        elif kind == "sync":
            world.ask(
                SyncGroup(
                    group=group, generation=generation, member_id=member_id, instance_id=instance
                )
            )
        elif kind == "beat":
            world.ask(
                Heartbeat(
                    group=group, generation=generation, member_id=member_id, instance_id=instance
                )
            )
        elif kind == "leave":
            leaving = LeavingMember(member_id, instance)
            world.ask(LeaveGroup(group=group, members=(leaving, leaving)))
        else:
            topics = (TopicOffsets("t", (PartitionOffset(0, generation),)),)
            world.ask(
                OffsetCommit(
                    group=group,
                    generation=generation,
                    member_id=member_id,
                    instance_id=instance,
                    commit_wall_ms=WALL_MS,
                    topics=topics,
                )
            )


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_claimed_a_classic_group_goes_on(seed: int) -> None:
    world, chance = World(), Random(seed)
    claims = Claims(world)
    for _ in range(40):
        claims.say(
            chance.choice(["join", "join", "sync", "beat", "leave", "commit"]),
            chance.randrange(8),
            chance.choice(INSTANCES),
            chance.choice([-1, 0, 1, 2, 3]),
        )
        described = world.answer(world.ask(DescribeGroup(group=SHARED)), DescribeGroupResponse)
        instances = [one.instance_id for one in described.members if one.instance_id is not None]
        assert len(set(instances)) == len(instances)
    world.pass_time(10 * SESSION_MS)
    honest = Client(world, "honest", group=SHARED, instance_id="a")
    stable_group(world, honest)
    assert honest.heartbeat() == ErrorCode.NONE
    assert honest.commit(1) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("member", "instance", "generation", "error"),
    [
        ("its own", "b", 1, ErrorCode.FENCED_INSTANCE_ID),
        ("invented", "b", 1, ErrorCode.FENCED_INSTANCE_ID),
        ("its own", "c", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("invented", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("its own", "a", 2, ErrorCode.ILLEGAL_GENERATION),
        ("its own", "a", 0, ErrorCode.ILLEGAL_GENERATION),
        ("its own", None, 1, ErrorCode.NONE),
    ],
)
def test_each_name_in_a_heartbeat_is_looked_at(
    member: str, instance: str | None, generation: int, error: ErrorCode
) -> None:
    world = World()
    anna, bert = Client(world, "anna", instance_id="a"), Client(world, "bert", instance_id="b")
    stable_group(world, anna, bert)
    member_id = anna.member_id if member == "its own" else MemberId(member)
    claim = Heartbeat(
        group=anna.group, generation=generation, member_id=member_id, instance_id=instance
    )
    assert world.answer(world.ask(claim), HeartbeatResponse).error == error
    assert (anna.heartbeat(), bert.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
