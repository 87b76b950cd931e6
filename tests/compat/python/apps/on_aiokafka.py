"""aiokafka: its defaults wherever nothing else is asked for."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.structs import TopicPartition
from told import Asked, acked, failed, main, read, tell, values

WAIT_S = 30
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


def on_a_loop(work: Callable[[Asked], Awaitable[None]]) -> Callable[[Asked], None]:
    async def run(asked: Asked) -> None:
        await work(asked)

    return lambda asked: asyncio.run(run(asked))


async def produce(asked: Asked) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=asked.bootstrap,
        acks=asked.acks if asked.acks == "all" else int(asked.acks),
        enable_idempotence=asked.idempotent,
        compression_type=None if asked.codec == "none" else asked.codec,
    )
    await producer.start()
    sending: set[asyncio.Task[None]] = set()

    async def answered(value: bytes, sent: asyncio.Future) -> None:
        try:
            told = await sent
        except Exception as error:  # noqa: BLE001  whatever it is, the application is told
            failed(error)
        else:
            acked(value, told.partition, told.offset)

    for value in values(asked):
        if value is None:
            await asyncio.sleep(0.005)
            continue
        task = asyncio.create_task(
            answered(value, await producer.send(asked.topic, value, partition=0))
        )
        sending.add(task)
        task.add_done_callback(sending.discard)
    if sending:
        await asyncio.wait(sending, timeout=WAIT_S)
    await producer.stop()


async def consume(asked: Asked) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=asked.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(asked.topic, 0)])
    await _read(consumer, asked)
    await consumer.stop()


async def _read(consumer: AIOKafkaConsumer, asked: Asked) -> None:
    left = asked.count
    while left > 0 and time.monotonic() < asked.until:
        for records in (await consumer.getmany(timeout_ms=100, max_records=left)).values():
            for one in records:
                read(one.value, one.partition, one.offset)
                left -= 1


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        tell("rebalance", partitions=sorted(one.partition for one in assigned))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...


async def group(asked: Asked) -> None:
    more = {"partition_assignment_strategy": [ASSIGNORS[asked.assignor]]} if asked.assignor else {}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=asked.bootstrap,
        group_id=asked.group,
        group_instance_id=asked.instance or None,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1_000,
        **more,
    )
    consumer.subscribe([asked.topic], listener=Listener())
    await consumer.start()
    await _read(consumer, asked)
    await consumer.stop()  # commits what was read


main(
    {
        name: on_a_loop(work)
        for name, work in {"produce": produce, "consume": consume, "group": group}.items()
    }
)
