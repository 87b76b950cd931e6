"""The two halves of the running log: staging, immediate reads, writing, failing, retiring."""

import errno
import os
import threading
from pathlib import Path
from queue import SimpleQueue
from random import Random

import attrs
import pytest

from paxos.entry import NOOP, BeMaster, EntryKind, batch, be_master
from paxos.ids import Ballot, GroupId, Incarnation, NodeId, Slot
from paxos.step import AcceptRecord, Record
from storage.disk.descriptors import DESCRIPTORS, KEPT_OPEN_MAX, KEPT_OPEN_MIN, SHARE
from storage.disk.files import RealDisk
from storage.disk.memory import MemoryDisk, MemoryFile
from storage.errors import DiskFull, NoSegment, NotInLog, StorageFailed
from storage.format import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    decode_segment_header,
    segment_name,
)
from storage.identity import boot
from storage.log.model import Durability, WalConfig, WriteBatch
from storage.log.opening import open_wal
from storage.log.wal import Wal
from storage.log.walk import Cursor, Hole, survey
from tests.storage.log_maker import (
    CLUSTER,
    NODE,
    SMALL,
    Author,
    accept,
    encoded,
    entries_of,
    images,
    promise,
    start,
    sync,
)

GROUP = GroupId(1)


def read_all_ways(wal: Wal, group: GroupId) -> dict[int, bytes]:
    """By entry, by span, by replay: all three agree."""
    entries = entries_of(wal, group)
    for first in sorted(entries):
        last = first
        while last + 1 in entries:
            last += 1
        replayed = list(wal.replay(group, Slot(first), Slot(last)))
        assert {slot: encoded(entry) for slot, entry, _ in replayed} == {
            slot: data for slot, data in entries.items() if first <= slot <= last
        }
        for slot, _, position in replayed:
            assert position == wal.payload_position(group, slot)
    return entries


def test_everything_can_be_read_from_the_moment_of_staging() -> None:
    """Before the batch is taken, in flight, and after it is written; over several segments."""
    wal, _ = start(MemoryDisk())
    author = Author(Random(2))
    records: list[Record] = []
    in_flight: list[WriteBatch] = []
    for round_ in range(40):
        for record in author.records(3):
            records.append(record)
            wal.stage(record)
        expected = images(records)[-1]
        for number, group in expected.items():
            assert read_all_ways(wal, GroupId(number)) == group.entries
        taken = wal.take()
        assert taken is not None
        in_flight.append(taken)
        if round_ % 3 == 2:  # several batches under way, then all of them done
            for one in in_flight:
                wal.write(one)
                wal.written(one)
            in_flight.clear()
    assert wal.statistics().segments > 3


def test_a_span_may_hold_many_records_half_of_them_unwritten() -> None:
    """Fetch merges neighbours into one read, whatever is between them and wherever they are."""
    wal, _ = start(MemoryDisk())
    chunks = (b"one", memoryview(b"-two-"), bytearray(b"three"))
    for slot in range(1, 9):
        entry = batch((*chunks, str(slot).encode()))
        wal.stage(AcceptRecord(GROUP, Slot(slot), Ballot(1, NODE), entry, Slot(0)))
        if slot == 4:
            sync(wal)
    first = wal.payload_position(GROUP, Slot(1))
    end = wal.payload_position(GROUP, Slot(8)) + wal.find(GROUP, Slot(8))[1]
    mixed = bytes(wal.read_span(first, end - first))
    assert [mixed.count(b"one-two-three" + str(slot).encode()) for slot in range(1, 9)] == [1] * 8
    for start_ in range(0, len(mixed), 5):
        for size in (0, 1, 3, 90, len(mixed) - start_):
            size = min(size, len(mixed) - start_)
            assert wal.read_span(first + start_, size) == mixed[start_ : start_ + size]
    sync(wal)
    assert bytes(wal.read_span(first, end - first)) == mixed


def fill(wal: Wal, segments: int) -> int:
    """Stage entries until the log has that many segments; returns the last slot."""
    slot = 0
    while wal.statistics().segments < segments:
        slot += 1
        wal.stage(accept(slot, bytes(300), applied=slot - 1))
    return slot


