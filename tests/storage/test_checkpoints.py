"""Checkpoints: whatever is cut, flipped or lost, the newest intact one is found, or the loss is
reported."""

import errno
from pathlib import Path

import pytest

from paxos.ids import GroupId, Incarnation, NodeId, Slot
from storage.checkpoints import CheckpointFiles, checkpoint_name
from storage.disk.files import Disk, File, RealDisk
from storage.disk.memory import SECTOR_BYTES, MemoryDisk
from storage.errors import DirectoryRefused, DiskFull, StorageFailed
from storage.identity import Identity
from tests.storage.crash_points import every_crash
from tests.storage.log_maker import CLUSTER, NODE, accept, entries_of, start_from, sync

GROUP = GroupId(1)
OWNER = Identity(CLUSTER, NODE, Incarnation(1))
GOLDEN = Path(__file__).parent / "golden" / "checkpoint-1.hex"


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "data") if request.param == "real" else MemoryDisk(write_bytes_max=7)


def test_two_generations_are_kept_and_the_log_back_to_the_older_one(disk: Disk) -> None:
    files = CheckpointFiles(disk, OWNER)
    assert files.load(GROUP) is None
    assert files.groups() == []
    files.save(GROUP, Slot(10), 3, [b"one"])
    assert (files.needs(GROUP), files.slot(GROUP)) == (None, None), "one may be damaged"
    files.save(GROUP, Slot(20), 5, [b"two", b""])
    assert (files.needs(GROUP), files.slot(GROUP)) == (3, 10)
    files.save(GROUP, Slot(20), 8, [b"three", bytes(3000)])
    files.save(GroupId(0), Slot(1), 1, [b"other"])
    for one in (files, CheckpointFiles(disk, OWNER)):
        assert (one.needs(GROUP), one.slot(GROUP)) == (5, 20), "the same slot, and yet a newer one"
        assert one.groups() == [0, 1]
        found = one.load(GROUP)
        assert found is not None
        assert (found.slot, found.needs, found.chunks) == (20, 8, (b"three", bytes(3000)))
        assert found.damaged == ()
        assert len(one.files()) == 3
        assert [one.check(name) for name in one.files()] == [None] * 3
    files.remove(GROUP)
    files.remove(GroupId(7))
    assert files.groups() == [0]
    assert [name for name in disk.names() if checkpoint_name(name)] == files.files()
    assert files.check(f"checkpoint-{1:010d}-{20:020d}-{3:010d}.ckpt") is None, "it went meanwhile"


def saved(generations: int) -> MemoryDisk:
    disk = MemoryDisk()
    files = CheckpointFiles(disk, OWNER)
    for one in range(1, generations + 1):
        files.save(GROUP, Slot(10 * one), one, state(one))
    disk.kill()
    return disk


def state(generation: int) -> list[bytes]:
    return [b"%d" % generation * SECTOR_BYTES, b"end"]


