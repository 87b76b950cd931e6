"""Compaction against a naive model. Whatever is written, and whenever rounds run, crash or find
no room: a reader from the beginning gets the last value of each key, and never an older one
after it."""

import itertools
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.lifecycle.compaction import Rewriter, Survey
from wire.records.batch import (
    DELETE_HORIZON_BIT,
    Batch,
    Compression,
    Record,
    is_intact,
    iterate_records,
    parse_header,
    split,
    stamped,
)
from wire.records.batch_writer import BatchWriter
from wire.records.compression import compress, decompress
from wire.records.spans import rebuilt

UNPACKED = 1 << 20
RETENTION_MS = 1_000

Table = dict[bytes, bytes]


def batch_of(
    records: list[Record], base: int = 0, codec: Compression = Compression.NONE, sequence: int = 7
) -> Batch:
    writer = BatchWriter()
    for record in records:
        writer.append(record)
    data = writer.seal(
        compress(writer.payload, codec),
        base_offset=base,
        leader_epoch=3,
        producer_id=11,
        producer_epoch=2,
        base_sequence=sequence,
        compression=codec,
    )
    return split(memoryview(data))[0]


def records_of(batches: Iterable[Batch]) -> list[Record]:
    return [
        record
        for batch in batches
        for record in iterate_records(batch, decompress(batch, UNPACKED))
    ]


def learn(table: Table, records: Iterable[Record]) -> Table:
    """What a consumer has that keeps the last value of each key."""
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table


@attrs.define
class Log:
    """A partition in files of batches; the last file is still being written."""

    files: list[list[Batch]] = attrs.field(factory=lambda: [[]])
    written: list[Record] = attrs.field(factory=list)
    """All records ever written, with their offsets."""
    clean_to: int = 0
    now_ms: int = 10_000
    first_seen_ms: dict[int, int] = attrs.field(factory=dict)
    """When a round first met each tombstone."""

    def append(self, records: list[Record], codec: Compression) -> None:
        base = len(self.written)
        timed = [
            record._replace(timestamp_ms=self.now_ms + at) for at, record in enumerate(records)
        ]
        batch = batch_of(timed, base, codec)
        self.files[-1].append(batch)
        self.written += records_of([batch])

    def batches(self) -> list[Batch]:
        return [batch for file in self.files for batch in file]

    def compact(self, keys_max: int, files_max: int) -> Rewriter:
        """One round over all files but the last; it dies after `files_max` of them."""
        sealed = len(self.files) - 1
        survey = Survey(self.clean_to, keys_max)
        for batch in (batch for file in self.files[:sealed] for batch in file):
            if not survey.add(batch):
                break
        rewriter = Rewriter(survey, now_ms=self.now_ms, delete_retention_ms=RETENTION_MS)
        for number in range(min(sealed, files_max)):
            file = self.files[number]
            if not file or file[0].header.base_offset >= survey.until:
                break
            self.files[number] = rewritten(rewriter, file)
        if files_max >= sealed:
            self.clean_to = survey.until
            for record in self.written[: survey.until]:
                if record.value is None:
                    self.first_seen_ms.setdefault(record.offset, self.now_ms)
        return rewriter

    def check(self) -> None:
        """What holds at every moment, for every reader that begins now."""
        batches = self.batches()
        left = records_of(batches)
        offsets = [record.offset for record in left]
        assert offsets == sorted(set(offsets))
        assert all(record == self.written[record.offset] for record in left)
        assert learn({}, left) == learn({}, self.written)
        assert all(is_intact(batch) for batch in batches)
        for before, after in itertools.pairwise(batches):
            assert before.header.last_offset < after.header.base_offset
        there = set(offsets)
        latest = {record.key: record for record in self.written}
        for record in latest.values():
            seen_ms = self.first_seen_ms.get(record.offset, self.now_ms)
            if record.value is not None or self.now_ms < seen_ms + RETENTION_MS:
                assert record.offset in there, "a key's last record is gone"


