"""What a restart makes of a log: whole, cut, torn, flipped, recycled, crashed at any moment.

The one rule under test: a restart finds exactly the records of some prefix of what was staged, with
at least all synced ones; or it refuses. It never finds another value, and never silently less.
"""

from bisect import bisect_right
from collections import Counter
from random import Random

import attrs
import pytest

from paxos.ids import Ballot, GroupId, Slot
from paxos.step import PromiseRecord, Record, VotingRecord
from storage.disk.memory import MemoryDisk, PowerCut
from storage.errors import (
    DirectoryRefused,
    NotInLog,
    WalDamaged,
)
from storage.format import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, segment_name
from storage.identity import IDENTITY_COPY_NAME, IDENTITY_NAME, boot
from storage.log.model import WalConfig
from storage.log.opening import open_wal
from storage.log.synced_mark import MARK_NAME
from tests.storage.log_maker import (
    CLUSTER,
    NODE,
    SMALL,
    Author,
    Image,
    accept,
    concerned,
    differences,
    encoded,
    entries_of,
    image_of,
    images,
    is_salvaged,
    learned,
    promise,
    start,
    sync,
)

GROUP = GroupId(1)


@attrs.frozen
class Scene:
    """A log as a killed process left it: some records are synced, later ones written but not
    synced."""

    disk: MemoryDisk
    images: list[Image]
    synced: int

    def prefix_of(self, disk: MemoryDisk) -> int | None:
        """Restart on `disk`; returns which prefix of the records was found. None: some are damaged,
        the restart knows it, and everything readable is right."""
        wal, recovered = start(disk)
        found = image_of(wal, recovered)
        if recovered.damage:
            hit = concerned(recovered, range(8))
            prefixes = self.images[self.synced :]
            assert any(is_salvaged(found, hit, image) for image in prefixes), recovered.damage
            position = None
        else:
            assert found in self.images, differences(found, self.images[-1])
            position = max(at for at, image in enumerate(self.images) if image == found)
            assert position >= self.synced, f"{self.synced} were synced, {position} are left"
        # and after any of this it can be written to and restarted from
        wal.stage(accept(99, b"after", group=5))
        sync(wal)
        disk.close()
        wal, recovered = start(disk)
        after = image_of(wal, recovered)
        assert after.pop(5).entries == {99: b"\x01after"}
        assert after == found
        assert not recovered.damage, "found a second time"
        return position


