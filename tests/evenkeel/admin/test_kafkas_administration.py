"""What Kafka's admin clients ask of brokers, against real nodes, with confluent-kafka."""

import time
from collections.abc import Iterator

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.evenkeel.shared_cluster import SharedCluster, running_cluster

pytestmark = pytest.mark.cluster

WAIT_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    """One that creates topics when they are asked for."""
    directory = tmp_path_factory.mktemp("creating")
    with running_cluster(directory, "broker.auto_create_topics=true") as shared:
        yield shared


@pytest.fixture
def admin(cluster: SharedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(WAIT_S)
    return found


def altered(
    admin: AdminClient, kind: ResourceType, name: str, *entries: ConfigEntry
) -> KafkaError | None:
    """The error of an incremental change."""
    resource = ConfigResource(kind, name, incremental_configs=list(entries))
    try:
        admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found
    return None


def entry(name: str, value: str | None, operation: AlterConfigOpType) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def test_a_node_is_described(cluster: SharedCluster, admin: AdminClient) -> None:
    found = described(admin, ResourceType.BROKER, "2")
    address = cluster.spec.node(2).kafka
    assert found["listeners"].value == f"PLAINTEXT://{address.host}:{address.port}"
    assert found["advertised.listeners"].value == found["listeners"].value
    assert found["auto.create.topics.enable"].value == "true"
    assert found["log.dirs"].value.startswith(str(cluster.data))
    assert found["broker.rack"].value in (None, "")
    fixed = {"listeners", "advertised.listeners", "log.dirs", "broker.rack"}
    assert all(found[name].is_read_only for name in fixed)


def test_any_setting_may_be_deleted_and_none_of_a_node_set(admin: AdminClient) -> None:
    delete, set_ = AlterConfigOpType.DELETE, AlterConfigOpType.SET
    admin.create_topics([NewTopic("kept", 1, 3)])["kept"].result(WAIT_S)
    entries = [
        entry("remote.log.delete.on.disable", None, delete),
        entry("what.nobody.knows", None, delete),
        entry("flush.ms", "1000", set_),
    ]
    assert altered(admin, ResourceType.TOPIC, "kept", *entries) is None
    assert described(admin, ResourceType.TOPIC, "kept")["flush.ms"].value == "1000"
    throttle = "leader.replication.throttled.rate"
    assert altered(admin, ResourceType.BROKER, "1", entry(throttle, "9", set_)) is None  # ADR 57
    assert altered(admin, ResourceType.BROKER, "1", entry(throttle, None, delete)) is None
    error = altered(admin, ResourceType.BROKER, "1", entry("num.io.threads", "9", set_))
    assert error is not None
    assert error.code() == KafkaError.INVALID_REQUEST
    assert "configuration file" in error.str()


async def test_replicas_are_assigned_by_hand(cluster: SharedCluster, admin: AdminClient) -> None:
    """As kminion does it: every node is to lead a partition. Here the balancer is done already."""
    await cluster.spread()
    rows = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    new = NewTopic("by-hand", num_partitions=3, replica_assignment=rows)
    await trio.to_thread.run_sync(admin.create_topics([new])["by-hand"].result, WAIT_S)
    assert [await cluster.leader_of("by-hand", at) for at in range(3)] == [1, 2, 3]
    grown = NewPartitions("by-hand", 4, replica_assignment=[[2, 1, 3]])
    await trio.to_thread.run_sync(admin.create_partitions([grown])["by-hand"].result, WAIT_S)
    less = NewPartitions("by-hand", 2)
    with pytest.raises(KafkaException, match="would not be an increase"):
        await trio.to_thread.run_sync(admin.create_partitions([less])["by-hand"].result, WAIT_S)


@pytest.mark.parametrize("sent", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("stored", ["zstd", "snappy", "uncompressed"])
def test_batches_are_stored_with_the_topics_codec(
    cluster: SharedCluster, admin: AdminClient, sent: str, stored: str
) -> None:
    name = f"codec-{sent}-{stored}"
    new = NewTopic(name, 1, 3, config={"compression.type": stored})
    admin.create_topics([new])[name].result(WAIT_S)
    servers = {"bootstrap.servers": cluster.bootstrap}
    producer = Producer({**servers, "compression.type": sent, "enable.idempotence": True})
    values = [b"%d " % at * 50 for at in range(500)]
    for value in values:
        producer.produce(name, value)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**servers, "group.id": name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    got: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(got) < len(values) and time.monotonic() < deadline:
        got += [one.value() for one in consumer.consume(500, 0.2) if one.error() is None]
    consumer.close()
    assert got == values


def test_a_topic_comes_into_being_when_it_is_asked_for(cluster: SharedCluster) -> None:
    """The first record is not lost, and needs no second try of its own."""
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("out-of-nothing", b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(WAIT_S) == 0
    assert told == [None]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert len(admin.list_topics("out-of-nothing").topics["out-of-nothing"].partitions) == 12
