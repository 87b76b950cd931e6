"""Hand-written hostile inputs: the shapes of published holes (the reliability exam, section 6).

Each is an input as seen in the world: CVE-2026-10142 (a trusted length), CVE-2022-34917 and
CVE-2026-111108 (a trusted array count), CVE-2026-111115 (20 million tagged fields before
authentication), CVE-2026-111073 (a decompression bomb), CVE-2018-1288 (a client that plays broker),
and what the fuzzer taught us about asking for the same work many times in one frame.
"""

import copy
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs
from crc32c import crc32c

from tests.broker.requests.test_hostile import sensible
from tests.fuzz.kafka import CLIENT, CORRELATION_ID, lay_out_request, versions_of
from tests.fuzz.mutate import Mark, uvarint
from tests.wire.messages_of import example
from wire.apis import Api, ApiKey, Request, encode_request
from wire.codec.schema import fields_of
from wire.framing import KIB, MIB
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records.batch import Compression, Record
from wire.records.batch_writer import build_batch

TOPIC_ID: Final = (1).to_bytes(16, "big")
LATE_MS: Final = 1_000
HUGE: Final = (1 << 31) - 1
EVERYTHING: Final = 1 << 30


class Shape(NamedTuple):
    name: str
    data: bytes


def encoded(message: Request, version: int) -> bytes:
    return b"".join(encode_request(message, version, CORRELATION_ID, CLIENT))[4:]


# -- streams that must cost their connection ------------------------------------------------------


def refused_streams() -> Iterator[Shape]:
    """Byte streams to the Kafka port, length prefixes included: each is refused, cheaply."""
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 7, -1)
    for size in (-1, -(1 << 31), HUGE, 100 * MIB, 16 * MIB + 64 * KIB + 1):
        yield Shape(f"a frame of {size} bytes", struct.pack(">iH", size, ApiKey.PRODUCE))
    yield Shape("Metadata of 1 MiB + 1", struct.pack(">iH", MIB + 1, ApiKey.METADATA))
    yield Shape("an empty frame", _framed(b""))
    yield Shape("half a header", _framed(head[:7]))
    yield Shape("an HTTP request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    yield Shape("a TLS client hello", bytes.fromhex("16030100c8010000c40303") + bytes(190))
    yield Shape("20 million tagged fields", _framed(head + uvarint(20_000_000) + bytes(60_000)))
    yield Shape("as many as fit", _framed(head + uvarint(500_000) + b"\1\0" * 500_000))
    yield Shape("a tagged field of 2 GiB", _framed(head + b"\1\0" + uvarint(HUGE)))
    yield Shape("a varint without an end", _framed(head + b"\1" + b"\xff" * 100))
    yield Shape("a varint of more than 32 bits", _framed(head + b"\xff\xff\xff\xff\x7f"))
    for size in (-2, -32768, 32767):
        lied = struct.pack(">hhih", ApiKey.METADATA, 1, 7, size)
        yield Shape(f"a client id of {size} bytes", _framed(lied + b"x"))
    for text in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"):
        named = struct.pack(">hhih", ApiKey.METADATA, 1, 7, len(text)) + text
        yield Shape(f"a client id {text.hex()}", _framed(named + b"\xff" * 4))


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


# -- every length and count of every request ------------------------------------------------------


def lying_requests(api: Api) -> Iterator[Shape]:
    """Every count and length of every version, replaced by the most expensive value if trusted."""
    for version in versions_of(api):
        sample = lay_out_request(api, version, example(api.request, version), CLIENT)
        for mark in sample.marks:
            for lie in _lies(mark):
                at, end = mark.at, mark.at + mark.size
                name = f"{api.name} v{version}, byte {at}: {lie.hex()}"
                yield Shape(name, sample.data[:at] + lie + sample.data[end:])


def _lies(mark: Mark) -> list[bytes]:
    if mark.kind == "len2":
        return [struct.pack(">h", size) for size in (32767, -32768, -2)]
    if mark.kind in ("len4", "count4"):
        return [struct.pack(">i", size) for size in (HUGE, -HUGE - 1, -2, 1 << 20)]
    if mark.kind == "varint":
        return [uvarint(HUGE), uvarint((1 << 32) - 1), uvarint(1 << 20), b"\xff" * 10]
    if mark.kind == "tags":
        return [uvarint(20_000_000), uvarint(1) + uvarint(99) + uvarint(HUGE)]
    return []


# -- well-formed, but too much --------------------------------------------------------------------


def fat_requests(api: Api, bytes_max: int) -> Iterator[Shape]:
    """The newest version with one of its arrays as long as a frame of `bytes_max` allows."""
    version = api.accepted.last
    message = sensible(api)
    base = len(encoded(message, version))
    for path in list(_arrays(message)):
        each = (len(encoded(_grown(message, path, 101), version)) - base) / 100
        if each > 0:
            count = int((bytes_max - base - 8) / each)
            yield Shape(".".join(path), encoded(_grown(message, path, count), version)[:bytes_max])


def _arrays(message: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if isinstance(value, list) and value:
            path = (*above, field.name)
            yield path
            if attrs.has(type(value[0])):
                yield from _arrays(value[0], path)


def _grown(message: Any, path: tuple[str, ...], count: int) -> Any:
    """The message with the first element of one array repeated; the copies share nothing with
    it."""
    grown = copy.copy(message)
    items = getattr(grown, path[0])
    first = items[0] if len(path) == 1 else _grown(items[0], path[1:], count)
    setattr(grown, path[0], items * count if len(path) == 1 else [first, *items[1:]])
    return grown


def produce(data: bytes) -> bytes:
    """One batch for partition 0 of topic t."""
    partition = PartitionProduceData(0, memoryview(data))
    return encoded(ProduceRequest(None, -1, 1_000, [TopicProduceData("t", [partition])]), 10)


def bomb(mebibytes: int) -> bytes:
    """A gzip batch of one record, compressed to a thousandth of its size."""
    record = Record(bytes(mebibytes * MIB), timestamp_ms=LATE_MS)
    return build_batch([record], compression=Compression.GZIP)


def nonsense_batch(compression: Compression) -> bytes:
    """A valid header with a correct checksum around bytes that no decompressor accepts."""
    plain = bytearray(build_batch([Record(b"\xff" * 500, timestamp_ms=LATE_MS)]))
    plain[22] = compression
    return _with_crc(bytes(plain))


def _with_crc(data: bytes) -> bytes:
    return data[:17] + crc32c(data[21:]).to_bytes(4, "big") + data[21:]


def look_up_times(count: int) -> bytes:
    """Ask for the same late time of the same partition, again and again."""
    asked = [ListOffsetsPartition(0, -1, LATE_MS)] * count
    return encoded(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", asked)]), 7)


def fetch_again(count: int) -> bytes:
    """Fetch everything of the same partition, again and again."""
    wanted = [FetchPartition(0, fetch_offset=0, partition_max_bytes=EVERYTHING)] * count
    topic = FetchTopic("t", TOPIC_ID, wanted)
    return encoded(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), 16)


def played_broker() -> bytes:
    """CVE-2018-1288: a client that fetches as if it were a replica."""
    topic = FetchTopic("t", TOPIC_ID, [FetchPartition(0)])
    return encoded(FetchRequest(replica_id=1, max_wait_ms=0, topics=[topic]), 14)


def tiny_batches(count: int) -> bytes:
    """A Produce to that many partitions."""
    partition = PartitionProduceData(0, memoryview(build_batch([Record(b"")])))
    topic = TopicProduceData("t", [partition] * count)
    return encoded(ProduceRequest(None, -1, 1_000, [topic]), 10)
