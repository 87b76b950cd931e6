"""What aiokafka and confluent-kafka see while masters move: as ../javascript/moving.mjs.

python moving.py aiokafka|confluent BOOTSTRAP TOPIC GROUP PARTITIONS RATE idempotent|plain
"""

import asyncio
import logging
import sys
import threading
import time
from typing import Any

LIBRARY, BOOTSTRAP, TOPIC, GROUP, PARTITIONS, RATE, KIND = sys.argv[1:]
IDEMPOTENT = KIND == "idempotent"
acked: set[int] = set()
read: set[int] = set()
stopped = threading.Event()


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def note(letter: str, seen: set[int], value: bytes) -> None:
    number = int(value)
    seen.add(number)
    say(letter, int(time.time() * 1000), number)


class Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say("w", record.getMessage().splitlines()[0])


def wait_for_end() -> None:
    sys.stdin.read()
    stopped.set()


def due(began: float) -> int:
    return int(PARTITIONS) + int((time.monotonic() - began) * int(RATE))


async def aiokafka() -> int:
    import aiokafka

    common: dict[str, Any] = {"bootstrap_servers": BOOTSTRAP}
    producer = aiokafka.AIOKafkaProducer(**common, enable_idempotence=IDEMPOTENT, acks="all")
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC, **common, group_id=GROUP, auto_offset_reset="earliest"
    )
    await producer.start()
    await consumer.start()

    async def consume() -> None:
        async for message in consumer:
            note("r", read, message.value)

    async def send(number: int) -> None:
        try:
            value = b"%d" % number
            await producer.send_and_wait(TOPIC, value, partition=number % int(PARTITIONS))
            note("a", acked, value)
        except Exception as error:  # noqa: BLE001  it is what is measured
            say("e", repr(error).splitlines()[0])

    consuming, sending = asyncio.create_task(consume()), set[asyncio.Task[None]]()
    for number in range(int(PARTITIONS)):
        await send(number)  # it knows all leaders from here on
    say("ready")
    began, sent = time.monotonic(), int(PARTITIONS)
    while not stopped.is_set():
        while sent < due(began) and len(sending) < 2_000:
            task = asyncio.create_task(send(sent))
            sending.add(task)
            task.add_done_callback(sending.discard)
            sent += 1
        await asyncio.sleep(0.005)
    if sending:
        await asyncio.wait(sending, timeout=30)
    for _ in range(1_500):
        if acked <= read:
            break
        await asyncio.sleep(0.01)
    consuming.cancel()
    await asyncio.wait([consuming])
    await producer.stop()
    await consumer.stop()
    return sent


def confluent() -> int:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

    common: dict[str, Any] = {"bootstrap.servers": BOOTSTRAP}
    closed = threading.Event()

    def consume() -> None:
        own = {"group.id": GROUP, "auto.offset.reset": "earliest"}
        consumer = Consumer({**common, **own})
        consumer.subscribe([TOPIC])
        while not closed.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error, value = message.error(), message.value()
            if error is not None:
                say("e", error)
            elif value is not None:
                note("r", read, value)
        consumer.close()

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None or value is None:
            say("e", error)
        else:
            note("a", acked, value)

    consuming = threading.Thread(target=consume, daemon=True)
    consuming.start()
    producer = Producer({**common, "enable.idempotence": IDEMPOTENT, "linger.ms": 0})
    say("ready")
    began, sent = time.monotonic(), 0
    while not stopped.is_set():
        while sent < due(began):
            producer.produce(
                TOPIC, str(sent), partition=sent % int(PARTITIONS), on_delivery=delivered
            )
            sent += 1
        producer.poll(0.005)
    producer.flush(30)
    for _ in range(1_500):
        if acked <= read:
            break
        time.sleep(0.01)
    closed.set()
    consuming.join(10)
    return sent


if __name__ == "__main__":
    logging.getLogger().addHandler(Told(logging.ERROR))
    threading.Thread(target=wait_for_end, daemon=True).start()
    say("end", asyncio.run(aiokafka()) if LIBRARY == "aiokafka" else confluent())
