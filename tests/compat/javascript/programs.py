"""The clients for JavaScript that people use most; package.json and its lock file pin them."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.compat.language_rows import ROWS
from tests.compat.languages import Missing, Program

HERE: Final = Path(__file__).parent
INSTALLED: Final = HERE / "node_modules" / ".package-lock.json"
"""npm writes it last."""
INSTALL_S_MAX: Final = 540.0
PACKAGES: Final[Mapping[str, str]] = {"kafkajs": "kafkajs", "platformatic": "@platformatic/kafka"}
LACKS: Final[Mapping[str, frozenset[str]]] = {
    "kafkajs": frozenset(
        {
            "group: range",
            "group: sticky",
            "group: cooperative-sticky",
            "group: shared out by the broker",
            "group: static member",
        }
    ),
    "platformatic": frozenset({"group: range", "group: sticky", "group: cooperative-sticky"}),
}
"""What no program can show, since the client has no words for it."""
ZSTD: Final = "require('zlib').zstdCompressSync ? 0 : 1"


def install() -> None:
    """Into `node_modules/`, as the lock file says.

    Raises:
        Missing: if there is no Node.js, or a package could not be had.
    """
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise Missing(f"no {tool} here")
    lock = HERE / "package-lock.json"
    if INSTALLED.exists() and INSTALLED.stat().st_mtime >= lock.stat().st_mtime:
        return
    done = subprocess.run(
        ["npm", "ci"], cwd=HERE, capture_output=True, text=True, timeout=INSTALL_S_MAX
    )
    if done.returncode != 0:
        raise Missing(f"npm ci failed: {done.stderr[-600:]}")


def version(package: str) -> str:
    pinned = json.loads((HERE / "package.json").read_text())["dependencies"]
    return str(pinned[package])


def lacks(folder: str) -> frozenset[str]:
    """Node.js has zstd itself since 22.15, and @platformatic/kafka uses no other."""
    if (
        folder == "platformatic"
        and subprocess.run(["node", "-e", f"process.exit({ZSTD})"]).returncode
    ):
        return LACKS[folder] | {"zstd"}
    return LACKS[folder]


def programs(scratch: Path) -> list[Program]:
    install()
    return [
        Program(
            "JavaScript",
            f"{package} {version(package)}",
            ("node", str(HERE / folder / "main.js")),
            shows=tuple(name for name in ROWS if name not in lacks(folder)),
        )
        for folder, package in PACKAGES.items()
    ]
