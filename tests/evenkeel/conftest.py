"""One cluster for all tests of the library; each test has topics of its own."""

import itertools
from collections.abc import Iterator

import pytest

from tests.evenkeel.shared_cluster import SharedCluster, running_cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as shared:
        yield shared


@pytest.fixture
def topic(cluster: SharedCluster) -> str:
    """A new topic of three partitions."""
    name = f"topic-{next(_numbers)}"
    cluster.create_topic(name, partitions=3)
    return name
