"""One damaged byte of a record's header is corrected; anything more is not guessed at."""

from random import Random

from paxos.ids import Ballot, GroupId
from storage.disk.files import read_around
from storage.disk.memory import MemoryDisk
from storage.format import RECORD, RECORD_HEADER_BYTES, decode_segment_header, segment_name
from storage.log.header_repair import repaired_header
from tests.storage.log_maker import NODE, Author, accept, entries_of, start, sync

GROUP = GroupId(1)
SEGMENT = segment_name(1)


def made() -> tuple[MemoryDisk, int, list[int]]:
    """A log, its seed, and the positions of its records."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    places = [wal.stage(record) & 0xFFFFFFFF for record in Author(Random(3)).records(6)]
    sync(wal)
    header = decode_segment_header(read_around(disk.open(SEGMENT), 4096, 0))
    assert header is not None
    return disk, header.seed, places


def test_any_byte_of_a_header_is_found_again() -> None:
    disk, seed, places = made()
    for place in places:
        truth = RECORD.unpack(read_around(disk.open(SEGMENT), RECORD_HEADER_BYTES, place))
        for at in range(8, RECORD_HEADER_BYTES):
            for mask in (0x01, 0x80, 0x5A, 0xFF):
                hurt = disk.clone()
                hurt.corrupt(SEGMENT, place + at, mask)
                found = repaired_header(hurt.open(SEGMENT), place, seed, None, 1 << 20)
                assert found == truth, (place, at, mask)
                before = truth[6]
                file = hurt.open(SEGMENT)
                assert repaired_header(file, place, seed, before, 1 << 20) == truth
                assert repaired_header(file, place, seed, before ^ 1, 1 << 20) is None


def test_what_the_record_does_not_confirm_is_not_taken_for_its_header() -> None:
    """The header's own checksum would match; but the payload is damaged as well, or the log ends in
    it."""
    disk, seed, places = made()
    sizes = {at: RECORD.unpack(read_around(disk.open(SEGMENT), 64, at))[5] for at in places}
    place = max(sizes, key=lambda at: sizes[at])
    assert sizes[place] > 0
    disk.corrupt(SEGMENT, place + 20, 0x10)
    file = disk.open(SEGMENT)
    assert repaired_header(file, place, seed, None, 1 << 20) is not None
    whole = place + RECORD_HEADER_BYTES + sizes[place]
    assert repaired_header(file, place, seed, None, whole) is not None
    assert repaired_header(file, place, seed, None, whole - 1) is None
    disk.corrupt(SEGMENT, place + RECORD_HEADER_BYTES, 0x01)
    assert repaired_header(disk.open(SEGMENT), place, seed, None, 1 << 20) is None


def test_garbage_is_no_header() -> None:
    disk, seed, places = made()
    dice = Random(7)
    for _ in range(300):
        hurt = disk.clone()
        for at in range(RECORD_HEADER_BYTES):
            hurt.corrupt(SEGMENT, places[2] + at, dice.randrange(256))
        assert repaired_header(hurt.open(SEGMENT), places[2], seed, None, 1 << 20) is None


# -- at a restart ---------------------------------------------------------------------------------


def test_a_damaged_byte_of_a_header_is_the_business_of_its_own_group() -> None:
    """Each byte, in the segment being written; slot 1 of group 2 is not proven chosen."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    places = [wal.stage(accept(1, b"one", group=group)) for group in (1, 2, 3)]
    sync(wal)
    for at in range(8, RECORD_HEADER_BYTES):
        broken = disk.clone()
        broken.corrupt(segment_name(1), (places[1] & 0xFFFFFFFF) + at, 0xFF)
        _, recovered = start(broken)
        voting = {group: found.voting for group, found in recovered.groups.items()}
        assert voting == {1: True, 2: False, 3: True}, at
        assert recovered.groups[GroupId(2)].floor == Ballot(1, NODE), "the header told the promise"
        (hole,) = recovered.damage
        assert (hole.group, hole.slot) == (2, 1)


def test_a_flipped_bit_in_the_header_of_a_chosen_slot_costs_nobody_a_vote() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    place = wal.stage(accept(1, b"one"))
    wal.stage(accept(2, b"two", applied=1))
    wal.stage(accept(1, b"other", group=2))
    sync(wal)
    for at in range(8, RECORD_HEADER_BYTES):
        broken = disk.clone()
        broken.corrupt(segment_name(1), (place & 0xFFFFFFFF) + at, 0x04)
        wal, recovered = start(broken)
        assert all(found.voting for found in recovered.groups.values()), at
        assert entries_of(wal, GROUP) == {2: b"\x01two"}, "it is known, and not given out"


def test_two_damaged_bytes_of_a_header_are_not_guessed_at() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    place = wal.stage(accept(1, b"one"))
    wal.stage(accept(2, b"two", applied=1))
    sync(wal)
    dice = Random(5)
    for _ in range(500):
        broken = disk.clone()
        for at in dice.sample(range(8, RECORD_HEADER_BYTES), 2):
            broken.corrupt(segment_name(1), (place & 0xFFFFFFFF) + at, 1 << dice.randrange(8))
        _, recovered = start(broken)
        assert recovered.unattributed
