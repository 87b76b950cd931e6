"""The product's wheel contains what `evenkeel up --prometheus` needs, and dashboards to import."""

import subprocess
import sys
import zipfile
from pathlib import Path

from dashboards.__main__ import files

ROOT = Path(__file__).parents[2]
PREPARE = """
import sys
from pathlib import Path
from cluster import prometheus
from cluster.spec import plan, save
assert str(prometheus.FILES).startswith(sys.argv[1]), prometheus.FILES
spec, _ = plan(Path(sys.argv[2]), node_count=1, fixed_ports=False)
save(spec, [], {})
print(prometheus.prepare(spec))
"""


def test_the_wheel_has_dashboards_and_rules(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "-w", str(tmp_path / "wheel"), "."]
    subprocess.run(command, cwd=ROOT, check=True)
    (built,) = (tmp_path / "wheel").iterdir()
    installed = tmp_path / "installed"
    with zipfile.ZipFile(built) as wheel:
        wheel.extractall(installed)
    wanted = {f"dashboards/{path}" for path, _ in files()} | {
        "dashboards/prometheus/prometheus.yml"
    }
    assert all((installed / name).is_file() for name in wanted)
    prepared = subprocess.run(
        [sys.executable, "-P", "-c", PREPARE, str(installed), str(tmp_path / "data")],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    )
    config = Path(prepared.stdout.strip())
    names = {file.name for file in config.parent.iterdir()}
    assert names == {"prometheus.yml", "recording.yml", "alerts.yml", "targets.json"}
