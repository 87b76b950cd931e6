"""Exam rows R7 and R8: the node that is master of everything is cut off from the others.

Clients reach all three nodes all the time, so only wrong answers could keep them at a node that
cannot serve them (ADR 42). The clients are others' and ours, with default settings.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks.machines.machines_here import skip_without_machines
from tests.cluster.scenery import FULL, in_thread
from tests.exam.network.cut_off import CUT_S, LEASE_S, TASTE_CUT_S

pytestmark = pytest.mark.cluster

GAP_S = LEASE_S + 2
"""The bound of the full dose, on a machine that does nothing else."""
CUT = CUT_S if FULL else TASTE_CUT_S
CAPTIVE_S = CUT - 1
"""A client that stays at its node has no success for as long as the cut lasts."""
ROUNDS = 3 if FULL else 1
PROGRAM_S = 240.0


@pytest.mark.parametrize("how", ["both", "in", "out"] if FULL else ["both"])
async def test_clients_leave_a_node_that_is_cut_off_and_come_back(tmp_path: Path, how: str) -> None:
    """Cut in both directions; or the node hears nobody but is heard; or the reverse."""
    skip_without_machines()
    program = [sys.executable, "-m", "tests.exam.network.cut_off"]
    run = partial(
        subprocess.run,
        [*program, str(tmp_path / "data"), how, str(ROUNDS), str(CUT)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    done = await in_thread(run)
    assert done.returncode == 0, done.stderr[-4000:]
    for found in json.loads(done.stdout.splitlines()[-1]):
        assert found["clients"] == "disconnected"
        assert found["masters"] == 0
        assert len(found["gap_s"]) > 20, "some clients had no success at all"
        late = {who: s for who, s in found["gap_s"].items() if s > (GAP_S if FULL else CAPTIVE_S)}
        assert late == {}