def scene(*, segments: int) -> Scene:
    """A log of one or more small segments with an unsynced tail."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    author = Author(Random(4), size_max=40)
    records: list[Record] = []
    while wal.statistics().segments < segments or len(records) < 12:
        for record in author.records(4):
            records.append(record)
            wal.stage(record)
        sync(wal)
    synced = len(records)
    for record in author.records(3):
        records.append(record)
        wal.stage(record)
    batch = wal.take()
    assert batch is not None
    disk.stop("fdatasync")  # the process dies before the fdatasync
    with pytest.raises(PowerCut):
        wal.write(batch)
    return Scene(disk.clone(), images(records), synced)


def test_a_restart_finds_everything_that_was_written() -> None:
    made = scene(segments=3)
    assert made.prefix_of(made.disk) == len(made.images) - 1


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_flipped_byte_is_found_or_harmless(mask: int) -> None:
    """Each byte of the segment, the mark and the identity, one at a time."""
    made = scene(segments=1)
    outcomes = {"same": 0, "cut": 0, "damage": 0}
    for name in (segment_name(1), MARK_NAME, IDENTITY_NAME):
        content = made.disk.content(name)
        used = len(content.rstrip(b"\0")) + 80  # only zeros follow; a few of them suffice
        for at in range(min(len(content), used)):
            disk = made.disk.clone()
            disk.corrupt(name, at, mask)
            position = made.prefix_of(disk)
            if position is None:
                assert name == segment_name(1)
                outcomes["damage"] += 1
            else:
                outcomes["same" if position == len(made.images) - 1 else "cut"] += 1
    assert min(outcomes.values()) > 100, outcomes


def test_flipped_bytes_of_a_synced_log_are_all_found() -> None:
    """Nothing is unsynced and the mark is exact: no byte of a record may be lost silently.

    Things that are stored twice are no loss: the segment's header, a header's checksum, and the
    checksum of a record without a payload.
    """
    disk = MemoryDisk()
    wal, _ = start(disk)
    records = [*Author(Random(1), size_max=30).records(8)]
    places = [wal.stage(record) & 0xFFFFFFFF for record in records]
    sync(wal)
    truth = images(records)[-1]
    end = wal.end & 0xFFFFFFFF
    for at in range(end):
        damaged = disk.clone()
        damaged.corrupt(segment_name(1), at, 0x10)
        wal, recovered = start(damaged)
        found = image_of(wal, recovered)
        index = bisect_right(places, at) - 1
        inside = at - places[index]
        twice = at < places[0] or 4 <= inside < 8
        if twice or (inside < 4 and isinstance(records[index], PromiseRecord | VotingRecord)):
            assert (found, recovered.damage) == (truth, ())
            continue
        (hole,) = recovered.damage
        assert (hole.file, hole.byte) == (segment_name(1), places[index])
        assert not recovered.unattributed, "one byte of a header can be found again"
        assert is_salvaged(found, concerned(recovered, truth), truth)


def test_every_truncation_is_found_or_harmless() -> None:
    """Each file of a log of two segments, cut short: at every used byte of the last one, and at
    some places of the others."""
    made = scene(segments=2)
    names = [name for name in made.disk.names() if name.startswith(("segment", MARK_NAME))]
    last = max(name for name in names if name != MARK_NAME)
    outcomes: Counter[str] = Counter()
    for name in names:
        content = made.disk.content(name)
        used = len(content.rstrip(b"\0")) if name == last else 0
        for size in [*range(used), *range(used, len(content), 31)]:
            disk = made.disk.clone()
            disk.truncate(name, size)
            if name == MARK_NAME:
                assert made.prefix_of(disk) == len(made.images) - 1
                continue
            try:
                found = made.prefix_of(disk)
            except WalDamaged:
                assert size < SEGMENT_HEADER_BYTES
                outcomes["refused"] += 1
            else:
                outcomes["damage" if found is None else "cut"] += 1
    assert outcomes["refused"] > 100, outcomes
    assert outcomes["damage"] > 200, outcomes


def test_a_missing_segment_is_refused() -> None:
    """First, middle or last: a missing file is not an empty tail."""
    made = scene(segments=4)
    names = [name for name in made.disk.names() if name.startswith("segment")]
    for name in names:
        disk = made.disk.clone()
        disk.remove(name)
        with pytest.raises(WalDamaged):
            start(disk)
    disk = made.disk.clone()
    for name in names:
        disk.remove(name)
    with pytest.raises(WalDamaged, match="gone"):
        start(disk.clone())
    disk.remove(MARK_NAME)
    with pytest.raises(WalDamaged, match="gone"):
        start(disk)


def test_damage_names_file_byte_and_slot() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(promise(1))
    place = wal.stage(accept(1, b"one"))
    wal.stage(accept(2, b"two"))
    sync(wal)
    disk.corrupt(segment_name(1), (place & 0xFFFFFFFF) + RECORD_HEADER_BYTES + 2, 1)
    _, recovered = start(disk.clone())
    (hole,) = recovered.damage
    assert (hole.file, hole.byte) == (segment_name(1), place & 0xFFFFFFFF)
    assert (hole.group, hole.slot) == (1, 1)
    assert str(hole).endswith("(group 1, slot 1): the checksum of the record here is wrong")


def damaged(disk: MemoryDisk, place: int, *, header: bool = False) -> MemoryDisk:
    """A copy with a bit flipped in the record at `place`; with `header`, two bits in its header, so
    its group cannot be determined."""
    copy = disk.clone()
    for at in (20, 30) if header else (RECORD_HEADER_BYTES + 1,):
        copy.corrupt(segment_name(place >> 32), (place & 0xFFFFFFFF) + at, 1)
    return copy


def test_an_entry_that_may_have_been_replaced_is_not_believed() -> None:
    """Slot 2 was voted for twice, and the second vote is damaged: the first is not the chosen
    one."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1, b"one"))
    wal.stage(accept(2, b"old"))
    place = wal.stage(accept(2, b"new", round_=2, applied=1))
    wal.stage(accept(3, b"three", round_=2, applied=2))
    sync(wal)
    wal, recovered = start(damaged(disk, place))
    group = recovered.groups[GROUP]
    assert (group.applied, group.proven) == (1, 2)
    assert group.voting, "slot 2 is chosen: nobody will ask for the vote"
    assert entries_of(wal, GROUP) == {1: b"\x01one", 3: b"\x01three"}
    assert sorted(group.votes) == [3]
    # The record's slot is unknown as well: it may be any slot that was open then.
    wal, recovered = start(damaged(disk, place, header=True))
    group = recovered.groups[GROUP]
    assert (group.applied, group.proven, group.voting) == (0, 2, False)
    assert entries_of(wal, GROUP) == {3: b"\x01three"}


