"""One core per node: a cgroup with a CPU quota for each, where root may make one.

On a machine with idle cores three processes use more CPU than three separate machines would have.
Then the work that a node does for its peers costs nothing and does not show.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from cluster.launcher import node_command
from cluster.spec import ClusterSpec

ROOT: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000
ENTER: Final = 'echo $$ > "$0" && exec "$@"'
"""Run by a shell that enters the cgroup first, so that all threads begin there."""


class OneCore:
    """The nodes' cgroups; where they cannot be made, `why_not` says what is missing."""

    def __init__(self, name: str) -> None:
        first = ROOT / "cgroup.controllers"
        two = first.exists() and "cpu" in first.read_text().split()
        self._unified, self._root, self._name = two, ROOT if two else ROOT / "cpu", name
        self._made: list[Path] = []
        self.why_not = ""
        if os.geteuid():
            self.why_not = "only root may limit a process to one core"
        elif not os.access(self._root, os.W_OK):
            self.why_not = f"no cgroup can be made in {self._root}"

    def group_of(self, node: int) -> Path:
        """The cgroup of a node, made on first use."""
        folder = self._root / f"{self._name}-{node}"
        if not folder.exists():
            folder.mkdir()
            self._made.append(folder)
            if self._unified:
                (folder / "cpu.max").write_text(f"{PERIOD_US} {PERIOD_US}")
            else:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(PERIOD_US))
        return folder

    def command(self, spec: ClusterSpec, node_id: int, overrides: Sequence[str]) -> list[str]:
        """How the launcher starts a node."""
        plain = node_command(spec, node_id, overrides)
        if self.why_not:
            return plain
        return ["/bin/sh", "-c", ENTER, str(self.group_of(node_id) / "cgroup.procs"), *plain]

    def remove(self) -> None:
        for folder in self._made:
            with suppress(OSError):  # one of our processes is still ending
                folder.rmdir()


@contextmanager
def one_core() -> Iterator[OneCore]:
    cores = OneCore(f"evenkeel-{os.getpid()}")
    try:
        yield cores
    finally:
        cores.remove()
