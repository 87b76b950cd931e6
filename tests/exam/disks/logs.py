"""What a stopped node's log contains, and what a running node reports about its own."""

import json
from pathlib import Path
from typing import Any

from cluster.status import ClusterView
from storage.disk.files import RealDisk
from storage.inspection import Inspection, inspect
from tests.cluster.scenery import spread
from tests.exam.hurting import Hurting


def log_of(directory: Path) -> Inspection:
    disk = RealDisk(directory)
    try:
        disk.lock()
        return inspect(disk, entries=False)
    finally:
        disk.close()


def opened(hurt: Hurting, node: int) -> dict[str, Any]:
    """What the node logged when it last opened its log."""
    lines = hurt.cluster.spec.log_path(node).read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    found: dict[str, Any] = [one for one in events if one["event"] == "log opened"][-1]
    return found


def whole(view: ClusterView) -> bool:
    """Every node votes in every group and is master of at least one."""
    votes = [
        group["voting"] and not group["diverged"]
        for row in view.nodes
        for group in (() if row.status is None else row.status["groups"])
    ]
    return all(row.status is not None for row in view.nodes) and all(votes) and spread(view)
