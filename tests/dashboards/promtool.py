"""Prometheus's own tools, where they are installed; tests that need them say where they are not."""

import shutil
import subprocess
from pathlib import Path

import pytest

NEEDED = ("prometheus", "promtool")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
needs_prometheus = pytest.mark.skipif(
    bool(MISSING),
    reason=f"needs Prometheus: {' and '.join(MISSING)} not in PATH (apt-get install prometheus)",
)


def promtool(*arguments: str | Path) -> str:
    """What it says; it must be content."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
