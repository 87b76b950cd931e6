"""What tests of the Spark data source share without Spark: three real nodes, a foreign broker.

Both start when a test first asks for them, and end with the last test of this folder.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.evenkeel.shared_cluster import running_cluster
from tests.spark.bus import WAIT_S, Bus, OurBus


@pytest.fixture(scope="package")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurBus]:
    """Three nodes with short leases, and handles to hurt them; at the end of a test all nodes must
    be up and masters spread."""
    with running_cluster(tmp_path_factory.mktemp("bus")) as shared:
        yield OurBus(shared.bootstrap, shared)


@pytest.fixture(scope="package")
def foreign() -> Iterator[Bus]:
    """A Kafka that is not ours: librdkafka's mock cluster. It creates a topic, with four
    partitions, when its own clients ask for it: see `Bus.produce`."""
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3})
    brokers = owner.list_topics(timeout=WAIT_S).brokers.values()
    yield Bus(",".join(f"{one.host}:{one.port}" for one in brokers))
    owner.flush(WAIT_S)
