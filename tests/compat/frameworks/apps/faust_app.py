"""Faust: an agent forwards each value, and counts words in a table with a changelog topic."""

import asyncio

import faust
from told import Countdown, done, options, tell

WORDS = 5
asked = options()
over = Countdown(asked)
app = faust.App(
    asked.group,
    broker=[f"kafka://{one}" for one in asked.brokers],
    store="memory://",
    topic_partitions=1,
    datadir=asked.state,
    web_enabled=False,
)
source = app.topic(asked.topic, value_type=bytes, value_serializer="raw")
target = app.topic(asked.out or f"{asked.topic}-out", value_type=bytes, value_serializer="raw")
counts = app.Table("counts", default=int, partitions=1)


@app.agent(source)
async def forward(stream: faust.Stream) -> None:
    async for event in stream.events():
        value = event.value.decode()
        word = f"word-{int(value) % WORDS}"
        counts[word] += 1
        tell("count", word=word, count=counts[word])
        await target.send(value=event.value)
        over.read(value, event.message.partition, event.message.offset)


async def work() -> None:
    app.finalize()
    await app.start()
    await asyncio.to_thread(over.over.wait)
    await app.stop()


asyncio.get_event_loop().run_until_complete(work())
done()
