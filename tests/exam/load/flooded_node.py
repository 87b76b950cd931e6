"""One real node that is short of something, a flood against it, and a quiet client beside the
flood."""

import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.broker.batches import batch
from tests.cluster.scenery import FULL
from tests.runtime.test_node import Place, Process, running, started
from wire.apis import APIS, Request, decode_response, encode_request
from wire.error_codes import ErrorCode
from wire.messages import metadata, produce, topics

TOPIC: Final = "quiet"
GIVE_UP_S: Final = 60.0
PAUSE_S: Final = 0.01
CGROUPS: Final = Path("/sys/fs/cgroup")
MIB: Final = 1024 * 1024
DOSE: Final = 10 if FULL else 1
USUAL: Final = 1000 if FULL else 30
"""Records of the quiet client, each time: a p99 needs about a thousand."""
P99_MS_MIN: Final = 20.0
"""Below twice this, a difference cannot be told from the machine's noise."""


class Caller:
    """A connection that sends whole requests and waits for each answer."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), GIVE_UP_S, (host, 0))

    def send(self, message: Request, version: int) -> None:
        self.sock.sendall(b"".join(encode_request(message, version, 1, "flood")))

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.sock.recv(min(size - len(data), MIB))
            if not more:
                raise ConnectionError("closed")
            data += more
        return bytes(data)

    def ask(self, message: Request, version: int) -> Any:
        self.send(message, version)
        (key,) = (api.key for api in APIS.values() if api.request is type(message))
        return decode_response(int(key), version, memoryview(self.receive()))

    def close(self) -> None:
        self.sock.close()


def produce_one(caller: Caller) -> int:
    """Produce one record to the quiet client's topic; returns the error code."""
    data = produce.PartitionProduceData(0, memoryview(batch("x")))
    asked = produce.ProduceRequest(None, -1, 30_000, [produce.TopicProduceData(TOPIC, [data])])
    answer = caller.ask(asked, 9)
    return int(answer.responses[0].partition_responses[0].error_code)


class Quiet:
    """Produces a record every few milliseconds and remembers how long each took, in a process of
    its own (tests.exam.load.quiet_client)."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.exam.load.quiet_client", str(port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ending = False
        self.took_ms: list[float] = []
        self.errors: list[str] = []

    def __enter__(self) -> "Quiet":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self._process.kill()
        self._thread.join(GIVE_UP_S)
        self._process.communicate()

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            took_ms, error = line.split()
            if error != ErrorCode.NONE.name:
                self.errors.append(error)
            self.took_ms.append(float(took_ms))
        if not self._ending:
            assert self._process.stderr is not None
            self.errors.append(self._process.stderr.read())

    def until(self, count: int) -> list[float]:
        """Wait for that many more records; returns how long each took."""
        start, until = len(self.took_ms), time.monotonic() + GIVE_UP_S
        while len(self.took_ms) < start + count and not self.errors:
            assert time.monotonic() < until, "the quiet client is not served"
            time.sleep(PAUSE_S)
        assert not self.errors, f"the quiet client was told {self.errors[:3]}"
        return self.took_ms[start:]

    def beside_burners(self, count: int) -> list[float]:
        """The same while every core is busy with work that never touches the node."""
        burners = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(os.cpu_count() or 1)
        ]
        try:
            return self.until(count)
        finally:
            for burner in burners:
                burner.kill()
                burner.wait()


def p99(took_ms: list[float]) -> float:
    return statistics.quantiles(took_ms, n=100)[98]


def compare(name: str, usual: list[float], burned: list[float], flooded_ms: list[float]) -> None:
    """In the full dose the quiet client may wait for twice its usual p99. What it waits beside
    unrelated work on every core is printed for comparison: no node can prevent that."""
    before, beside, during = p99(usual), p99(burned), p99(flooded_ms)
    sys.stderr.write(
        f"{name}: p99 {before:.1f} ms before, {beside:.1f} ms beside burners, "
        f"{during:.1f} ms during ({len(flooded_ms)})\n"
    )
    if FULL:
        assert during <= max(2 * before, P99_MS_MIN), name


class Flooded:
    def __init__(self, place: Place, process: Process) -> None:
        self.place, self.process = place, process
        self.port = place.ports
        self._held: list[socket.socket] = []
        self._callers: list[Caller] = []

    @property
    def alive(self) -> bool:
        return self.process._process.poll() is None

    @property
    def rss(self) -> int:
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * resource.getpagesize()

    def is_ready(self) -> bool:
        try:
            return self.place.get("/readyz")[0] == 200
        except OSError:
            return False

    def metric(self, name: str) -> float:
        _, text = self.place.get("/metrics")
        (line,) = [line for line in text.decode().splitlines() if line.startswith(f"{name} ")]
        return float(line.split()[1])

    def prepare(self) -> None:
        until = time.monotonic() + GIVE_UP_S
        while not self.is_ready():
            assert time.monotonic() < until
            assert self.alive
            time.sleep(PAUSE_S)
        caller = Caller(self.port)
        asked = topics.CreateTopicsRequest([topics.CreatableTopic(TOPIC, 1, 1)], 30_000)
        assert caller.ask(asked, 5).topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        while produce_one(caller):
            assert time.monotonic() < until
            time.sleep(PAUSE_S)
        caller.close()

    def hold(self, data: bytes, count: int, hosts: int = 4) -> int:
        """Open that many connections, send this on each and then nothing; returns how many accepted
        all of it at once."""
        sent = 0
        for number in range(count):
            sock = socket.socket()
            sock.bind((f"127.0.0.{2 + number % hosts}", 0))
            sock.settimeout(GIVE_UP_S)
            with suppress(OSError):
                sock.connect(("127.0.0.1", self.port))
                sock.settimeout(0.2)
                sock.sendall(data)
                sent += 1
            self._held.append(sock)
        return sent

    def let_go(self) -> None:
        for sock in self._held:
            sock.close()
        self._held.clear()

    def caller(self, host: str = "127.0.0.1") -> Caller:
        """A connection that is closed in the end."""
        caller = Caller(self.port, host)
        self._callers.append(caller)
        return caller

    def close(self) -> None:
        self.let_go()
        for caller in self._callers:
            caller.close()

    def metadata(self) -> int:
        """Whether a new client is served: how many brokers the node tells it of."""
        caller = Caller(self.port, "127.0.0.201")
        answer = caller.ask(metadata.MetadataRequest([]), 9)
        caller.close()
        return len(answer.brokers)


@contextmanager
def flooded(place: Place, *settings: str, talks: bool = True, **options: Any) -> Iterator[Flooded]:
    """A node that is ready, with a topic for its quiet client; with `talks` its log can be read."""
    arguments = [word for one in settings for word in ("--set", one)]
    with running(place, *arguments, **options) as process:
        node = Flooded(place, started(process) if talks else process)
        node.prepare()
        try:
            yield node
        finally:
            node.close()


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A control group of this size; skips the test, with a reason, where none can be made."""
    parent = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    name = parent / f"evenkeel-test-{os.getpid()}"
    file = "memory.limit_in_bytes" if parent.name == "memory" else "memory.max"
    try:
        name.mkdir()
        (name / file).write_text(str(limit))
    except OSError as error:
        with suppress(OSError):
            name.rmdir()
        pytest.skip(f"no control group for memory can be made here: {error}")
    try:
        yield name
    finally:
        until = time.monotonic() + GIVE_UP_S
        while name.exists() and time.monotonic() < until:
            with suppress(OSError):
                name.rmdir()
            time.sleep(PAUSE_S)
