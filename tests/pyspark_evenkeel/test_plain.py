"""Records without Spark, from a given time on."""

import pytest
from confluent_kafka import Producer

from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.plain import records_since
from tests.spark.bus import WAIT_S, OurBus

OLD_MS, NEW_MS = 1_700_000_000_000, 1_700_000_060_000


@pytest.mark.cluster
def test_what_is_new_enough_is_read_from_every_partition(bus: OurBus) -> None:
    """Also from batches that hold older records, compressed or not; and nothing if all are
    older."""
    topic = bus.create("plain", 3)
    for codec in ("none", "zstd"):
        producer = Producer({"bootstrap.servers": bus.bootstrap, "compression.type": codec})
        for partition in (0, 1):
            for time_ms in (OLD_MS, NEW_MS):
                value = f"{codec} {partition} {time_ms}"
                producer.produce(topic, value, partition=partition, timestamp=time_ms)
        producer.produce(topic, "old", partition=2, timestamp=OLD_MS)
        assert producer.flush(WAIT_S) == 0
    with Cluster(ClusterSettings(bootstrap=bus.bootstrap)) as cluster:
        found = [one.value for one in records_since(cluster, topic, NEW_MS)]
        assert len(list(records_since(cluster, topic, OLD_MS))) == 10
        assert list(records_since(cluster, topic, NEW_MS + 1)) == []
    for partition in (0, 1):
        assert f"none {partition} {NEW_MS}".encode() in found
        assert f"zstd {partition} {NEW_MS}".encode() in found
    assert b"old" not in found
