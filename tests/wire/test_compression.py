"""Every codec as a round trip, other implementations' data, and batches that lie about their
contents."""

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.error_codes import ErrorCode
from wire.records.batch import (
    HEADER_BYTES,
    Batch,
    BatchError,
    Compression,
    Record,
    iterate_records,
    split,
)
from wire.records.batch_writer import BatchWriter
from wire.records.compression import XERIAL_MAGIC, compress, decompress

LIMIT = 1 << 20
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


def batch_of(payload: bytes, codec: int) -> Batch:
    """A batch with this codec in its attributes, whatever the payload is."""
    writer = BatchWriter()
    writer.append(Record(b""))
    data = writer.seal(payload, compression=codec)  # type: ignore[arg-type]
    return split(memoryview(data))[0]


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=40, deadline=None, database=None)
@given(payload=st.binary(max_size=2000) | st.integers(0, 300_000).map(lambda size: b"ab" * size))
def test_there_and_back(codec: Compression, payload: bytes) -> None:
    compressed = bytes(compress(bytearray(payload), codec))
    assert decompress(batch_of(compressed, codec), LIMIT) == payload


@pytest.mark.parametrize("codec", Compression)
def test_records_survive(codec: Compression) -> None:
    writer = BatchWriter()
    records = [Record(b"v%d" % n, b"k", n, (("h", None),), n) for n in range(500)]
    for record in records:
        writer.append(record)
    batch = split(memoryview(writer.seal(compress(writer.payload, codec), compression=codec)))[0]
    assert list(iterate_records(batch, decompress(batch, LIMIT))) == records


@pytest.mark.parametrize("codec", CODECS)
def test_no_batch_unpacks_to_more_than_allowed(codec: Compression) -> None:
    """A few kilobytes that decompress to twenty megabytes cost only the allowed amount."""
    bomb = bytes(compress(bytearray(20 * LIMIT), codec))
    with pytest.raises(BatchError) as refused:
        decompress(batch_of(bomb, codec), LIMIT)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=150, deadline=None, database=None)
@given(data=st.data())
def test_damage_is_a_batch_error_or_other_bytes(codec: Compression, data: st.DataObject) -> None:
    good = bytearray(compress(bytearray(b"the records of a batch " * 50), codec))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    bad = bytes(good[: data.draw(st.integers(0, len(good)))])
    refusals = []
    try:
        assert len(decompress(batch_of(bad, codec), LIMIT)) <= LIMIT
    except BatchError as error:
        refusals.append(error.code)
    assert set(refusals) <= {ErrorCode.CORRUPT_MESSAGE}


def test_snappy_comes_framed_and_bare() -> None:
    """Java frames it, librdkafka does not; we write it like Java."""
    payload = b"some records " * 10_000
    framed = bytes(compress(bytearray(payload), Compression.SNAPPY))
    assert framed.startswith(XERIAL_MAGIC)
    bare = bytes(cramjam.snappy.compress_raw(payload))
    assert decompress(batch_of(bare, Compression.SNAPPY), LIMIT) == payload


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses linked blocks: bit 5 of the frame's flags must be set."""
    frame = bytes(compress(bytearray(b"x" * 200_000), Compression.LZ4))
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(BatchError) as refused:
        decompress(batch_of(b"x", 7), LIMIT)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert len(batch_of(b"x", 7).data) > HEADER_BYTES