def test_what_was_learned_is_believed_whatever_may_have_followed_it() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(learned(1, b"chosen"))
    place = wal.stage(accept(1, b"late", round_=2))
    wal.stage(accept(2, b"two", round_=2, applied=1))
    sync(wal)
    wal, recovered = start(damaged(disk, place, header=True))
    assert recovered.groups[GROUP].applied == 1
    assert entries_of(wal, GROUP) == {1: b"\x01chosen", 2: b"\x01two"}


def test_damage_to_one_group_is_no_other_groups_business() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    places = [wal.stage(accept(1, b"one", group=group)) for group in (1, 2, 3)]
    sync(wal)
    _, recovered = start(damaged(disk, places[1]))
    voting = {group: found.voting for group, found in recovered.groups.items()}
    assert voting == {1: True, 2: False, 3: True}
    assert recovered.groups[GroupId(2)].floor == Ballot(1, NODE), "its header tells the promise"


def test_a_group_whose_only_records_may_be_damaged_does_not_vote_either() -> None:
    """No record of it is left: the caller knows which groups there are."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    place = wal.stage(accept(1, b"one", group=1))
    wal.stage(accept(1, b"one", group=2))
    sync(wal)
    broken = damaged(disk, place, header=True)
    identity = boot(broken, CLUSTER, NODE)
    _, recovered = open_wal(broken, identity, SMALL, [GroupId(group) for group in range(4)])
    assert {group for group, found in recovered.groups.items() if not found.voting} == {0, 1, 2, 3}
    broken.crash(lambda: False)
    _, again = start(broken)
    assert {group for group, found in again.groups.items() if not found.voting} == {0, 1, 2, 3}
    assert not again.damage


def test_known_damage_is_forgiven_once_the_group_votes_again() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    place = wal.stage(accept(1, b"one"))
    wal.stage(accept(2, b"two", applied=1))
    sync(wal)
    broken = damaged(disk, place)
    wal, recovered = start(broken)
    assert (recovered.groups[GROUP].applied, recovered.groups[GROUP].proven) == (0, 1)
    wal.stage(learned(1, b"one"))
    wal.stage(VotingRecord(GROUP, True, Ballot(7, NODE)))
    sync(wal)
    broken.close()
    wal, recovered = start(broken)
    group = recovered.groups[GROUP]
    assert (group.voting, group.floor, group.applied) == (True, Ballot(7, NODE), 1)
    assert not recovered.damage
    assert entries_of(wal, GROUP) == {1: b"\x01one", 2: b"\x01two"}


def test_damage_is_found_in_every_segment() -> None:
    """Also in closed segments, and up to the last record before the next one's header."""
    made = scene(segments=4)
    names = [name for name in made.disk.names() if name.startswith("segment")]
    found = set()
    dice = Random(2)
    for name in names:
        used = len(made.disk.content(name).rstrip(b"\0"))
        for at in [*(dice.randrange(SEGMENT_HEADER_BYTES, used) for _ in range(40)), used - 1]:
            disk = made.disk.clone()
            disk.corrupt(name, at, 0x04)
            if made.prefix_of(disk) is None:
                found.add(name)
    assert found == {*names}


def test_two_bits_anywhere_never_bring_up_a_wrong_entry() -> None:
    """500 times: two flipped bits in log, mark and identity of one directory (exam, row S4)."""
    made = scene(segments=3)
    dice = Random(12)
    outcomes: Counter[str] = Counter()
    names = made.disk.names()
    for _ in range(500):
        disk = made.disk.clone()
        for _ in range(2):
            name = dice.choice(names)
            content = disk.content(name)
            at = dice.randrange(min(len(content.rstrip(b"\0")) + 8, len(content)))
            disk.corrupt(name, at, 1 << dice.randrange(8))
        try:
            position = made.prefix_of(disk)
        except (WalDamaged, DirectoryRefused):
            outcomes["refused"] += 1
        else:
            outcomes["damage" if position is None else "prefix"] += 1
    assert outcomes["damage"] > 150, outcomes
    assert outcomes["refused"] < 60, outcomes  # both identity files, or both copies of a header


