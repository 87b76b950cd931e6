"""Arrow batches compared with `wire.records.batch`'s view of a record, and with Spark's types."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_evenkeel.errors import ConfigurationError
from pyspark_evenkeel.read.columns import PAYLOAD_BYTES_MAX, TIMESTAMP_MS_MAX, record_batches
from pyspark_evenkeel.read.layout import VARINT_BITS_MAX, layout_of
from pyspark_evenkeel.source import EvenkeelSource, arrow_schema
from wire.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_END,
    Batch,
    BatchError,
    Compression,
    Record,
    iterate_records,
    parse_header,
    split,
    stamped,
)
from wire.records.batch_writer import BatchWriter, build_batch, put_varint
from wire.records.compression import compress, decompress
from wire.records.spans import rebuilt

PLACE = ("orders", 7)
EVER = 1 << 62
ALL = EvenkeelSource({"includeHeaders": "true"}).schema()
SCHEMA = arrow_schema(ALL)
TEXT = st.text(max_size=5)
BYTES = st.none() | st.binary(max_size=200)
RECORDS = st.builds(
    Record,
    BYTES,
    BYTES,
    st.integers(0, 1 << 42),
    st.lists(st.tuples(TEXT, BYTES), max_size=3).map(tuple),
)
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=80), min_size=1, max_size=4)


def sealed(records: Sequence[Record], base_offset: int, codec: Compression) -> Batch:
    writer = BatchWriter()
    for record in records:
        writer.append(record)
    data = writer.seal(compress(writer.payload, codec), base_offset=base_offset, compression=codec)
    return split(memoryview(data))[0]


def rows(
    batches: Sequence[Batch], start: int = 0, end: int = EVER, schema: Any = SCHEMA
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for one in record_batches(PLACE, start, end, batches, schema):
        one.validate(full=True)
        assert one.schema.equals(schema)
        found += plain(one)
    return found


def plain(one: Any) -> list[dict[str, Any]]:
    """Python has no times as remote as Arrow has; these stay numbers."""
    try:
        return one.to_pylist()  # type: ignore[no-any-return]
    except OverflowError:
        at = one.schema.get_field_index("timestamp")
        numbers = one.column(at).cast(pa.int64())
        return one.set_column(at, "timestamp", numbers).to_pylist()  # type: ignore[no-any-return]


def expected(batch: Batch, log_append_time: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "key": one.key,
            "value": one.value,
            "topic": PLACE[0],
            "partition": PLACE[1],
            "offset": one.offset,
            "timestamp": pa.scalar(one.timestamp_ms * 1000, SCHEMA.field("timestamp").type).as_py(),
            "timestampType": int(log_append_time),
            "headers": [{"key": name, "value": value} for name, value in one.headers] or None,
        }
        for one in iterate_records(batch, decompress(batch, 1 << 24))
    ]


@given(BATCHES, st.sampled_from(Compression), st.integers(0, 1 << 40))
def test_rows_are_what_the_records_are(
    contents: list[list[Record]], codec: Compression, offset: int
) -> None:
    batches = []
    for records in contents:
        batches.append(sealed(records, offset, codec))
        offset += len(records) + 3  # as after compaction
    assert rows(batches) == [row for batch in batches for row in expected(batch)]


@given(st.lists(RECORDS, min_size=1, max_size=30), st.integers(0, 40), st.integers(0, 40))
def test_only_the_range_that_was_asked_for(records: list[Record], start: int, end: int) -> None:
    """A fetch returns whole batches; tasks are ranges of offsets."""
    batch = sealed(records, 5, Compression.NONE)
    inside = [row for row in expected(batch) if start <= row["offset"] < end]
    assert rows([batch], start, end) == inside


def test_a_header_whose_name_is_not_text_stops_nobody() -> None:
    """Brokers accept any bytes there, also Kafka's; Java reads them this way as well."""
    sound = sealed([Record(b"a", headers=(("hh", b"1"),))], 0, Compression.NONE)
    payload = bytes(sound.data[HEADER_BYTES:]).replace(b"hh", b"\xff\xfe")
    (batch,) = split(memoryview(rebuilt(sound.header, payload)))
    assert rows([batch]) == expected(batch)
    assert rows([batch])[0]["headers"] == [{"key": "\ufffd\ufffd", "value": b"1"}]


