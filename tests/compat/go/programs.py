"""The clients for Go that people use most; go.mod pins them.

`go build` keeps what it has built; it is asked each time.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.compat.language_rows import ROWS
from tests.compat.languages import Missing, Program

HERE: Final = Path(__file__).parent
BIN: Final = HERE / "bin"
BUILD_S_MAX: Final = 540.0
MODULES: Final[Mapping[str, str]] = {
    "franz": "github.com/twmb/franz-go",
    "sarama": "github.com/IBM/sarama",
    "kafkago": "github.com/segmentio/kafka-go",
}
LACKS: Final[Mapping[str, frozenset[str]]] = {
    "franz": frozenset(),
    "sarama": frozenset({"group: cooperative-sticky", "group: shared out by the broker"}),
    "kafkago": frozenset(
        {
            "produce, idempotent",
            "group: sticky",
            "group: cooperative-sticky",
            "group: shared out by the broker",
            "group: static member",
            "moves, idempotent",
            "a kill, idempotent",
            "a rolling restart",  # with an idempotent producer
        }
    ),
}
"""What no program can show, since the client has no words for it."""


def build() -> None:
    """All of them into `bin/`.

    Raises:
        Missing: if there is no Go, or a module could not be had.
    """
    if shutil.which("go") is None:
        raise Missing("no go here")
    command = ["go", "build", "-o", f"{BIN}/", *(f"./{folder}" for folder in MODULES)]
    BIN.mkdir(exist_ok=True)
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=BUILD_S_MAX)
    if done.returncode != 0:
        raise Missing(f"go build failed: {done.stderr[-600:]}")


def version(module: str) -> str:
    """As go.mod pins it."""
    found = re.search(rf"{re.escape(module)} v(\S+)", (HERE / "go.mod").read_text())
    assert found, f"go.mod does not name {module}"
    return found[1]


def programs(scratch: Path) -> list[Program]:
    build()
    return [
        Program(
            "Go",
            f"{module.rpartition('/')[2]} {version(module)}",
            (str(BIN / folder),),
            shows=tuple(name for name in ROWS if name not in LACKS[folder]),
        )
        for folder, module in MODULES.items()
    ]
