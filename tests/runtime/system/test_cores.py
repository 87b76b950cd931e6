"""How many cores there are: affinity, and quotas of control groups of both versions."""

import os
from pathlib import Path

import pytest

from runtime.system.cores import cores_allowed, cores_given, quota


def group(path: Path, **files: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path.joinpath(name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({}, float("inf")),
        ({"a/b": "max 100000"}, float("inf")),
        ({"a/b": "150000 100000"}, 1.5),
        ({"a": "200000 100000", "a/b": "400000 100000"}, 2.0),
        ({"": "50000 100000", "a/b": "max 100000"}, 0.5),
        ({"a/b": "nonsense"}, float("inf")),
        ({"a/b": "100000 0"}, float("inf")),
    ],
)
def test_version_2(limits: dict[str, str], cores: float, tmp_path: Path) -> None:
    """Every group above the process's own counts as well."""
    own, root = tmp_path / "own", tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    for path, text in limits.items():
        group(root / path, cpu__max=text)
    assert quota(own, root) == cores
    assert cores_given(own, root) == max(1, int(min(cores, len(cores_allowed()))))


@pytest.mark.parametrize(("amount", "cores"), [("-1", float("inf")), ("300000", 3.0)])
@pytest.mark.parametrize("name", ["cpu", "cpu,cpuacct"])
def test_version_1(name: str, amount: str, cores: float, tmp_path: Path) -> None:
    own, root = tmp_path / "own", tmp_path / "cgroup"
    own.write_text(f"4:memory:/m\n2:{name}:/a\n0::/\n")
    group(root / name / "a", cpu__cfs_quota_us=amount, cpu__cfs_period_us="100000")
    assert quota(own, root) == cores


def test_without_control_groups_affinity_counts(tmp_path: Path) -> None:
    assert quota(tmp_path / "none", tmp_path) == float("inf")
    assert cores_given(tmp_path / "none", tmp_path) == len(os.sched_getaffinity(0))
