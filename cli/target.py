"""Which cluster a command acts on, and what it says about that.

A command that changes something acts on the cluster that was named, or on `./data`, and afterwards
says which cluster it changed. Only a command that shows something may follow the note about the
cluster started last, and says so. A directory whose cluster is stopped means that cluster and no
other: another cluster may have its ports by now.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

import attrs

from cluster import state
from cluster.spec import ClusterSpec
from cluster.spec import read as spec_of

DATA_CHANGES: Final = "the cluster's directory (./data)"
DATA_LOOKS: Final = "the cluster's directory (./data, or the one started last)"


@attrs.frozen
class Target:
    """The cluster a command acts on; `followed`: it was not named and is not in ./data."""

    where: str
    changes: bool
    path: Path | None = None
    followed: bool = False


def directory(options: Any) -> Path:  # noqa: ANN401 (argparse's)
    """The directory of the cluster that is meant; `options.changes`: whether to change it.

    Raises:
        StateError: if there is none.
    """
    before: Target | None = getattr(options, "chosen", None)
    if before is not None and before.path is not None:
        return before.path
    changes = bool(getattr(options, "changes", False))
    found = state.find(options.data, os.environ, follow=not changes)
    options.chosen = Target(f"the cluster of {found.path}", changes, *found)
    if found.followed:
        print(f"evenkeel: {options.chosen.where}, the one started last", file=sys.stderr)
    return found.path


def running(options: Any) -> tuple[ClusterSpec, state.State]:  # noqa: ANN401 (argparse's)
    """The cluster that is meant, which must be running.

    Raises:
        StateError: if there is none, or it is not running.
    """
    data_dir = directory(options)
    now = state.read(data_dir)
    return spec_of(data_dir), now


def elsewhere(options: Any, address: str) -> None:  # noqa: ANN401 (argparse's)
    """The cluster was named by an address."""
    changes = bool(getattr(options, "changes", False))
    options.chosen = Target(f"the cluster at {address}", changes)


def changed(options: Any) -> str | None:  # noqa: ANN401 (argparse's)
    """What a command has changed, or may have; None for one that only shows something."""
    chosen: Target | None = getattr(options, "chosen", None)
    return chosen.where if chosen is not None and chosen.changes else None
