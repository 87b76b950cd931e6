"""The previous release, built from this repository's history: its wheel, unpacked."""

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import pytest

from cluster.spec import ClusterSpec

ROOT: Final = Path(__file__).parents[2]
NAMED: Final = tomllib.loads((Path(__file__).parent / "previous_release.toml").read_text())
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@attrs.frozen
class PreviousRelease:
    """`folder` has what its wheel installs; what that needs is in our own environment."""

    folder: Path

    def program(self, room: str, *arguments: str) -> list[str]:
        """Whatever the environment says, Python finds its code and not ours."""
        python = ["/usr/bin/env", f"PYTHONPATH={self.folder}", sys.executable, "-P", "-m"]
        return [*python, f"evenkeel._internal.{room}", *arguments]

    def node(self, spec: ClusterSpec, number: int, overrides: Sequence[str]) -> list[str]:
        sets = [word for override in overrides for word in ("--set", override)]
        return self.program("node", "--config", str(spec.config_path(number)), *sets)


def build(folder: Path) -> PreviousRelease:
    """Its wheel, built in `folder` from the commit's own files."""
    commit = str(NAMED["commit"])
    look = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    found = subprocess.run(look, cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(
            f"this clone's history does not reach back to the previous release ({commit[:8]}): "
            "git fetch --unshallow"
        )
    source, wheels, installed = folder / "source", folder / "wheels", folder / "installed"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    building = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(source)]
    subprocess.run(building, check=True)
    (wheel,) = wheels.iterdir()
    installing = [*PIP, "install", "--no-deps", "--no-index", "--target", str(installed)]
    subprocess.run([*installing, str(wheel)], check=True)
    return PreviousRelease(installed)
