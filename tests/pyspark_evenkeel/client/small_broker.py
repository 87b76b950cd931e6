"""A broker of a few lines that leads topic t, for what no good broker does.

Each Fetch is answered by the next *act* of a list, each Produce by the next of its *verdicts*; the
last one is repeated. Everything else gets a correct answer.
"""

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from tests.evenkeel.peers import PeerStream, scripted
from wire.apis import Request, RequestHeader
from wire.codec.schema import UUID_ZERO
from wire.messages.common import NodeEndpoint
from wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from wire.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, Batch, Record, iterate_records, split
from wire.records.batch_writer import BatchWriter, build_batch
from wire.records.spans import rebuilt

PLACE: Final = Place("t", 0)
TOPIC_ID: Final = b"i" * 16
PARTITIONS: Final = 2
END: Final = 100
"""The end of the log, unless an act says otherwise."""

Act = Callable[[PeerStream, RequestHeader, FetchRequest], Awaitable[None]]
Verdict = dict[int, PartitionProduceResponse] | None
"""The outcome of a Produce, by partition; None: the connection is lost on the way."""


@attrs.define
class SmallBroker:
    acts: list[Act] = attrs.Factory(list)
    verdicts: list[Verdict] = attrs.Factory(list)
    log_start: int = 0
    log_end: int = END
    topic_ids: list[bytes] = attrs.Factory(lambda: [TOPIC_ID])
    """The topic ids of Metadata's answers, in order; the last one is repeated."""
    leader: int = 1
    leaders: dict[int, tuple[str, int]] = attrs.Factory(dict)
    """Other nodes, and their addresses."""
    connections: int = 0
    fetches: list[FetchRequest] = attrs.Factory(list)
    written: list[dict[int, bytes]] = attrs.Factory(list)
    """The records of each Produce, by partition."""
    asked: list[Request] = attrs.Factory(list)
    metadata: int = 0

    async def serve(self, peer: PeerStream) -> None:
        self.connections += 1
        await peer.greet()
        while True:
            header, request = await peer.read()
            await self._answer(peer, header, request)

    async def _answer(self, peer: PeerStream, header: RequestHeader, request: Request) -> None:
        self.asked.append(request)
        if isinstance(request, ProduceRequest):
            await self._produced(peer, header, request)
        elif isinstance(request, FetchRequest):
            act = self.acts[min(len(self.fetches), len(self.acts) - 1)]
            self.fetches.append(request)
            await act(peer, header, request)
        elif isinstance(request, ListOffsetsRequest):
            when = request.topics[0].partitions[0].timestamp
            offset = self.log_start if when == -2 else self.log_end
            row = ListOffsetsPartitionResponse(0, offset=offset)
            topics = [ListOffsetsTopicResponse("t", [row])]
            await peer.answer(header, ListOffsetsResponse(topics=topics))
        else:
            topic_id = self.topic_ids[min(self.metadata, len(self.topic_ids) - 1)]
            self.metadata += 1
            partitions = [
                MetadataResponsePartition(0, number, self.leader, self.metadata)
                for number in range(PARTITIONS)
            ]
            topic = MetadataResponseTopic(0, "t", topic_id, partitions=partitions)
            nodes = {1: peer.address, **self.leaders}
            brokers = [MetadataResponseBroker(node, *where) for node, where in nodes.items()]
            await peer.answer(header, MetadataResponse(brokers=brokers, topics=[topic]))

    async def _produced(
        self, peer: PeerStream, header: RequestHeader, request: ProduceRequest
    ) -> None:
        rows = request.topic_data[0].partition_data
        verdict = self.verdicts[min(len(self.written), len(self.verdicts) - 1)]
        self.written.append({row.index: bytes(row.records or b"") for row in rows})
        if request.acks == 0:
            return
        if verdict is None:
            raise EOFError
        answers = [verdict[row.index] for row in rows if row.index in verdict]
        nodes = [NodeEndpoint(node, *where) for node, where in self.leaders.items()]
        topics = [TopicProduceResponse("t", answers)]
        await peer.answer(header, ProduceResponse(topics, node_endpoints=nodes))