def test_only_what_is_durable_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read shows the file as of its beginning: data not yet written would be missing."""
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(MemoryFile, "read_soon", lambda _, size, at: begun.append((size, at)))
    wal, _ = start(MemoryDisk())
    slot = fill(wal, 3)
    first, second = (wal.payload_position(GROUP, Slot(one)) for one in (1, 2))
    wal.read_soon(first, 300)
    wal.read_soon(wal.end, 1)
    assert begun == []
    sync(wal)
    wal.stage(accept(slot + 1, applied=slot - 1))
    wal.read_soon(first, 300)
    wal.read_soon(second, 300)
    wal.read_soon(wal.payload_position(GROUP, Slot(slot)), wal.find(GROUP, Slot(slot))[1])
    wal.read_soon(wal.payload_position(GROUP, Slot(slot + 1)), 1)
    assert [size for size, _ in begun] == [300, 300, wal.find(GROUP, Slot(slot))[1]]
    assert begun[1][1] - begun[0][1] == second - first
    assert wal.retire({GROUP: Slot(slot)}) > 0
    wal.read_soon(first, 300)
    assert len(begun) == 3, "it is not in the log any more"


def test_a_segment_that_cannot_be_opened_is_told_to_whoever_reads_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading ahead is a guess after the answer, where no caller expects an error."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    fill(wal, KEPT_OPEN_MAX + 3)
    sync(wal)
    first = wal.payload_position(GROUP, Slot(1))

    def refused(name: str) -> MemoryFile:
        raise StorageFailed("open", name, OSError(errno.EMFILE, "too many open files"))

    monkeypatch.setattr(disk, "open", refused)
    wal.read_soon(first, 300)
    with pytest.raises(StorageFailed, match="too many"):
        wal.read_span(first, 300)


def test_a_span_that_was_read_ahead_and_retired_is_refused() -> None:
    wal, _ = start(MemoryDisk())
    slot = fill(wal, 3)
    sync(wal)
    first = wal.payload_position(GROUP, Slot(1))
    wal.read_soon(first, 300)
    assert wal.retire({GROUP: Slot(slot)}) > 0
    with pytest.raises(NotInLog):
        wal.read_span(first, 300)


def test_spans_outside_the_log_are_refused() -> None:
    wal, _ = start(MemoryDisk())
    place = wal.stage(accept(1))
    for position, size in ((place, 10_000), (wal.end, 1), (0, 1), (place, -1)):
        with pytest.raises(NotInLog):
            wal.read_span(position, size)
    for group, slot in ((1, 0), (1, 2), (9, 1)):
        with pytest.raises(NotInLog):
            wal.read_entry(GroupId(group), Slot(slot))


@pytest.mark.parametrize("written", [0, 1, 2])
def test_what_is_staged_ends_where_its_segment_does(written: int) -> None:
    """A caller that reads in large pieces asks for more than there is (simulator seed 116)."""
    wal, _ = start(MemoryDisk())
    for slot in range(1, written + 1):
        wal.stage(accept(slot, bytes(300)))
        sync(wal)
    slot = written
    while wal.statistics().segments < 2:
        slot += 1
        ended = wal.end
        wal.stage(accept(slot, bytes(300)))
    first = wal.payload_position(GROUP, Slot(1))
    assert len(wal.read_span(first, ended - first)) == ended - first
    for more in (1, 200, 100_000):
        with pytest.raises(NotInLog, match="ends at"):
            wal.read_span(first, ended - first + more)


def test_entries_are_kept_by_reference_and_come_back_as_they_were() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    lease = be_master(BeMaster(NodeId(2), Incarnation(5), Slot(3), 10**18))
    large = bytes(range(256)) * 8
    kinds = (NOOP, lease, batch((large,)))
    for slot, entry in enumerate(kinds, 1):
        wal.stage(AcceptRecord(GROUP, Slot(slot), Ballot(1, NODE), entry, Slot(0)))
    taken = wal.take()
    assert taken is not None
    assert any(buffer is large for part in taken.parts for buffer in part.buffers)
    assert wal.read_entry(GROUP, Slot(3)) is kinds[2]
    wal.write(taken)
    wal.written(taken)
    disk.close()
    wal, _ = start(disk)
    found = [wal.read_entry(GROUP, Slot(slot)) for slot in (1, 2, 3)]
    assert [entry.kind for entry in found] == [EntryKind.NOOP, EntryKind.BE_MASTER, EntryKind.BATCH]
    assert found[1].control == lease.control
    assert all(one.same_as(other) for one, other in zip(found, kinds, strict=True))


def test_nothing_staged_is_nothing_to_write() -> None:
    wal, _ = start(MemoryDisk())
    assert wal.take() is None
    wal.stage(promise(1))
    assert wal.take() is not None
    assert wal.take() is None


def test_one_fdatasync_makes_all_groups_durable() -> None:
    wal, _ = start(MemoryDisk(), WalConfig(segment_bytes=1 << 16))
    for group in range(20):
        for slot in range(1, 4):
            wal.stage(accept(slot, group=group))
    before = wal.statistics()
    assert before.bytes_unwritten > 0
    sync(wal)
    after = wal.statistics()
    assert (after.syncs - before.syncs, after.batches - before.batches) == (1, 1)
    assert after.records == 60
    assert after.bytes_unwritten == 0
    assert after.synced == after.end == wal.synced


def test_the_unsafe_mode_never_claims_to_be_synced() -> None:
    config = WalConfig(segment_bytes=4096, durability=Durability.UNSAFE_NONE)
    disk = MemoryDisk()
    wal, _ = start(disk, config)
    begin = wal.synced
    for slot in range(1, 30):
        wal.stage(accept(slot, bytes(300)))
        sync(wal)
    figures = wal.statistics()
    assert (figures.syncs, figures.synced, figures.bytes_unwritten) == (0, begin, 0)
    assert figures.durability.value == "unsafe-none"
    disk.kill()
    wal, recovered = start(disk, config)
    assert len(entries_of(wal, GROUP)) == 29, "a crash of the process loses nothing"
    assert recovered.cut is None


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
def test_a_failed_write_is_final(operation: str) -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1))
    taken = wal.take()
    assert taken is not None
    disk.fail(operation, errno.EIO)
    for _ in range(2):  # the second time the disk would report success
        with pytest.raises(StorageFailed) as caught:
            wal.write(taken)
        assert caught.value.operation == operation
        assert not isinstance(caught.value, DiskFull)


def test_a_full_disk_stops_the_preparation_and_not_the_log() -> None:
    """Prepared segments are filled to the end, and freed space is used."""
    disk = MemoryDisk(capacity_bytes=3 * 4096)
    wal, _ = start(disk)
    with pytest.raises(DiskFull):
        wal.prepare_next()
    assert wal.wants_segment
    wal.stage(accept(1))
    sync(wal)
    disk.capacity_bytes = None
    assert wal.prepare_next()
    assert not wal.wants_segment
    assert not wal.prepare_next()
    left = wal.statistics().bytes_left
    assert left == 2 * 4096 - (wal.end & 0xFFFFFFFF)
    disk.capacity_bytes = 0  # the segment prepared ahead needs no more space
    while wal.statistics().segments == 1:
        wal.stage(accept(2, bytes(500)))
    sync(wal)


def test_a_prepared_segment_needs_no_new_file_on_the_hot_path() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    assert wal.prepare_next()
    names = disk.names()
    for slot in range(1, 10):
        wal.stage(accept(slot, bytes(500)))
    disk.fail("open", errno.EMFILE)
    sync(wal)
    assert wal.statistics().segments == 2
    assert disk.names() == names


def test_retired_positions_cannot_be_read() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    slot = fill(wal, 4)
    sync(wal)
    old = wal.payload_position(GROUP, Slot(1))
    assert wal.retire({}) == 0
    assert wal.retire({GROUP: Slot(1)}) == 0
    assert wal.retire({GROUP: Slot(slot)}) == 3
    with pytest.raises(NotInLog):
        wal.read_span(old, 10)
    with pytest.raises(NotInLog):
        wal.read_entry(GROUP, Slot(1))
    assert wal.slots(GROUP).start > 1
    assert segment_name(1) in disk.names(), "not before the log itself says so, durably"
    assert wal.statistics().bytes_unwritten > 0
    sync(wal)
    wal.prepare_next()
    names = [name for name in disk.names() if name.startswith("segment")]
    assert names == [segment_name(number) for number in (2, 3, 4, 5)]


def test_a_group_that_is_not_applied_keeps_its_segments() -> None:
    wal, _ = start(MemoryDisk())
    wal.stage(accept(1, group=2))
    for slot in range(1, 40):
        wal.stage(accept(slot, bytes(300)))
    sync(wal)
    assert wal.retire({GROUP: Slot(39)}) == 0
    assert wal.retire({GROUP: Slot(39), GroupId(2): Slot(1)}) > 0


def test_more_segments_than_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest descriptors are closed, and reopened when needed; how many stay open depends on
    the process's limit."""
    disk = RealDisk(tmp_path)
    wal, _ = start(disk)
    slot = 0
    while wal.statistics().segments <= KEPT_OPEN_MAX + 5:
        slot += 1
        wal.stage(accept(slot, bytes(2500)))
    sync(wal)
    assert len(read_all_ways(wal, GROUP)) == slot
    monkeypatch.setattr(DESCRIPTORS, "kept_open_max", DESCRIPTORS.kept_open_max)
    open_before = files_open(tmp_path)
    assert open_before >= KEPT_OPEN_MAX
    DESCRIPTORS.fit(128)
    assert files_open(tmp_path) <= open_before - KEPT_OPEN_MAX + 2 * 128 // SHARE
    assert len(read_all_ways(wal, GROUP)) == slot
    assert files_open(tmp_path) <= open_before - KEPT_OPEN_MAX + 2 * 128 // SHARE
    DESCRIPTORS.fit(20)
    assert DESCRIPTORS.kept_open_max == KEPT_OPEN_MIN
    disk.close()


