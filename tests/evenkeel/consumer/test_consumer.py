"""The consumer against three real nodes: other clients' records, seeks, times, commits, closing."""

from collections.abc import Collection

import pytest
import trio

from evenkeel import (
    Admin,
    Assignor,
    ClosedError,
    Committed,
    ConfigurationError,
    Consumer,
    ConsumerConfig,
    Isolation,
    ListenerError,
    OffsetError,
    OffsetReset,
    Producer,
    ProducerConfig,
    Records,
    TopicPartition,
)
from tests.evenkeel.peers import write_by_confluent
from tests.evenkeel.shared_cluster import SharedCluster

pytestmark = pytest.mark.cluster

STEP_S = 30.0


async def fill(cluster: SharedCluster, topic: str, count: int, partition: int = 0) -> None:
    """Records 0, 1, ... in batches of about four, at times 1000, 1001, ..."""
    padding = (("padding", bytes(100)),)
    async with Producer(cluster.bootstrap, ProducerConfig(batch_bytes=512)) as producer:
        for number in range(count):
            await producer.send(
                topic,
                b"%d" % number,
                partition=partition,
                headers=padding,
                timestamp_ms=1000 + number,
            )


async def take(consumer: Consumer, count: int) -> list[Records]:
    """Poll batches until there are that many records."""
    taken: list[Records] = []
    with trio.fail_after(STEP_S):
        while sum(len(one.records) for one in taken) < count:
            taken.append(await anext(consumer))
    return taken


def values(batches: list[Records]) -> list[bytes | None]:
    return [record.value for one in batches for record in one.records]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_we_read_what_another_client_writes(
    cluster: SharedCluster, topic: str, codec: str
) -> None:
    written = [
        {"value": b"v" * 5000, "key": b"k", "headers": [("h", b"1"), ("n", None)], "timestamp": 77},
        {"value": None, "key": None, "headers": [], "timestamp": 5},
        {"value": b"", "key": b"", "headers": [("ü", "日".encode())], "timestamp": 10**12},
    ]
    await write_by_confluent(
        cluster.bootstrap,
        [{"topic": topic, "partition": 1, **one} for one in written],
        **{"compression.type": codec, "linger.ms": 50},
    )
    async with Consumer(cluster.bootstrap) as consumer:
        place = TopicPartition(topic, 1)
        await consumer.assign([place])
        records = [record for one in await take(consumer, 3) for record in one.records]
    for offset, (record, one) in enumerate(zip(records, written, strict=True)):
        assert (record.topic, record.partition, record.offset) == (*place, offset)
        assert (record.value, record.key) == (one["value"], one["key"])
        assert list(record.headers) == one["headers"]
        assert record.timestamp_ms == one["timestamp"]


@pytest.mark.parametrize("isolation", Isolation)
async def test_seek_position_and_ends(
    cluster: SharedCluster, topic: str, isolation: Isolation
) -> None:
    await fill(cluster, topic, 50)
    place = TopicPartition(topic, 0)
    async with Consumer(cluster.bootstrap, ConsumerConfig(isolation=isolation)) as consumer:
        await consumer.assign({place: 45})
        assert values(await take(consumer, 5)) == [b"45", b"46", b"47", b"48", b"49"]
        assert await consumer.position(place) == 50
        assert consumer.lag(place) == 0
        consumer.seek(place, 3)
        assert (await anext(consumer)).records[0].offset == 3
        consumer.seek(place, OffsetReset.LATEST)
        assert await consumer.position(place) == 50
        consumer.seek(place, OffsetReset.EARLIEST)
        assert await consumer.position(place) == 0
        assert len(values(await take(consumer, 50))) == 50
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 50}


async def test_offsets_for_times(cluster: SharedCluster, topic: str) -> None:
    await fill(cluster, topic, 20)
    place, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(cluster.bootstrap) as consumer:
        found = await consumer.offsets_for_times({place: 1007, empty: 0})
        assert found[empty] is None
        assert found[place] is not None
        assert found[place][:2] == (7, 1007)
        assert await consumer.offsets_for_times({place: 5000}) == {place: None}