def test_a_flip_while_running_is_found_by_the_read() -> None:
    """Every read of an entry checks its checksum, not only the restart."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    place = wal.stage(accept(1, b"one"))
    sync(wal)
    assert encoded(wal.read_entry(GROUP, Slot(1))) == b"\x01one"
    disk.corrupt(segment_name(1), (place & 0xFFFFFFFF) + RECORD_HEADER_BYTES + 1, 1)
    with pytest.raises(WalDamaged):
        wal.read_entry(GROUP, Slot(1))
    with pytest.raises(WalDamaged):
        list(wal.replay(GROUP, Slot(1), Slot(1)))


def torn_first_record(disk: MemoryDisk) -> MemoryDisk:
    """The disk after a power cut that tore the first record and reset the mark."""
    torn = disk.clone()
    torn.truncate(MARK_NAME, 0)
    torn.corrupt(segment_name(1), SEGMENT_HEADER_BYTES + 20, 0xFF)
    return torn


def test_a_later_record_can_prove_the_bad_place_synced() -> None:
    """After a power cut the mark may be old; a record written after the sync is still a proof."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1, b"one"))
    sync(wal)
    wal.stage(accept(2, b"two"))  # this record says: everything up to the end of slot 1 is synced
    sync(wal)
    _, recovered = start(torn_first_record(disk))
    assert recovered.damage
    assert recovered.cut is None


def test_whole_records_behind_a_torn_one_are_cut_with_it() -> None:
    """One unsynced batch: its sectors survive in any subset, so this is tearing, not damage."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1, b"one"))
    wal.stage(accept(2, b"two"))
    sync(wal)
    wal, recovered = start(torn_first_record(disk))
    assert recovered.cut is not None
    assert (recovered.cut.byte, recovered.cut.records_after) == (SEGMENT_HEADER_BYTES, 1)
    assert recovered.groups == {}
    with pytest.raises(NotInLog):
        wal.read_entry(GROUP, Slot(2))


def test_a_cut_record_never_comes_back() -> None:
    """The same record is written again in place of the torn one: the records after it must be gone.

    If the rest of the segment were not cleared, the old successor would fit: its place, its
    predecessor's checksum and its own are right.
    """
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1, b"one"))
    wal.stage(accept(2, b"two"))
    sync(wal)
    disk = torn_first_record(disk)
    wal, _ = start(disk)
    wal.stage(accept(1, b"one"))
    sync(wal)
    disk.crash(lambda: False)
    wal, recovered = start(disk)
    assert entries_of(wal, GROUP) == {1: b"\x01one"}
    assert recovered.cut is None


def test_a_cut_segment_never_comes_back() -> None:
    """As above, but the record after the torn one had already begun the next segment."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    for slot in range(1, 8):
        wal.stage(accept(slot, bytes(700)))
    sync(wal)
    assert wal.find(GROUP, Slot(5))[0] >> 32 == 2
    disk = torn_first_record(disk)
    wal, recovered = start(disk)
    assert recovered.cut is not None
    assert recovered.cut.records_after == 3 + 1 + 3, "the rest, and the state of the one group"
    for slot in range(1, 6):
        wal.stage(accept(slot, bytes(700)))
    sync(wal)
    disk.crash(lambda: False)
    wal, _ = start(disk)
    assert sorted(entries_of(wal, GROUP)) == [1, 2, 3, 4, 5]


def test_a_well_formed_record_of_another_history_is_refused() -> None:
    """A write that never reached the disk leaves the old contents: whole, in place, but wrong."""
    disk, other = MemoryDisk(), MemoryDisk()
    for one, data in ((disk, b"one"), (other, b"ONE")):
        wal, _ = start(one)
        for slot in (1, 2):
            wal.stage(accept(slot, data))
        sync(wal)
    size = RECORD_HEADER_BYTES + 4
    stale = other.content(segment_name(1))[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + size]
    disk.open(segment_name(1)).pwritev([stale], SEGMENT_HEADER_BYTES)
    with pytest.raises(WalDamaged, match="does not continue") as caught:
        start(disk.clone())
    assert caught.value.byte == SEGMENT_HEADER_BYTES + size


def test_a_record_written_to_the_wrong_place_is_damage() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    for slot in (1, 2, 3):
        wal.stage(accept(slot))
    sync(wal)
    first, second = (wal.find(GROUP, Slot(slot))[0] & 0xFFFFFFFF for slot in (1, 2))
    file = disk.open(segment_name(1))
    file.pwritev([file.pread(second - first, first)], second)
    with pytest.raises(WalDamaged):
        wal.read_entry(GROUP, Slot(2))
    _, recovered = start(disk.clone())
    (hole,) = recovered.damage
    assert (hole.why, hole.byte) == ("there is no record here", second)


