"""Brokers of other ages. Our nodes serve old versions as well, so the client is made to think that
they know no newer ones. Everything it does must work in the remaining versions."""

from collections.abc import Collection

import pytest
import trio

from evenkeel import (
    Admin,
    Compression,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    RebalanceListener,
    TopicPartition,
    UnsupportedError,
    opening,
)
from evenkeel.connection import Connection
from tests.evenkeel.shared_cluster import SharedCluster
from wire.apis import APIS, ApiKey
from wire.messages.api_versions import ApiVersion

pytestmark = pytest.mark.cluster

STEP_S = 40.0

KAFKA_2_1 = {
    ApiKey.PRODUCE: 7,
    ApiKey.FETCH: 10,
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.METADATA: 7,
    ApiKey.OFFSET_COMMIT: 6,
    ApiKey.OFFSET_FETCH: 5,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 3,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_GROUPS: 1,
}
KAFKA_2_8 = KAFKA_2_1 | {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 11,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 7,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 4,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.OFFSET_DELETE: 0,
}
OLDEST = {key: APIS[key].accepted.first for key in KAFKA_2_1} | {ApiKey.OFFSET_FETCH: 2}
"""The first version of each that the client knows; before OffsetFetch 2 (Kafka 0.10.2) there was no
way to ask for all offsets of a group."""


@pytest.fixture(params=[OLDEST, KAFKA_2_1, KAFKA_2_8], ids=["oldest", "kafka-2.1", "kafka-2.8"])
def newest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[ApiKey, int]:
    """A broker's list of versions, cut to these."""
    caps: dict[ApiKey, int] = request.param
    negotiate = opening._negotiate

    async def negotiate_and_forget(made: Connection) -> None:
        await negotiate(made)
        made.versions = {
            int(key): ApiVersion(int(key), made.versions[key].min_version, last)
            for key, last in caps.items()
        }

    monkeypatch.setattr(opening, "_negotiate", negotiate_and_forget)
    return caps


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.places: set[TopicPartition] = set()

    async def assigned(self, places: Collection[TopicPartition]) -> None:
        self.places |= set(places)


async def test_everything_works_in_old_versions(
    cluster: SharedCluster, newest: dict[ApiKey, int], request: pytest.FixtureRequest
) -> None:
    topic = f"old-{request.node.callspec.id}"
    # Before JoinGroup 4 (KIP-394), a member whose join was answered by a moving coordinator joins a
    # second time, and the group waits for its first id for a whole session timeout.
    await cluster.spread()
    config = ConsumerConfig(group=topic, heartbeat_ms=100, session_timeout_ms=6_000)
    with trio.fail_after(STEP_S):
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(topic, partitions=2, replication=3)
            async with Producer(
                cluster.bootstrap, ProducerConfig(compression=Compression.LZ4)
            ) as producer:
                for number in range(20):
                    place = await producer.send(topic, b"%d" % number, partition=number % 2)
                assert (await place).offset == 9
            listener = Told()
            values: list[bytes | None] = []
            async with Consumer(cluster.bootstrap, config) as consumer:
                await consumer.subscribe([topic], listener=listener)
                while len(values) < 20:
                    values += [record.value for record in await anext(consumer)]
                described = await admin.describe_group(topic)
                assert len(described.members) == 1
            assert sorted(values) == sorted(b"%d" % number for number in range(20))
            assert listener.places == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
            progress = await admin.group_progress(topic)
            assert [one.lag for one in progress.values()] == [0, 0]
            assert topic in [one.name for one in await admin.list_groups()]
            await admin.alter_offsets(topic, {TopicPartition(topic, 0): 3})
            found = await admin.list_offsets({TopicPartition(topic, 0): 0})
            assert found[TopicPartition(topic, 0)].offset == 0
            assert "retention.ms" in await admin.topic_settings(topic)
            await admin.set_partitions(topic, 3)
            await admin.delete_records({TopicPartition(topic, 0): 2})
            if ApiKey.INCREMENTAL_ALTER_CONFIGS not in newest:
                with pytest.raises(UnsupportedError):
                    await admin.alter_topic_settings(topic, {"retention.ms": "5"})
            await admin.delete_group(topic)
            await admin.delete_topic(topic)
