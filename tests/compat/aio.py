"""aiokafka: its event loop runs in a thread of its own, so the stories do not depend on it."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from tests.compat.model import Got, Lacking, Message, RefusedError, got_of_record

T = TypeVar("T")
WAIT_S = 20.0
MEMBERS_AT = 5
"""The position in a described group, in every version of the answer."""


class _Loop:
    """One event loop for all clients of this adapter."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(3 * WAIT_S)


class Aiokafka:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = _Loop()

    def version(self) -> str:
        return str(aiokafka.__version__)

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
        async def work() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                compression_type=None if compression == "none" else compression,
                linger_ms=20,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        one.value,
                        one.key,
                        partition=one.partition,
                        timestamp_ms=None if one.timestamp_ms < 0 else one.timestamp_ms,
                        headers=list(one.headers),
                    )
                    for one in messages
                ]
                await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
            finally:
                await producer.stop()

        self._loop.run(work())

    def transact(self, topic: str) -> None:
        async def work() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, transactional_id=topic
            )
            try:
                await asyncio.wait_for(producer.start(), WAIT_S)
                await producer.begin_transaction()
            except KafkaError as error:
                raise RefusedError(str(error)) from error
            finally:
                await producer.stop()

        self._loop.run(work())

    def consumer(
        self, topic: str, partitions: Sequence[int], *, isolation: str = "read_uncommitted"
    ) -> "AiokafkaConsumer":
        async def work() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                auto_offset_reset="earliest",
                isolation_level=isolation,
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, one) for one in partitions])
            return consumer

        return AiokafkaConsumer(self._loop, self._loop.run(work()), topic)

    def member(
        self, group: str, topic: str, *, pattern: bool = False, instance: str | None = None
    ) -> "AiokafkaConsumer":
        async def work() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id=group,
                group_instance_id=instance,
                auto_offset_reset="earliest",
                metadata_max_age_ms=1_000,
            )
            if pattern:
                consumer.subscribe(pattern=topic)
            else:
                consumer.subscribe([topic])
            await consumer.start()
            return consumer

        return AiokafkaConsumer(self._loop, self._loop.run(work()), topic)

    # -- administration ----------------------------------------------------------------------------

    def _admin(self, work: Any) -> Any:
        """Run `work(admin)` with a client that lives exactly as long."""

        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await work(admin)
            finally:
                await admin.close()

        return self._loop.run(run())

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 3, topic_configs=configs)
        _check(self._admin(lambda admin: admin.create_topics([new])).topic_errors)

    def topics(self) -> dict[str, int]:
        found = self._admin(lambda admin: admin.describe_topics())
        return {one["topic"]: len(one["partitions"]) for one in found}

    def add_partitions(self, topic: str, total: int) -> None:
        wanted = {topic: NewPartitions(total)}
        _check(self._admin(lambda admin: admin.create_partitions(wanted)).topic_errors)

    def delete_topic(self, topic: str) -> None:
        _check(self._admin(lambda admin: admin.delete_topics([topic])).topic_error_codes)

    def topic_config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        for response in self._admin(lambda admin: admin.describe_configs([resource])):
            for _error, _message, _type, _name, entries in response.resources:
                for entry in entries:
                    if entry[0] == name:
                        return str(entry[1])
        raise LookupError(name)

    def alter_topic_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: value})
        for response in self._admin(lambda admin: admin.alter_configs([resource])):
            _check([(one[3], one[0], one[1]) for one in response.resources])

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        wanted = {place: RecordsToDelete(before)}
        return int(self._admin(lambda admin: admin.delete_records(wanted))[place])

    def groups(self) -> list[str]:
        return [one[0] for one in self._admin(lambda admin: admin.list_consumer_groups())]

    def group_members(self, group: str) -> int:
        (response,) = self._admin(lambda admin: admin.describe_consumer_groups([group]))
        (described,) = response.groups
        return len(described[MEMBERS_AT])

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._admin(
            lambda admin: admin.list_consumer_group_offsets(group, partitions=[place])
        )[place]
        return None if found.offset < 0 else int(found.offset)

    def alter_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        raise Lacking

    def delete_group(self, group: str) -> None:
        raise Lacking

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        raise Lacking

    def log_dirs(self) -> int:
        raise Lacking

    def cluster(self) -> tuple[str, int]:
        found = self._admin(lambda admin: admin.describe_cluster())
        return str(found.get("cluster_id")), len(found["brokers"])

    def elect_leaders(self, topic: str, partition: int) -> None:
        raise Lacking


def _check(errors: Sequence[Sequence[Any]]) -> None:
    """aiokafka returns errors instead of raising them."""
    for name, code, *rest in errors:
        assert code == 0, f"{name}: error {code} {rest}"


class AiokafkaConsumer:
    def __init__(self, loop: _Loop, consumer: Any, topic: str) -> None:
        self._loop = loop
        self._consumer = consumer
        self._topic = topic

    def poll(self, seconds: float) -> list[Got]:
        work = self._consumer.getmany(timeout_ms=int(1000 * seconds), max_records=1_000)
        return [got_of_record(one) for batch in self._loop.run(work).values() for one in batch]

    def _call(self, act: Any, *arguments: Any) -> None:
        """Some of its plain functions, too, must be called on the loop."""

        async def work() -> None:
            act(*arguments)

        self._loop.run(work())

    def partitions(self) -> frozenset[int]:
        return frozenset(one.partition for one in self._consumer.assignment())

    def close(self) -> None:
        self._loop.run(self._consumer.stop())

    def left(self) -> list[Got]:
        return []

    def seek(self, partition: int, offset: int) -> None:
        self._call(self._consumer.seek, TopicPartition(self._topic, partition), offset)

    def pause(self, partition: int) -> None:
        self._call(self._consumer.pause, TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._call(self._consumer.resume, TopicPartition(self._topic, partition))

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(self._topic, partition)
        found = self._loop.run(self._consumer.offsets_for_times({place: timestamp_ms}))[place]
        return None if found is None else int(found.offset)

    def watermarks(self, partition: int) -> tuple[int, int]:
        place = TopicPartition(self._topic, partition)
        low = self._loop.run(self._consumer.beginning_offsets([place]))[place]
        return int(low), int(self._loop.run(self._consumer.end_offsets([place]))[place])