def test_a_clean_restart_cuts_nothing_and_finds_no_votes_lost() -> None:
    disk = MemoryDisk()
    wal, first = start(disk)
    assert (first.groups, first.cut, first.records) == ({}, None, 0)
    wal.stage(accept(1, b"a"))
    wal.stage(accept(2, b"b", applied=1))
    sync(wal)
    disk.close()
    _, recovered = start(disk)
    group = recovered.groups[GROUP]
    assert recovered.cut is None
    assert (group.applied, group.retained_from) == (1, 1)
    assert {slot: encoded(entry) for slot, (_, entry) in group.votes.items()} == {2: b"\x01b"}


def test_a_learned_entry_wins_the_read_and_the_vote_is_kept() -> None:
    """A late Accept at an old ballot may get a vote after the slot was learned by value."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(learned(2, b"chosen"))
    wal.stage(accept(2, b"other", round_=3))
    sync(wal)
    assert encoded(wal.read_entry(GROUP, Slot(2))) == b"\x01chosen"
    disk.close()
    wal, recovered = start(disk)
    group = recovered.groups[GROUP]
    assert encoded(wal.read_entry(GROUP, Slot(2))) == b"\x01chosen"
    assert encoded(group.learned[Slot(2)]) == b"\x01chosen"
    ballot, entry = group.votes[Slot(2)]
    assert (ballot, encoded(entry)) == (Ballot(3, NODE), b"\x01other")


def test_an_older_incarnation_than_the_log_is_refused() -> None:
    """The identity was restored from an old copy: the node would reuse incarnations."""
    disk = MemoryDisk()
    start(disk)
    disk.close()
    old = disk.content(IDENTITY_NAME)
    for _ in range(2):
        wal, _ = start(disk)
        disk.close()
    while wal.statistics().segments == 1:  # a segment that carries the new incarnation
        wal.stage(accept(1, bytes(500)))
        sync(wal)
    for name in (IDENTITY_NAME, IDENTITY_COPY_NAME):
        disk.truncate(name, 0)
        disk.open(name).pwritev([old], 0)
    with pytest.raises(DirectoryRefused, match="old copy"):
        start(disk)


def test_retired_segments_are_recycled_and_their_stale_records_stay_dead() -> None:
    """Every segment in use has had an earlier life, full of well-formed records."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    slot = 0
    for _ in range(12):
        while not wal.retire({GROUP: Slot(max(0, slot - 3))}):
            slot += 1
            wal.stage(accept(slot, bytes(300), applied=max(0, slot - 1)))
            sync(wal)
        sync(wal)
        wal.prepare_next()
    numbers = [name for name in disk.names() if name.startswith("segment")]
    assert numbers[0] > segment_name(8)
    assert len(numbers) <= 6
    with pytest.raises(NotInLog):
        wal.read_entry(GROUP, Slot(1))
    kept = entries_of(wal, GROUP)
    assert max(kept) == slot
    disk.close()
    wal, recovered = start(disk)
    group = recovered.groups[GROUP]
    assert recovered.cut is None
    assert group.promised == Ballot(1, NODE)
    assert entries_of(wal, GROUP) == kept
    assert min(kept) == group.retained_from


def test_a_promise_outlives_the_segment_it_was_made_in() -> None:
    """Before a segment is retired, a later one repeats the promises of every group."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(promise(9, group=2))
    slot = 0
    while not wal.retire({GROUP: Slot(slot)}):
        slot += 1
        wal.stage(accept(slot, bytes(300), applied=slot))
        sync(wal)
    sync(wal)
    for _ in range(20):
        slot += 1
        wal.stage(accept(slot, bytes(300), applied=slot))
        sync(wal)
    assert segment_name(1) not in disk.names()
    disk.close()
    _, recovered = start(disk)
    assert recovered.groups[GroupId(2)].promised == Ballot(9, NODE)


def test_another_segment_size_is_taken_up_by_the_next_segment() -> None:
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.prepare_next()
    wal.stage(accept(1, b"small"))
    sync(wal)
    disk.close()
    wal, _ = start(disk, WalConfig(segment_bytes=16384))
    for slot in range(2, 30):
        wal.stage(accept(slot, bytes(400)))
    sync(wal)
    assert len(disk.content(segment_name(2))) == 16384
    disk.close()
    wal, _ = start(disk)
    assert len(entries_of(wal, GROUP)) == 29
