"""Connections: which are made, what happens on them at the same time, and who is asked first."""

import socket
import time
from contextlib import closing, suppress

import pytest

from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import UnavailableError
from tests.spark.bus import OurBus
from wire.error_codes import ErrorCode
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

COUNT = 400


def nobody() -> str:
    """An address where connections are refused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_when_nobody_answers_each_is_told() -> None:
    first, second = nobody(), nobody()
    settings = ClusterSettings(bootstrap=f"{first},{second}", retry_ms=50)
    with Cluster(settings) as cluster, pytest.raises(UnavailableError) as caught:
        cluster.topics()
    for told in (f"cannot connect to {first}: Connection refused", second, "bootstrap.servers"):
        assert told in str(caught.value)


def test_a_name_that_means_nothing_is_told() -> None:
    settings = ClusterSettings(bootstrap="no-such-host.invalid:9092", retry_ms=1)
    with (
        Cluster(settings) as cluster,
        pytest.raises(UnavailableError, match=r"no-such-host.*known|resol"),
    ):
        cluster.topics()


@pytest.mark.cluster
def test_dead_bootstrap_servers_are_passed_over(bus: OurBus) -> None:
    """One refuses, and one never answers: its queue of connections is full."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full:
        where = full.getsockname()
        waiting = []
        for _ in range(3):
            one = socket.socket()
            one.settimeout(0.05)
            with suppress(TimeoutError):
                one.connect(where)
            waiting.append(one)
        dead = f"{nobody()},127.0.0.1:{where[1]}"
        settings = ClusterSettings(bootstrap=f"{dead},{bus.bootstrap}", connect_ms=1_500)
        began = time.monotonic()
        with Cluster(settings) as cluster:
            assert len(cluster.features()) == 3
        assert time.monotonic() - began < 20
        for one in waiting:
            one.close()


@pytest.mark.cluster
def test_reading_and_writing_share_connections(bus: OurBus) -> None:
    """While fetches are under way, it writes more than a socket holds, reads elsewhere, and
    asks."""
    topic = bus.create("shared", 2)
    places = [Place(topic, number) for number in range(2)]
    with Cluster(ClusterSettings(bootstrap=bus.bootstrap, fetch_bytes=64 * 1024)) as cluster:
        large = build_batch([Record(b"x" * 1000)] * COUNT)
        for _ in range(2):
            for one in cluster.produce_many(dict.fromkeys(places, large)).values():
                assert one.error is ErrorCode.NONE
        readers = [cluster.read(place, 0, 2 * COUNT) for place in places for _ in range(2)]
        seen = [next(reader)[-1].header.last_offset for reader in readers]
        assert seen == [COUNT - 1] * 4
        readers.pop().close()
        assert cluster.produce(places[0], large).base_offset == 2 * COUNT
        assert cluster.topics([topic]) == {topic: 2}
        for reader in readers:
            assert [batch.header.base_offset for batches in reader for batch in batches] == [COUNT]
