"""confluent-kafka: librdkafka under Python, with either of its group protocols."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as cka

from tests.compat.model import Got, Lacking, Message, RefusedError

WAIT_S = 20.0


class Confluent:
    def __init__(self, bootstrap: str, *, group_protocol: str = "classic") -> None:
        self._bootstrap = bootstrap
        self._group_protocol = group_protocol
        self._admin = cka.AdminClient({"bootstrap.servers": bootstrap})
        self.name = "confluent-kafka" + (
            "" if group_protocol == "classic" else f" ({group_protocol})"
        )

    def version(self) -> str:
        return f"{ck.__version__} (librdkafka {ck.libversion()[0]})"

    # -- data --------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        idempotent: bool = False,
        compression: str = "none",
    ) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "acks": acks,
            "enable.idempotence": idempotent,
            "compression.type": compression,
            "linger.ms": 20,
        }
        failures: list[str] = []

        def delivered(error: ck.KafkaError | None, _: ck.Message) -> None:
            if error is not None:
                failures.append(str(error))

        producer = ck.Producer(settings)
        for one in messages:
            when = {} if one.timestamp_ms < 0 else {"timestamp": one.timestamp_ms}
            producer.produce(
                topic,
                one.value,
                one.key,
                partition=one.partition,
                headers=list(one.headers) or None,
                on_delivery=delivered,
                **when,
            )
        left = producer.flush(WAIT_S)
        assert not left, f"{left} messages without an answer"
        assert not failures, failures[0]

    def transact(self, topic: str) -> None:
        producer = ck.Producer({"bootstrap.servers": self._bootstrap, "transactional.id": topic})
        with refusals():
            producer.init_transactions(WAIT_S)

    def consumer(
        self, topic: str, partitions: Sequence[int], *, isolation: str = "read_uncommitted"
    ) -> "ConfluentConsumer":
        consumer = ck.Consumer(self._settings("by-hand") | {"isolation.level": isolation})
        places = [ck.TopicPartition(topic, one, ck.OFFSET_BEGINNING) for one in partitions]
        consumer.assign(places)
        return ConfluentConsumer(consumer, topic)

    def member(
        self, group: str, topic: str, *, pattern: bool = False, instance: str | None = None
    ) -> "ConfluentConsumer":
        settings = self._settings(group) | {"group.protocol": self._group_protocol}
        if instance is not None:
            settings["group.instance.id"] = instance
        consumer = ck.Consumer(settings)
        consumer.subscribe([topic])
        return ConfluentConsumer(consumer, topic)

    def _settings(self, group: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1_000,
        }

    # -- administration ----------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = cka.NewTopic(topic, partitions, 3, config=configs)
        self._admin.create_topics([new])[topic].result(WAIT_S)

    def topics(self) -> dict[str, int]:
        found = self._admin.list_topics(timeout=WAIT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def add_partitions(self, topic: str, total: int) -> None:
        new = cka.NewPartitions(topic, total)
        self._admin.create_partitions([new])[topic].result(WAIT_S)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)

    def topic_config(self, topic: str, name: str) -> str:
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic)
        (found,) = self._admin.describe_configs([resource]).values()
        return str(found.result(WAIT_S)[name].value)

    def alter_topic_config(self, topic: str, name: str, value: str) -> None:
        entry = cka.ConfigEntry(name, value, incremental_operation=cka.AlterConfigOpType.SET)
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic, incremental_configs=[entry])
        (done,) = self._admin.incremental_alter_configs([resource]).values()
        done.result(WAIT_S)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = ck.TopicPartition(topic, partition, before)
        (done,) = self._admin.delete_records([place]).values()
        return int(done.result(WAIT_S).low_watermark)

    def groups(self) -> list[str]:
        found = self._admin.list_consumer_groups().result(WAIT_S)
        assert not found.errors, found.errors
        return [one.group_id for one in found.valid]

    def group_members(self, group: str) -> int:
        described = self._admin.describe_consumer_groups([group])[group].result(WAIT_S)
        return len(described.members)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        asked = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, partition)])
        (found,) = self._admin.list_consumer_group_offsets([asked]).values()
        offset = found.result(WAIT_S).topic_partitions[0].offset
        return None if offset < 0 else int(offset)

    def alter_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = ck.TopicPartition(topic, partition, offset)
        asked = ck.ConsumerGroupTopicPartitions(group, [place])
        (done,) = self._admin.alter_consumer_group_offsets([asked]).values()
        (result,) = done.result(WAIT_S).topic_partitions
        assert result.error is None, result.error

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(WAIT_S)

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        raise Lacking

    def log_dirs(self) -> int:
        raise Lacking

    def cluster(self) -> tuple[str, int]:
        found = self._admin.describe_cluster().result(WAIT_S)
        return str(found.cluster_id), len(found.nodes)

    def elect_leaders(self, topic: str, partition: int) -> None:
        place = ck.TopicPartition(topic, partition)
        done = self._admin.elect_leaders(ck.ElectionType.PREFERRED, [place]).result(WAIT_S)
        for error in done.values():
            assert error is None or error.code() == ck.KafkaError.ELECTION_NOT_NEEDED, error


class ConfluentConsumer:
    def __init__(self, consumer: ck.Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def poll(self, seconds: float) -> list[Got]:
        got = []
        for one in self._consumer.consume(1_000, seconds):
            assert one.error() is None, one.error()
            got.append(got_of(one))
        return got

    def partitions(self) -> frozenset[int]:
        return frozenset(one.partition for one in self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()

    def left(self) -> list[Got]:
        return []

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(ck.TopicPartition(self._topic, partition, offset))

    def pause(self, partition: int) -> None:
        self._consumer.pause([ck.TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._consumer.resume([ck.TopicPartition(self._topic, partition)])

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        asked = ck.TopicPartition(self._topic, partition, timestamp_ms)
        (found,) = self._consumer.offsets_for_times([asked], WAIT_S)
        return None if found.offset < 0 else int(found.offset)

    def watermarks(self, partition: int) -> tuple[int, int]:
        place = ck.TopicPartition(self._topic, partition)
        low, high = self._consumer.get_watermark_offsets(place, WAIT_S)
        return int(low), int(high)


def got_of(one: ck.Message) -> Got:
    kind, when = one.timestamp()
    headers = tuple((name, value) for name, value in one.headers() or ())
    message = Message(one.value(), one.key(), headers, when, one.partition())
    return Got(message, one.offset(), kind == ck.TIMESTAMP_LOG_APPEND_TIME)


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except ck.KafkaException as error:
        raise RefusedError(str(error)) from error
