"""FastStream, on aiokafka or on confluent-kafka: a subscriber that publishes what it gets."""

import asyncio
import logging

from faststream import FastStream
from told import Countdown, done, options

asked = options()
over = Countdown(asked)
if asked.do == "forward-confluent":
    from faststream.confluent import KafkaBroker, KafkaMessage

    broker = KafkaBroker(asked.bootstrap)
else:
    from faststream.kafka import KafkaBroker, KafkaMessage

    broker = KafkaBroker(asked.brokers)
app = FastStream(broker)


@broker.publisher(asked.out)
@broker.subscriber(asked.topic, group_id=asked.group, auto_offset_reset="earliest")
async def forward(body: str, message: KafkaMessage) -> str:
    raw = message.raw_message
    place = (raw.partition, raw.offset)
    over.read(body, *(one() if callable(one) else one for one in place))
    return body


@app.after_startup
async def watch() -> None:
    async def wait() -> None:
        await asyncio.to_thread(over.over.wait)
        app.exit()

    app.watching = asyncio.create_task(wait())


asyncio.run(app.run(log_level=logging.WARNING))
done()
