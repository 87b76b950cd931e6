"""Clients in other languages: how `make compat` runs them, and what they tell it.

A language is a folder of this one (`java/`, `go/`, ...) with programs of our own of some ten to
forty lines each, versions pinned in that language's own file, and a module `programs.py`:

    def programs(scratch: Path) -> list[Program]    # builds them; raises Missing("no mvn here")

A program is called as

    COMMAND --do WHAT --bootstrap HOST:PORT,.. --topic T [--NAME VALUE]...

and writes JSON lines to its standard output; anything else there is passed over. Each `--do` and
its options are what the rows in `language_rows.py` give it:

    --do produce  [--count N | --seconds N --rate N] [--acks 0|1|all] [--idempotent true|false]
                  [--codec none|gzip|snappy|lz4|zstd]
                  values 000000, 000001, ... to partition 0, each {"event": "acked", "value": ..,
                  "partition": .., "offset": ..} when it is acknowledged
    --do consume  --count N --seconds N: no group, partition 0 from its beginning;
                  {"event": "read", "value": .., "partition": .., "offset": ..}
    --do group    --group G --count N --seconds N [--protocol classic|consumer] [--assignor A]
                  [--instance I]: from the committed offset, else from the beginning; it ends after
                  N records or after so many seconds, commits what it has read and closes. Each new
                  assignment is {"event": "rebalance", "partitions": [..]} with all that
                  the member has then
    --do times    --at MS: {"event": "offset", "offset": .. or null} for partition 0
    --do admin    creates the topic with 2 partitions and retention.ms=1000, describes it, makes
                  that 2000 and 5 partitions, lists and deletes it; {"event": "step", "what": ..}
    --do transact {"event": "refused", "text": ..} where beginning a transaction is refused

`{"event": "error", "text": ..}` is whatever the library reports to its user as failed, and
`{"event": "done"}` is the last line of a program that did all it was asked for.
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

PATIENCE_S: Final = 240.0
"""Beyond the seconds that a program is told to run: a JVM starts slowly beside three nodes."""

Event = Mapping[str, Any]


class Missing(Exception):
    """This language, or one program of it, cannot be had here; the message says what is missing."""


class Faults(Protocol):
    """What a row may do to the cluster while a program works."""

    def move(self) -> None:
        """Move all masters to the next node: the topic's, its consumer group's, the registry's."""

    def kill(self) -> None:
        """Kill a node and start it again."""

    def roll(self) -> None:
        """Restart every node in turn, as `evenkeel rolling-restart` does."""

    def calm(self) -> None:
        """Spread the masters evenly, and wait for that."""


@attrs.frozen
class Ground:
    """Where a row runs; `name` is unique to it, for topics and consumer groups."""

    bootstrap: str
    name: str
    faults: Faults
    scratch: Path
    """A folder of this row's own, for what its programs write."""
    elsewhere: str = ""
    """The bootstrap address of a second cluster, of one node, for what copies between two."""


Row = Callable[["Program", Ground], None]
"""A failed assertion is the cell's verdict; Lacking is "-"."""


@attrs.frozen
class Program:
    language: str
    client: str
    """With its version: the column's name."""
    command: tuple[str, ...]
    shows: tuple[str, ...] = ()
    """Rows of `language_rows.ROWS`."""
    own: Mapping[str, Row] = attrs.Factory(dict)
    """Rows that only this client has (a framework, a tool), by name."""
    environment: Mapping[str, str] = attrs.Factory(dict)
    folder: Path | None = None
    """Where it is started."""


@attrs.define
class Running:
    """A program at work; its events are complete when it has ended."""

    process: subprocess.Popen[str]
    output: Path
    errors: Path

    def events(self) -> list[Event]:
        """Those so far."""
        return list(_events(self.output.read_text()))

    def wait(self, seconds: float) -> list[Event]:
        """Until it ends by itself, and that well."""
        try:
            code = self.process.wait(seconds + PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end; it said {self._end()}") from None
        told = self.events()
        assert code == 0, f"it ended with {code}: {self._end()}"
        assert [event["event"] for event in told[-1:]] == ["done"], f"not done: {self._end()}"
        return told

    def _end(self) -> str:
        return self.output.read_text()[-600:] + self.errors.read_text()[-1_500:]


@contextmanager
def started(program: Program, ground: Ground, do: str, **options: object) -> Iterator[Running]:
    """The program with these options; it is killed if it still runs at the end."""
    asked = {"do": do, "bootstrap": ground.bootstrap, "topic": ground.name, **options}
    words = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
    number = len(list(ground.scratch.glob("*.out")))
    output, errors = (ground.scratch / f"{do}-{number}.{end}" for end in ("out", "err"))
    with output.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(
            [*program.command, *words],
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            cwd=program.folder,
            env=dict(program.environment) or None,
            text=True,
        )
    try:
        yield Running(process, output, errors)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def run(program: Program, ground: Ground, do: str, **options: object) -> list[Event]:
    """From its start to its end; no error is among what it told."""
    with started(program, ground, do, **options) as running:
        told = running.wait(float(str(options.get("seconds", 0))))
    assert not of(told, "error"), of(told, "error")[:5]
    return told


def of(told: list[Event], name: str) -> list[Event]:
    return [event for event in told if event["event"] == name]


def values(told: list[Event], name: str) -> list[str]:
    return [str(event["value"]) for event in of(told, name)]


def _events(text: str) -> Iterator[Event]:
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a program that was killed
            if isinstance(event, dict) and "event" in event:
                yield event
