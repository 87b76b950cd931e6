"""confluent-kafka, librdkafka under Python: its defaults wherever nothing else is asked for."""

import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from told import Asked, acked, failed, main, read, tell, values

WAIT_S = 20


def produce(asked: Asked) -> None:
    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed(error)
        else:
            acked(message.value(), message.partition(), message.offset())

    settings = {
        "bootstrap.servers": asked.bootstrap,
        "acks": asked.acks,
        "enable.idempotence": asked.idempotent,
        "compression.type": asked.codec,
    }
    producer = Producer(settings)
    for value in values(asked):
        if value is not None:
            producer.produce(asked.topic, value, partition=0, on_delivery=delivered)
        producer.poll(0.005 if value is None else 0)
    left = producer.flush(WAIT_S)
    if left:
        failed(f"{left} without an answer")


def consume(asked: Asked) -> None:
    consumer = Consumer({"bootstrap.servers": asked.bootstrap, "group.id": "by-hand"})
    consumer.assign([TopicPartition(asked.topic, 0, OFFSET_BEGINNING)])
    _read(consumer, asked)
    consumer.close()


def _read(consumer: Consumer, asked: Asked) -> None:
    left = asked.count
    while left > 0 and time.monotonic() < asked.until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            failed(message.error())
            continue
        read(message.value(), message.partition(), message.offset())
        left -= 1


def group(asked: Asked) -> None:
    settings = {
        "bootstrap.servers": asked.bootstrap,
        "group.id": asked.group,
        "group.protocol": asked.protocol,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 1_000,
    }
    if asked.assignor:
        settings["partition.assignment.strategy"] = asked.assignor
    if asked.instance:
        settings["group.instance.id"] = asked.instance
    owned: set[int] = set()

    def changed(_consumer: Consumer, parts: list[TopicPartition], *, gone: bool = False) -> None:
        """Incremental or not: librdkafka tells what comes and what goes."""
        for one in parts:
            (owned.discard if gone else owned.add)(one.partition)
        tell("rebalance", partitions=sorted(owned))

    def revoked(consumer: Consumer, parts: list[TopicPartition]) -> None:
        changed(consumer, parts, gone=True)

    consumer = Consumer(settings)
    consumer.subscribe([asked.topic], on_assign=changed, on_revoke=revoked)
    _read(consumer, asked)
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            failed(error)
    consumer.close()


main({"produce": produce, "consume": consume, "group": group})
