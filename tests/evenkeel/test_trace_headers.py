"""`traceparent` and `tracestate` pass through untouched: produce, forward, recompression, fetch,
compaction, Spark. (Export and import: tests/cli/test_backups.py.) A node never reads headers; a
trace that an application begins continues at the reader (W3C Trace Context)."""

from typing import Any

import pytest
import trio

from broker.lifecycle.compaction import Rewriter, Survey
from evenkeel import (
    ClientConfig,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from tests.evenkeel.shared_cluster import STEP_S, SharedCluster
from wire.records.batch import Batch, Compression, Record, iterate_records, split
from wire.records.batch_writer import BatchWriter, put_varint
from wire.records.compression import compress, decompress, recompressed

RECORDS = 300
Headers = tuple[tuple[str, bytes | None], ...]


def headers_of(number: int) -> Headers:
    """As an instrumented client adds them; names may repeat, and order matters."""
    parent = f"00-{number:032x}-{number + 1:016x}-01".encode()
    return (
        ("traceparent", parent),
        ("tracestate", b"vendor=%d,other=\xc3\xa9" % number),
        ("application", None),
        ("traceparent", b"not a parent"),
    )


def batch_of(count: int, codec: Compression = Compression.NONE) -> Batch:
    writer = BatchWriter()
    for number in range(count):
        writer.append(Record(b"v", b"k%d" % (number % 3), 1_000 + number, headers_of(number)))
    data = writer.seal(compress(bytes(writer.payload), codec), compression=codec)
    return split(memoryview(data))[0]


def headers_in(batch: Batch) -> list[Headers]:
    return [one.headers for one in iterate_records(batch, decompress(batch, 1 << 24))]


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["producer", "zstd", "uncompressed"])
async def test_through_a_cluster_whose_masters_move(cluster: SharedCluster, kind: str) -> None:
    """Requests are forwarded during a handover; the topic's codec makes batches anew."""
    topic = f"traced-{kind}"
    await trio.to_thread.run_sync(cluster.create_topic, topic, 3, {"compression.type": kind})
    client = ClientConfig(operation_timeout_ms=30_000)
    config = ProducerConfig(compression=Compression.GZIP, linger_ms=1)
    async with Producer(cluster.bootstrap, config, client=client) as producer:
        for number in range(RECORDS):
            if number in (RECORDS // 3, 2 * RECORDS // 3):
                await cluster.steal_to(1 + 3 * number // RECORDS)
            await producer.send(
                topic, b"%d" % number, partition=number % 3, headers=headers_of(number)
            )
            await trio.sleep(0.002)
    found: dict[bytes | None, Headers] = {}
    places = [TopicPartition(topic, number) for number in range(3)]
    async with Consumer(cluster.bootstrap, ConsumerConfig(), client=client) as consumer:
        await consumer.assign(places)
        with trio.fail_after(STEP_S):
            while len(found) < RECORDS:
                for record in await consumer.poll(1.0) or ():
                    found[record.value] = tuple(record.headers)
    assert found == {b"%d" % number: headers_of(number) for number in range(RECORDS)}


@pytest.mark.parametrize("codec", list(Compression))
def test_through_recompression(codec: Compression) -> None:
    before = batch_of(9)
    assert headers_in(before) == [headers_of(number) for number in range(9)]
    assert headers_in(recompressed(before, codec, 1, 1 << 24)) == headers_in(before)


@pytest.mark.parametrize("codec", list(Compression))
def test_through_compaction(codec: Compression) -> None:
    """Of nine records with three keys the last three are left."""
    before = batch_of(9, codec)
    survey = Survey(0)
    assert survey.add(before)
    left = Rewriter(survey, now_ms=0, delete_retention_ms=0).rewrite(before, keep=False)
    assert left is not None
    assert headers_in(split(left)[0]) == [headers_of(number) for number in (6, 7, 8)]


def test_through_spark() -> None:
    """The source reads them, the sink writes them; here without Spark around both."""
    pytest.importorskip("numpy")
    pa: Any = pytest.importorskip("pyarrow")
    from pyspark_evenkeel.read.layout import header_pairs, layout_of, payload_of
    from wire.records.columns import encode_headers

    batch = batch_of(5, Compression.LZ4)
    pairs = header_pairs(layout_of([batch.header], [payload_of(batch)]))
    got = list(zip(pairs.names, pairs.contents, strict=True))
    expected = [(name, value) for number in range(5) for name, value in headers_of(number)]
    assert got == expected

    struct = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    lists = pa.array([_rows(headers_of(number)) for number in range(5)], pa.list_(struct))
    encoded = encode_headers(lists).to_pylist()
    assert encoded == [_encoded(headers_of(number)) for number in range(5)]


def _rows(headers: Headers) -> list[dict[str, bytes | None]]:
    return [{"key": name.encode(), "value": value} for name, value in headers]


def _encoded(headers: Headers) -> bytes:
    """As at the end of a record."""
    out = bytearray()
    put_varint(out, len(headers))
    for name, value in headers:
        put_varint(out, len(name.encode()))
        out += name.encode()
        put_varint(out, -1 if value is None else len(value))
        out += value or b""
    return bytes(out)
