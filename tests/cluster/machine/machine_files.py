"""A machine's file for tests, with free ports."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.machine.plan import MachineNode, MachinePlan
from cluster.spec import plan as local_plan

TINY = Path(__file__).parents[1] / "launcher" / "tiny_node.py"
ENV = {"PATH": os.environ["PATH"]}


def free_port(folder: Path) -> int:
    """The first of several in a row that nobody has now."""
    return local_plan(folder / "ports", node_count=1, fixed_ports=False)[0].nodes[0].kafka.port


def machine_file(folder: Path, *, nodes: Sequence[int] = (1, 2), more: str = "") -> Path:
    port = free_port(folder)
    path = folder / "machine.toml"
    path.write_text(
        "[machine]\n"
        'name = "a"\n'
        f'data_dir = "{folder / "state"}"\n'
        f"{more}\n"
        "[node]\n"
        'cluster_id = "machines"\n'
        "[listen]\n"
        f'kafka = "127.0.0.1:{port}"\n'
        f'peer = "127.0.0.1:{port + 100}"\n'
        f'http = "127.0.0.1:{port + 200}"\n'
        "[machines]\n"
        f'a = {{ peer = "127.0.0.1:{port + 100}", nodes = {list(nodes)} }}\n'
    )
    return path


def tiny(plan: MachinePlan, node: MachineNode, overrides: Sequence[str]) -> list[str]:
    config = ["--config", str(plan.config_path(node)), "--parent-pid", str(os.getpid())]
    return [sys.executable, str(TINY), *config, *(f"--set={one}" for one in overrides)]
