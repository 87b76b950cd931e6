"""`evenkeel data`: an operator looks at a stopped node's directory."""

import json
from pathlib import Path

import pytest

from cli import main as cli
from paxos.ids import GroupId, Incarnation, NodeId, Slot
from storage.cold.store import ColdStore
from storage.disk.files import RealDisk
from storage.format import OFFSET_MASK, RECORD_HEADER_BYTES, segment_name
from storage.identity import Identity
from tests.storage.log_maker import accept, promise, start, start_from, sync


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A stopped node with five entries of one group and a promise of another."""
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
    place = wal.find(GroupId(1), Slot(slot))[0] & OFFSET_MASK
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
        (tmp_path, "is not the data directory of a node; it holds those of node-1"),
    ]:
        before = sorted(tmp_path.iterdir())
        assert cli.run(["data", "show", str(path)]) == 1
        assert message in capsys.readouterr().err
        assert sorted(tmp_path.iterdir()) == before


def test_checkpoints_and_cold_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are shown and counted, and damage in them is found; nothing is changed."""
    directory = tmp_path / "node-1"
    disk = RealDisk(directory)
    wal, _, checkpoints, _ = start_from(disk)
    for slot in range(1, 41):
        wal.stage(accept(slot, bytes(300), applied=slot - 1))
        sync(wal)
        if slot in (20, 30):
            checkpoints.save(
                GroupId(1), Slot(slot), wal.needed_from(GroupId(1), Slot(slot)), [b"state"]
            )
    store = ColdStore(disk, Identity("test-cluster", NodeId(7), Incarnation(1)))
    store.append(12, [(at, at + 1, 0, (bytes(200),)) for at in range(100, 110)])
    cold = sum(disk.sizes()[name] for name in disk.names() if name.startswith("cold"))
    disk.close()
    before = files(directory)
    assert cli.run(["data", "show", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "checkpoint-0000000001-00000000000000000030-0000000002.ckpt" in shown
    assert "a start reads the log from segment 4" in shown
    assert ["12", "1", str(cold), "100-109"] in [line.split() for line in shown.splitlines()]
    assert cli.run(["data", "verify", str(directory)]) == 0
    assert "sound" in (told := capsys.readouterr().out)
    assert "2 checkpoints, 1 cold segments" in told
    assert cli.run(["data", "usage", str(directory)]) == 0
    used = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert ["cold", "data", str(cold)] in used
    assert ["12", str(cold)] in used
    assert cli.run(["data", "usage", "--json", str(directory)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["held"] == sum(map(len, before.values()))
    assert files(directory) == before
    for name in before:
        if name.startswith(("check", "cold")):
            (directory / name).write_bytes(before[name][:-90] + b"?" + before[name][-89:])
    assert cli.run(["data", "verify", str(directory)]) == 1
    told = capsys.readouterr().out
    assert told.count("the checkpoint is damaged") == 2
    assert cli.run(["data", "show", str(directory)]) == 0
    assert "a start reads the log from segment 1" in capsys.readouterr().out
