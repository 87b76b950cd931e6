"""What is checked in a producer's records before they are stored, and that they can then be
read."""

import gzip
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.error_codes import ErrorCode
from wire.records.batch import (
    HEADER_BYTES,
    TIMESTAMP_END,
    Batch,
    BatchError,
    Compression,
    Record,
    TooMuchError,
    iterate_records,
    produced_batch,
    split,
    with_greatest_time,
)
from wire.records.batch_writer import BatchWriter, put_varint
from wire.records.compression import compress, decompress
from wire.records.spans import record_spans
from wire.records.times import greatest
from wire.records.validation import NAMED_MAX, READABLE, BadRecordsError, Rules, check_records

NOW_MS = 1_700_000_000_000
LIMIT = 1 << 20
CODECS = list(Compression)


def varint(value: int) -> bytes:
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def record(
    offset: int = 0,
    *,
    time: int = 0,
    key: bytes = b"\1",
    value: bytes = b"\2v",
    headers: bytes = b"\0",
    longer: int = 0,
    more: bytes = b"",
) -> bytes:
    """A record made of its parts, each of which may lie; `longer` is added to its length."""
    body = b"\0" + varint(time) + varint(offset) + key + value + headers
    return varint(len(body) + longer) + body + more


def batch(payload: bytes, count: int, *, codec: int = 0, base_ms: int = NOW_MS) -> Batch:
    fields = (codec, count - 1, base_ms, base_ms, -1, -1, -1, count)
    body = struct.pack(">hiqqqhii", *fields) + payload
    head = struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body))
    return produced_batch(memoryview(head + body))


def made(records: list[Record], codec: Compression = Compression.NONE) -> Batch:
    writer = BatchWriter()
    for one in records:
        writer.append(one)
    data = writer.seal(compress(writer.payload, codec), compression=codec)
    return produced_batch(memoryview(data))


def check(one: Batch, rules: Rules = READABLE, rest: Callable[[], None] = lambda: None) -> int:
    return check_records(one, rules, bytes_max=LIMIT, rest=rest)


def refused(one: Batch, rules: Rules = READABLE) -> BatchError:
    with pytest.raises(BatchError) as caught:
        check(one, rules)
    return caught.value


LONG_ZERO = b"\x80\x80\x80\x80\x80\0"
"""A zero of six bytes, which Java refuses to read as a length."""


@pytest.mark.parametrize(
    ("payload", "count", "index", "what"),
    [
        (b"\xff" * 20, 1, 0, "longer than 32 bits"),
        (varint(-5) + bytes(10), 1, 0, "length is negative"),
        (record(7), 1, 0, "offset delta is 7"),
        (record(0) + record(0), 2, 1, "offset delta is 0"),
        (record(1) + record(0), 2, 0, "offset delta is 1"),
        (record(-1), 1, 0, "offset delta is -1"),
        (record(0) + record(1), 1, 0, "bytes after its last record"),
        (record(0) + b"junk", 1, 0, "bytes after its last record"),
        (record(0) + record(1, longer=1), 2, 1, "ends at byte"),
        (record(longer=-1, more=b"\0"), 1, 0, "ends at byte"),
        (record(longer=200), 1, 0, "ends at byte"),
        (record(value=varint(200)), 1, 0, "beyond the end"),
        (record(key=varint(-2)), 1, 0, "key has a negative length"),
        (record(value=varint(-9)), 1, 0, "value has a negative length"),
        (record(headers=varint(-1)), 1, 0, "negative number of headers"),
        (record(headers=varint(1_000_000)), 1, 0, "1000000 headers in"),
        (record(headers=varint(1) + varint(-1) + varint(0)), 1, 0, "header has no name"),
        (record(headers=varint(1) + b"\2n" + varint(-2)), 1, 0, "header has a negative length"),
        (record(headers=varint(1) + varint(90) + b"n"), 1, 0, "beyond"),
        (record(key=LONG_ZERO), 1, 0, "longer than 32 bits"),
        (record(value=b"\xff\xff\xff\xff\x7f"), 1, 0, "longer than 32 bits"),
    ],
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_records_that_cannot_be_read_are_refused_and_named(
    payload: bytes, count: int, index: int, what: str, codec: Compression
) -> None:
    stored = bytes(compress(bytearray(payload), codec))
    error = refused(batch(stored, count, codec=codec))
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, BadRecordsError)
    ((named, told),) = error.records
    assert (named, what in told) == (index, True), told


