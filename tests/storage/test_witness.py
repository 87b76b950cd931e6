"""Small files beside the log: what was witnessed of peers, an operator's order, evidence."""

import os
from pathlib import Path

import pytest

from paxos.ids import GroupId, Incarnation, NodeId
from storage.disk.direct import BLOCK_BYTES
from storage.disk.files import RealDisk
from storage.disk.memory import MemoryDisk, PowerCut
from storage.errors import DirectoryRefused
from storage.evidence import evidence_name, keep_evidence
from storage.format import segment_name
from storage.log.segments import SegmentFiles
from storage.unsafe_recovery import UNSAFE_NAME, give_order, take_order
from storage.witness import WITNESS_NAME, read_witness, write_witness

SEEN = {NodeId(2): (Incarnation(70), 1 << 40), NodeId(3): (Incarnation(71), 9)}


def test_what_was_witnessed_is_there_after_a_power_cut() -> None:
    disk = MemoryDisk()
    assert read_witness(disk) == {}
    write_witness(disk, {NodeId(2): (Incarnation(1), 1)})
    write_witness(disk, SEEN)
    disk.crash(lambda: False)
    assert read_witness(disk) == SEEN


def test_a_damaged_witness_says_nothing() -> None:
    disk = MemoryDisk()
    write_witness(disk, SEEN)
    for offset in range(disk.open(WITNESS_NAME).size()):
        hurt = disk.clone()
        hurt.corrupt(WITNESS_NAME, offset, 4)
        assert read_witness(hurt) == {}, offset


def test_a_write_that_was_cut_off_leaves_what_was_there() -> None:
    disk = MemoryDisk()
    write_witness(disk, SEEN)
    disk.create("witness.tmp")
    assert read_witness(disk) == SEEN
    write_witness(disk, {})
    assert read_witness(disk) == {}


def test_an_order_is_taken_once() -> None:
    disk = MemoryDisk()
    assert take_order(disk) == frozenset()
    give_order(disk, [GroupId(7)])
    give_order(disk, [GroupId(3), GroupId(0)])
    disk.crash(lambda: False)
    assert take_order(disk) == {0, 3}
    disk.crash(lambda: False)
    assert take_order(disk) == frozenset()


@pytest.mark.parametrize("offset", [0, 27])
def test_what_is_no_order_is_refused(offset: int) -> None:
    disk = MemoryDisk()
    give_order(disk, [GroupId(3)])
    size = disk.open(UNSAFE_NAME).size()
    disk.corrupt(UNSAFE_NAME, min(offset, size - 2), 0x40)
    with pytest.raises(DirectoryRefused, match="no order"):
        take_order(disk)


def test_evidence_outlives_what_the_log_lets_go_and_costs_no_copy(tmp_path: Path) -> None:
    others = "checkpoint-0000000004-00000000000000000009-0000000001.checkpoint"
    names = [segment_name(1), segment_name(2), "identity", others, "unrelated"]
    for name in names:
        (tmp_path / name).write_text(name)
    assert keep_evidence(tmp_path, GroupId(3)) == evidence_name(GroupId(3))
    folder = tmp_path / evidence_name(GroupId(3))
    assert sorted(path.name for path in folder.iterdir()) == sorted(names[:3])
    (tmp_path / segment_name(1)).unlink()
    assert (folder / segment_name(1)).read_text() == segment_name(1)
    assert (folder / segment_name(2)).stat().st_nlink == 2
    (tmp_path / segment_name(3)).write_text("later")
    keep_evidence(tmp_path, GroupId(3))
    assert not (folder / segment_name(3)).exists(), "what came first is kept"


def test_evidence_that_a_crash_left_half_linked_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder was taken for all there is. Meanwhile the log may have let go of what was linked,
    and of what was not."""
    group, linked, really = GroupId(3), list[str](), os.link
    for number in (1, 2, 3):
        (tmp_path / segment_name(number)).write_text(f"{number}")

    class ProcessEndsError(Exception):
        pass

    def link(source: Path, target: Path) -> None:
        if len(linked) == 1:
            raise ProcessEndsError
        linked.append(source.name)
        really(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(ProcessEndsError):
        keep_evidence(tmp_path, group)
    assert not (tmp_path / evidence_name(group)).exists()
    monkeypatch.undo()
    (tmp_path / segment_name(1)).unlink()
    folder = tmp_path / keep_evidence(tmp_path, group)
    assert {path.name for path in folder.iterdir()} == {segment_name(one) for one in (1, 2, 3)}
    assert {path.name for path in tmp_path.glob("evidence*")} == {folder.name}


def test_evidence_is_not_written_over_when_the_log_uses_a_file_again(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    for number in (1, 2):
        disk.create(segment_name(number)).pwritev([b"old" + bytes(BLOCK_BYTES - 3)], 0)
    folder = tmp_path / keep_evidence(tmp_path, GroupId(3))
    files = SegmentFiles(disk, BLOCK_BYTES, 2)
    files.retire(range(1, 2))
    files.prepare(3)
    files.file(3).pwritev([b"new"], 0)
    assert (folder / segment_name(1)).read_bytes()[:3] == b"old"
    assert segment_name(1) not in disk.names(), "its place is not taken for ever"
    disk.close()


@pytest.mark.parametrize("operation", ["fdatasync", "rename"])
def test_an_order_that_was_cut_off_is_no_order(operation: str) -> None:
    """Half of one would keep the node from starting."""
    disk = MemoryDisk()
    disk.stop(operation)
    with pytest.raises(PowerCut):
        give_order(disk, [GroupId(7)])
    disk.crash(lambda: True)
    assert take_order(disk) == frozenset()
    give_order(disk, [GroupId(7)])
    assert take_order(disk) == {7}
