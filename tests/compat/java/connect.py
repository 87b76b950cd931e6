"""Kafka Connect in distributed mode: a file is read into a topic, and the topic into a file."""

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.compat.java.jvm import free_port, serving, until
from tests.compat.language_rows import MOVES, log_of
from tests.compat.languages import Ground, Program, Row

MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
FILE: Final = "org.apache.kafka.connect.file.FileStream"
TEXT: Final = "org.apache.kafka.connect.storage.StringConverter"


def settings(ground: Ground, port: int) -> dict[str, object]:
    names = {
        f"{what}.storage.topic": f"{ground.name}-{what}" for what in ("offset", "config", "status")
    }
    return {
        "bootstrap.servers": ground.bootstrap,
        "group.id": f"{ground.name}-workers",
        "listeners": f"HTTP://127.0.0.1:{port}",
        "key.converter": TEXT,
        "value.converter": TEXT,
        "offset.flush.interval.ms": 500,
        "plugin.discovery": "service_load",
        **names,
        **{name.replace("topic", "replication.factor"): 3 for name in names},
    }


def ask(port: int, method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


def connectors(port: int, ground: Ground, source: Path, sink: Path) -> None:
    # Topics come from Connect itself: nothing is created for who writes to what is not there.
    created = {"topic.creation.default.partitions": "1"}
    created["topic.creation.default.replication.factor"] = "3"
    for kind, options in (
        ("Source", {"topic": ground.name, "file": str(source), **created}),
        ("Sink", {"topics": ground.name, "file": str(sink)}),
    ):
        config = {"connector.class": f"{FILE}{kind}Connector", "tasks.max": "1", **options}
        ask(port, "POST", "/connectors", {"name": f"{ground.name}-{kind}", "config": config})


def copy(program: Program, ground: Ground) -> None:
    """Lines come out in order, once; after a restart of the worker it goes on where it was."""
    source, sink = ground.scratch / "in.txt", ground.scratch / "out.txt"
    port = free_port()
    text = lines(0)
    source.write_text(text)
    with serving(program, ground, MAIN, settings(ground, port)) as output:
        until(lambda: ask(port, "GET", "/connectors") == [], lambda: end(output))
        connectors(port, ground, source, sink)
        until(lambda: sink.read_text() == text, lambda: end(output))
    text += lines(1)
    source.write_text(text)
    with serving(program, ground, MAIN, settings(ground, port)) as output:
        until(lambda: sink.read_text() == text, lambda: end(output))
    assert [value for _, value in log_of(ground.bootstrap, ground.name)] == text.splitlines()


def moved(program: Program, ground: Ground) -> None:
    """The same while masters move: each line once, and no task fails."""
    source, sink = ground.scratch / "in.txt", ground.scratch / "out.txt"
    port = free_port()
    source.write_text("")
    with serving(program, ground, MAIN, settings(ground, port)) as output:
        until(lambda: ask(port, "GET", "/connectors") == [], lambda: end(output))
        connectors(port, ground, source, sink)
        for number in range(MOVES):
            with source.open("a") as file:
                file.write(lines(number))
            ground.faults.move()
        until(lambda: sink.read_text() == source.read_text(), lambda: end(output))
        for kind in ("Source", "Sink"):
            told = ask(port, "GET", f"/connectors/{ground.name}-{kind}/status")
            assert [task["state"] for task in told["tasks"]] == ["RUNNING"], told


def lines(number: int) -> str:
    return "".join(f"line {number}-{one}\n" for one in range(50))


def end(output: Path) -> str:
    return output.read_text()[-1_500:]


ROWS: Final[Mapping[str, Row]] = {
    "connect: file source and sink, a restart": copy,
    "connect: moves": moved,
}