def with_answer(response: FetchResponse) -> Act:
    async def act(peer: PeerStream, header: RequestHeader, request: FetchRequest) -> None:
        await peer.answer(header, response)

    return act


def with_row(row: PartitionData) -> Act:
    return with_answer(FetchResponse(responses=[FetchableTopicResponse("t", TOPIC_ID, [row])]))


def with_batches(*batches: bytes, end: int = END) -> Act:
    return with_row(PartitionData(0, 0, end, end, 0, records=b"".join(batches)))


def with_bytes(data: bytes) -> Act:
    """The answer with these bytes on the wire."""

    async def act(peer: PeerStream, header: RequestHeader, request: FetchRequest) -> None:
        await peer.stream.send_all(data)

    return act


async def hang_up(peer: PeerStream, header: RequestHeader, request: FetchRequest) -> None:
    raise EOFError


async def say_nothing(peer: PeerStream, header: RequestHeader, request: FetchRequest) -> None:
    await trio.sleep_forever()


async def close_one_half(peer: PeerStream, header: RequestHeader, request: FetchRequest) -> None:
    """We send no more, and go on listening."""
    assert isinstance(peer.stream, trio.SocketStream)
    await peer.stream.send_eof()
    await trio.sleep_forever()


async def trickle(peer: PeerStream, header: RequestHeader, request: FetchRequest) -> None:
    """A byte now and then, for ever."""
    await peer.stream.send_all(struct.pack(">ii", 1 << 20, header.correlation_id))
    while True:
        await peer.stream.send_all(b"x")
        await trio.sleep(0.01)


def records(first: int, count: int = 2) -> bytes:
    """A batch whose values are their offsets."""
    values = [Record(b"%d" % number) for number in range(first, first + count)]
    return build_batch(values, base_offset=first)


def emptied(first: int, count: int) -> bytes:
    """What compaction leaves of a batch of which only the offsets are needed."""
    batch = split(memoryview(records(first, count)))[0]
    return rebuilt(batch.header._replace(record_count=0), b"")


def special(first: int, *, control: int | None = None, producer: int = 7) -> bytes:
    """A transactional batch of one record; or a marker: 0 aborts, 1 commits."""
    attributes = TRANSACTIONAL_BIT | (0 if control is None else CONTROL_BIT)
    key = None if control is None else struct.pack(">hh", 0, control)
    writer = BatchWriter()
    writer.append(Record(b"%d" % first, key))
    header = split(memoryview(writer.seal(writer.payload, base_offset=first)))[0].header
    return rebuilt(
        header._replace(attributes=attributes, producer_id=producer, producer_epoch=0),
        writer.payload,
    )


@asynccontextmanager
async def small_broker(broker: SmallBroker) -> AsyncIterator[str]:
    async with scripted(broker.serve) as (host, port):
        yield f"{host}:{port}"


async def reads(
    broker: SmallBroker,
    start: int = 0,
    end: int = 4,
    *,
    committed: bool = False,
    retry_ms: int = 10_000,
    request_ms: int = 5_000,
    topic_id: bytes = UUID_ZERO,
) -> list[int]:
    """The offsets that a reader of [start, end) gets; each record's value must be its offset."""
    async with small_broker(broker) as bootstrap:
        settings = ClusterSettings(
            bootstrap=bootstrap,
            retry_ms=retry_ms,
            request_ms=request_ms,
            backoff_ms=1,
            backoff_max_ms=20,
        )

        def read() -> list[Batch]:
            with Cluster(settings) as cluster:
                answers = cluster.read(
                    PLACE, start, end, isolation_committed=committed, topic_id=topic_id
                )
                return [batch for batches in answers for batch in batches]

        found = await trio.to_thread.run_sync(read)
    return offsets_of(found, start, end)


def offsets_of(batches: Sequence[Batch], start: int, end: int) -> list[int]:
    found = [record for batch in batches for record in iterate_records(batch)]
    wanted = [record for record in found if start <= record.offset < end]
    assert all(record.value == b"%d" % record.offset for record in wanted)
    return [record.offset for record in wanted]
