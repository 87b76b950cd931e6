"""The producer against three real nodes, with another client as reader, through steals and a
kill."""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from evenkeel import (
    Acks,
    BrokerError,
    BufferFullError,
    ClientConfig,
    ClosedError,
    Compression,
    ConfigurationError,
    Delivery,
    DeliveryError,
    Producer,
    ProducerConfig,
    TimedOutError,
)
from tests.evenkeel.peers import PeerStream, read_by_confluent, scripted
from tests.evenkeel.shared_cluster import SharedCluster

pytestmark = pytest.mark.cluster

SMALL = ProducerConfig(batch_bytes=2_000, linger_ms=2)


@pytest.mark.parametrize("compression", Compression)
async def test_another_client_reads_what_we_write(
    cluster: SharedCluster, topic: str, compression: Compression
) -> None:
    """Keys, no keys, no values, headers, times, with every compression."""
    sent = [
        (b"value", b"key", [("h", b"1"), ("h", None), ("", b"")], 1_700_000_000_000),
        (None, b"tombstone", [], 1_700_000_000_001),
        (b"", None, [], 5),
        ("ü-日本".encode() * 3000, b"", [("ü", "日".encode())], 1_790_000_000_000),
    ]
    config = ProducerConfig(compression=compression)
    async with Producer(cluster.bootstrap, config) as producer:
        deliveries = [
            await producer.send(topic, value, key=key, headers=headers, timestamp_ms=ms)
            for value, key, headers, ms in sent
        ]
    places = [delivery.result() for delivery in deliveries]
    got = {
        (one.partition(), one.offset()): one
        for one in await read_by_confluent(cluster.bootstrap, topic, len(sent))
    }
    for (value, key, headers, ms), place in zip(sent, places, strict=True):
        message = got[place.partition, place.offset]
        assert (message.value(), message.key(), message.timestamp()[1]) == (value, key, ms)
        assert (message.headers() or []) == headers
        assert place.timestamp_ms == ms


@pytest.mark.parametrize("acks", Acks)
async def test_all_kinds_of_acknowledgement(cluster: SharedCluster, topic: str, acks: Acks) -> None:
    """The first record waits until the partition has a leader: with acks NONE it could be lost."""
    async with Producer(cluster.bootstrap) as producer:
        await (await producer.send(topic, b"first", partition=1))
    config = ProducerConfig(acks=acks, idempotent=False)
    async with Producer(cluster.bootstrap, config) as producer:
        place = await (await producer.send(topic, b"v", partition=1))
    assert place[:2] == (topic, 1)
    assert place.offset == (-1 if acks is Acks.NONE else 1)
    messages = await read_by_confluent(cluster.bootstrap, topic, 2)
    assert [one.value() for one in messages] == [b"first", b"v"]


async def test_order_within_a_partition(cluster: SharedCluster, topic: str) -> None:
    """Many small batches under way at once arrive in the order in which they were sent."""
    async with Producer(cluster.bootstrap, SMALL) as producer:
        for number in range(3000):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for one in await read_by_confluent(cluster.bootstrap, topic, 3000):
        by_key[one.key()].append(int(one.value()))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sorted(itertools.chain(*by_key.values())) == list(range(3000))


