"""Retention removes records under a common client's consumer, which resets as it is configured
to."""

import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from cluster.launcher import launch
from cluster.spec import plan
from tests.cluster.scenery import GROUPS, QUICK, everything_has_a_master, in_thread, until

pytestmark = pytest.mark.cluster
WAIT_S = 20.0
AGED_MS = 3_600_000


def setting(admin: AdminClient, topic: str, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(WAIT_S)


def described(admin: AdminClient, topic: str, name: str) -> tuple[str, bool]:
    """The value, and whether it is a default."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (done,) = admin.describe_configs([resource]).values()
    entry = done.result(WAIT_S)[name]
    return entry.value, entry.is_default


def taken(consumer: Consumer) -> Message:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        message = consumer.poll(0.1)
        if message is not None:
            return message
    raise AssertionError("nothing came")


def story(bootstrap: str) -> None:
    topic, place = "aging", TopicPartition("aging", 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    created.result(WAIT_S)
    assert described(admin, topic, "retention.ms") == ("-1", True)
    producer = Producer({"bootstrap.servers": bootstrap})
    now_ms = time.time_ns() // 1_000_000
    for number in range(10):
        age_ms = AGED_MS if number < 7 else 0
        producer.produce(topic, f"{number}", partition=0, timestamp=now_ms - age_ms)
        producer.flush(WAIT_S)

    def reader(reset: str) -> Consumer:
        """A consumer that has read up to offset 2."""
        settings = {"bootstrap.servers": bootstrap, "group.id": reset, "auto.offset.reset": reset}
        one = Consumer(settings)
        one.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        one.assign([place])
        return one

    early = reader("earliest")
    assert taken(early).value() == b"2"
    setting(admin, topic, "retention.ms", str(AGED_MS // 2))
    assert described(admin, topic, "retention.ms") == (str(AGED_MS // 2), False)
    end = time.monotonic() + WAIT_S
    while early.get_watermark_offsets(place, timeout=WAIT_S) != (7, 10):
        assert time.monotonic() < end, "the old records are still there"
        time.sleep(0.05)
    early.close()
    for reset in ("earliest", "latest", "error"):
        consumer = reader(reset)
        message = first_new(consumer, producer) if reset == "latest" else taken(consumer)
        if reset == "error":
            assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        elif reset == "latest":
            assert message.offset() >= 10, "what was there before is not for it"
        else:
            assert message.value() == b"7"
        consumer.close()


def first_new(consumer: Consumer, producer: Producer) -> Message:
    """The first message a consumer gets that reads from the end; it cannot say when it has reached
    it."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        producer.produce("aging", "new", partition=0)
        producer.flush(WAIT_S)
        message = consumer.poll(0.5)
        if message is not None:
            return message
    raise AssertionError("nothing came")


async def test_a_client_below_the_first_offset_resets_itself(tmp_path: Path) -> None:
    spec, _ = plan(tmp_path / "data", node_count=1, groups=GROUPS, fixed_ports=False)
    overrides = (*QUICK, "storage.retention_check_ms=50")
    async with launch(spec, overrides=overrides) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        await in_thread(partial(story, spec.bootstrap))
