"""Where a result was measured: every figure comes with its machine, commit and configuration."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import benchmarks
from benchmarks.load.usage import cores

ROOT: Final = Path(next(iter(benchmarks.__path__))).parent
PACKAGES: Final = ("trio", "attrs", "crc32c", "confluent-kafka")
GIT_S_MAX: Final = 10.0
MEMORY_FILE_SYSTEMS: Final = ("tmpfs", "ramfs")


def describe(data_dir: Path) -> dict[str, Any]:
    """Commit, machine and versions; `data_dir` is where the nodes keep their logs."""
    commit, changed = commit_of(ROOT)
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "uncommitted_changes": changed,
        "machine": {
            "cpu": _cpu_model(),
            "cores": cores(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": f"{platform.system()} {platform.release()}",
            "file_system": file_system_of(data_dir),
            "load_average": list(os.getloadavg()),
        },
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def commit_of(root: Path) -> tuple[str, bool]:
    """The commit checked out, and whether files differ from it; ("unknown", False) without git.

    An installed product may lie in somebody else's checkout: that commit is not ours.
    """
    if not (root / ".git").exists():
        return "unknown", False
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        return commit, bool(_git(root, "status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.SubprocessError):
        return "unknown", False


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=GIT_S_MAX,
    )
    return done.stdout


def file_system_of(path: Path) -> str:
    """The type of the file system, by the nearest mount point above (proc_pid_mounts(5))."""
    path = path.absolute()
    found, best = "unknown", -1
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, kind, *_ = line.split(" ")
        if path.is_relative_to(where) and len(where) > best:
            found, best = kind, len(where)
    return found


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
