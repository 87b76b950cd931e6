"""taskiq over taskiq-aio-kafka: a worker, and who sends it tasks."""

import asyncio

from aiokafka.errors import KafkaError
from taskiq.api import run_receiver_task
from taskiq_aio_kafka import AioKafkaBroker
from told import Countdown, done, options, tell

asked = options()
over = Countdown(asked)


async def work() -> None:
    broker = AioKafkaBroker(bootstrap_servers=asked.brokers, kafka_topic=asked.topic)
    broker.configure_consumer(group_id=asked.group, auto_offset_reset="earliest")
    broker.is_worker_process = asked.do == "work"

    @broker.task(task_name="value")
    async def value(text: str) -> None:
        over.read(text, 0, -1)

    await broker.startup()
    if asked.do == "send":
        for number in range(asked.count):
            try:
                await value.kiq(f"{number:06}")
                tell("acked", value=f"{number:06}", partition=0, offset=-1)
            except KafkaError as error:
                tell("error", text=repr(error))
    else:
        receiving = asyncio.create_task(run_receiver_task(broker))
        await asyncio.to_thread(over.over.wait)
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
    await broker.shutdown()


asyncio.run(work())
done()