def test_log_append_time_is_the_batch_s() -> None:
    batch = sealed(
        [Record(b"a", timestamp_ms=5), Record(b"b", timestamp_ms=9)], 0, Compression.NONE
    )
    in_log = split(stamped(batch, 1_700_000_000_000))[0]
    assert rows([batch, in_log])[2:] == expected(in_log, log_append_time=True)
    assert [row["timestampType"] for row in rows([batch, in_log])] == [0, 0, 1, 1]


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 62, -(1 << 62)])
def test_whatever_time_a_producer_wrote_there_is_a_row(timestamp_ms: int) -> None:
    batch = sealed([Record(b"a", timestamp_ms=timestamp_ms)], 0, Compression.NONE)
    (one,) = record_batches(PLACE, 0, EVER, [batch], SCHEMA)
    told = one.column("timestamp").cast(pa.int64())[0].as_py()
    assert told == max(-TIMESTAMP_MS_MAX, min(timestamp_ms, TIMESTAMP_MS_MAX)) * 1000


def test_large_fetches_become_several_arrow_batches() -> None:
    """Memory is bounded by the payload of one, or by one record batch."""
    third = Record(bytes(PAYLOAD_BYTES_MAX // 3))
    batches = [sealed([third], n, Compression.NONE) for n in range(5)]
    batches.append(sealed([third] * 6, 5, Compression.ZSTD))
    sizes = [one.num_rows for one in record_batches(PLACE, 0, EVER, batches, SCHEMA)]
    assert sizes == [2, 2, 1, 6]


# -- schemas --------------------------------------------------------------------------------------


def test_pitfall_4_the_arrow_schema_is_what_spark_makes_of_the_schema() -> None:
    """Spark compares the first batch's schema with its own, and later ones must not differ."""
    assert SCHEMA.equals(to_arrow_schema(ALL, timezone="UTC"))
    without = EvenkeelSource({}).schema()
    assert arrow_schema(without).equals(to_arrow_schema(without, timezone="UTC"))
    assert without.fieldNames() == ALL.fieldNames()[:-1]
    with_headers = Record(b"a", headers=(("h", b"1"),))
    contents = ([Record(None)], [with_headers], [Record(b"x", b"k")])
    for records in contents:
        (one,) = record_batches(PLACE, 0, EVER, [sealed(records, 0, Compression.NONE)], SCHEMA)
        assert one.schema.equals(SCHEMA, check_metadata=True)


def test_a_user_s_own_schema_chooses_columns() -> None:
    chosen = StructType([ALL["offset"], ALL["value"]])
    batch = sealed([Record(b"a"), Record(b"b")], 3, Compression.NONE)
    found = rows([batch], schema=arrow_schema(chosen))
    assert found == [{"offset": 3, "value": b"a"}, {"offset": 4, "value": b"b"}]
    for field in (StructField("value", StringType()), StructField("offsets", LongType())):
        with pytest.raises(ConfigurationError, match=f"there is no column {field.name}"):
            arrow_schema(StructType([field]))


# -- bytes that are no record ---------------------------------------------------------------------


@given(st.lists(RECORDS, min_size=1, max_size=8), st.integers(0, 10_000), st.integers(0, 255))
def test_a_wrong_byte_is_refused_or_makes_other_rows(
    records: list[Record], where: int, byte: int
) -> None:
    """Its checksum is right: a producer wrote it that way. What the oracle accepts, we read
    alike."""
    batch = sealed(records, 0, Compression.NONE)
    payload = bytearray(batch.data[HEADER_BYTES:])
    payload[where % len(payload)] = byte
    wrong = split(memoryview(rebuilt(batch.header, bytes(payload))))[0]
    try:
        told = list(iterate_records(wrong))
    except BatchError:
        told = None
    try:
        found = rows([wrong])
    except BatchError:
        assert told is None
        return
    assert told is not None
    assert [row["value"] for row in found] == [one.value for one in told]
    assert [row["offset"] for row in found] == [one.offset for one in told]


def payload_of(*fields: int | bytes, length: int | None = None) -> bytes:
    """One record of varints and bytes; its length is right unless given."""
    body = bytearray(1)
    for field in fields:
        if isinstance(field, int):
            put_varint(body, field)
        else:
            body += field
    whole = bytearray()
    put_varint(whole, len(body) if length is None else length)
    return bytes(whole + body)


@pytest.mark.parametrize("second", [1, 0])
def test_offsets_ascend_within_each_batch(second: int) -> None:
    """Found by the test above, now and then; between two batches they may fall."""
    payload = payload_of(0, 1, -1, -1, 0) + payload_of(0, second, -1, -1, 0)
    header = parse_header(memoryview(build_batch([Record(b"")] * 2)))
    wrong = header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload))
    batch = Batch(wrong, memoryview(rebuilt(wrong, payload)))
    with pytest.raises(BatchError, match="ascend"):
        rows([batch])
    with pytest.raises(BatchError):
        list(iterate_records(batch))
    right = sealed([Record(b"")], 0, Compression.NONE)
    assert [row["offset"] for row in rows([right, right])] == [0, 0]