class Load:
    """Sends without a pause, and remembers the fate of each record."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.deliveries: dict[bytes, Delivery] = {}
        self.producer = producer
        self._topic = topic
        self._extra = 0

    async def run(self) -> None:
        number = 0
        while True:
            value = b"%d" % number
            self.deliveries[value] = await self.producer.send(
                self._topic, value, partition=number % 3
            )
            number += 1
            await trio.sleep(0.001)

    async def more(self, count: int) -> None:
        """Wait until that many more records are acknowledged in each partition."""
        for partition in range(3):
            for _ in range(count):
                self._extra += 1
                await (await self.producer.send(self._topic, None, partition=partition))

    async def judge(self, cluster: SharedCluster) -> None:
        """Every record is there exactly once, in order, at the offset that was answered."""
        count = len(self.deliveries) + self._extra
        messages = await read_by_confluent(cluster.bootstrap, self._topic, count)
        numbers: dict[int, list[int]] = defaultdict(list)
        for one in messages:
            if one.value() is not None:
                place = self.deliveries[one.value()].result()
                assert (one.partition(), one.offset()) == (place.partition, place.offset)
                numbers[one.partition()].append(int(one.value()))
        assert all(part == sorted(set(part)) for part in numbers.values())
        assert sum(map(len, numbers.values())) == len(self.deliveries)


@asynccontextmanager
async def under_load(
    cluster: SharedCluster, topic: str, client: ClientConfig | None = None
) -> AsyncIterator[Load]:
    """The body runs while records are sent; some are acknowledged before it and some after it.

    In the end all were acknowledged, and each is in the log once.
    """
    async with Producer(cluster.bootstrap, SMALL, client=client) as producer:
        load = Load(producer, topic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.more(5)
            yield load
            await load.more(5)
            nursery.cancel_scope.cancel()
    await load.judge(cluster)


async def test_exactly_once_through_steals(cluster: SharedCluster, topic: str) -> None:
    """All masters move to node 2 and back while we send: no error, nothing lost, nothing twice."""
    async with under_load(cluster, topic) as load:
        await cluster.place_all_on(2)
        await load.more(5)
        await cluster.spread()


async def test_exactly_once_through_a_kill(cluster: SharedCluster, topic: str) -> None:
    """A node dies by SIGKILL under load and comes back: retries are recognised as such."""
    async with under_load(cluster, topic) as load:
        victim = await cluster.leader_of(topic, 0)
        # Stopped first, so that it certainly dies with unanswered requests.
        await cluster.pause(victim)
        requests = load.producer.statistics().requests
        with trio.move_on_after(2):
            while load.producer.statistics().requests < requests + 10:  # noqa: ASYNC110 (only counted)
                await trio.sleep(0.01)
        await cluster.kill(victim)
        await load.more(5)
        await cluster.restart(victim)
    assert load.producer.statistics().retries > 0


async def test_exactly_once_through_a_hang(cluster: SharedCluster, topic: str) -> None:
    """A node stops with its sockets open (SIGSTOP), and continues when others lead. Requests that
    it had received but not answered are sent again, and recognised wherever they were written."""
    impatient = ClientConfig(request_timeout_ms=1_500)
    async with under_load(cluster, topic, client=impatient) as load:
        victim = await cluster.leader_of(topic, 0)
        await cluster.pause(victim)
        await load.more(5)
        await cluster.resume(victim)


# -- waiting, giving up, closing ------------------------------------------------------------------


async def test_flush_does_not_wait_for_the_linger(cluster: SharedCluster, topic: str) -> None:
    config = ProducerConfig(linger_ms=3_600_000)
    async with Producer(cluster.bootstrap, config) as producer:
        delivery = await producer.send(topic, b"v")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not delivery.done
        with trio.fail_after(30):
            await producer.flush()
        assert delivery.result().offset == 0


async def test_a_cancelled_producer_leaves_no_one_waiting(topic: str) -> None:
    """Everything under way fails, each with its true state."""
    async with scripted(_mute) as (host, port):
        with trio.CancelScope() as scope:
            config = ClientConfig(request_timeout_ms=60_000)
            async with Producer(f"{host}:{port}", client=config) as producer:
                scope.cancel()
                await producer.send("t", b"v")
    assert scope.cancelled_caught


async def _mute(_: PeerStream) -> None:
    await trio.sleep_forever()


async def test_what_is_left_at_an_exception_is_told_so(cluster: SharedCluster, topic: str) -> None:
    producer = Producer(cluster.bootstrap, ProducerConfig(linger_ms=3_600_000))
    deliveries = []

    async def send_and_fail() -> None:
        async with producer:
            deliveries.append(await producer.send(topic, b"v"))
            raise RuntimeError("the user's own")

    with pytest.raises(RuntimeError, match="the user's own"):
        await send_and_fail()
    with pytest.raises(DeliveryError, match="closed before") as failed:
        await deliveries[0]
    assert not failed.value.maybe_written
    with pytest.raises(ClosedError, match="it is closed"):
        await producer.send(topic, b"v")


async def test_full_memory_pushes_back(cluster: SharedCluster, topic: str) -> None:
    """`send` waits for room, gives up after `send_timeout_ms`, and continues when there is room."""
    config = ProducerConfig(
        linger_ms=3_600_000,
        record_bytes_max=1_000,
        batch_bytes=2_000,
        buffer_bytes=3_000,
        send_timeout_ms=50,
    )
    async with Producer(cluster.bootstrap, config) as producer:
        for partition in range(3):
            await producer.send(topic, bytes(900), partition=partition)
        with pytest.raises(BufferFullError, match="memory is full"):
            await producer.send(topic, bytes(900), partition=0)
        await producer.flush()
        await producer.send(topic, bytes(900), partition=0)
        assert producer.statistics().records_failed == 0


async def test_no_answer_is_an_answer_too(cluster: SharedCluster, topic: str) -> None:
    """Deliveries end by `delivery_timeout_ms`, even if all nodes hang."""
    config = ProducerConfig(delivery_timeout_ms=700, linger_ms=0)
    async with Producer(cluster.bootstrap, config) as producer:
        await (await producer.send(topic, b"first"))
        for node in (1, 2, 3):
            await cluster.pause(node)
        try:
            delivery = await producer.send(topic, b"second")
            with pytest.raises(DeliveryError, match="not acknowledged in time") as failed:
                await delivery
        finally:
            for node in (1, 2, 3):
                await cluster.resume(node)
        assert failed.value.maybe_written


async def test_mistakes_are_told_at_once(cluster: SharedCluster, topic: str) -> None:
    quick = ClientConfig(operation_timeout_ms=300)
    config = ProducerConfig(send_timeout_ms=300)
    async with Producer(cluster.bootstrap, config, client=quick) as producer:
        with pytest.raises(ConfigurationError, match="no partition 9"):
            await producer.send(topic, b"v", partition=9)
        with pytest.raises(ConfigurationError, match="record_bytes_max"):
            await producer.send(topic, bytes(2 << 20))
        with pytest.raises(TimedOutError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*create the topic"):
            await producer.send("there-is-no-such-topic", b"v")
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
            await producer.send("no such name", b"v")
    with pytest.raises(ConfigurationError, match="acks ALL"):
        ProducerConfig(acks=Acks.LEADER)
    with pytest.raises(ClosedError, match="not opened"):
        await Producer(cluster.bootstrap).send(topic, b"v")


async def test_a_refused_batch_does_not_hold_up_the_others(
    cluster: SharedCluster,
) -> None:
    """MESSAGE_TOO_LARGE fails its own records only; later ones keep their order and arrive."""
    topic = "small-messages"
    cluster.create_topic(topic, partitions=1, settings={"max.message.bytes": "2000"})
    config = ProducerConfig(linger_ms=0, batch_bytes=1_000)
    async with Producer(cluster.bootstrap, config) as producer:
        before = await producer.send(topic, b"before", partition=0)
        large = await producer.send(topic, bytes(9_000), partition=0)
        after = await producer.send(topic, b"after", partition=0)
        with pytest.raises(DeliveryError, match="MESSAGE_TOO_LARGE") as failed:
            await large
        assert not failed.value.maybe_written
        assert ((await before).offset, (await after).offset) == (0, 1)