async def test_a_paused_partition_is_silent(cluster: SharedCluster, topic: str) -> None:
    """And continues where it was."""
    await fill(cluster, topic, 30, partition=0)
    await fill(cluster, topic, 30, partition=1)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Consumer(cluster.bootstrap) as consumer:
        await consumer.assign([first, second])
        consumer.pause([first])
        taken = await take(consumer, 30)
        assert {one.place for one in taken} == {second}
        assert await consumer.poll(0.05) is None
        consumer.resume([first])
        assert values(await take(consumer, 30)) == [b"%d" % number for number in range(30)]


async def test_what_is_assigned_later_with_its_offsets_is_read(
    cluster: SharedCluster, topic: str
) -> None:
    """No position has to be looked up, which would wake the fetcher: it used to sleep for ever."""
    async with Producer(cluster.bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, partition=0)
    async with Consumer(cluster.bootstrap) as consumer:
        assert await consumer.poll(0.2) is None
        await consumer.assign({TopicPartition(topic, 0): 5})
        assert values(await take(consumer, 5)) == [b"%d" % number for number in range(5, 10)]


async def test_lag_does_not_count_what_retention_took(cluster: SharedCluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    async with Producer(cluster.bootstrap) as producer:  # of today: retention removes no more
        for _ in range(50):
            await producer.send(topic, b"", partition=0)
    async with Consumer(cluster.bootstrap) as consumer, Admin(cluster.bootstrap) as admin:
        await consumer.assign({place: 45})
        await take(consumer, 5)
        consumer.seek(place, 20)
        assert consumer.lag(place) == 30
        await admin.delete_records({place: 40})
        consumer.seek(place, 45)
        await take(consumer, 5)
        consumer.seek(place, 20)
        assert consumer.lag(place) == 10


async def test_partitions_take_turns(cluster: SharedCluster, topic: str) -> None:
    """A partition with much to read does not keep the others waiting."""
    for partition in range(3):
        await fill(cluster, topic, 60, partition)
    async with Consumer(cluster.bootstrap) as consumer:
        places = [TopicPartition(topic, number) for number in range(3)]
        await consumer.assign(places)
        with trio.fail_after(STEP_S):
            while True:
                if None not in [consumer.lag(place) for place in places]:
                    break  # all have been fetched
                await trio.sleep(0.01)
        taken = await take(consumer, 180)
    firsts = [next(n for n, one in enumerate(taken) if one.place.partition == p) for p in range(3)]
    assert max(firsts) < len(taken) / 2


async def test_where_there_is_no_offset(cluster: SharedCluster, topic: str) -> None:
    place = TopicPartition(topic, 0)
    await fill(cluster, topic, 10)
    config = ConsumerConfig(offset_reset=OffsetReset.ERROR)
    async with Consumer(cluster.bootstrap, config) as consumer:
        await consumer.assign([place])
        with pytest.raises(OffsetError, match="no offset to begin at"), trio.fail_after(STEP_S):
            await anext(consumer)
        consumer.seek(place, 999)  # behind the end
        with pytest.raises(OffsetError), trio.fail_after(STEP_S):
            await anext(consumer)
        consumer.seek(place, 9)
        assert values(await take(consumer, 1)) == [b"9"]
    async with Consumer(cluster.bootstrap) as consumer:
        await consumer.assign({place: 999})
        assert values(await take(consumer, 1))[0] == b"0", "EARLIEST is the default"


# -- committed offsets ----------------------------------------------------------------------------


def grouped(name: str, **settings: object) -> ConsumerConfig:
    return ConsumerConfig(group=name, **settings)  # type: ignore[arg-type]


async def test_the_next_one_begins_where_the_last_committed(
    cluster: SharedCluster, topic: str
) -> None:
    """Explicitly, and at the end of the `async with`; if the body fails, its records do not count
    as processed."""
    await fill(cluster, topic, 40)
    place = TopicPartition(topic, 0)
    config = grouped(topic)
    async with Consumer(cluster.bootstrap, config) as consumer:
        await consumer.assign([place])
        first = await anext(consumer)
        await consumer.commit()
        end = first.records[-1].offset + 1
        assert (await consumer.committed([place]))[place].offset == end
        second = await anext(consumer)
    broken = Consumer(cluster.bootstrap, config)
    with pytest.raises(RuntimeError, match="while processing"):
        await read_and_fail(broken, place, second.records[-1].offset + 1)
    async with Consumer(cluster.bootstrap, config) as consumer:
        await consumer.assign([place])
        assert (await anext(consumer)).records[0].offset == second.records[-1].offset + 1
        await consumer.commit({place: 3})
        await consumer.commit({place: Committed(4, "a note")})
        found = (await consumer.committed([place, TopicPartition(topic, 1)]))[place]
        assert found[:2] == (4, "a note")


async def read_and_fail(consumer: Consumer, place: TopicPartition, expected: int) -> None:
    async with consumer:
        await consumer.assign([place])
        assert (await anext(consumer)).records[0].offset == expected
        raise RuntimeError("while processing")


async def test_what_is_processed_is_committed_now_and_then(
    cluster: SharedCluster, topic: str
) -> None:
    """As another consumer sees it: what was handed out before the last poll, and no more."""
    await fill(cluster, topic, 40)
    place = TopicPartition(topic, 0)
    async with (
        Consumer(cluster.bootstrap, grouped(topic, auto_commit_ms=20)) as consumer,
        Consumer(cluster.bootstrap, grouped(topic)) as other,
    ):
        await consumer.assign([place])
        await anext(consumer)
        second = await anext(consumer)
        with trio.fail_after(STEP_S):
            while True:
                found = await other.committed([place])
                if found and found[place].offset > 0:  # it begins by committing the beginning
                    break
                await trio.sleep(0.01)
        assert found[place].offset == second.records[0].offset


async def test_a_cancelled_consumer_commits_what_was_processed(
    cluster: SharedCluster, topic: str
) -> None:
    await fill(cluster, topic, 40)
    place = TopicPartition(topic, 0)
    with trio.CancelScope() as scope:
        async with Consumer(cluster.bootstrap, grouped(topic)) as consumer:
            await consumer.assign([place])
            await take(consumer, 8)
            last = await anext(consumer)
            scope.cancel()
            await anext(consumer)
    assert scope.cancelled_caught
    async with Consumer(cluster.bootstrap, grouped(topic)) as other:
        assert (await other.committed([place]))[place].offset == last.records[-1].offset + 1


async def test_cancelling_a_poll_loses_nothing(cluster: SharedCluster, topic: str) -> None:
    await fill(cluster, topic, 200)
    got: list[bytes | None] = []
    async with Consumer(cluster.bootstrap) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        with trio.fail_after(STEP_S):
            while len(got) < 200:
                records = await consumer.poll(0.0005)
                got += values([records]) if records is not None else []
    assert got == [b"%d" % number for number in range(200)]


async def test_a_seek_counts_although_another_position_is_being_looked_up(
    cluster: SharedCluster, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    async with Producer(cluster.bootstrap) as producer:
        await (await producer.send(topic, b"there", partition=0))
    async with Consumer(cluster.bootstrap) as consumer:
        for where, expected in ((OffsetReset.LATEST, 1), (OffsetReset.EARLIEST, 0)):
            await consumer.assign([])
            await consumer.assign([place])
            consumer.seek(place, where)
            assert await consumer.position(place) == expected


async def test_mistakes_are_told(cluster: SharedCluster, topic: str) -> None:
    async with Consumer(cluster.bootstrap) as consumer:
        with pytest.raises(ConfigurationError, match="without a consumer group"):
            await consumer.subscribe([topic])
        with pytest.raises(ConfigurationError, match="without a consumer group"):
            await consumer.commit()
        with pytest.raises(ConfigurationError, match="is not assigned"):
            consumer.seek(TopicPartition(topic, 0), 1)
        await consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(ConfigurationError, match="cannot seek to offset -5"):
            consumer.seek(TopicPartition(topic, 0), -5)
    with pytest.raises(ClosedError):
        await anext(consumer)
    with pytest.raises(ConfigurationError, match="outlive"):
        ConsumerConfig(session_timeout_ms=6_000)
    with pytest.raises(ConfigurationError, match="cannot be offered together"):
        ConsumerConfig(group="g", assignors=(Assignor.RANGE, Assignor.COOPERATIVE_STICKY))


async def test_D12_who_is_given_a_partition_begins_where_the_group_has_committed(
    cluster: SharedCluster, topic: str
) -> None:
    """The coordinator keeps the offsets; each member asks for those of its own partitions."""
    for partition in range(3):
        await fill(cluster, topic, 10 * (partition + 1), partition=partition)
    config = ConsumerConfig(group=topic, heartbeat_ms=100, session_timeout_ms=10_000)
    async with Consumer(cluster.bootstrap, config) as first:
        await first.subscribe([topic])
        await take(first, 60)
        await first.commit({TopicPartition(topic, 1): 13, TopicPartition(topic, 2): 30})
        first.seek(TopicPartition(topic, 0), 4)
        first.seek(TopicPartition(topic, 1), 13)
    async with Consumer(cluster.bootstrap, config) as second:
        await second.subscribe([topic])
        again = await take(second, 6 + 7)
    read = sorted((record.partition, record.offset) for one in again for record in one.records)
    assert read == [(0, at) for at in range(4, 10)] + [(1, at) for at in range(13, 20)]


async def test_D13_what_is_asked_for_holds_from_the_next_call_on(
    cluster: SharedCluster, topic: str
) -> None:
    """Seek and pause take effect at once, without waiting for a broker. Records fetched before and
    no longer wanted are never handed out."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await fill(cluster, topic, 40, partition=0)
    await fill(cluster, topic, 40, partition=1)
    async with Consumer(cluster.bootstrap) as consumer:
        await consumer.assign([first, second])
        await take(consumer, 8)
        with trio.fail_after(STEP_S):
            while consumer.statistics().buffered_bytes == 0:  # noqa: ASYNC110 (statistics set no event)
                await trio.sleep(0.01)
        consumer.seek(first, 30)
        consumer.pause([second])
        assert consumer.known_position(first) == 30
        taken = [record for one in await take(consumer, 10) for record in one.records]
        assert [(one.partition, one.offset) for one in taken] == [(0, at) for at in range(30, 40)]
        assert await consumer.poll(0.2) is None
        before = consumer.known_position(second)
        consumer.resume([second])
        assert (await anext(consumer)).records[0].offset == before


async def test_who_keeps_offsets_elsewhere_is_told_when_a_master_moves(
    cluster: SharedCluster, topic: str
) -> None:
    """An exception in its callback is not lost in one of our tasks."""
    place = TopicPartition(topic, 0)
    told: list[TopicPartition] = []

    async def store(places: Collection[TopicPartition]) -> None:
        told.extend(places)

    async def fail(places: Collection[TopicPartition]) -> None:
        raise ArithmeticError("no room for offsets")

    async with (
        Consumer(cluster.bootstrap, on_progress=store) as good,
        Consumer(cluster.bootstrap, on_progress=fail) as bad,
    ):
        for consumer in (good, bad):
            await consumer.assign([place])
            assert await consumer.position(place) == 0
            assert await consumer.poll(0.1) is None  # by now it waits at the master
        await cluster.place_all_on(2)
        await cluster.place_all_on(1)
        with trio.fail_after(STEP_S), pytest.raises(ListenerError, match="no room for offsets"):
            await anext(bad)
        await fill(cluster, topic, 3)
        assert values(await take(good, 3)) == [b"0", b"1", b"2"]
    assert set(told) == {place}
    await cluster.spread()