def test_a_count_that_its_bytes_cannot_hold_is_refused_before_anything_is_read() -> None:
    """Otherwise a batch of a hundred bytes would use up two billion offsets."""
    error = refused(batch(gzip.compress(record()), 2**31 - 1, codec=Compression.GZIP))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "2147483647 records in" in str(error)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_cannot_be_decompressed_is_refused_for_good(codec: Compression) -> None:
    """Its checksum is right: sent again it would be the same."""
    good = bytes(compress(bytearray(record()), codec))
    for stored in (b"x" * 30, good[:-1], good + b"junk", b""):
        error = refused(batch(stored, 1, codec=codec))
        assert error.code is ErrorCode.INVALID_RECORD, stored
    if codec is Compression.GZIP:  # librdkafka would not see the second stream
        two = gzip.compress(record(0)) + gzip.compress(record(1))
        assert refused(batch(two, 2, codec=codec)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_becomes_too_much_is_refused_as_that(codec: Compression) -> None:
    payload = record(value=varint(300_000) + bytes(300_000))
    one = batch(bytes(compress(bytearray(payload), codec)), 1, codec=codec)
    assert check_records(one, READABLE, bytes_max=len(payload)) == NOW_MS
    with pytest.raises(TooMuchError) as caught:
        check_records(one, READABLE, bytes_max=len(payload) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_all_records_out_of_time_are_named() -> None:
    """Except those without a time, which have no limit (KIP-937)."""
    rules = Rules(NOW_MS - 10, NOW_MS + 10)
    times = [0, -10, 10, 11, -11, -NOW_MS - 1, 5, -NOW_MS]
    payload = b"".join(record(index, time=time) for index, time in enumerate(times))
    error = refused(batch(payload, len(times)), rules)
    assert isinstance(error, BadRecordsError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.records] == [3, 4, 7]
    assert f"timestamp {NOW_MS + 11}, not within" in error.records[0][1]
    good = batch(b"".join(record(i, time=t) for i, t in enumerate([0, -NOW_MS - 1, 10])), 3)
    assert check(good, rules) == NOW_MS + 10
    nobody_said = batch(record(), 1, base_ms=-1)
    assert check(nobody_said, rules) == -1


@pytest.mark.parametrize(
    ("base_ms", "time"),
    [(TIMESTAMP_END - 1, 1), (-TIMESTAMP_END, -1), (TIMESTAMP_END - 1, TIMESTAMP_END - 1)],
)
def test_no_rule_lets_a_time_of_more_than_64_bits_in(base_ms: int, time: int) -> None:
    error = refused(batch(record(time=time), 1, base_ms=base_ms))
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_all_records_without_a_key_are_named_where_keys_are_asked_for() -> None:
    rules = Rules(keyed=True)
    keyed, keyless = Record(b"v", b"k", NOW_MS), Record(b"v", None, NOW_MS)
    error = refused(made([keyed, keyless, keyed, keyless]), rules)
    assert isinstance(error, BadRecordsError)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.records] == [1, 3]
    assert check(made([keyed, Record(None, b"", NOW_MS)]), rules) == NOW_MS
    assert check(made([keyless])) == NOW_MS


def test_a_long_list_of_bad_records_is_cut() -> None:
    many = NAMED_MAX + 7
    error = refused(made([Record(b"", None, NOW_MS)] * many), Rules(keyed=True))
    assert isinstance(error, BadRecordsError)
    assert len(error.records) == NAMED_MAX
    assert f"{many} records are refused" in str(error)


def test_whoever_reads_much_rests() -> None:
    rests: list[int] = []
    assert check(made([Record(b"", None, NOW_MS)] * 3_001), rest=lambda: rests.append(1)) == NOW_MS
    assert len(rests) == 3


def test_the_greatest_time_is_that_of_the_records() -> None:
    one = batch(record(0, time=5) + record(1, time=900) + record(2, time=-3), 3)
    assert one.header.max_timestamp_ms == NOW_MS
    latest_ms = check(one)
    assert latest_ms == NOW_MS + 900
    mended = produced_batch(with_greatest_time(one, latest_ms))
    assert mended.header.max_timestamp_ms == latest_ms
    assert mended.data[HEADER_BYTES:] == one.data[HEADER_BYTES:]
    assert with_greatest_time(mended, latest_ms) is mended.data


def test_a_header_may_have_any_name() -> None:
    """As in Kafka; no reader stops at one that is not UTF-8."""
    one = batch(record(headers=varint(1) + b"\4\xff\xfe" + b"\2x"), 1)
    assert check(one) == NOW_MS
    ((name, content),) = next(iterate_records(one)).headers
    assert (name, content) == ("\ufffd\ufffd", b"x")


# ---- whatever is taken is read -----------------------------------------------------------------

octets = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=200)
record_lists = st.lists(
    st.builds(
        Record,
        value=octets,
        key=octets,
        timestamp_ms=st.integers(NOW_MS - 100_000, NOW_MS + 100_000),
        headers=st.lists(st.tuples(st.text(max_size=5), octets), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=100,
)


def read_by_all(one: Batch) -> None:
    """Our readers agree: offsets ascend one by one to the header's last, and nothing is left
    over."""
    count = one.header.record_count
    payload = decompress(one, LIMIT)
    records = list(iterate_records(one, payload))
    assert [each.offset for each in records] == list(range(count))
    spans = list(record_spans(one.header, payload))
    assert [span.offset_delta for span in spans] == list(range(count))
    assert [span.key for span in spans] == [each.key for each in records]
    assert [each.value is None for each in records] == [span.is_tombstone for span in spans]
    latest = max(each.timestamp_ms for each in records)
    found = greatest(one, 0, bytes_max=LIMIT)
    assert found is not None
    assert found.timestamp_ms == latest
    assert check(one) == max(latest, -1)


@settings(max_examples=150, deadline=None, database=None)
@given(records=record_lists, codec=st.sampled_from(CODECS))
def test_what_is_sound_is_taken(records: list[Record], codec: Compression) -> None:
    one = made(records, codec)
    assert check(one) == max(each.timestamp_ms for each in records)
    read_by_all(one)


@settings(max_examples=300, deadline=None, database=None)
@given(records=record_lists, codec=st.sampled_from(CODECS), data=st.data())
def test_what_is_taken_is_read_in_full(
    records: list[Record], codec: Compression, data: Any
) -> None:
    """Mutate the records, the stored bytes or the header, under a correct checksum."""
    writer = BatchWriter()
    for each in records:
        writer.append(each)
    chance = random.Random(data.draw(st.integers(0, 1 << 32)))
    payload = writer.payload
    where = data.draw(st.sampled_from(["payload", "stored", "header", "none"]))
    if where == "payload":
        mutate(payload, chance)
    stored = bytearray(compress(payload, codec))
    if where == "stored":
        mutate(stored, chance)
    whole = bytearray(writer.seal(stored, compression=codec))
    if where == "header":
        for _ in range(chance.randrange(1, 3)):
            whole[chance.randrange(HEADER_BYTES)] = chance.choice((0, 1, 2, 4, 0x7F, 0x80, 0xFF))
    whole[17:21] = crc32c(whole[21:]).to_bytes(4, "big")
    try:
        one = produced_batch(memoryview(whole))
        latest_ms = check(one)
    except BatchError:
        return
    (again,) = split(with_greatest_time(one, latest_ms))
    read_by_all(again)


def mutate(data: bytearray, chance: random.Random) -> None:
    """Anywhere, but preferably in the first record's own fields."""
    for _ in range(chance.randrange(1, 3)):
        at = chance.randrange(min(len(data), chance.choice((8, 1 << 20))) or 1)
        what = chance.randrange(6)
        if what == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif what == 1:
            del data[at : at + chance.randrange(1, 9)]
        elif what == 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif what == 3:
            data += data[: chance.randrange(1, 30)]
        elif data:
            data[at] = (data[at] + chance.choice((-2, -1, 1, 2, 4))) & 0xFF
