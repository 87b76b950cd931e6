"""Our own programs as processes: what `python -m` calls them, and where Python finds them.

In a clone every room is a package at the top. In the wheel the rooms are inside `evenkeel`, so that
`node` or `storage` remain names of the user's own modules (ADR 59).
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import cluster

ROOMS: Final = cluster.__name__.removesuffix("cluster")
"""What precedes the name of a room: nothing in a clone, `evenkeel._internal.` in the wheel."""
FOLDER: Final = Path(next(iter(cluster.__path__))).parents[ROOMS.count(".")]
"""Where the outermost package is: in a clone, or where the wheel is installed."""


def program(room: str, *arguments: str) -> list[str]:
    """The command that runs a room. `-P`: a `node.py` in the user's working directory is not
    ours."""
    return [sys.executable, "-P", "-m", f"{ROOMS}{room}", *arguments]


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """With it they find the code where we found it."""
    path = env.get("PYTHONPATH")
    found = str(FOLDER) if not path else os.pathsep.join((str(FOLDER), path))
    return {**env, "PYTHONPATH": found}


def become(room: str, *arguments: str) -> NoReturn:
    """Replace this process by a room's program: exec(2), so that signals and the exit code are its
    own."""
    sys.stdout.flush()
    os.execve(sys.executable, program(room, *arguments), environment(os.environ))  # noqa: S606 (no shell wanted)
