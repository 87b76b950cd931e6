"""Times inside a batch: the first record at or after a time, and the greatest time."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.batches import START_MS, timed
from wire.error_codes import ErrorCode
from wire.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    Batch,
    BatchError,
    Compression,
    parse_header,
)
from wire.records.spans import rebuilt, record_spans
from wire.records.times import REST_RECORDS, Timed, first_reaching, greatest

BASE = 1_000


def placed(data: bytes) -> Batch:
    view = memoryview(data)
    return Batch(parse_header(view)._replace(base_offset=BASE), view)


def without(data: bytes, gone: set[int]) -> bytes:
    """What compaction leaves of an uncompressed batch when it removes these records."""
    header, payload = parse_header(memoryview(data)), data[HEADER_BYTES:]
    spans = [span for span in record_spans(header, payload) if span.offset_delta not in gone]
    left = b"".join(payload[span.start : span.stop] for span in spans)
    return rebuilt(header._replace(record_count=len(spans)), left)


@settings(max_examples=200, deadline=None)
@given(
    times=st.lists(st.integers(-300, 300), min_size=1, max_size=12),
    codec=st.sampled_from(Compression),
    claim=st.integers(-400, 400),
    log_time=st.booleans(),
    since=st.integers(0, 13),
)
def test_as_going_through_all_of_them(
    times: Sequence[int], codec: Compression, claim: int, log_time: bool, since: int
) -> None:
    """Any order, any codec, whatever the header says; from any offset within the batch on."""
    data = timed(times, compression=codec, claim_ms=claim, log_time=log_time)
    every = [Timed(BASE + n, START_MS + (claim if log_time else t)) for n, t in enumerate(times)]
    check(data, [one for one in every if one.offset >= BASE + since], BASE + since)


@given(
    times=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    gone=st.sets(st.integers(0, 7)),
    log_time=st.booleans(),
)
def test_what_compaction_has_taken_is_not_found(
    times: Sequence[int], gone: set[int], log_time: bool
) -> None:
    data = without(timed(times, claim_ms=60, log_time=log_time), gone)
    every = [Timed(BASE + n, START_MS + (60 if log_time else t)) for n, t in enumerate(times)]
    check(data, [one for one in every if one.offset - BASE not in gone], BASE)


def check(data: bytes, there: list[Timed], since: int) -> None:
    batch = placed(data)
    for ms in {START_MS - 301, *(one.timestamp_ms + step for one in there for step in (-1, 0, 1))}:
        first = next((one for one in there if one.timestamp_ms >= ms), None)
        assert first_reaching(batch, ms, since) == first
    latest = max(there, key=lambda one: (one.timestamp_ms, -one.offset), default=None)
    assert greatest(batch, since) == latest


@pytest.mark.parametrize("codec", Compression)
def test_a_cut_or_longer_batch_has_no_times(codec: Compression) -> None:
    whole = timed([1, 2, 3], compression=codec, pad=50)
    header = parse_header(memoryview(whole))
    cut = rebuilt(header, whole[HEADER_BYTES:-30])
    lying = rebuilt(header._replace(record_count=4, last_offset_delta=3), whole[HEADER_BYTES:])
    for data in (cut, lying):
        with pytest.raises(BatchError) as refused:
            greatest(placed(data), 0)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [one for one in Compression if one])
def test_more_than_is_wanted_is_not_decompressed(codec: Compression) -> None:
    batch = placed(timed([1, 2], compression=codec, pad=100_000))
    assert greatest(batch, 0, bytes_max=300_000) == Timed(BASE + 1, START_MS + 2)
    with pytest.raises(BatchError):
        greatest(batch, 0, bytes_max=150_000)
    assert DECOMPRESSED_BYTES_MAX >= 64 * 1024 * 1024


def test_it_rests_on_the_way() -> None:
    rests: list[None] = []
    batch = placed(timed(range(5 * REST_RECORDS)))
    greatest(batch, 0, rest=lambda: rests.append(None))
    assert len(rests) >= 5
