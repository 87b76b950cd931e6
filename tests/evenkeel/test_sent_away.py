"""A node that is cut off redirects its clients (KIP-1102): their next request goes to another
node."""

from functools import partial

import pytest
import trio

from evenkeel import Admin, BrokerError, ClientConfig
from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import EvenkeelSparkError
from tests.evenkeel.peers import PeerStream, scripted
from wire.error_codes import ErrorCode
from wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = b"i" * 16
AWAY = MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
IMPATIENT = ClientConfig(operation_timeout_ms=500, retry_backoff_ms=10)


class Broker:
    """Answers only Metadata, and counts how often."""

    def __init__(self, *, cut_off: bool) -> None:
        self.cut_off, self.asked, self.connections = cut_off, 0, 0

    async def serve(self, peer: PeerStream) -> None:
        self.connections += 1
        await peer.greet()
        while True:
            header, request = await peer.read()
            assert isinstance(request, MetadataRequest)
            self.asked += 1
            await peer.answer(header, AWAY if self.cut_off else self._view(peer))

    def _view(self, peer: PeerStream) -> MetadataResponse:
        partition = MetadataResponsePartition(0, 0, 1, 1, [1], [1])
        topic = MetadataResponseTopic(0, "t", TOPIC_ID, partitions=[partition])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(1, *peer.address)], controller_id=1, topics=[topic]
        )


async def test_our_client_asks_the_next_one_at_once() -> None:
    """Also a client that was connected before the node was cut off: it leaves that connection."""
    lost, good = Broker(cut_off=False), Broker(cut_off=True)
    async with (
        scripted(lost.serve) as (host, port),
        scripted(good.serve) as (_, other),
        Admin(f"{host}:{port},{host}:{other}") as admin,
    ):
        for _ in range(2):  # whichever it uses, the other one is left
            lost.cut_off, good.cut_off = good.cut_off, lost.cut_off
            with trio.fail_after(20):
                found = await admin.describe_topic("t")
            assert len(found.partitions) == 1
    assert lost.asked > 0
    assert good.asked > 0


async def test_where_all_are_cut_off_our_client_says_so_in_time() -> None:
    lost = Broker(cut_off=True)
    async with (
        scripted(lost.serve) as (host, port),
        Admin(f"{host}:{port}", client=IMPATIENT) as admin,
    ):
        with trio.fail_after(20), pytest.raises(Exception, match="REBOOTSTRAP_REQUIRED"):
            await admin.describe_topic("t")
    assert 1 < lost.asked < 200, "with pauses"
    assert BrokerError("x", code=ErrorCode.REBOOTSTRAP_REQUIRED).retriable


async def test_the_client_of_spark_asks_the_next_one_at_once() -> None:
    lost, good = Broker(cut_off=True), Broker(cut_off=False)
    async with scripted(lost.serve) as (host, port), scripted(good.serve) as (_, other):
        settings = ClusterSettings(bootstrap=f"{host}:{port},{host}:{other}", retry_ms=10_000)
        with Cluster(settings) as cluster:
            for _ in range(2):
                found = await trio.to_thread.run_sync(partial(cluster.topics, ["t"]))
                assert found == {"t": 1}
                lost.cut_off, good.cut_off = good.cut_off, lost.cut_off
    assert lost.asked > 0
    assert good.asked > 0


async def test_where_all_are_cut_off_the_client_of_spark_says_so_in_time() -> None:
    lost = Broker(cut_off=True)
    async with scripted(lost.serve) as (host, port):
        settings = ClusterSettings(bootstrap=f"{host}:{port}", retry_ms=500, backoff_max_ms=50)
        with Cluster(settings) as cluster, pytest.raises(EvenkeelSparkError, match="REBOOTSTRAP"):
            await trio.to_thread.run_sync(partial(cluster.topics, ["t"]))
    assert lost.asked > 1
