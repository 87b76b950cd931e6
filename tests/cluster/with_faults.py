"""Clusters whose nodes have faulty disks: each has a directory of orders (faulty_node.py)."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.launcher import Command
from cluster.spec import ClusterSpec


def faulty(faults: Path) -> Command:
    """Nodes that look for their orders in `faults`, each in the directory of its number."""

    def command(spec: ClusterSpec, node_id: int, overrides: Sequence[str]) -> list[str]:
        orders = faults / str(node_id)
        orders.mkdir(parents=True, exist_ok=True)
        start = [sys.executable, "-P", "-m", "tests.cluster.faulty_node", str(orders)]
        sets = [word for override in overrides for word in ("--set", override)]
        config = ["--config", str(spec.config_path(node_id)), *sets]
        return [*start, *config, "--parent-pid", str(os.getpid())]

    return command
