"""Control groups that allow processes a part of a core each (versions 1 and 2); root's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.machines.network import MachinesError

CGROUP: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 20_000
"""Short, so that a node that has used its part waits milliseconds, as for a busy core."""


@contextmanager
def quotas(share: float, processes: dict[str, int]) -> Iterator[None]:
    """Meanwhile each of these processes (name -> process id) may use this share of one core.

    Raises:
        MachinesError: if this system does not allow it.
    """
    root = CGROUP / "cpu" if (CGROUP / "cpu").is_dir() else CGROUP
    parent = root / f"evenkeel-bench-{os.getpid()}"
    made: list[Path] = []
    try:
        try:
            parent.mkdir()
            made.append(parent)
            if root == CGROUP:
                (parent / "cgroup.subtree_control").write_text("+cpu")
            for name, pid in processes.items():
                group = parent / name
                group.mkdir()
                made.append(group)
                _limit(group, round(share * PERIOD_US))
                (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise MachinesError(f"no CPU quotas here: {error}") from error
        yield
    finally:
        for pid in processes.values():
            with suppress(OSError):
                (root / "cgroup.procs").write_text(str(pid))
        for group in reversed(made):
            with suppress(OSError):
                group.rmdir()


def _limit(group: Path, quota_us: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