def test_who_reads_while_a_generation_is_replaced_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event loop asks which part of the log must stay while a thread saves, and a peer's
    question is answered while the group is dropped. A file that is gone by then is no failed disk
    (seen once in CI: the node ended)."""
    disk = saved(2)
    files = CheckpointFiles(disk, OWNER)
    opened, going = disk.open, [lambda: files.save(GROUP, Slot(300), 33, state(3))]

    def open_late(name: str) -> File:
        while going:
            going.pop()()
        return opened(name)

    monkeypatch.setattr(disk, "open", open_late)
    assert files.needs(GROUP) == CheckpointFiles(disk, OWNER).needs(GROUP)
    going.append(lambda: files.remove(GROUP))
    assert files.load(GROUP) is None
    assert files.needs(GROUP) is None


def test_what_is_being_removed_is_opened_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = saved(2)
    files = CheckpointFiles(disk, OWNER)
    remove, seen = disk.remove, []

    def remove_late(name: str) -> None:
        seen.append((name, files.files()))
        remove(name)

    monkeypatch.setattr(disk, "remove", remove_late)
    files.save(GROUP, Slot(300), 33, state(3))
    files.remove(GROUP)
    assert len(seen) == 3
    assert all(name not in kept for name, kept in seen)


def test_a_crash_at_any_step_leaves_the_old_ones_or_the_new_one() -> None:
    """Before and after each operation, with each subset of the unsynced sectors."""
    tried, found_new = 0, 0
    for generations in range(4):
        for where, disk in every_crash(
            lambda generations=generations: saved(generations),
            lambda one: CheckpointFiles(one, OWNER).save(GROUP, Slot(99), 7, state(9)),
        ):
            tried += 1
            files = CheckpointFiles(disk, OWNER)
            found = files.load(GROUP)
            if found is None:
                assert generations == 0, where
                continue
            assert found.damaged == (), where
            is_new = found.slot == 99
            found_new += is_new
            expected = (99, 7, 9) if is_new else (10 * generations, generations, generations)
            assert (found.slot, found.needs) == expected[:2], where
            assert list(found.chunks) == state(expected[2]), where
            if generations > 1:
                assert files.needs(GROUP) is not None, f"{where}: two of them at any moment"
            files.save(GROUP, Slot(100), 8, state(4))  # and it continues
            assert len(files.files()) <= 2
            assert not any(name.endswith("tmp") for name in disk.names())
    assert found_new > 20
    assert tried > 100


def test_every_flipped_bit_is_found_and_the_older_one_is_taken() -> None:
    whole = saved(2)
    newest = CheckpointFiles(whole, OWNER).files()[-1]
    for byte in range(len(whole.content(newest))):
        disk = whole.clone()
        disk.corrupt(newest, byte, 1 << byte % 8)
        files = CheckpointFiles(disk, OWNER)
        assert files.check(newest) is not None, byte
        found = files.load(GROUP)
        assert found is not None
        assert (found.slot, found.damaged, found.lost) == (10, (newest,), False), byte
        assert files.needs(GROUP) is None, "there is no second one now"
        files.save(GROUP, Slot(30), 3, [b"new"])
        assert files.needs(GROUP) == 1
        assert newest not in disk.names()


def test_a_cut_file_or_a_lost_block_is_damage() -> None:
    for harm in ("cut", "longer", "block"):
        disk = saved(2)
        newest = CheckpointFiles(disk, OWNER).files()[-1]
        if harm == "cut":
            disk.truncate(newest, len(disk.content(newest)) - 1)
        elif harm == "longer":
            disk.open(newest).pwritev([b"x"], len(disk.content(newest)))
        else:
            disk.lose_block(newest, 0)
        found = CheckpointFiles(disk, OWNER).load(GROUP)
        assert found is not None
        assert found.slot == 10, harm


def test_when_all_are_damaged_it_is_said() -> None:
    disk = saved(2)
    files = CheckpointFiles(disk, OWNER)
    for name in files.files():
        disk.corrupt(name, 140, 1)
    found = files.load(GROUP)
    assert found is not None
    assert found.lost
    assert sorted(found.damaged) == files.files()


def test_a_full_disk_changes_nothing() -> None:
    disk = saved(2)
    before = disk.names()
    disk.capacity_bytes = sum(len(disk.content(name)) for name in before) + 600
    files = CheckpointFiles(disk, OWNER)
    with pytest.raises(DiskFull):
        files.save(GROUP, Slot(30), 3, state(3))
    assert disk.names() == before
    disk.capacity_bytes = None
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(StorageFailed):
        files.save(GROUP, Slot(30), 3, state(3))
    assert disk.names() == before
    files.save(GROUP, Slot(30), 3, state(3))


def test_the_checkpoint_of_another_node_or_version_is_refused() -> None:
    disk = saved(1)
    for stranger in (
        Identity("other", NODE, Incarnation(1)),
        Identity(CLUSTER, NodeId(8), OWNER.incarnation),
    ):
        with pytest.raises(DirectoryRefused, match="mixed"):
            CheckpointFiles(disk, stranger).load(GROUP)


def test_the_bytes_of_a_checkpoint_do_not_change() -> None:
    """The golden file was written by the first version and must stay readable for ever."""
    disk = MemoryDisk()
    files = CheckpointFiles(disk, Identity("golden", NodeId(2), Incarnation(3)))
    files.save(GroupId(4), Slot(5), 6, [b"chunk", b"", bytes(range(256))])
    (name,) = files.files()
    assert disk.content(name) == bytes.fromhex(GOLDEN.read_text())


# ---- together with the log -----------------------------------------------------------------------


def test_a_crash_at_any_step_of_retiring_loses_nothing_that_is_needed() -> None:
    """A start, a checkpoint, retiring segments, and reusing the files."""

    def lives_on(disk: MemoryDisk) -> None:
        wal, _, files, _ = start_from(disk)
        files.save(GROUP, Slot(95), wal.needed_from(GROUP, Slot(95)), [b"95"])
        until, below = files.slot(GROUP), files.needs(GROUP)
        assert until is not None
        assert below is not None
        assert wal.retire({GROUP: until}, below) > 1
        wal.stage(accept(101, b"more", applied=99))
        sync(wal)
        wal.prepare_next()

    bases, starts, tried = set(), set(), 0
    for where, disk in every_crash(lived, lives_on, samples=2):
        tried += 1
        wal, recovered, files, loaded = start_from(disk)
        group = recovered.groups[GROUP]
        assert loaded[GROUP].damaged == (), where
        assert (group.founded, group.voting, group.applied) == (True, True, 99), where
        found = entries_of(wal, GROUP)
        assert sorted(found.keys() - {101}) == list(range(group.base + 1, 101)), where
        assert recovered.damage == (), where
        disk.kill()
        disk.corrupt(files.files()[-1], 140, 1)  # and the one before would do as well
        _, recovered, _, _ = start_from(disk)
        assert recovered.groups[GROUP].applied == 99, where
        assert recovered.groups[GROUP].founded, where
        bases.add((int(group.base), int(recovered.groups[GROUP].base)))
        starts.add(min(wal.kept()))
    assert bases == {(70, 40), (95, 70)}
    assert len(starts) == 2, "with what was retired, and without"
    assert tried > 100


def lived() -> MemoryDisk:
    """A log whose oldest segments were retired after two checkpoints."""
    disk = MemoryDisk()
    wal, _, files, _ = start_from(disk)
    for slot in range(1, 101):
        wal.stage(accept(slot, b"%03d" % slot * 120, applied=slot - 1))
        sync(wal)
        if slot in (40, 70):
            files.save(GROUP, Slot(slot), wal.needed_from(GROUP, Slot(slot)), [b"%d" % slot])
    needs, until = files.needs(GROUP), files.slot(GROUP)
    assert needs is not None
    assert until is not None
    assert wal.retire({GROUP: until}, needs) >= 3
    sync(wal)
    wal.prepare_next()
    disk.kill()
    return disk


def test_what_the_log_has_to_keep_is_known_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop asks for it, and must touch no file: also when the checkpoint that was loaded
    at the start has become the older of two."""
    disk = MemoryDisk()
    CheckpointFiles(disk, OWNER).save(GROUP, Slot(10), 3, [b"one"])
    files = CheckpointFiles(disk, OWNER)
    assert files.load(GROUP) is not None
    files.save(GROUP, Slot(20), 5, [b"two"])
    monkeypatch.setattr(disk, "open", None)
    assert files.needs(GROUP) == 3