def files_open(directory: Path) -> int:
    """This process's open descriptors for files in it."""
    own = Path("/proc/self/fd")
    return sum(str(directory) in os.readlink(one) for one in own.iterdir() if one.is_symlink())


def test_our_own_bugs_stop_the_node() -> None:
    """A ballot that goes back, a slot out of all range."""
    wal, _ = start(MemoryDisk())
    wal.stage(promise(5))
    with pytest.raises(AssertionError, match="after a promise"):
        wal.stage(accept(1, round_=4))
    with pytest.raises(AssertionError, match="slot"):
        wal.stage(accept(1 << 30, round_=5))


def test_an_entry_larger_than_a_segment_gets_one_made_to_measure() -> None:
    """A peer's entry may be as large as the protocol allows, whatever our own configuration
    says."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    sizes = (10, 5_000, 20, 70_000, 9_000, 30)
    for slot, size in enumerate(sizes, 1):
        wal.stage(accept(slot, bytes([slot]) * size, applied=slot - 1))
        if slot % 2:
            sync(wal)
    sync(wal)
    written = read_all_ways(wal, GROUP)
    assert [len(data) for data in written.values()] == [1 + size for size in sizes]
    disk.kill()
    wal, recovered = start(disk)
    assert recovered.cut is None
    assert read_all_ways(wal, GROUP) == written
    for number in wal.kept():
        file, header, end = wal.scrub_target(number)
        assert file.size() == header.size
        assert end <= header.size
    wal.retire({GROUP: Slot(4)})
    sync(wal)
    wal.prepare_next()
    assert disk.open(segment_name(max(wal.kept()) + 1)).size() == SMALL.segment_bytes


def test_what_is_not_written_yet_is_not_checked() -> None:
    """While a disk hangs, segments fill up in memory. If the scrubber took what their files lack
    for damage, it would cost votes (whole nodes, seeds 718 and 880)."""
    wal, _ = start(MemoryDisk())
    wal.stage(accept(1, b"written"))
    sync(wal)
    _, _, end = wal.scrub_target(1)
    taken = []
    slot = 2
    while max(wal.kept()) < 3:
        wal.stage(accept(slot, bytes(900), applied=slot - 1))
        batch_ = wal.take()
        assert batch_ is not None
        taken.append(batch_)
        slot += 1
    assert wal.scrub_target(1)[2] == end
    for number in (2, 3):
        with pytest.raises(NotInLog, match="not written yet"):
            wal.scrub_target(number)
    for batch_ in taken:
        wal.write(batch_)
        wal.written(batch_)
    for number in wal.kept():
        file, header, end = wal.scrub_target(number)
        cursor = Cursor(SEGMENT_HEADER_BYTES, header.seed)
        found = list(survey(file, header, cursor, end))
        assert found
        assert not [one for one in found if isinstance(one, Hole)]


def test_a_full_disk_has_no_room_for_one_made_to_measure() -> None:
    disk = MemoryDisk(capacity_bytes=6 * SMALL.segment_bytes)
    wal, _ = start(disk)
    wal.stage(accept(1, bytes(30_000)))
    batch_ = wal.take()
    assert batch_ is not None
    with pytest.raises(NoSegment):
        wal.write(batch_)
    disk.capacity_bytes = 1 << 20
    wal.write(batch_)
    wal.written(batch_)
    disk.kill()
    assert len(read_all_ways(start(disk)[0], GROUP)[1]) == 30_001


def test_the_first_bytes_of_a_log_are_what_the_format_says() -> None:
    """Golden bytes: a change of them is a change of the format version."""
    disk = MemoryDisk()
    wal, _ = open_wal(disk, boot(disk, "golden", NodeId(1)), SMALL)
    wal.stage(AcceptRecord(GroupId(2), Slot(3), Ballot(4, NodeId(5)), batch((b"data",)), Slot(1)))
    sync(wal)
    content = disk.content(segment_name(1))
    assert content[:132].hex() == GOLDEN_HEADER
    assert content[:256] == content[256:512] == content[:132].ljust(256, b"\0")
    assert content[512 : 512 + RECORD_HEADER_BYTES + 5].hex() == GOLDEN_RECORD
    assert not any(content[512 + RECORD_HEADER_BYTES + 5 :])


def test_a_log_of_the_format_before_is_read_and_goes_on_in_this_one() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1, b"old"))
    sync(wal)
    disk.close()
    file = disk.open(segment_name(1))
    header = decode_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0))
    assert header is not None
    file.pwritev([attrs.evolve(header, version=2).encode()], 0)
    wal, recovered = start(disk)
    assert sorted(recovered.groups[GROUP].votes) == [1]
    while wal.statistics().segments == 1:
        wal.stage(accept(2, bytes(700)))
    sync(wal)
    header = decode_segment_header(disk.content(segment_name(2)))
    assert header is not None
    assert header.version == 3


GOLDEN_HEADER = (
    "4556454e4b45454c0000000300000200000000000000000100000000000010000000000000000000"
    "000000000000000148cc99f7000000010000000000000001676f6c64656e00000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0000000000000000155e8a56"
)
GOLDEN_RECORD = (
    "5037c40834a48903e7b102000000000548cc99f70000020000000001000002000000000200000005"
    "0000000000000004000000000000000300000000000000010164617461"
)


@attrs.define
class Threads:
    """A writer and a preparer, as in the shell."""

    wal: Wal
    batches: "SimpleQueue[WriteBatch | None]" = attrs.Factory(SimpleQueue)
    done: "SimpleQueue[WriteBatch]" = attrs.Factory(SimpleQueue)
    stop: threading.Event = attrs.Factory(threading.Event)

    def write(self) -> None:
        while (batch_ := self.batches.get()) is not None:
            self.wal.write(batch_)
            self.done.put(batch_)

    def prepare(self) -> None:
        while not self.stop.wait(0.0005):
            if self.wal.wants_segment:
                self.wal.prepare_next()


def test_loop_writer_and_preparer_in_three_threads(tmp_path: Path) -> None:
    """Staging and reading never wait, while segments roll, retire and are recycled."""
    disk = RealDisk(tmp_path)
    wal, _ = start(disk, WalConfig(segment_bytes=1 << 16))
    threads = Threads(wal)
    running = [threading.Thread(target=part) for part in (threads.write, threads.prepare)]
    for thread in running:
        thread.start()
    dice = Random(5)
    slot, outstanding, kept = 0, 0, {}
    while slot < 4000:
        for _ in range(dice.randrange(1, 20)):
            slot += 1
            kept[slot] = dice.randbytes(dice.randrange(400))
            wal.stage(accept(slot, kept[slot], applied=slot - 1))
        if (taken := wal.take()) is not None:
            threads.batches.put(taken)
            outstanding += 1
        while outstanding > 2 or not threads.done.empty():
            wal.written(threads.done.get())
            outstanding -= 1
        wal.retire({GROUP: Slot(slot - 800)})
        slots = wal.slots(GROUP)
        for number in (slots.start, dice.choice(slots), slot):
            data = kept[number]
            assert encoded(wal.read_entry(GROUP, Slot(number))) == b"\x01" + data
            position = wal.payload_position(GROUP, Slot(number))
            assert wal.read_span(position + 1, len(data)) == data
    threads.batches.put(None)
    threads.stop.set()
    for thread in running:
        thread.join()
    while not threads.done.empty():
        wal.written(threads.done.get())
    sync(wal)  # perhaps the last one about retired segments
    first = wal.slots(GROUP).start
    disk.close()
    wal, recovered = open_wal(disk := RealDisk(tmp_path), boot(disk, CLUSTER, NODE), SMALL)
    assert recovered.cut is None
    assert recovered.groups[GROUP].retained_from == first
    found = read_all_ways(wal, GROUP)
    assert found == {number: b"\x01" + kept[number] for number in range(first, slot + 1)}
    disk.close()
