"""archive and replay as users start them, killed with their JVM (EXAM=full)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.spark.bus import OurBus, Row

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL),
]
ROOT = Path(__file__).parents[2]
CONF = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
PARTITIONS = 3
ROWS = 4_000
STEP_S = 180.0


def job(*words: str) -> "subprocess.Popen[bytes]":
    """A job in a process group of its own, with all that Spark starts for it."""
    command = [sys.executable, "-m", "pipeline", *words, "--master", "local[2]", *CONF]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


def killed_when(started: "subprocess.Popen[bytes]", condition: Callable[[], bool]) -> None:
    """SIGKILL for the group as soon as the condition holds; it must not have ended by then."""
    deadline = time.monotonic() + STEP_S
    while not condition():
        assert started.poll() is None, "it has ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait(STEP_S)


def files(folder: Path) -> int:
    return len([path for path in folder.glob("*") if not path.name.startswith(".")])


def test_killed_jobs_archive_and_replay_each_record_once(bus: OurBus, tmp_path: Path) -> None:
    topic, again = bus.create("kept", PARTITIONS), bus.create("again", PARTITIONS)
    rows: dict[int, list[Row]] = {
        at: [(f"k{n % 11}".encode(), f"{at}-{n}".encode()) for n in range(ROWS)]
        for at in range(PARTITIONS)
    }
    bus.produce(topic, rows)
    kept = tmp_path / "kept"
    archive = ("archive", "--bootstrap", bus.bootstrap, "--topics", topic, "--to", str(kept))
    archive += ("--rows-max", "1000")
    for _ in range(3):
        there = files(kept / "manifest")
        killed_when(job(*archive), lambda there=there: files(kept / "manifest") >= there + 2)  # type: ignore[misc]  # a default binds it
    assert job(*archive, "--compact").wait(STEP_S) == 0
    assert job("archive-check", str(kept)).wait(STEP_S) == 0
    replay = ("replay", "--from", str(kept), "--bootstrap", bus.bootstrap)
    replay += ("--topic", f"{topic}={again}", "--rows-max", "1500", "--name", "it")
    notes = kept / "replays" / "it"
    for done in (2, 4):
        killed_when(job(*replay), lambda done=done: files(notes) > done)  # type: ignore[misc]  # a default binds it
    assert job(*replay).wait(STEP_S) == 0
    assert bus.contents(again) == rows
