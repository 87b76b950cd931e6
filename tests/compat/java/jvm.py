"""Main classes that others wrote: started with files and words of their own."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.compat.languages import Ground, Program

TOOL_S_MAX: Final = 240.0
PATIENCE_S: Final = 240.0
"""On a machine that other programs keep busy a JVM alone takes half a minute."""


def call(program: Program, ground: Ground, main: str, *words: object) -> str:
    """What a tool printed; it ended well."""
    command = [*program.command, main, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_S_MAX, stdin=subprocess.DEVNULL
    )
    said = done.stdout + "\n".join(
        line for line in done.stderr.splitlines() if not line.startswith("SLF4J")
    )
    (ground.scratch / f"{main}.txt").write_text(said)
    assert done.returncode == 0, f"{main} {' '.join(map(str, words))}: {said[-1_500:]}"
    return said


@contextmanager
def serving(
    program: Program, ground: Ground, main: str, settings: Mapping[str, object]
) -> Iterator[Path]:
    """A server that reads a properties file; yields where its output goes. It is asked to end."""
    file = ground.scratch / "settings.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    output = ground.scratch / f"{main}.{time.monotonic_ns()}.txt"
    with output.open("w") as out:
        process = subprocess.Popen(
            [*program.command, main, str(file)], stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    try:
        yield output
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S / 3)
        process.kill()
        process.wait()


def until(
    condition: Callable[[], bool], what: Callable[[], str], seconds: float = PATIENCE_S
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with suppress(OSError, LookupError):
            if condition():
                return
        assert time.monotonic() < deadline, what()
        time.sleep(0.25)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port