def test_a_restart_reads_what_the_newest_checkpoint_needs_and_older_segments_stay_readable() -> (
    None
):
    disk = lived()
    wal, recovered, files, bases = start_from(disk)
    group = recovered.groups[GROUP]
    assert (group.base, group.applied, group.founded, group.voting) == (70, 99, True, True)
    assert min(entries_of(wal, GROUP)) == 71
    assert recovered.started_at == bases[GROUP].needs > min(wal.kept())
    assert recovered.bytes_read < 40 * 500
    for number in wal.kept():
        file, _, end = wal.scrub_target(number)
        assert 0 < end <= file.size(), "what is older is still served, and scrubbed"
    until, below = files.slot(GROUP), files.needs(GROUP)
    assert until is not None
    assert below is not None
    assert wal.retire({GROUP: until}, below) == 0, "all that can go has gone"


def test_damage_of_the_newest_checkpoint_costs_reading_more_of_the_log() -> None:
    disk = lived()
    disk.corrupt(CheckpointFiles(disk, OWNER).files()[-1], 140, 4)
    wal, recovered, files, _ = start_from(disk)
    group = recovered.groups[GROUP]
    assert (group.base, group.applied, group.founded, group.voting) == (40, 99, True, True)
    assert sorted(entries_of(wal, GROUP)) == list(range(41, 101))
    assert files.needs(GROUP) is None


