"""The files of an export, and what is sent for their batches; without a cluster."""

import itertools
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.backup import batch_files, manifest
from cli.backup.batch_files import DamagedBatchError, Tally
from cli.backup.manifest import ExportError, Manifest, Part
from cli.backup.pieces import (
    JOINED_BYTES,
    SMALL_BYTES,
    Piece,
    pieces,
    record_number,
    records_of,
    within,
)
from wire.records.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Batch,
    Compression,
    Record,
    parse_header,
    produced_batch,
)
from wire.records.batch_writer import BatchWriter
from wire.records.compression import compress
from wire.records.spans import rebuilt


def batch(
    base: int,
    deltas: list[int],
    *,
    codec: Compression = Compression.NONE,
    attributes: int = 0,
    size: int = 5,
    last: int | None = None,
) -> Batch:
    """Records at these places behind the base offset, as compaction leaves them."""
    writer = BatchWriter()
    numbered = bytearray()
    for delta in deltas:
        one = BatchWriter()
        record = Record(b"v%d" % (base + delta) + b"." * size, b"k", 1_000 + delta, (("h", b"x"),))
        for _ in range(delta):
            one.append(Record(b""))
        one.payload.clear()
        one.base_timestamp_ms = 1_000
        one.append(record)
        numbered += one.payload
    writer.payload[:] = numbered
    writer.count = len(deltas)
    writer.base_timestamp_ms, writer.max_timestamp_ms = 1_000, 1_000 + max(deltas)
    data = writer.seal(compress(bytes(numbered), codec), base_offset=base, compression=codec)
    header = parse_header(memoryview(data))
    header = header._replace(
        last_offset_delta=max(deltas) if last is None else last,
        attributes=header.attributes | attributes,
        producer_id=77,
        producer_epoch=3,
        base_sequence=9,
    )
    data = rebuilt(header, data[61:])
    return Batch(parse_header(memoryview(data)), memoryview(data))


def sent(found: list[Piece]) -> list[Record]:
    """What a broker would store, which accepts each batch."""
    records = []
    for piece in found:
        data = memoryview(piece.sealed(5, 0, piece.first))
        accepted = produced_batch(data)
        assert accepted.header.record_count == piece.count
        assert accepted.header.producer_id == 5
        assert accepted.header.base_sequence == piece.first
        assert not accepted.header.attributes & TRANSACTIONAL_BIT
        records += [
            record._replace(offset=piece.first + record.offset) for record in records_of(accepted)
        ]
    return records


def wanted(batches: list[Batch], skip: int = 0) -> list[Record]:
    data = [one for one in batches if not one.header.attributes & CONTROL_BIT]
    records = [record for one in data for record in records_of(one)]
    return [one._replace(offset=number) for number, one in enumerate(records)][skip:]


