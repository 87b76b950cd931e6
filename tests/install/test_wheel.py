"""What the wheel has: one name, everything that is inside it, and all that this imports."""

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from dashboards.__main__ import files
from tests.install.conftest import ROOT, Installed
from wire.software import VERSION

OPTIONAL = {"matplotlib", "numpy", "pyarrow", "pyspark", "pyspark_evenkeel"}
"""For Spark jobs and for plots; each is imported where it is needed."""
REQUIRED = {
    "attrs": "attrs",
    "confluent-kafka": "confluent_kafka",
    "cramjam": "cramjam",
    "cryptography": "cryptography",
    "crc32c": "crc32c",
    "google-re2": "re2",
    "h11": "h11",
    "prometheus-client": "prometheus_client",
    "pyjwt": "jwt",
    "rich": "rich",
    "shtab": "shtab",
    "trio": "trio",
}
"""Package -> module."""
NEVER = ("simulator", "tests", "tools")


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_it_puts_two_names_into_an_environment(wheel: Path) -> None:
    """A package and a command, both of one name."""
    information = f"evenkeel-{VERSION}.dist-info"
    assert {name.split("/")[0] for name in names(wheel)} == {"evenkeel", information}
    (ours,) = metadata.distributions(path=[str(wheel)])
    assert [one.name for one in ours.entry_points] == ["evenkeel"]
    assert (ours.version, ours.metadata["License-Expression"]) == (VERSION, "Apache-2.0")
    assert f"{information}/licenses/LICENSE" in names(wheel)


def test_an_installed_environment_has_no_other_name(installed: Installed) -> None:
    (ours,) = metadata.distributions(name="evenkeel", path=[str(installed.packages)])
    tops = {path.parts[0] for path in ours.files or () if path.parts[0] != ".."}
    assert tops == {"evenkeel", f"evenkeel-{VERSION}.dist-info"}
    commands = [path.name for path in ours.files or () if path.parts[0] == ".."]
    assert commands == ["evenkeel"]


def modules_in(wheel: Path) -> dict[str, ast.Module]:
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                found[dotted] = ast.parse(archive.read(name), name)
    return found


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(module, name); the name may be a module too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield from ((node.module, one.name) for one in node.names)


def test_everything_that_it_imports_is_there(wheel: Path) -> None:
    """Inside the package, in Python itself, or in a package that it requires."""
    modules = modules_in(wheel)
    assert "evenkeel._internal.node" in modules
    inside = modules.keys() | {name.rpartition(".")[0] for name in modules}  # folders
    imported = {name: {module for module, _ in imports(tree)} for name, tree in modules.items()}
    ours = {one for found in imported.values() for one in found if one.split(".")[0] == "evenkeel"}
    assert ours - inside == set()
    others = {one.split(".")[0] for found in imported.values() for one in found} - {"evenkeel"}
    assert others - sys.stdlib_module_names - OPTIONAL == set(REQUIRED.values())
    (metadata_of_it,) = metadata.distributions(path=[str(wheel)])
    required = [line for line in metadata_of_it.requires or () if "extra ==" not in line]
    assert {line.split(">")[0] for line in required} == REQUIRED.keys()


def test_it_has_no_tests_and_no_simulator(wheel: Path) -> None:
    assert not {f"evenkeel/_internal/{room}" for room in NEVER} & {
        "/".join(name.split("/")[:3]) for name in names(wheel)
    }


def test_the_wheel_is_the_same_however_often_it_is_built(wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_developers_environment_has_the_repository_itself(tmp_path: Path) -> None:
    """`pip install -e` must not copy anything: what is edited is what runs."""
    script = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=True)
    (built,) = tmp_path.iterdir()
    with zipfile.ZipFile(built) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".pth"))
        assert archive.read(path).decode().strip() == str(ROOT)
        (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "evenkeel = cli.main:main" in archive.read(entry).decode()
    assert not [name for name in archive.namelist() if name.endswith(".py")]


PREPARE = """
import sys
from pathlib import Path
from evenkeel._internal.cluster import prometheus
from evenkeel._internal.cluster.spec import plan, save
spec, _ = plan(Path(sys.argv[1]), node_count=1, fixed_ports=False)
save(spec, [], {})
print(prometheus.prepare(spec))
"""


def test_it_has_dashboards_and_rules(installed: Installed, tmp_path: Path) -> None:
    """What `evenkeel up --prometheus` needs, and dashboards to import."""
    folder = installed.packages / "evenkeel" / "_internal" / "dashboards"
    wanted = {str(path) for path, _ in files()} | {"prometheus/prometheus.yml"}
    assert all((folder / name).is_file() for name in wanted)
    command = [installed.python, "-P", "-c", PREPARE, str(tmp_path / "data")]
    prepared = subprocess.run(
        command, cwd=tmp_path, env=installed.env, check=True, capture_output=True, text=True
    )
    config = Path(prepared.stdout.strip())
    written = {file.name for file in config.parent.iterdir()}
    assert written == {"prometheus.yml", "recording.yml", "alerts.yml", "targets.json"}


def test_every_file_that_is_no_module_is_there(wheel: Path) -> None:
    """Dashboards, the console's pages, `py.typed`."""
    listing = ["git", "ls-files", "evenkeel", "dashboards"]
    tracked = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    data = {name for name in tracked.stdout.split() if not name.endswith(".py")}
    assert {"evenkeel/py.typed", "dashboards/console/index.html"} <= data
    inside = {
        name if name.startswith("evenkeel/") else f"evenkeel/_internal/{name}" for name in data
    }
    assert inside <= set(names(wheel))
