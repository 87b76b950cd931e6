"""`evenkeel data`: an operator looks at a stopped node's directory."""

import json
from pathlib import Path

import pytest

from cluster import cli
from paxos.ids import GroupId, Slot
from storage.disk import RealDisk
from storage.format import OFFSET_MASK, RECORD_HEADER_BYTES, segment_name
from tests.storage.log_maker import accept, promise, start, sync


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A node with five entries of one group and a promise of another; it has stopped."""
    disk = RealDisk(tmp_path / "node-1")
    wal, _ = start(disk)
    for slot in range(1, 6):
        wal.stage(accept(slot, b"data" * slot, applied=slot - 1))
    wal.stage(promise(9, group=2))
    sync(wal)
    disk.close()
    return tmp_path / "node-1"


def flip(directory: Path, slot: int) -> None:
    disk = RealDisk(directory)
    wal, _ = start(disk)
    place = wal.entry_place(GroupId(1), Slot(slot)) & OFFSET_MASK
    disk.close()
    with (directory / segment_name(1)).open("r+b") as file:
        file.seek(place + RECORD_HEADER_BYTES + 3)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 8]))


def files(directory: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in directory.iterdir() if one.name != "lock"}


def test_a_sound_directory(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(directory)
    assert cli.run(["data", "verify", str(directory)]) == 0
    assert capsys.readouterr().out == "6 records and 5 entries in 1 files: sound\n"
    assert cli.run(["data", "show", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "cluster test-cluster, node 7, incarnation 1" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["1", "1-5", "4", "0", "1", "of", "node", "7", "yes"] in rows
    assert ["2", "none", "0", "0", "9", "of", "node", "7", "yes"] in rows
    assert files(directory) == before


def test_a_flipped_bit(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(directory, 3)
    assert cli.run(["data", "verify", str(directory)]) == 1
    told = capsys.readouterr().out
    assert "damaged: segment-0000000001.wal, byte " in told
    assert "(group 1, slot 3): the checksum of the record here is wrong" in told
    assert told.endswith(": 1 problems\n")


def test_for_programs(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["data", "verify", "--json", str(directory)]) == 0
    assert json.loads(capsys.readouterr().out)["sound"] is True
    flip(directory, 3)
    assert cli.run(["data", "verify", "--json", str(directory)]) == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["sound"] is False
    assert len(verdict["problems"]) == 1
    assert cli.run(["data", "show", "--json", str(directory)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["identity"]["node"] == 7
    assert [group["group"] for group in shown["groups"]] == [1, 2]
    assert shown["groups"][1]["promised"] == [9, 7]


def test_a_directory_in_use_is_left_alone(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = RealDisk(directory)
    disk.lock()
    try:
        assert cli.run(["data", "verify", str(directory)]) == 1
    finally:
        disk.close()
    assert "is in use by process" in capsys.readouterr().err


def test_what_is_no_nodes_directory(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, message in [
        (tmp_path / "none", "there is no such directory"),
        (tmp_path, "is no data directory of a node; it holds those of node-1"),
    ]:
        before = sorted(tmp_path.iterdir())
        assert cli.run(["data", "show", str(path)]) == 1
        assert message in capsys.readouterr().err
        assert sorted(tmp_path.iterdir()) == before