CASES = {
    "as it was": [batch(0, [0, 1, 2])],
    "small ones": [batch(3 * n, [0, 1, 2]) for n in range(40)],
    "gaps": [batch(10, [0, 3, 4]), batch(20, [1], last=7), batch(40, [0, 1])],
    "codecs": [batch(10 * n, [0, 1], codec=codec) for n, codec in enumerate(Compression)],
    "log time": [batch(0, [0, 1], attributes=LOG_APPEND_TIME_BIT), batch(2, [0])],
    "transactions": [
        batch(0, [0, 1], attributes=TRANSACTIONAL_BIT),
        batch(2, [0], attributes=TRANSACTIONAL_BIT | CONTROL_BIT),
        batch(3, [0]),
    ],
    "large ones": [
        batch(0, [0, 2], size=SMALL_BYTES),
        batch(4, [0, 1], size=SMALL_BYTES),
        batch(6, [0]),
        batch(7, [0], size=JOINED_BYTES),
        batch(8, [0]),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_every_record_is_sent_once_in_order(case: str) -> None:
    """From the beginning, and from wherever an import was interrupted."""
    batches = CASES[case]
    everything = wanted(batches)
    for skip in range(len(everything) + 1):
        assert sent(list(pieces(batches, skip))) == everything[skip:], skip


@given(
    rows=st.lists(
        st.tuples(
            st.sets(st.integers(0, 12), min_size=1, max_size=6),
            st.sampled_from(list(Compression)),
            st.sampled_from([0, 0, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT]),
            st.integers(0, 300),
        ),
        max_size=8,
    ),
    skip=st.integers(0, 50),
    bytes_max=st.integers(0, 2_000),
)
def test_whatever_the_batches_are(
    rows: list[tuple[set[int], Compression, int, int]], skip: int, bytes_max: int
) -> None:
    batches = []
    base = 5
    for deltas, codec, attributes, size in rows:
        batches.append(batch(base, sorted(deltas), codec=codec, attributes=attributes, size=size))
        base += max(deltas) + 1
    assert sent(list(pieces(batches, skip, bytes_max))) == wanted(batches, skip)


def test_small_batches_are_joined_and_large_ones_are_not() -> None:
    found = list(pieces(CASES["small ones"]))
    assert [one.count for one in found] == [120]
    assert [one.count for one in pieces(CASES["large ones"])] == [2, 2, 1, 1, 1]


def test_an_offset_becomes_the_number_of_records_before_it() -> None:
    batches = CASES["gaps"]  # 10, 13, 14, then 21, then 40, 41
    offsets = [0, 10, 11, 13, 14, 15, 20, 21, 22, 40, 41, 42, 99]
    found = record_number(batches, offsets)
    assert [found[one] for one in offsets] == [0, 0, 1, 1, 2, 3, 3, 3, 4, 4, 5, 6, 6]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_without_the_records_that_were_trimmed(codec: Compression) -> None:
    """Brokers deliver whole batches; what was deleted is not in a backup."""
    whole = batch(10, [0, 2, 3], codec=codec)
    every = records_of(whole)
    for first in range(9, 16):
        for end in range(first, 16):
            kept = within(whole, first, end)
            expected = [one for one in every if first <= one.offset < end]
            assert ([] if kept is None else records_of(kept)) == expected
            if kept is not None:
                assert not batch_files.why_unusable(kept)
                assert kept.header.max_timestamp_ms == max(one.timestamp_ms for one in expected)


# --- files ---------------------------------------------------------------------------------------


def part_of(path: Path, batches: list[Batch], first: int = 0) -> Part:
    part = Part(partition=0, first=first, end=batches[-1].header.last_offset + 1)
    tally = Tally(first)
    with path.open("wb") as file:
        for one in batches:
            file.write(one.data)
            tally.add(one)
    tally.store(part)
    return part


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "p"
    part = part_of(path, CASES["gaps"])
    batch_files.check(tmp_path, part, "p")
    good = path.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x41
        path.write_bytes(bad)
        with pytest.raises(ExportError, match="damaged"):
            batch_files.check(tmp_path, part, "p")


def test_a_file_of_another_length_is_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "p"
    part = part_of(path, CASES["gaps"])
    good = path.read_bytes()
    for data in (good[:-1], good[: CASES["gaps"][0].header.size], b"", good + b"x"):
        path.write_bytes(data)
        with pytest.raises(ExportError, match="incomplete"):
            batch_files.check(tmp_path, part, "p")
    path.unlink()
    with pytest.raises(ExportError, match="missing"):
        batch_files.check(tmp_path, part, "p")


def test_an_interrupted_file_is_continued_behind_its_last_whole_batch(tmp_path: Path) -> None:
    path = tmp_path / "p"
    batches = CASES["gaps"]
    part_of(path, batches)
    good = path.read_bytes()
    ends = [0, *itertools.accumulate(one.header.size for one in batches)]
    offsets = [10, *(one.header.last_offset + 1 for one in batches)]
    for length in range(len(good) + 1):
        path.write_bytes(good[:length])
        tally = batch_files.resume(path, 10)
        whole = max(at for at, end in enumerate(ends) if end <= length)
        assert (path.stat().st_size, tally.next_offset) == (ends[whole], offsets[whole])
        assert tally.batches == whole


def test_batches_out_of_order_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "p"
    one, two, _ = CASES["gaps"]
    path.write_bytes(bytes(two.data) + bytes(one.data))
    with pytest.raises(DamagedBatchError, match="out of order"):
        list(batch_files.batches(path))


def plan() -> Manifest:
    return Manifest(
        topic="t",
        topic_id="00",
        cluster_id="c",
        replication=3,
        settings={"retention.ms": "5"},
        began="2026-01-01",
        parts=[Part(partition=0, first=0, end=4), Part(partition=1, first=2, end=2)],
    )


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    assert manifest.read(tmp_path) is None
    manifest.write(tmp_path, plan())
    assert manifest.read(tmp_path) == plan()
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version": 1', '"version": 2'),
        ("evenkeel-topic-export", "a shopping list"),
        ('"partition": 1', '"partition": 2'),
        ('"first": 2', '"first": 3'),
        ('"topic": "t",', ""),
        ("{", "["),
        ('"topic": "t"', '"tropic": "t"'),
    ],
)
def test_another_manifest_is_refused(tmp_path: Path, old: str, new: str) -> None:
    manifest.write(tmp_path, plan())
    path = tmp_path / manifest.NAME
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ExportError, match=r"manifest\.json"):
        manifest.read(tmp_path)
    shutil.rmtree(tmp_path)
