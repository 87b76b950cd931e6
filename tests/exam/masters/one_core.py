"""One core for each node: a cgroup of its own with a CPU quota, where root may make one.

Three processes on a machine with idle cores borrow from each other what separate machines could
not; what a node does for its peers then costs nobody anything, and shows nothing.
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
"""Run by a shell: into the group first, so that all threads are born there."""


class OneCore:
    """The nodes' cgroups; `why_not` says what is missing where there are none."""

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
        """The group of a node, made when it is first asked for."""
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
            with suppress(OSError):  # a process of ours that has not quite ended: it stays empty
                folder.rmdir()


@contextmanager
def one_core() -> Iterator[OneCore]:
    cores = OneCore(f"evenkeel-{os.getpid()}")
    try:
        yield cores
    finally:
        cores.remove()
