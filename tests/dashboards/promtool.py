"""Prometheus's own tools where they are installed; tests that need them skip where they are not,
and say so."""

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
    """Its output; it must succeed."""
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
