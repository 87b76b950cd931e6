"""The audit log's file: lines of JSON, its owner's alone, bounded."""

import json
from pathlib import Path

import pytest

from runtime.system import audit_file
from runtime.system.audit_file import RotatedFile, audit_writer


def test_it_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    RotatedFile(path).write("x\n")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_file_makes_room_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = RotatedFile(path, bytes_max=10)
    for number in range(8):
        file.write(f"line-{number}\n")
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names == ["audit.log", *(f"audit.log.{number}" for number in range(1, 5))]
    assert path.read_text() == "line-7\n"
    assert (tmp_path / "audit.log.1").read_text() == "line-6\n"
    assert (tmp_path / "audit.log.4").read_text() == "line-3\n"


def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    RotatedFile(path, bytes_max=20).write("before\n")
    RotatedFile(path, bytes_max=20).write("after\n")
    assert path.read_text() == "before\nafter\n"


def test_a_line_longer_than_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    RotatedFile(path, bytes_max=4).write("a long line\n")
    assert path.read_text() == "a long line\n"


def test_entries_are_lines_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drains = []
    monkeypatch.setattr(audit_file.atexit, "register", drains.append)
    path = tmp_path / "audit.log"
    write = audit_writer(path, 3)
    write({"event": "denied", "resource": 'a "name"\n\ud800'})
    (drain,) = drains
    assert drain()
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["node"] == 3


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        audit_writer(tmp_path / "missing" / "audit.log", 1)
