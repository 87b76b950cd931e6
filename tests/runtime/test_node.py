"""One node as a process: how it starts, what it refuses, how it stops, and its exit codes."""

import http.client
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import node
from cluster.spec import FREE_PORTS, is_free
from runtime.balancing.draining import DRAIN_S
from runtime.config.fields import Address
from tests.runtime.one_node import config_text

ROOT = Path(__file__).parents[2]
GIVE_UP_S = 20.0
"""Nothing here takes a tenth of it on a machine that is not overloaded."""

pytestmark = pytest.mark.cluster


def three_free_ports() -> int:
    """The first of three adjacent ports on which nobody listens."""
    start = FREE_PORTS.start + (os.getpid() * 37) % (len(FREE_PORTS) - 3)
    for port in range(start, FREE_PORTS.stop - 3):
        if all(is_free(Address("127.0.0.1", port + k)) for k in range(3)):
            return port
    raise AssertionError("no free ports")


class Process:
    """A node whose standard error is read line by line, with a time limit."""

    def __init__(self, command: list[str], **options: Any) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )
        assert self._process.stderr is not None
        self._fd = self._process.stderr.fileno()
        self._rest = b""
        self.lines: list[str] = []
        self.pid = self._process.pid

    def _read(self, deadline: float) -> bool:
        """Read more lines; False at the end of the output."""
        left = deadline - time.monotonic()
        assert left > 0, "\n".join(["it says nothing more:", *self.lines])
        if select.select([self._fd], [], [], left)[0]:
            data = os.read(self._fd, 65536)
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.lines += [line.decode() for line in lines]
        return True

    def until_said(self, text: str) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while not any(text in line for line in self.lines):
            assert self._read(deadline), "\n".join([f"it ended without {text!r}:", *self.lines])

    def until_silent(self) -> None:
        """Until no process holds its standard error any more: the node and all its children are
        gone."""
        deadline = time.monotonic() + GIVE_UP_S
        while self._read(deadline):
            pass

    def exit_code(self) -> int:
        self.until_silent()
        return self._process.wait(GIVE_UP_S)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def events(self) -> list[str]:
        return [str(json.loads(line)["event"]) for line in self.lines if line.startswith("{")]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stderr):
            assert stream is not None
            stream.close()


class Place:
    """Where a node lives: its directory, its ports, its configuration."""

    def __init__(self, tmp_path: Path) -> None:
        self.ports = three_free_ports()
        self.path, self.data = tmp_path / "node.toml", tmp_path / "data"
        self.write()

    def write(self, **options: Any) -> None:
        self.path.write_text(config_text(self.data, ports=self.ports, **options))

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "node", "--config", str(self.path)]

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports + 2, timeout=GIVE_UP_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def running(place: Place, *arguments: str, **options: Any) -> Iterator[Process]:
    with ExitStack() as stack:
        process = Process([*place.command, *arguments], **options)
        stack.callback(process.close)
        yield process


def started(process: Process) -> Process:
    process.until_said("node started")
    return process


# -- refusals before anything starts --------------------------------------------------------------


def test_no_configuration_is_no_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        node.main([])
    assert refusal.value.code == 2
    assert "--config" in capsys.readouterr().err


