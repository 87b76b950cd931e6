"""kcat, Debian's command (librdkafka 2.0): it produces, consumes and asks for offsets.

confluent-kafka creates the topics, because kcat cannot.
"""

import json
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty, Queue
from typing import IO, Any

from tests.compat.confluent import Confluent
from tests.compat.model import Got, Lacking, Message, RefusedError
from tests.compat.nodes import wait_until_known

WAIT_S = 20.0
SEPARATOR = "\x1f"


class Kcat:
    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._maker = Confluent(bootstrap)

    @staticmethod
    def missing() -> str | None:
        return None if shutil.which("kcat") else "not installed (apt install kcat)"

    def version(self) -> str:
        text = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"Version (\S+) .*librdkafka (\S+)", text)
        assert found is not None, text
        return f"{found[1]} (librdkafka {found[2]})"

    def _run(self, *arguments: str, given: bytes = b"") -> str:
        command = ["kcat", "-b", self._bootstrap, "-m", "20", *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)
        if done.returncode != 0:
            raise RefusedError(done.stderr.decode().strip())
        return done.stdout.decode()

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        idempotent: bool = False,
        compression: str = "none",
    ) -> None:
        if any(one.timestamp_ms >= 0 for one in messages):
            raise Lacking
        settings = ["-X", f"acks={acks}", "-X", f"enable.idempotence={str(idempotent).lower()}"]
        first = messages[0]
        headers = [word for name, value in first.headers for word in ("-H", _header(name, value))]
        key = [] if first.key is None else ["-k", first.key.decode()]
        given = SEPARATOR.join(one.value.decode() for one in messages).encode()
        self._run(
            *("-P", "-t", topic, "-p", str(first.partition), "-D", SEPARATOR),
            *("-z", compression, *settings, *headers, *key),
            given=given,
        )

    def transact(self, topic: str) -> None:
        self._run("-P", "-t", topic, "-X", f"transactional.id={topic}", given=b"x")

    def consumer(
        self, topic: str, partitions: Sequence[int], *, isolation: str = "read_uncommitted"
    ) -> "KcatConsumer":
        if len(partitions) != 1:
            raise Lacking
        where = ("-t", topic, "-p", str(partitions[0]), "-X", f"isolation.level={isolation}")
        return KcatConsumer(self, topic, ["-C", *where], "beginning")

    def member(
        self, group: str, topic: str, *, pattern: bool = False, instance: str | None = None
    ) -> "KcatConsumer":
        if instance is not None:
            raise Lacking
        return KcatConsumer(
            self, topic, ["-X", "auto.offset.reset=earliest", "-G", group, topic], None
        )

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._maker.create_topic(topic, partitions, configs)
        wait_until_known(self._bootstrap, topic)  # kcat ends if its node has not heard of it

    def topics(self) -> dict[str, int]:
        found = json.loads(self._run("-L", "-J"))
        return {one["topic"]: len(one["partitions"]) for one in found["topics"]}

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int:
        text = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}")
        return int(text.split("offset")[1])

    def cluster(self) -> tuple[str, int]:
        found = json.loads(self._run("-L", "-J"))
        return "not told", len(found["brokers"])

    def __getattr__(self, name: str) -> Any:
        """Administration, which kcat has no commands for."""
        raise Lacking


def _header(name: str, value: bytes | None) -> str:
    return f"{name}={(value or b'').decode()}"


class KcatConsumer:
    """A running kcat that prints what it consumes as JSON."""

    def __init__(self, kcat: Kcat, topic: str, arguments: list[str], start: str | None) -> None:
        self._kcat = kcat
        self._topic = topic
        self._arguments = arguments
        self._owned: frozenset[int] = frozenset()
        self._last_words: deque[str] = deque(maxlen=5)
        self._lines: Queue[str] = Queue()
        self._begin(start)

    def _begin(self, start: str | None) -> None:
        where = [] if start is None else ["-o", start]
        # -G takes everything after it for names of topics.
        command = ["kcat", "-b", self._kcat._bootstrap, "-J", "-u", *where, *self._arguments]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._lines = Queue()
        self._readers = [
            threading.Thread(target=_read, args=what, daemon=True)
            for what in (
                (self._process.stdout, self._lines.put),
                (self._process.stderr, self._told),
            )
        ]
        for reader in self._readers:
            reader.start()

    def _told(self, line: str) -> None:
        self._last_words.append(line.strip())
        if "assigned:" in line:
            self._owned = frozenset(int(one) for one in re.findall(r"\[(\d+)\]", line))
        elif "revoked:" in line:
            self._owned = frozenset()

    def poll(self, seconds: float) -> list[Got]:
        got = []
        deadline = time.monotonic() + seconds
        while True:
            try:
                got.append(_got(self._lines.get(timeout=max(0, deadline - time.monotonic()))))
            except Empty:
                ended = self._process.poll()
                assert ended is None, f"kcat ended with {ended}: {list(self._last_words)}"
                return got

    def partitions(self) -> frozenset[int]:
        return self._owned

    def seek(self, partition: int, offset: int) -> None:
        self.close()
        self._begin(str(offset))

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        found = self._kcat.offset_for_time(self._topic, partition, timestamp_ms)
        return None if found < 0 else found

    def watermarks(self, partition: int) -> tuple[int, int]:
        ends = [self._kcat.offset_for_time(self._topic, partition, when) for when in (-2, -1)]
        return ends[0], ends[1]

    def pause(self, partition: int) -> None:
        raise Lacking

    def resume(self, partition: int) -> None:
        raise Lacking

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)

    def left(self) -> list[Got]:
        return [_got(self._lines.get()) for _ in range(self._lines.qsize())]


def _read(stream: IO[str], act: Any) -> None:
    for line in stream:
        act(line)


def _got(line: str) -> Got:
    one = json.loads(line)
    pairs = one.get("headers") or []
    headers = tuple(
        (name, value.encode()) for name, value in zip(pairs[::2], pairs[1::2], strict=True)
    )
    key = one["key"]
    message = Message(
        one["payload"].encode(),
        None if key is None else key.encode(),
        headers,
        one["ts"],
        one["partition"],
    )
    return Got(message, one["offset"], one["tstype"] == "logappend")
