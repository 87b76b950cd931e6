"""Leading a group on real nodes: custom assignors, watching topics, and what follows an
assignment."""

from collections.abc import Collection, Mapping, Sequence

import pytest
import trio

from evenkeel import (
    Admin,
    Assignor,
    ClientConfig,
    ConfigurationError,
    Consumer,
    ConsumerConfig,
    ListenerError,
    Member,
    PartitionAssignor,
    Producer,
    RebalanceListener,
    Shares,
    TopicPartition,
)
from evenkeel.consumer.membership import Membership
from tests.evenkeel.shared_cluster import SharedCluster

pytestmark = pytest.mark.cluster

STEP_S = 40.0
ATTENTIVE = ClientConfig(metadata_max_age_ms=100)


class ByWeight(PartitionAssignor):
    """Each member says how much it can carry, and gets partitions in proportion."""

    name = "by-weight"

    def __init__(self, weight: int, diary: list[object] | None = None) -> None:
        self._weight = weight
        self.diary: list[object] = [] if diary is None else diary

    def subscription(self, topics: frozenset[str]) -> bytes:
        return b"%d" % self._weight

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
        weights = {member.id: int(member.user_data or b"0") for member in members}
        shares: Shares = {member: [] for member in weights}
        for topic, count in partitions.items():
            for number in range(count):
                poorest = min(weights, key=lambda one: (len(shares[one]) + 1) / weights[one])
                shares[poorest].append(TopicPartition(topic, number))
        return shares

    def on_assignment(self, places: Collection[TopicPartition], generation: int) -> None:
        self.diary.append(("on_assignment", set(places), generation > 0))


class Unjust(ByWeight):
    """Gives everything to every member."""

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
        everything = [TopicPartition(t, n) for t, count in partitions.items() for n in range(count)]
        return {member.id: everything for member in members}


class Diary(RebalanceListener):
    """Records what it is told; a consumer's reads are in `consumer`."""

    def __init__(self, diary: list[object]) -> None:
        self.diary = diary

    async def assigned(self, places: Collection[TopicPartition]) -> None:
        self.diary.append(("assigned", set(places)))


def member_of(
    cluster: SharedCluster, group: str, *assignors: Assignor | PartitionAssignor, **settings: object
) -> Consumer:
    quick: dict[str, object] = {"heartbeat_ms": 100, "session_timeout_ms": 10_000}
    config = ConsumerConfig(group=group, assignors=assignors, **(quick | settings))  # type: ignore[arg-type]
    return Consumer(cluster.bootstrap, config, client=ATTENTIVE)


def membership_of(consumer: Consumer) -> Membership:
    assert consumer._membership is not None
    return consumer._membership


async def holds(consumer: Consumer, count: int) -> None:
    """Wait until the consumer has that many partitions; errors of its group are raised here."""
    with trio.fail_after(STEP_S):
        while len(consumer.assignment) != count:
            await consumer.poll(0.02)


async def test_D7_a_group_shares_in_a_way_of_its_own(cluster: SharedCluster, topic: str) -> None:
    """A name to agree on, each member's message to the leader, the plan, and news of the
    assignment."""
    strong, weak = ByWeight(2), ByWeight(1)
    async with (
        member_of(cluster, topic, strong, Assignor.RANGE) as first,
        member_of(cluster, topic, Assignor.ROUND_ROBIN, weak) as second,
    ):
        await first.subscribe([topic])
        await holds(first, 3)
        await second.subscribe([topic])
        await holds(second, 1)
        await holds(first, 2)
        assert first.assignment.isdisjoint(second.assignment)
        assert strong.diary[-1] == ("on_assignment", set(first.assignment), True)
        assert weak.diary == [("on_assignment", set(second.assignment), True)]


async def test_D7_a_plan_that_gives_a_partition_to_two_is_refused(
    cluster: SharedCluster, topic: str
) -> None:
    async with (
        member_of(cluster, topic, Unjust(1)) as first,
        member_of(cluster, topic, Unjust(1)) as second,
    ):
        await first.subscribe([topic])
        await holds(first, 3)
        await second.subscribe([topic])
        refused = f"'by-weight' gives {topic}/0 twice"
        with trio.fail_after(STEP_S), pytest.raises(ConfigurationError, match=refused):
            await anext(first)