def rewritten(rewriter: Rewriter, file: list[Batch]) -> list[Batch]:
    left = []
    for batch in file:
        data = rewriter.rewrite(batch, keep=batch is file[-1])
        if data is not None:
            left += split(data)
    assert left[-1].header.last_offset == file[-1].header.last_offset
    return left


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"", b"a longer key"])
RECORDS = st.builds(
    Record,
    value=st.none() | st.binary(max_size=40),
    key=KEYS,
    headers=st.sampled_from([(), (("h", b"x"), ("n", None))]),
)
STEPS = st.one_of(
    st.tuples(
        st.just("append"), st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from(Compression)
    ),
    st.tuples(st.just("roll")),
    st.tuples(st.just("compact"), st.integers(1, 8), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([1, RETENTION_MS // 3, RETENTION_MS])),
    st.tuples(st.just("forget")),
    st.tuples(st.just("read"), st.integers(1, 8)),
)


@settings(max_examples=300, deadline=None, database=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_every_reader_learns_the_last_value_of_each_key(steps: list[tuple]) -> None:
    """Rounds with room for few keys, rounds that die between two files, expiring tombstones; and a
    slow reader that continues from its offset in whatever is there by then."""
    log, position, since_ms, learned = Log(), 0, 0, Table()
    for step in steps:
        match step:
            case ("append", records, codec):
                log.append(records, codec)
            case ("roll",):
                log.files.append([])
            case ("compact", keys_max, files_max):
                log.compact(keys_max, files_max)
            case ("wait", ms):
                log.now_ms += ms
            case ("forget",):  # how far it was surveyed
                log.clean_to = 0
            case ("read", count):
                ahead = [one for one in records_of(log.batches()) if one.offset >= position]
                if not position:
                    since_ms, learned = log.now_ms, {}
                learn(learned, ahead[:count])
                position = ahead[count - 1].offset + 1 if count <= len(ahead) else 0
                if not position and log.now_ms < since_ms + RETENTION_MS:
                    assert learned == learn({}, log.written)
        log.check()


@settings(max_examples=100, deadline=None, database=None)
@given(
    batches=st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=8),
    codec=st.sampled_from(Compression),
)
def test_a_round_without_bounds_leaves_one_record_a_key(
    batches: list[list[Record]], codec: Compression
) -> None:
    """A second round finds nothing to do; one after the tombstones' time leaves only values."""
    log = Log()
    for records in batches:
        log.append(records, codec)
    log.files.append([])
    last = {record.key: record for record in log.written}
    log.compact(100, 9)
    log.check()
    assert records_of(log.batches()) == sorted(last.values(), key=lambda one: one.offset)
    before = log.batches()
    log.compact(100, 9)
    assert [batch.data.obj for batch in log.batches()] == [batch.data.obj for batch in before]
    log.now_ms += RETENTION_MS
    log.compact(100, 9)
    log.check()
    assert {one.key for one in records_of(log.batches())} == set(learn({}, log.written))


def test_a_full_survey_ends_within_a_batch() -> None:
    """Records that it has not seen stay, and the next survey begins there. No tombstone is stamped
    before the round that removes what it deletes."""
    log = Log()
    log.append([Record(b"v", b"a")], Compression.NONE)
    log.append([Record(b"v", b"b"), Record(b"v", b"c"), Record(None, b"a")], Compression.NONE)
    log.files.append([])
    survey = Survey(0, 2)
    assert [survey.add(batch) for batch in log.files[0]] == [True, False]
    assert (survey.until, survey.full, len(survey)) == (2, True, 2)
    for clean_to in (2, 4):
        log.compact(2, 9)
        assert log.clean_to == clean_to
        stamps = [batch.header.attributes & DELETE_HORIZON_BIT for batch in log.files[0]]
        assert any(stamps) == (clean_to == 4)
        log.now_ms += RETENTION_MS
        log.check()
    log.compact(2, 9)
    assert [one.key for one in records_of(log.batches())] == [b"b", b"c"]


@pytest.mark.parametrize("codec", Compression)
def test_headers_stay(codec: Compression) -> None:
    """Offsets, producer, sequence and codec stay; the greatest time is that of the remaining
    records."""
    batch = batch_of([Record(b"%d" % n, b"k%d" % (n % 2), 500 - n) for n in range(9)], 40, codec)
    survey = Survey(0)
    assert survey.add(batch)
    assert (len(survey), survey.until) == (2, 49)
    left = Rewriter(survey, now_ms=0, delete_retention_ms=0).rewrite(batch, keep=False)
    assert left is not None
    before, after = batch.header, parse_header(left)
    assert [one.offset for one in records_of(split(left))] == [47, 48]
    assert after == before._replace(
        batch_length=after.batch_length, crc=after.crc, max_timestamp_ms=493, record_count=2
    )


def test_an_emptied_batch_holds_its_place() -> None:
    old, new = batch_of([Record(b"1", b"k")], 5, Compression.LZ4), batch_of([Record(b"2", b"k")], 6)
    survey = Survey(0)
    assert survey.add(old)
    assert survey.add(new)
    rewriter = Rewriter(survey, now_ms=0, delete_retention_ms=0)
    assert rewriter.rewrite(old, keep=False) is None
    left = rewriter.rewrite(old, keep=True)
    assert left is not None
    empty = split(left)[0]
    assert list(iterate_records(empty)) == []
    assert (empty.header.base_offset, empty.header.producer_id) == (5, 11)
    assert rewriter.rewrite(empty, keep=True) is empty.data
    assert rewriter.rewrite(empty, keep=False) is None


def test_a_tombstone_carries_its_clock() -> None:
    """KIP-534: a round stamps it when it first meets it; the record's own time does not change."""
    batch = batch_of([Record(b"v", b"other", 100), Record(None, b"k", 200)])
    survey = Survey(0)
    assert survey.add(batch)
    left = Rewriter(survey, now_ms=5_000, delete_retention_ms=1_000).rewrite(batch, keep=False)
    assert left is not None
    marked = split(left)[0]
    assert marked.header.attributes & DELETE_HORIZON_BIT
    assert marked.header.base_timestamp_ms == 6_000
    assert records_of([marked]) == records_of([batch])
    later = Survey(2)
    kept = Rewriter(later, now_ms=5_999, delete_retention_ms=1).rewrite(marked, keep=False)
    assert kept is marked.data
    gone = Rewriter(later, now_ms=6_000, delete_retention_ms=1).rewrite(marked, keep=False)
    assert gone is not None
    assert [one.key for one in records_of(split(gone))] == [b"other"]


def test_nothing_is_deleted_behind_a_batch_that_cannot_be_read() -> None:
    """That batch may hold what the tombstone deletes: both stay for ever."""
    secret = batch_of([Record(b"v", b"k")])
    secret = split(memoryview(rebuilt(secret.header._replace(attributes=5), secret.data[61:])))[0]
    marked = rebuilt(
        batch_of([Record(None, b"k")], 1).header._replace(attributes=DELETE_HORIZON_BIT),
        batch_of([Record(None, b"k")], 1).data[61:],
    )
    survey = Survey(0)
    batches = [secret, *split(memoryview(marked))]
    assert all(survey.add(batch) for batch in batches)
    rewriter = Rewriter(survey, now_ms=1 << 50, delete_retention_ms=0)
    assert [rewriter.rewrite(batch, keep=False) for batch in batches] == [
        batch.data for batch in batches
    ]
    assert rewriter.statistics.unreadable_batches == 1


def test_nobody_elses_stamp_is_believed() -> None:
    """A tombstone that no round has surveyed stays, whatever time its producer has written
    there."""
    data = batch_of([Record(None, b"a")], 2)
    forged = split(
        memoryview(rebuilt(data.header._replace(attributes=DELETE_HORIZON_BIT), data.data[61:]))
    )[0]
    survey = Survey(0, 1)
    assert survey.add(batch_of([Record(b"v", b"other")], 0))
    assert not survey.add(forged)
    rewriter = Rewriter(survey, now_ms=1 << 50, delete_retention_ms=0)
    assert rewriter.rewrite(forged, keep=False) is forged.data


def test_the_logs_own_time_stays() -> None:
    batch = batch_of([Record(b"1", b"k", 10), Record(b"2", b"k", 20), Record(None, b"t", 30)])
    batch = split(stamped(batch, 777))[0]
    survey = Survey(0)
    assert survey.add(batch)
    left = Rewriter(survey, now_ms=5_000, delete_retention_ms=9).rewrite(batch, keep=False)
    assert left is not None
    assert [one.timestamp_ms for one in records_of(split(left))] == [777, 777]
    assert parse_header(left).max_timestamp_ms == 777
