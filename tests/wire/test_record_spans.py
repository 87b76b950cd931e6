"""Records as positions in a payload: the same records that others read, and no surprise from
damage."""

from hypothesis import given, settings
from hypothesis import strategies as st

from wire.error_codes import ErrorCode
from wire.records.batch import Batch, BatchError, Record, iterate_records, parse_header, split
from wire.records.batch_writer import build_batch
from wire.records.spans import rebuilt, record_spans

RECORDS = st.lists(
    st.builds(
        Record,
        value=st.none() | st.binary(max_size=200),
        key=st.none() | st.binary(max_size=80),
        timestamp_ms=st.integers(-(1 << 40), 1 << 44),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None, database=None)
@given(records=RECORDS, base=st.integers(0, 1 << 40))
def test_the_same_as_record_by_record(records: list[Record], base: int) -> None:
    batch = split(memoryview(build_batch(records, base_offset=base)))[0]
    payload = bytes(batch.data[61:])
    spans = list(record_spans(batch.header, payload))
    read = list(iterate_records(batch))
    assert [(one.key, one.is_tombstone) for one in spans] == [
        (one.key, one.value is None) for one in read
    ]
    assert [batch.header.base_timestamp_ms + one.timestamp_delta for one in spans] == [
        one.timestamp_ms for one in read
    ]
    assert [base + one.offset_delta for one in spans] == [one.offset for one in read]
    assert b"".join(payload[one.start : one.stop] for one in spans) == payload
    assert rebuilt(batch.header, payload) == bytes(batch.data)


@settings(max_examples=300, deadline=None, database=None)
@given(records=RECORDS, data=st.data())
def test_damage_is_a_batch_error_or_other_records(
    records: list[Record], data: st.DataObject
) -> None:
    good = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(61, len(good) - 1))
        good[at] = data.draw(st.integers(0, 255))
    payload = bytes(good[61 : data.draw(st.integers(61, len(good)))])
    batch = Batch(parse_header(memoryview(good)), memoryview(good))
    refusals = set()
    try:
        spans = list(record_spans(batch.header, payload))
        assert sum(one.stop - one.start for one in spans) == len(payload)
    except BatchError as error:
        refusals.add(error.code)
    assert refusals <= {ErrorCode.CORRUPT_MESSAGE}
