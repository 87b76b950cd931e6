"""kafka-python: pure Python, classic groups."""

from collections.abc import Sequence
from typing import Any

import kafka
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.compat.model import Got, Message, RefusedError, got_of_record

WAIT_S = 20.0


class KafkaPython:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def version(self) -> str:
        return str(kafka.__version__)

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
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            compression_type=None if compression == "none" else compression,
            linger_ms=20,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    one.value,
                    one.key,
                    headers=list(one.headers),
                    partition=one.partition,
                    timestamp_ms=None if one.timestamp_ms < 0 else one.timestamp_ms,
                )
                for one in messages
            ]
            for future in sent:
                future.get(WAIT_S)
        finally:
            producer.close(WAIT_S)

    def transact(self, topic: str) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=topic)
        try:
            producer.init_transactions()
        except KafkaError as error:
            raise RefusedError(str(error)) from error
        finally:
            producer.close(1)

    def consumer(
        self, topic: str, partitions: Sequence[int], *, isolation: str = "read_uncommitted"
    ) -> "KafkaPythonConsumer":
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            isolation_level=isolation,
        )
        consumer.assign([TopicPartition(topic, one) for one in partitions])
        return KafkaPythonConsumer(consumer, topic)

    def member(
        self, group: str, topic: str, *, pattern: bool = False, instance: str | None = None
    ) -> "KafkaPythonConsumer":
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
        )
        if pattern:
            consumer.subscribe(pattern=topic)
        else:
            consumer.subscribe([topic])
        return KafkaPythonConsumer(consumer, topic)

    # -- administration ----------------------------------------------------------------------------

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self._bootstrap)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        admin = self._admin()
        new = NewTopic(topic, num_partitions=partitions, replication_factor=3)
        new.topic_configs = configs
        admin.create_topics([new])
        admin.close()

    def topics(self) -> dict[str, int]:
        admin = self._admin()
        found = admin.describe_topics()
        admin.close()
        return {one["name"]: len(one["partitions"]) for one in found}

    def add_partitions(self, topic: str, total: int) -> None:
        admin = self._admin()
        admin.create_partitions({topic: total})
        admin.close()

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])
        admin.close()

    def topic_config(self, topic: str, name: str) -> str:
        admin = self._admin()
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        admin.close()
        return _value_in(found, name)

    def alter_topic_config(self, topic: str, name: str, value: str) -> None:
        admin = self._admin()
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])
        admin.close()

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        admin = self._admin()
        place = TopicPartition(topic, partition)
        done = admin.delete_records({place: before})
        admin.close()
        return int(done[place]["low_watermark"])

    def groups(self) -> list[str]:
        admin = self._admin()
        found = admin.list_groups()
        admin.close()
        return [one["group_id"] for one in found]

    def group_members(self, group: str) -> int:
        admin = self._admin()
        described = admin.describe_groups([group])
        admin.close()
        return len(described[group]["members"])

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        admin = self._admin()
        place = TopicPartition(topic, partition)
        found = admin.list_group_offsets({group: [place]})[group].get(place)
        admin.close()
        return None if found is None or found.offset < 0 else int(found.offset)

    def alter_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        admin = self._admin()
        place = TopicPartition(topic, partition)
        admin.alter_group_offsets(group, {place: OffsetAndMetadata(offset, "", -1)})
        admin.close()

    def delete_group(self, group: str) -> None:
        admin = self._admin()
        admin.delete_groups([group])
        admin.close()

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        admin = self._admin()
        admin.delete_group_offsets(group, [TopicPartition(topic, partition)])
        admin.close()

    def log_dirs(self) -> int:
        admin = self._admin()
        found = admin.describe_log_dirs()
        admin.close()
        return len(found)

    def cluster(self) -> tuple[str, int]:
        admin = self._admin()
        found = admin.describe_cluster()
        admin.close()
        return str(found["cluster_id"]), len(found["brokers"])

    def elect_leaders(self, topic: str, partition: int) -> None:
        admin = self._admin()
        try:
            admin.elect_leaders(0, {topic: [partition]})
        except KafkaError as error:
            assert type(error).__name__ == "ElectionNotNeededError", error  # noqa: PT017
        finally:
            admin.close()


def _value_in(found: Any, name: str) -> str:
    """The value of a setting, wherever it is in the answer."""
    if isinstance(found, dict):
        if name in found:
            one = found[name]
            return str(one["value"] if isinstance(one, dict) else one)
        if found.get("name") == name:
            return str(found["value"])
        found = list(found.values())
    if isinstance(found, list | tuple):
        for one in found:
            try:
                return _value_in(one, name)
            except LookupError:
                continue
    raise LookupError(f"{name} is not in {found}")


class KafkaPythonConsumer:
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def poll(self, seconds: float) -> list[Got]:
        records = self._consumer.poll(timeout_ms=int(1000 * seconds), max_records=1_000)
        return [got_of_record(one) for batch in records.values() for one in batch]

    def partitions(self) -> frozenset[int]:
        return frozenset(one.partition for one in self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()

    def left(self) -> list[Got]:
        return []

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def pause(self, partition: int) -> None:
        self._consumer.pause(TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._consumer.resume(TopicPartition(self._topic, partition))

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(self._topic, partition)
        found = self._consumer.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else int(found.offset)

    def watermarks(self, partition: int) -> tuple[int, int]:
        place = TopicPartition(self._topic, partition)
        low = self._consumer.beginning_offsets([place])[place]
        return int(low), int(self._consumer.end_offsets([place])[place])
