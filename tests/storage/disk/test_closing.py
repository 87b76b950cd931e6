"""A process ends whether or not it closes its files in the background."""

import subprocess
import sys
from pathlib import Path

import pytest

GIVE_UP_S = 60.0
PROGRAM = """
import pathlib, sys
from storage.disk.closing import close_in_background
from storage.disk.files import RealDisk
if sys.argv[2] == "aside":
    close_in_background()
KEPT = [RealDisk(pathlib.Path(sys.argv[1])).create(name) for name in ("one", "two")]
del KEPT[0]
"""


@pytest.mark.parametrize("way", ["here", "aside"])
def test_files_open_at_the_very_end_hold_nobody_up(tmp_path: Path, way: str) -> None:
    """At that point no thread can be started, and waiting for one would never end."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), way]
    assert subprocess.run(command, timeout=GIVE_UP_S, check=False).returncode == 0
