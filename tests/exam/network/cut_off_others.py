"""The other clients of docs/compat.md for `cut_off.py`, as far as they are installed."""

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final, Protocol

from tests.cluster.scenery import PARTITIONS, TOPIC

EVERY_S: Final = 0.05


class Watch(Protocol):
    def success(self, client: str) -> None: ...


Client = Callable[[str, Watch, threading.Event], None]


def kafka_python_producer(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    import kafka

    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=1)

    def told(partition: int) -> Callable[[Any], None]:
        return lambda _metadata: watch.success(f"kafka-python producer {partition}")

    while not stop.wait(EVERY_S):
        for partition in range(PARTITIONS):
            with suppress(kafka.errors.KafkaError):
                sent = producer.send(TOPIC, b"z", partition=partition)
                sent.add_callback(told(partition))
    producer.close(5)


def kafka_python_consumer(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    """It asks for OffsetForLeaderEpoch before it goes on at another leader."""
    import kafka

    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    consumer.assign([kafka.TopicPartition(TOPIC, one) for one in range(PARTITIONS)])
    while not stop.is_set():
        for place in consumer.poll(100):
            watch.success(f"kafka-python consumer {place.partition}")
    consumer.close()


def aiokafka(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    import aiokafka

    async def produce(producer: Any, partition: int) -> None:
        while not stop.is_set():
            with suppress(aiokafka.errors.KafkaError):
                await producer.send_and_wait(TOPIC, b"a", partition=partition)
                watch.success(f"aiokafka producer {partition}")
            await asyncio.sleep(EVERY_S)

    async def consume(consumer: Any) -> None:
        while not stop.is_set():
            for place in await consumer.getmany(timeout_ms=100):
                watch.success(f"aiokafka consumer {place.partition}")

    async def both() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await producer.start()
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(TOPIC, one) for one in range(PARTITIONS)])
        work = [produce(producer, one) for one in range(PARTITIONS)]
        await asyncio.gather(consume(consumer), *work)
        await consumer.stop()
        await producer.stop()

    asyncio.run(both())


def kcat_consumer(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    command = ["kcat", "-b", bootstrap, "-C", "-q", "-u", "-t", TOPIC, "-o", "end", "-f", "%p\\n"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            watch.success(f"kcat consumer {line.strip()}")
            if stop.is_set():
                break
        process.terminate()


def installed() -> list[Client]:
    found: list[Client] = []
    if find_spec("kafka") is not None:
        found += [kafka_python_producer, kafka_python_consumer]
    if find_spec("aiokafka") is not None:
        found.append(aiokafka)
    if shutil.which("kcat") is not None:
        found.append(kcat_consumer)
    return found
