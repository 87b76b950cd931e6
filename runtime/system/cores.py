"""How many cores this process may use: those of its affinity, and what its control groups allow."""

import os
from pathlib import Path
from typing import Final

CGROUP: Final = Path("/sys/fs/cgroup")
OWN_GROUPS: Final = Path("/proc/self/cgroup")


def cores_allowed() -> tuple[int, ...]:
    """The numbers of the cores that this process may run on, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def cores_given(own: Path = OWN_GROUPS, root: Path = CGROUP) -> int:
    """How many processes can have a core each: at least 1; part of a core is none."""
    return max(1, int(min(len(cores_allowed()), quota(own, root))))


def quota(own: Path = OWN_GROUPS, root: Path = CGROUP) -> float:
    """Cores that the control groups of this process (version 1 or 2) may use at once; infinite
    without a limit. Every group above it counts as well."""
    found = [float("inf")]
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            places = [root, root / "unified"]
        elif "cpu" in controllers.split(","):
            places = [root / "cpu", root / controllers]
        else:
            continue
        for place in places:
            where = place / name.lstrip("/")
            for group in (where, *where.parents):
                found += _quota_of(group) if group.is_relative_to(place) else []
    return min(found)


def _quota_of(group: Path) -> list[float]:
    try:
        amount, period = (group / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            amount = (group / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (group / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return []
    if not amount.isdecimal() or not period.isdecimal() or not int(period):
        return []  # "max", or -1: no limit
    return [int(amount) / int(period)]
