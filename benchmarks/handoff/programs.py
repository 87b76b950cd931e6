"""Client programs of several languages that say what they see while masters move.

Each is a few dozen lines under tests/compat/moving/<language>/, with its library's own defaults: it
produces numbers at a steady rate and reads them in a consumer group, and prints a line for each
acknowledgement, each message read, and each error. Libraries are pinned beside the programs. A
language that is missing on this machine is skipped, and the reason is told.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import attrs

SOURCES: Final = Path(__file__).parents[2] / "tests" / "compat" / "moving"
BUILD: Final = Path(__file__).parents[2] / "build" / "compat-moving"
BUILD_S_MAX: Final = 600.0


class Missing(Exception):
    """Why a client cannot be tried on this machine."""


@attrs.frozen
class Program:
    client: str
    """The library and its version."""
    command: tuple[str, ...]
    """What follows are bootstrap, topic, group, partitions, rate, and the kind of producer."""


def _run(command: Sequence[str | Path], where: Path) -> None:
    """
    Raises:
    Missing: if it fails, with the end of what it said.
    """
    try:
        done = subprocess.run(
            [str(one) for one in command],
            cwd=where,
            capture_output=True,
            text=True,
            timeout=BUILD_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise Missing(f"{' '.join(map(str, command[:3]))} failed: {said[-1]}")


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def _built(language: str, pins: Sequence[str]) -> tuple[Path, bool]:
    """Where a language's programs are built, and whether what is pinned is there already."""
    where = BUILD / language
    where.mkdir(parents=True, exist_ok=True)
    stamp = where / "pins"
    wanted = "".join((SOURCES / language / one).read_text(encoding="utf-8") for one in pins)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return where, True
    stamp.unlink(missing_ok=True)
    return where, False


def _done(where: Path, language: str, pins: Sequence[str]) -> None:
    texts = [(SOURCES / language / one).read_text(encoding="utf-8") for one in pins]
    (where / "pins").write_text("".join(texts), encoding="utf-8")


def _javascript(library: str, package: str) -> Program:
    node, pins = _tool("node"), ("package.json", "package-lock.json")
    where, ready = _built("javascript", pins)
    if not ready:
        for one in pins:
            shutil.copy(SOURCES / "javascript" / one, where)
        _run([_tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], where)
        _done(where, "javascript", pins)
    shutil.copy(SOURCES / "javascript" / "moving.mjs", where)
    pinned = _between((where / "package.json").read_text(encoding="utf-8"), f'"{package}": "', '"')
    return Program(f"{package} {pinned}", (node, str(where / "moving.mjs"), library))


def _java() -> Program:
    java, pins = _tool("java"), ("pom.xml",)
    where, ready = _built("java", pins)
    if not ready:
        pom, out = SOURCES / "java" / "pom.xml", f"-DoutputDirectory={where / 'lib'}"
        _run([_tool("mvn"), "-q", "-B", "-f", pom, "dependency:copy-dependencies", out], where)
        _done(where, "java", pins)
    pom_text = (SOURCES / "java" / "pom.xml").read_text(encoding="utf-8")
    pinned = _between(pom_text, "<artifactId>kafka-clients</artifactId>", "</version>")
    program = SOURCES / "java" / "Moving.java"
    command = (java, "-cp", f"{where / 'lib'}{os.sep}*", str(program))
    return Program(f"Java kafka-clients {pinned.rpartition('>')[2]}", command)


def _go() -> Program:
    go, source = _tool("go"), SOURCES / "go"
    where, _ = _built("go", ("go.mod",))
    _run([go, "build", "-o", where / "moving", "."], source)
    pinned = _between((source / "go.mod").read_text(encoding="utf-8"), "franz-go v", "\n")
    return Program(f"franz-go {pinned}", (str(where / "moving"),))


def _python(library: str, package: str) -> Program:
    try:
        installed = version(package)
    except PackageNotFoundError as error:
        raise Missing(f"{package} is not installed") from error
    program = SOURCES / "python" / "moving.py"
    return Program(f"{package} {installed}", (sys.executable, str(program), library))


def _between(text: str, begin: str, end: str) -> str:
    return text.partition(begin)[2].partition(end)[0].strip()


PROGRAMS: Final[Mapping[str, Callable[[], Program]]] = {
    "kafkajs": lambda: _javascript("kafkajs", "kafkajs"),
    "platformatic": lambda: _javascript("platformatic", "@platformatic/kafka"),
    "java": _java,
    "franz-go": _go,
    "aiokafka": lambda: _python("aiokafka", "aiokafka"),
    "confluent": lambda: _python("confluent", "confluent-kafka"),
}
"""Each raises Missing where it cannot be made ready."""
