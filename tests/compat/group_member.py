"""A member of a consumer group, with a Python client as its users would write it.

    python -m tests.compat.group_member confluent BOOTSTRAP TOPIC GROUP

It prints a line for whatever happens: `assigned N`, `revoked N`, `read PARTITION OFFSET`, `error
TEXT`; so do the programs in tests/compat/go/group_*. It commits often, and runs until it is ended.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

COMMIT_MS = 100
HEARTBEAT_MS = 300
WAIT_S = 0.1
QUIET = logging.getLogger("quiet")


def say(*words: object) -> None:
    print(*words, flush=True)


def confluent(bootstrap: str, topic: str, group: str, *, protocol: str = "classic") -> None:
    from confluent_kafka import Consumer

    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": COMMIT_MS,
        "on_commit": committed,
    }
    if protocol == "classic":
        config["heartbeat.interval.ms"] = HEARTBEAT_MS
    consumer = Consumer(config, logger=QUIET)
    consumer.subscribe(
        [topic],
        on_assign=lambda _, parts: say("assigned", len(parts)),
        on_revoke=lambda _, parts: say("revoked", len(parts)),
        on_lost=lambda _, parts: say("revoked", len(parts)),
    )
    while True:
        record = consumer.poll(WAIT_S)
        if record is not None and record.error():
            say("error", record.error())
        elif record is not None:
            say("read", record.partition(), record.offset())


def committed(error: object, _offsets: object) -> None:
    if error is not None and "NO_OFFSET" not in str(error):
        say("error commit", error)


def kafka_python(bootstrap: str, topic: str, group: str) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library is untyped
        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", len(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                say("revoked", len(revoked))

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([topic], listener=Listener())
    while True:
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                say("read", record.partition, record.offset)


def aiokafka(bootstrap: str, topic: str, group: str) -> None:
    asyncio.run(_aiokafka(bootstrap, topic, group))


async def _aiokafka(bootstrap: str, topic: str, group: str) -> None:
    import aiokafka
    import aiokafka.abc

    class Listener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", len(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                say("revoked", len(revoked))

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    async for record in consumer:
        say("read", record.partition, record.offset)


MEMBERS: dict[str, Callable[[str, str, str], None]] = {
    "confluent": confluent,
    "confluent-consumer": partial(confluent, protocol="consumer"),
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}

if __name__ == "__main__":
    QUIET.addHandler(logging.NullHandler())
    QUIET.propagate = False
    MEMBERS[sys.argv[1]](*sys.argv[2:5])
