"""The wheel that `make wheel` builds, and an environment that has it beside a user's own modules.

The environment needs no network: the packages that the wheel requires are those of the environment
that runs the tests, linked one by one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
MODULES = ("wire", "storage", "runtime", "cluster", "broker", "cli", "history", "dashboards")
FILES = ("node", "paxos", "balancer", "coordinator", "benchmarks", "pipeline")
"""What the user has of the same name as a room of ours: packages, and modules."""
OWN = """
import os, sys
from pathlib import Path
with Path(__file__).with_name("imported").open("a") as file:
    print(os.getpid(), file=file)
"""
"""Each of the user's modules notes which process has imported it."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    subprocess.run(command, cwd=ROOT, check=True)
    (built,) = folder.iterdir()
    return built


@attrs.frozen
class Installed:
    """A virtual environment with the wheel."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def evenkeel(self) -> str:
        return str(self.folder / "bin" / "evenkeel")

    @property
    def env(self) -> dict[str, str]:
        """Without what leads Python to this checkout."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.folder), "LANG": "C.UTF-8"}

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    environment = Installed(tmp_path_factory.mktemp("environment") / "venv")
    command = [sys.executable, "-m", "venv", "--without-pip", str(environment.folder)]
    subprocess.run(command, check=True)
    command = [*PIP, "--python", environment.python, "install", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True)
    (ours,) = metadata.distributions(path=[str(wheel)])
    for name in sorted(set(required(ours))):
        theirs = metadata.distribution(name)
        for top in {path.parts[0] for path in theirs.files or ()} - {"..", "__pycache__"}:
            environment.packages.joinpath(top).symlink_to(theirs.locate_file(top))
    return environment


def required(package: metadata.Distribution) -> Iterator[str]:
    """The names of all packages that it needs, directly or not; those of extras are not needed."""
    for line in package.requires or ():
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0].lower().replace("_", "-")
        if "extra ==" in line or (";" in line and not is_here(name)):
            continue
        yield name
        yield from required(metadata.distribution(name))


def is_here(name: str) -> bool:
    """Whether it is installed: it may be for another system or another Python."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A user's folder, with modules that have the names of our rooms."""
    for name in MODULES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(OWN)
    for name in FILES:
        (tmp_path / f"{name}.py").write_text(OWN)
    return tmp_path
