"""Members of a group on three real nodes: joining, leaving, other clients, steals, kills."""

import re
from collections import Counter
from collections.abc import Callable, Collection

import pytest
import trio
import trio.testing
from confluent_kafka import Consumer as ConfluentConsumer

from evenkeel import (
    Admin,
    Assignor,
    ClientConfig,
    CommitError,
    ConfigurationError,
    Consumer,
    ConsumerConfig,
    FencedError,
    Producer,
    ProducerConfig,
    RebalanceListener,
    TopicPartition,
)
from evenkeel.coordinator import Identity
from tests.evenkeel.shared_cluster import SharedCluster

pytestmark = pytest.mark.cluster

STEP_S = 40.0
QUICK = ClientConfig(request_timeout_ms=3_000)


def member_of(cluster: SharedCluster, group: str, **settings: object) -> Consumer:
    quick: dict[str, object] = {"heartbeat_ms": 100, "session_timeout_ms": 10_000}
    config = ConsumerConfig(group=group, **(quick | settings))  # type: ignore[arg-type]
    return Consumer(cluster.bootstrap, config, client=QUICK)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(STEP_S):
        while True:
            if condition():
                return
            await trio.sleep(0.02)


def places_of(topic: str, count: int = 3) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(count)}


class Reader(RebalanceListener):
    """A member that keeps reading, and records what it gets and hears."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.values: list[bytes] = []
        self.told: list[tuple[str, set[TopicPartition]]] = []

    async def run(
        self, topics: Collection[str] | re.Pattern[str], *, task_status: trio.TaskStatus[None]
    ) -> None:
        async with self.consumer:
            await self.consumer.subscribe(topics, listener=self)
            task_status.started()
            async for records in self.consumer:
                self.values += [record.value or b"" for record in records.records]

    async def assigned(self, places: Collection[TopicPartition]) -> None:
        self.told.append(("assigned", set(places)))

    async def revoked(self, places: Collection[TopicPartition]) -> None:
        self.told.append(("revoked", set(places)))

    async def lost(self, places: Collection[TopicPartition]) -> None:
        self.told.append(("lost", set(places)))

    @property
    def identity(self) -> Identity:
        """Member id and generation, as the coordinator knows them."""
        return self.consumer._identity()

    @property
    def share(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment


async def produce(cluster: SharedCluster, topic: str, first: int, count: int) -> None:
    async with Producer(cluster.bootstrap, ProducerConfig(batch_bytes=600)) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number, partition=number % 3)


@pytest.mark.parametrize("assignor", Assignor)
async def test_members_come_and_go(cluster: SharedCluster, topic: str, assignor: Assignor) -> None:
    """Assignments are even and complete, and no member reads again what another has read."""
    readers = [Reader(member_of(cluster, topic, assignors=(assignor,))) for _ in range(3)]
    async with trio.open_nursery() as nursery:
        await nursery.start(readers[0].run, [topic])
        await until(lambda: readers[0].share == places_of(topic))
        await produce(cluster, topic, 0, 60)
        await until(lambda: len(readers[0].values) == 60)
        for reader in readers[1:]:
            await nursery.start(reader.run, [topic])
        await until(lambda: all(len(one.share) == 1 for one in readers))
        assert set().union(*(one.share for one in readers)) == places_of(topic)
        await produce(cluster, topic, 60, 60)
        await until(lambda: sum(len(one.values) for one in readers) >= 120)
        nursery.cancel_scope.cancel()
    read = Counter(value for one in readers for value in one.values)
    assert read == Counter(b"%d" % number for number in range(120))
    kinds = [kind for kind, _ in readers[0].told]
    revoked = [places for kind, places in readers[0].told if kind == "revoked"]
    assert (kinds[0], kinds[-1]) == ("assigned", "revoked")
    assert "lost" not in kinds
    if assignor is Assignor.COOPERATIVE_STICKY:
        assert set().union(*revoked[:-1]) < places_of(topic), "one stayed all the time"


async def test_a_member_that_leaves_is_replaced_at_once(cluster: SharedCluster, topic: str) -> None:
    """It does not take a session timeout: the member says that it leaves, also when it is
    cancelled."""
    first = Reader(member_of(cluster, topic, session_timeout_ms=45_000))
    second = Reader(member_of(cluster, topic, session_timeout_ms=45_000))
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as inner:
            await inner.start(first.run, [topic])
            await nursery.start(second.run, [topic])
            await until(lambda: bool(first.share) and bool(second.share))
            inner.cancel_scope.cancel()
        with trio.fail_after(20):
            await until(lambda: second.share == places_of(topic))
        nursery.cancel_scope.cancel()


async def test_who_wants_nothing_any_more_is_no_member(cluster: SharedCluster, topic: str) -> None:
    """It may come back."""
    readers = [Reader(member_of(cluster, topic, session_timeout_ms=45_000)) for _ in range(2)]
    async with trio.open_nursery() as nursery:
        for reader in readers:
            await nursery.start(reader.run, [topic])
        await until(lambda: all(one.share for one in readers))
        await readers[0].consumer.subscribe([])
        with trio.fail_after(20):
            await until(lambda: readers[1].share == places_of(topic))
        assert readers[0].share == frozenset()
        await readers[0].consumer.subscribe([topic])
        await until(lambda: all(one.share for one in readers))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("assignor", "theirs"),
    [(Assignor.RANGE, "range"), (Assignor.COOPERATIVE_STICKY, "cooperative-sticky")],
)
async def test_a_group_with_another_client(
    cluster: SharedCluster, topic: str, assignor: Assignor, theirs: str
) -> None:
    """confluent-kafka and our client share one topic; each kind leads at some time."""
    other = ConfluentConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": theirs,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 100,
            "auto.offset.reset": "earliest",
        }
    )
    seen: list[bytes] = []

    def read_theirs() -> None:
        message = other.poll(0.02)
        if message is not None and message.error() is None:
            seen.append(message.value())

    async def keep_reading() -> None:
        while True:
            await trio.to_thread.run_sync(read_theirs)

    ours = [Reader(member_of(cluster, topic, assignors=(assignor,))) for _ in range(2)]
    other.subscribe([topic])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_reading)
        await until(lambda: len(other.assignment()) == 3)
        for reader in ours:
            await nursery.start(reader.run, [topic])
        await until(lambda: all(len(one.share) == 1 for one in ours))
        await until(lambda: len(other.assignment()) == 1)
        await produce(cluster, topic, 0, 60)
        await until(lambda: len(seen) + sum(len(one.values) for one in ours) >= 60)
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(other.close)
    read = Counter(seen) + Counter(value for one in ours for value in one.values)
    assert read == Counter(b"%d" % number for number in range(60))


async def test_topics_that_match_a_pattern(cluster: SharedCluster, topic: str) -> None:
    """Also topics that are created later."""
    reader = Reader(
        Consumer(
            cluster.bootstrap,
            ConsumerConfig(group=topic, heartbeat_ms=100),
            client=ClientConfig(metadata_max_age_ms=200),
        )
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(reader.run, re.compile(topic + r"-[ab]|" + topic))
        await until(lambda: reader.share == places_of(topic))
        cluster.create_topic(f"{topic}-b", partitions=2)
        cluster.create_topic(f"{topic}-c", partitions=2)
        await until(lambda: reader.share == places_of(topic) | places_of(f"{topic}-b", 2))
        nursery.cancel_scope.cancel()


async def test_members_who_agree_on_nothing(cluster: SharedCluster, topic: str) -> None:
    first = Reader(member_of(cluster, topic, assignors=(Assignor.RANGE,)))
    async with trio.open_nursery() as nursery:
        await nursery.start(first.run, [topic])
        await until(lambda: bool(first.share))
        async with member_of(cluster, topic, assignors=(Assignor.ROUND_ROBIN,)) as second:
            await second.subscribe([topic])
            with pytest.raises(ConfigurationError, match="none of these assignors: roundrobin"):
                await anext(second)
        nursery.cancel_scope.cancel()


async def test_a_static_member_comes_back_to_its_partitions(
    cluster: SharedCluster, topic: str
) -> None:
    """KIP-345: no rebalance for the others; of two members with one instance id the older is
    fenced."""
    other = Reader(member_of(cluster, topic, instance="b"))
    async with trio.open_nursery() as nursery:
        await nursery.start(other.run, [topic])
        async with member_of(cluster, topic, instance="a") as first:
            await first.subscribe([topic])
            await until(lambda: bool(first.assignment))
            await until(lambda: first.assignment | other.share == places_of(topic))
            await until(lambda: not first.assignment & other.share)
            share, rounds = first.assignment, other.consumer.statistics().rounds
        async with member_of(cluster, topic, instance="a") as again:
            await again.subscribe([topic])
            await until(lambda: again.assignment == share)
            assert other.consumer.statistics().rounds == rounds
            async with member_of(cluster, topic, instance="a") as usurper:
                await usurper.subscribe([topic])
                with trio.fail_after(STEP_S), pytest.raises(FencedError):
                    async for _ in again:
                        pass
        nursery.cancel_scope.cancel()


async def test_steals_rebalance_nobody_and_are_told_our_progress(
    cluster: SharedCluster, topic: str
) -> None:
    """All masters move, also the coordinator's: members keep their partitions, and offsets are
    committed because the master asked; the commit interval is an hour."""
    readers = [Reader(member_of(cluster, topic, auto_commit_ms=3_600_000)) for _ in range(2)]
    async with trio.open_nursery() as nursery:
        for reader in readers:
            await nursery.start(reader.run, [topic])
        await until(lambda: all(one.share for one in readers))
        await until(lambda: sum(len(one.share) for one in readers) == 3)
        rounds = [one.consumer.statistics().rounds for one in readers]
        places = [(one.identity, one.share) for one in readers]
        await produce(cluster, topic, 0, 60)
        await until(lambda: sum(len(one.values) for one in readers) == 60)
        await cluster.place_all_on(2)
        await cluster.place_all_on(1)
        await produce(cluster, topic, 60, 60)
        await until(lambda: sum(len(one.values) for one in readers) == 120)
        assert [one.consumer.statistics().rounds for one in readers] == rounds
        assert [(one.identity, one.share) for one in readers] == places
        statistics = [one.consumer.statistics() for one in readers]
        assert all(one.progress_reports > 0 for one in statistics)
        assert sum(one.commits for one in statistics) > 0
        await cluster.spread()
        nursery.cancel_scope.cancel()


async def test_a_group_outlives_the_death_of_a_node(cluster: SharedCluster, topic: str) -> None:
    """SIGKILL for the leader of a partition: all records are still read."""
    reader = Reader(member_of(cluster, topic))
    async with trio.open_nursery() as nursery:
        await nursery.start(reader.run, [topic])
        await produce(cluster, topic, 0, 60)
        await until(lambda: len(reader.values) >= 60)
        victim = await cluster.leader_of(topic, 0)
        await cluster.kill(victim)
        await produce(cluster, topic, 60, 60)
        await until(lambda: set(reader.values) == {b"%d" % number for number in range(120)})
        async with Admin(cluster.bootstrap) as admin:
            assert topic in [one.name for one in await admin.list_groups()]
        await cluster.restart(victim)
        nursery.cancel_scope.cancel()
    assert "lost" not in [kind for kind, _ in reader.told]


async def test_partitions_are_gone_however_long_the_listener_takes(
    cluster: SharedCluster, topic: str
) -> None:
    """Otherwise they could come back later and continue from their old positions."""

    class Slow(RebalanceListener):
        async def revoked(self, places: Collection[TopicPartition]) -> None:
            await trio.sleep(STEP_S)

    async with member_of(cluster, f"slow-{topic}", rebalance_timeout_ms=400) as consumer:
        await consumer.subscribe([topic], listener=Slow())
        await until(lambda: bool(consumer.assignment))
        await consumer.subscribe([])
        await until(lambda: not consumer.assignment)


async def test_a_commit_that_comes_late_does_not_set_the_next_owner_back(
    cluster: SharedCluster, topic: str
) -> None:
    """It waits (here for another commit, else for the coordinator) and the group moves on. It would
    then be sent under the new generation, in which its partition belongs to another member."""
    late = Reader(member_of(cluster, topic, auto_commit_ms=None))
    other = Reader(member_of(cluster, topic, auto_commit_ms=None))
    refused: list[CommitError] = []

    async def commit() -> None:
        with pytest.raises(CommitError, match="the consumer group has rebalanced") as error:
            await late.consumer.commit()
        refused.append(error.value)

    async with trio.open_nursery() as nursery:
        await nursery.start(late.run, [topic])
        await until(lambda: late.share == places_of(topic))
        await produce(cluster, topic, 0, 30)
        await until(lambda: len(late.values) == 30)
        async with late.consumer._committing:
            nursery.start_soon(commit)
            await trio.testing.wait_all_tasks_blocked(0.01)
            await nursery.start(other.run, [topic])
            await until(lambda: bool(other.share) and bool(late.share))
            await until(lambda: late.share | other.share == places_of(topic))
            await other.consumer.commit(dict.fromkeys(other.share, 11))
        await until(lambda: bool(refused))
        committed = await other.consumer.committed(other.share)
        assert {place: one.offset for place, one in committed.items()} == dict.fromkeys(
            other.share, 11
        )
        nursery.cancel_scope.cancel()