def test_a_wrong_configuration_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With every problem listed, and no traceback."""
    path = tmp_path / "node.toml"
    assert node.main(["--config", str(path)]) == 2
    path.write_text(config_text(tmp_path / "data"))
    assert node.main(["--config", str(path), "--set", "lease.durations_ms=1"]) == 2
    assert node.main(["--config", str(path), "--set", "paxos.window=0"]) == 2
    said = capsys.readouterr().err
    assert "did you mean lease.duration_ms?" in said
    assert "paxos.window = 0" in said
    assert not (tmp_path / "data").exists()


def test_python_without_assertions_is_refused(place: Place) -> None:
    """Assertions detect our own bugs: without them a bug would go on unnoticed."""
    with ExitStack() as stack:
        process = Process([sys.executable, "-O", *place.command[1:]])
        stack.callback(process.close)
        assert process.exit_code() == 2
    assert "do not run with -O" in process.lines[0]


def test_a_port_in_use_is_said_in_a_line(place: Place) -> None:
    with socket.create_server(("127.0.0.1", place.ports)), running(place) as process:
        assert process.exit_code() == 2
    (line,) = (line for line in process.lines if not line.startswith("{"))
    assert line == f'node: listen.kafka = "127.0.0.1:{place.ports}": Address already in use'


# -- the data directory ---------------------------------------------------------------------------


def test_a_directory_belongs_to_one_process_and_one_node(place: Place) -> None:
    with running(place) as first:
        started(first)
        with running(place) as second:
            assert second.exit_code() == 3
        assert f"in use by process {first.pid}" in second.lines[-1]
        first.signal(signal.SIGTERM)
        assert first.exit_code() == 0
    with running(place, "--set", "node.cluster_id=other") as stranger:
        assert stranger.exit_code() == 3
    assert "belongs to node 1 of cluster 'test'" in stranger.lines[-1]
    assert "Traceback" not in "\n".join(first.lines + second.lines + stranger.lines)


def test_a_damaged_identity_is_refused(place: Place) -> None:
    place.data.mkdir()
    (place.data / "identity").write_text("evenkeel was here\n")
    with running(place) as process:
        assert process.exit_code() == 3
    assert "is damaged" in process.lines[-1]


# -- running --------------------------------------------------------------------------------------


def test_a_node_serves_and_stops_gracefully(place: Place) -> None:
    """Alone in its cluster it has every master and nobody to give them to: it does not wait."""
    with running(place) as process:
        started(process)
        assert place.get("/livez") == (200, b"ok\n")
        for _ in range(10_000):
            code, why = place.get("/readyz")
            if code == 200:
                break
        assert (code, why) == (200, b"ok\n")
        status = json.loads(place.get("/status")[1])
        assert status["pid"] == process.pid
        assert all(group["acting"] for group in status["groups"])
        assert place.get("/metrics")[1].count(b"evenkeel_") > 100
        code, why = place.get("/nowhere")
        assert code == 404
        assert b"GET /readyz" in why
        process.signal(signal.SIGTERM)
        assert process.exit_code() == 0
    assert process.events()[-2:] == ["draining", "drained"]
    took_ms = wall_ms(process.lines[-1]) - wall_ms(process.lines[-2])
    assert took_ms < DRAIN_S * 1000 / 2


def wall_ms(line: str) -> float:
    clock = str(json.loads(line)["time"])[11:-1]
    hours, minutes, seconds = clock.split(":")
    return (int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1000


def test_interrupted_at_the_keyboard_it_stops_as_well(place: Place) -> None:
    with running(place) as process:
        started(process).signal(signal.SIGINT)
        assert process.exit_code() == 0


def test_it_takes_the_file_descriptors_it_needs(place: Place) -> None:
    """A shell's soft limit is raised; a hard limit that is too low is reported."""
    low, high = 256, 1500

    def limited(soft: int, hard: int) -> Callable[[], None]:
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with running(place, preexec_fn=limited(low, high)) as process:
        started(process)
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (high, high)
        assert "few file descriptors: raise ulimit -n" in process.events()
        process.signal(signal.SIGTERM)
        assert process.exit_code() == 0


# -- the disk fails -------------------------------------------------------------------------------


def test_a_disk_that_fails_a_write_ends_it_with_74(place: Place) -> None:
    """From some moment on every write fails (EFBIG): the next renewal of a lease finds out."""
    with running(place) as process:
        started(process)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))
        assert process.exit_code() == 74
    last = json.loads(process.lines[-1])
    assert last["event"] == "disk failed: stopping, nothing more is acknowledged"
    assert "File too large" in last["reason"]
    assert "Traceback" not in "\n".join(process.lines)


def test_a_disk_that_fails_at_the_start_ends_it_with_74(place: Place) -> None:
    small = 1 << 20

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))

    with running(place, preexec_fn=limited) as process:
        assert process.exit_code() == 74
    assert "node started" not in process.events()


# -- no orphans -----------------------------------------------------------------------------------

LAUNCHER = """
import os, subprocess, sys
node = subprocess.Popen([*sys.argv[1:], "--parent-pid", str(os.getpid())])
sys.stdin.read()
"""


def test_an_orphan_stops_by_itself(place: Place) -> None:
    """However its launcher died: here by SIGKILL, so that it could not tell anybody."""
    with ExitStack() as stack:
        launcher = Process([sys.executable, "-c", LAUNCHER, *place.command])
        stack.callback(launcher.close)
        started(launcher)
        launcher.signal(signal.SIGKILL)
        launcher.until_silent()
    assert launcher.events()[-1] == "drained"


def test_a_node_whose_parent_was_gone_at_its_start_stops_at_once(place: Place) -> None:
    with running(place, "--parent-pid", "1") as process:
        assert process.exit_code() == 0
