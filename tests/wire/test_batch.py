"""Record batches, compared with kio's reader, and with every kind of damage."""

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from wire.error_codes import ErrorCode
from wire.records.batch import (
    HEADER_BYTES,
    PATCHED_BYTES,
    Batch,
    BatchError,
    Compression,
    Record,
    as_view,
    iterate_records,
    parse_header,
    patched_head,
    produced_batch,
    split,
    validate,
)
from wire.records.batch_writer import build_batch

NOW_MS = 1_700_000_000_000

octets = st.none() | st.binary(max_size=30)
record_lists = st.lists(
    st.builds(
        Record,
        value=octets | st.binary(min_size=120, max_size=300),
        key=octets,
        timestamp_ms=st.integers(NOW_MS - 10_000, NOW_MS + 10_000),
        headers=st.lists(st.tuples(st.text(max_size=5), octets), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
codecs = st.sampled_from([Compression.NONE, Compression.GZIP])
quick = settings(max_examples=150, deadline=None, database=None)


def one(data: bytes) -> Batch:
    (batch,) = split(memoryview(data))
    return batch


def damaged(data: bytes, at: int, new: bytes, *, mend_crc: bool = True) -> Batch:
    """A batch with some bytes replaced and its CRC corrected."""
    changed = bytearray(data)
    changed[at : at + len(new)] = new
    if mend_crc:
        changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return one(bytes(changed))


@quick
@given(records=record_lists, codec=codecs, base=st.integers(0, 1 << 40))
def test_what_is_built_is_read_back(records: list[Record], codec: Compression, base: int) -> None:
    data = build_batch(records, base_offset=base, leader_epoch=3, compression=codec)
    batch = one(data)
    if base:
        with pytest.raises(BatchError, match="begin at 0") as refused:
            produced_batch(memoryview(data))
        assert refused.value.code is ErrorCode.INVALID_RECORD
    else:
        assert produced_batch(memoryview(data)) == batch
    assert batch.header.size == len(data) == len(batch.data)
    assert batch.header.last_offset == base + len(records) - 1
    assert batch.header.max_timestamp_ms == max(record.timestamp_ms for record in records)
    expected = [record._replace(offset=base + i) for i, record in enumerate(records)]
    assert list(iterate_records(batch)) == expected


@quick
@given(records=record_lists, producer=st.integers(-1, 1 << 40), sequence=st.integers(0, 1 << 30))
def test_kio_reads_the_same(records: list[Record], producer: int, sequence: int) -> None:
    data = build_batch(
        records, base_offset=7, producer_id=producer, producer_epoch=2, base_sequence=sequence
    )
    theirs, size = read_batch(data, 0)
    ours = parse_header(memoryview(data))
    assert size == len(data)
    assert ours == (
        theirs.base_offset,
        theirs.batch_length,
        theirs.partition_leader_epoch,
        2,
        theirs.crc,
        theirs.attributes,
        theirs.last_offset_delta,
        theirs.base_timestamp,
        theirs.max_timestamp,
        theirs.producer_id,
        theirs.producer_epoch,
        theirs.base_sequence,
        len(theirs.records),
    )
    for record, other in zip(iterate_records(one(data)), theirs.records, strict=True):
        assert (record.offset, record.key, record.value) == (other.offset, other.key, other.value)
        assert [(name.encode(), content) for name, content in record.headers] == [
            (header.key, header.value) for header in other.headers
        ]
        assert record.timestamp_ms // 1000 == other.timestamp.timestamp()  # kio drops the ms


@quick
@given(batches=st.lists(record_lists, max_size=4), cut=st.integers(0, 200))
def test_split_finds_every_batch_without_copying(batches: list[list[Record]], cut: int) -> None:
    encoded = [build_batch(records, base_offset=i) for i, records in enumerate(batches)]
    data = bytearray(b"".join(encoded))
    found = split(memoryview(data))
    assert [bytes(batch.data) for batch in found] == encoded
    assert all(batch.data.obj is data for batch in found)
    if encoded and 0 < cut < len(encoded[-1]):
        short = memoryview(data)[:-cut]
        assert split(short, partial_tail=True) == found[:-1]
        with pytest.raises(BatchError) as caught:
            split(short)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_the_head_is_patched_outside_the_crc() -> None:
    data = build_batch([Record(b"v", timestamp_ms=NOW_MS)])
    head = patched_head(data, 1234, 56)
    assert len(head) == PATCHED_BYTES
    batch = one(head + data[PATCHED_BYTES:])
    assert (batch.header.base_offset, batch.header.leader_epoch) == (1234, 56)
    assert validate(batch) is ErrorCode.NONE
    assert patched_head(memoryview(data)[:PATCHED_BYTES], 1234, 56) == head


RECORDS = [Record(b"value", b"key", NOW_MS, (("h", b"x"),)), Record(None, None, NOW_MS + 5)]


def i(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


@pytest.mark.parametrize(
    ("at", "new", "code"),
    [
        (17, b"\0\0\0\0", ErrorCode.CORRUPT_MESSAGE),  # CRC, not corrected
        (57, i(0, 4), ErrorCode.INVALID_RECORD),  # no records
        (57, i(-1, 4), ErrorCode.INVALID_RECORD),
        (57, i(3, 4), ErrorCode.INVALID_RECORD),  # count and last offset delta disagree
        (23, i(0, 4), ErrorCode.INVALID_RECORD),
        (21, i(0x20, 2), ErrorCode.INVALID_RECORD),  # a control batch
        (21, i(0x40, 2), ErrorCode.INVALID_RECORD),  # only compaction says when tombstones may go
        (21, i(0x08, 2), ErrorCode.INVALID_TIMESTAMP),  # log append time is not the client's to set
        (21, i(0x05, 2), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (21, i(0x04, 2), ErrorCode.NONE),  # its contents are for `wire.records.validation`
        (43, i(9, 8), ErrorCode.INVALID_RECORD),  # a producer id without epoch and sequence
        (12, i(77, 4), ErrorCode.NONE),  # the leader epoch is not covered
    ],
)
def test_validation(at: int, new: bytes, code: ErrorCode) -> None:
    data = build_batch(RECORDS)
    batch = damaged(data, at, new, mend_crc=at != 17)
    assert validate(batch) is code
    if code is ErrorCode.NONE:
        assert produced_batch(batch.data) == batch
    else:
        with pytest.raises(BatchError) as caught:
            produced_batch(batch.data)
        assert caught.value.code is code


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_old_formats_are_refused_whatever_their_length_says(magic: int) -> None:
    data = bytearray(build_batch(RECORDS))
    data[16] = magic
    for size in (len(data), 30, 17):
        with pytest.raises(BatchError) as caught:
            split(memoryview(data)[:size], partial_tail=True)
        assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_a_partition_is_produced_to_with_exactly_one_batch() -> None:
    data = build_batch(RECORDS)
    for records in (None, memoryview(b""), memoryview(data * 2)):
        with pytest.raises(BatchError) as caught:
            produced_batch(records)
        assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_every_byte_changed_is_noticed_or_harmless(codec: Compression) -> None:
    """The CRC detects every change; if it is corrected, nothing worse than a refusal happens."""
    data = bytearray(build_batch(RECORDS, compression=codec))
    for at, byte in enumerate(data):
        for changed in {0, 1, 0x7F, 0x80, 0xFF, byte ^ 1} - {byte}:
            data[at] = changed
            if at >= 17:
                assert validate(one(bytes(data))) is ErrorCode.CORRUPT_MESSAGE
            mended = bytearray(data)
            mended[17:21] = crc32c(mended[21:]).to_bytes(4, "big")
            for candidate in (bytes(data), bytes(mended)):
                walk(candidate)
        data[at] = byte


@quick
@given(noise=st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    walk(noise)
    walk(noise[:16] + b"\x02" + noise[16:])
    walk(build_batch(RECORDS)[:HEADER_BYTES] + noise)


def walk(data: bytes) -> None:
    """Do everything that can be done with bytes; only BatchError may be raised."""
    try:
        for batch in split(memoryview(data)):
            validate(batch)
            list(iterate_records(batch))
    except BatchError:
        return


def test_a_compression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wire.records.batch.DECOMPRESSED_BYTES_MAX", 1000)
    data = build_batch([Record(bytes(100_000))], compression=Compression.GZIP)
    assert len(data) < 500
    with pytest.raises(BatchError, match="longer than 1000"):
        list(iterate_records(one(data)))


@pytest.mark.parametrize("codec", [Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_other_codecs_are_a_typed_refusal(codec: Compression) -> None:
    with pytest.raises(BatchError) as building:
        build_batch(RECORDS, compression=codec)
    batch = damaged(build_batch(RECORDS), 21, i(codec, 2))
    with pytest.raises(BatchError) as reading:
        list(iterate_records(batch))
    assert {building.value.code, reading.value.code} == {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = damaged(build_batch(RECORDS), 21, i(0x08, 2))
    assert {record.timestamp_ms for record in iterate_records(batch)} == {NOW_MS + 5}


@pytest.mark.parametrize(
    "parts",
    [None, b"", b"abc", bytearray(b"abc"), memoryview(b"abc"), [b"a", b"bc"], (b"abc",), ()],
)
def test_as_view(parts: Any) -> None:
    expected = b"" if not parts else b"abc"
    assert as_view(parts) == expected