@pytest.mark.parametrize("base_ms", [TIMESTAMP_END - 1, -TIMESTAMP_END])
def test_times_have_64_bits(base_ms: int) -> None:
    header = parse_header(memoryview(build_batch([Record(b"")])))
    payload = payload_of(1 if base_ms > 0 else -1, 0, -1, -1, 0)
    wrong = header._replace(
        base_timestamp_ms=base_ms, batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)
    )
    batch = Batch(wrong, memoryview(rebuilt(wrong, payload)))
    with pytest.raises(BatchError, match="64 bits"):
        rows([batch])
    with pytest.raises(BatchError):
        list(iterate_records(batch))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (payload_of(0, 0, -1, -1, 0) + b"\0", "1 bytes after the last record"),
        (payload_of(0, 0, -1, -1, 0, length=-7), "a negative length"),
        (payload_of(0, 0, -1, -1, 0, length=1 << 40), "after the last record"),
        (payload_of(0, 0, 50, -1, 0), "longer than its record"),
        (payload_of(0, 0, -1, 1 << 40, 0), "longer than its record"),
        (payload_of(0, 0, -2, -1, 0), "longer than its record"),
        (payload_of(0, 1, -1, -1, 0), "not in its batch"),
        (payload_of(0, -1, -1, -1, 0), "not in its batch"),
        (payload_of(b"\xff" * (VARINT_BITS_MAX // 7 + 2)), "a varint longer than 10 bytes"),
        (payload_of(0, 0, -1, -1, 5), "5 record headers"),
        (payload_of(0, 0, -1, -1, -1), "-1 record headers"),
        (payload_of(0, 0, -1, -1, 1, -1, 0), "a record header without a name"),
        (payload_of(0, 0, -1, -1, 1, 9, b"ab"), "9 bytes of a header"),
        (payload_of(0, 0, -1, -1, 0, b"xyz"), "a record ends at byte"),
    ],
)
def test_lengths_are_not_believed(payload: bytes, said: str) -> None:
    """A record has at least seven bytes; these are made long enough to be parsed."""
    header = parse_header(memoryview(build_batch([Record(b"")])))
    wrong = header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload))
    with pytest.raises(BatchError, match=said):
        rows([Batch(wrong, memoryview(rebuilt(wrong, payload)))])


def test_a_batch_that_claims_too_much_is_refused() -> None:
    header = parse_header(memoryview(build_batch([Record(b"abc")])))
    with pytest.raises(BatchError, match="1000000 records in 7 bytes"):
        layout_of([header._replace(record_count=1_000_000)], [b"\0" * 7])
    with pytest.raises(BatchError, match="beyond the end"):
        layout_of([header], [b"\x80" * 7])