async def test_D9_the_leader_watches_the_topics_of_all_members(
    cluster: SharedCluster, topic: str
) -> None:
    """Its plan covers all topics that members want. When a topic grows that the leader does not
    read itself, its plan is out of date, and it makes another."""
    others = f"{topic}-others"
    cluster.create_topic(others, partitions=1)
    async with (
        member_of(cluster, topic, Assignor.RANGE) as leader,
        member_of(cluster, topic, Assignor.RANGE) as follower,
        Admin(cluster.bootstrap) as admin,
    ):
        await leader.subscribe([topic])
        await holds(leader, 3)
        await follower.subscribe([others])
        await holds(follower, 1)
        assert membership_of(leader).leads
        assert not membership_of(follower).leads
        await admin.set_partitions(others, 4)
        await holds(follower, 4)
        await holds(leader, 3)
        assert {place.topic for place in leader.assignment} == {topic}


async def test_a_static_leader_that_restarts_shares_what_was_added_before_and_after(
    cluster: SharedCluster, topic: str
) -> None:
    """It gets its place back without having to make a plan. But it is the one who watches topics,
    and nobody did while it was away."""
    static = {"session_timeout_ms": 45_000}
    async with (
        member_of(cluster, topic, Assignor.RANGE, instance="b", **static) as follower,
        Admin(cluster.bootstrap) as admin,
    ):
        async with member_of(cluster, topic, Assignor.RANGE, instance="a", **static) as leader:
            await leader.subscribe([topic])
            await holds(leader, 3)
            await follower.subscribe([topic])
            await holds(follower, 1)
            await holds(leader, 2)
            assert membership_of(leader).leads
        await admin.set_partitions(topic, 4)
        async with member_of(cluster, topic, Assignor.RANGE, instance="a", **static) as again:
            await again.subscribe([topic])
            await holds(follower, 2)
            await holds(again, 2)
            assert membership_of(again).leads
            rounds = membership_of(again).rounds
        async with member_of(cluster, topic, Assignor.RANGE, instance="a", **static) as last:
            await last.subscribe([topic])
            await holds(last, 2)
            assert membership_of(last).rounds == 1 < rounds, "nothing had changed: nobody is asked"
            await admin.set_partitions(topic, 6)
            await holds(follower, 3)
            await holds(last, 3)


async def test_D10_what_follows_an_assignment(cluster: SharedCluster, topic: str) -> None:
    """First the assignor is told, then the listener, and nothing is read meanwhile. Then the
    committed offsets are looked up again, and what is read from there is committed by the
    interval."""
    place = TopicPartition(topic, 0)
    async with Producer(cluster.bootstrap) as producer, Admin(cluster.bootstrap) as admin:
        for number in range(5):
            await producer.send(topic, b"%d" % number, partition=0)
        await producer.flush()
        await admin.alter_offsets(topic, {place: 3})
        diary: list[object] = []
        weighing = ByWeight(1, diary)
        async with member_of(cluster, topic, weighing, auto_commit_ms=50) as consumer:
            await consumer.subscribe([topic], listener=Diary(diary))
            with trio.fail_after(STEP_S):
                records = await anext(consumer)
                diary.append([record.value for record in records])
                assert await consumer.poll(0.1) is None  # the next poll means: it is processed
                while (await admin.committed_offsets(topic))[place].offset != 5:  # noqa: ASYNC110 (a broker sets no event)
                    await trio.sleep(0.02)
    everything = {TopicPartition(topic, number) for number in range(3)}
    assert diary == [
        ("on_assignment", everything, True),
        ("assigned", everything),
        [b"3", b"4"],
    ]


class Broken(RebalanceListener):
    async def assigned(self, places: Collection[TopicPartition]) -> None:
        raise ArithmeticError("a bug of the application")


async def test_D10_a_listener_that_fails_ends_its_consumer(
    cluster: SharedCluster, topic: str
) -> None:
    """Its failure must not just be logged while the consumer goes on as if its listener had
    succeeded. The consumer leaves the group properly: no other member waits for a session
    timeout."""
    settings = {"session_timeout_ms": 45_000}
    with trio.fail_after(STEP_S):
        async with member_of(cluster, topic, Assignor.RANGE, **settings) as broken:
            await broken.subscribe([topic], listener=Broken())
            with pytest.raises(ListenerError, match=r"Broken.assigned failed: .*a bug") as raised:
                await anext(broken)
            assert isinstance(raised.value.__cause__, ArithmeticError)
        async with member_of(cluster, topic, Assignor.RANGE, **settings) as other:
            await other.subscribe([topic])
            await holds(other, 3)
