"""The exam: drivers are killed in the middle of micro-batches, and nodes and masters meanwhile.

Every kill comes when part of a micro-batch's rows are in the destination, which is checked there: a
kill between micro-batches proves nothing. `make test` has one kill of a driver and one of a node,
EXAM=full five of each.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from pyspark_evenkeel.client.cluster import LATEST, Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.spark.bus import WAIT_S, OurBus
from tests.spark.conftest import ROOT
from tests.spark.streaming_job import copy_rows

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

KILLS = 5 if FULL else 1
PARTITIONS = 4
ROWS = 50_000
"""Rows in a micro-batch."""
BATCHES = 10 if FULL else 3
CHUNK_BYTES = 40_000
"""So that a micro-batch has more than a hundred chunks, and takes some time."""
STORY_S = 120.0


@attrs.frozen
class Copying:
    """A copy from topic to topic, and how much of it is done."""

    bus: OurBus
    source: str
    destination: str
    checkpoint: Path
    cluster: Cluster

    @property
    def arguments(self) -> tuple[str, str, str, str, int, int]:
        bus, checkpoint = self.bus.bootstrap, str(self.checkpoint)
        return bus, self.source, self.destination, checkpoint, ROWS, CHUNK_BYTES

    def copied(self) -> int:
        places = [Place(self.destination, number) for number in range(PARTITIONS)]
        ends = self.cluster.offsets(dict.fromkeys(places, LATEST))
        return sum(one.offset for one in ends.values())

    def until_inside(self, beyond: int, is_running: Callable[[], object]) -> int:
        """Wait until more rows than that are there, with the last micro-batch only in part."""
        deadline = time.monotonic() + STORY_S
        while time.monotonic() < deadline:
            copied = self.copied()
            if copied > beyond and copied % ROWS:
                return copied
            assert is_running(), f"it has ended, with {copied:,} rows copied"
            time.sleep(0.002)  # the cluster is busy with other work
        pytest.fail(f"{copied:,} rows are there, and none was added within {STORY_S} s")


@contextmanager
def driver(copying: Copying) -> Iterator["subprocess.Popen[bytes]"]:
    """In a session of its own; at the end nothing of it is left."""
    command = [sys.executable, "-m", "tests.spark.streaming_job", *map(str, copying.arguments)]
    env = {**os.environ, "PYTHONPATH": ROOT, "PYSPARK_PYTHON": sys.executable}
    log = copying.checkpoint.with_suffix(".log")
    with (
        log.open("ab") as out,
        subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=out, stderr=out, start_new_session=True
        ) as job,
    ):
        try:
            yield job
        except BaseException as error:
            error.add_note(f"the driver's output is in {log}")
            raise
        finally:
            kill_session(job.pid)
            job.wait(WAIT_S)


def is_alive(job: "subprocess.Popen[bytes]") -> bool:
    return job.poll() is None


def kill_session(leader: int) -> None:
    """The driver, its JVM and its workers, which are in groups of their own."""
    deadline = time.monotonic() + WAIT_S
    while members := [pid for pid in session_of(leader) if pid != os.getpid()]:
        assert time.monotonic() < deadline, f"processes {members} do not die"
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def session_of(leader: int) -> list[int]:
    """Processes of this session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(session) == leader and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture
def copying(bus: OurBus, tmp_path: Path) -> Iterator[Copying]:
    """Numbered rows of about a hundred bytes in the source; every third has a key."""
    source, destination = bus.create("from", PARTITIONS), bus.create("to", PARTITIONS)
    rows: dict[int, list[tuple[bytes | None, bytes | None]]] = {n: [] for n in range(PARTITIONS)}
    for number in range(BATCHES * ROWS):
        key = b"key %d" % (number % 1000) if number % 3 == 0 else None
        rows[number % PARTITIONS].append((key, b"row %09d" % number + b"." * 80))
    bus.produce(source, rows, **{"queue.buffering.max.messages": BATCHES * ROWS})
    with Cluster(ClusterSettings(bootstrap=bus.bootstrap)) as cluster:
        yield Copying(bus, source, destination, tmp_path / "checkpoint", cluster)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_drivers_and_nodes_are_killed_in_the_middle_of_micro_batches(
    spark: Any, copying: Copying
) -> None:
    """All rows, none lost, none twice."""
    bus, dice = copying.bus, random.Random(7)
    inside: list[int] = []
    while len(inside) < KILLS:
        beyond = max(inside, default=0) // ROWS * ROWS + (ROWS if inside else 0)
        with driver(copying) as job:
            copying.until_inside(beyond, partial(is_alive, job))
            victim = bus.leader_of(copying.destination, dice.randrange(PARTITIONS))
            bus.kill(victim)
            copying.until_inside(copying.copied(), partial(is_alive, job))
            bus.steal_to(dice.choice([node for node in (1, 2, 3) if node != victim]))
        there = copying.copied()
        if there % ROWS:
            inside.append(there)
        bus.restart(victim)
    query = copy_rows(spark, *copying.arguments)
    copying.until_inside(max(inside), lambda: query.isActive)
    bus.spread()
    query.awaitTermination()
    written = Counter(
        value for rows in bus.contents(copying.destination).values() for _, value in rows
    )
    assert Counter(written.values()) == {1: BATCHES * ROWS}, f"killed at {inside}"