def test_without_any_checkpoint_left_the_group_stops_voting_and_says_so() -> None:
    """The log alone begins in the middle: nothing of it can be applied, and nobody may rely on
    it."""
    disk = lived()
    for name in CheckpointFiles(disk, OWNER).files():
        disk.corrupt(name, 140, 4)
    for _ in range(2):  # durably
        wal, recovered, _, _ = start_from(disk)
        group = recovered.groups[GROUP]
        assert (group.base, group.applied, group.founded, group.voting) == (0, 0, False, False)
        assert group.proven == 99, "chosen they were, all the same"
        assert sorted(group.votes) == [100]
        assert group.floor == group.promised
        disk.kill()
    files = CheckpointFiles(disk, OWNER)
    files.save(GROUP, Slot(5000), wal.needed_from(GROUP, Slot(5000)), [b"from a peer"])
    wal, recovered, _, _ = start_from(disk)
    group = recovered.groups[GROUP]
    assert (group.base, group.applied, group.founded, group.proven) == (5000, 5000, True, 5000)
    assert not group.voting, "only the floor brings it back"


def test_a_state_from_a_peer_outlives_restarts_with_whatever_gap() -> None:
    disk = lived()
    wal, _, files, _ = start_from(disk)
    far = Slot(1 << 40)
    files.save(GROUP, far, wal.needed_from(GROUP, far), [b"from a peer"])
    wal.skip(GROUP, far)
    assert list(wal.slots(GROUP)) == []
    wal.stage(accept(far + 1, b"next", applied=far))
    sync(wal)
    disk.kill()
    wal, recovered, files, _ = start_from(disk)
    group = recovered.groups[GROUP]
    assert (group.base, group.applied, sorted(group.votes)) == (far, far, [far + 1])
    disk.kill()
    disk.corrupt(files.files()[-1], 140, 4)  # back to the older state, which leads nowhere
    _, recovered, _, _ = start_from(disk)
    group = recovered.groups[GROUP]
    assert (group.base, group.applied, group.founded, group.proven) == (70, 70, False, far)
    assert not group.voting


def test_a_group_that_is_left_keeps_its_promises_and_nothing_else() -> None:
    disk = lived()
    wal, _, files, _ = start_from(disk)
    files.remove(GROUP)
    wal.forget_group(GROUP)
    assert list(wal.slots(GROUP)) == []
    assert wal.acceptor(GROUP)[1] is False
    wal.stage(accept(1, bytes(5000), group=2))
    assert wal.retire({GroupId(2): Slot(0)}) > 3, "it pins no segment"
    sync(wal)
    disk.kill()
    wal, recovered, _, _ = start_from(disk)
    group = recovered.groups[GROUP]
    assert (group.voting, group.applied, group.proven, group.votes) == (False, 0, 0, {})
    assert group.promised == group.floor == wal.acceptor(GROUP)[0]
    assert group.promised.round == 1
    wal.stage(accept(1, b"again"))
    assert wal.slots(GROUP) == range(1, 2)
    sync(wal)
    disk.kill()
    wal, recovered, _, _ = start_from(disk)
    assert sorted(entries_of(wal, GROUP)) == [1]


def test_a_damaged_head_of_an_old_segment_costs_nothing_but_time() -> None:
    """Each byte after the header of each segment that a restart does not read."""
    whole = lived()
    _, recovered, _, _ = start_from(whole.clone())
    seen = set()
    for number in range(recovered.started_at - 4, recovered.started_at):
        for byte in range(SECTOR_BYTES, SECTOR_BYTES + 80, 3):
            disk = whole.clone()
            disk.corrupt(f"segment-{number:010d}.wal", byte, 16)
            wal, found, files, _ = start_from(disk)
            group = found.groups[GROUP]
            assert (group.base, group.applied, group.founded) == (70, 99, True)
            assert sorted(entries_of(wal, GROUP)) == list(range(71, 101))
            seen.add((found.started_at, group.voting))
            files.save(GROUP, Slot(99), wal.needed_from(GROUP, Slot(99)), [b"99"])
            assert wal.retire({GROUP: Slot(70)}, 1 << 20) > 0
    assert (recovered.started_at, True) in seen


def test_what_is_known_to_be_damaged_in_old_segments_stays_known() -> None:
    disk = lived()
    wal, _, files, _ = start_from(disk)
    number = min(wal.kept())
    hole = (number << 32 | 600, number << 32 | 700)
    wal.note_damage(*hole)
    segments = wal.statistics().segments
    slot = 100
    while wal.statistics().segments < segments + 3:
        slot += 1
        wal.stage(accept(slot, bytes(500), applied=slot - 1))
    sync(wal)
    files.save(GROUP, Slot(slot - 1), wal.needed_from(GROUP, Slot(slot - 1)), [b"new"])
    disk.kill()
    wal, recovered, _, _ = start_from(disk)
    assert recovered.started_at > segments
    assert hole in wal.known_damage
