"""Worlds about members that die: how long they are waited for, whatever happens to coordinators."""

import pytest

from simulator.environment.options import Workload
from simulator.mutants.broker import MOVES, STALLS
from simulator.swarm import Job, run_world

BROKER = f"workload={Workload.BROKER.value}"
BOTH = (*MOVES, "stall_every_ns=900000000")
SEEDS = (0, 2)
CRASHES = (*MOVES, "faults=CRASH,CUT_MASTER,DOOM", "fault_gap_ns=2000000000")


@pytest.mark.parametrize(
    "settings", [STALLS, MOVES, BOTH, CRASHES], ids=["stalls", "moves", "both", "crashes"]
)
def test_a_dead_member_is_replaced_within_a_session_and_one_grace(
    settings: tuple[str, ...],
) -> None:
    """A coordinator that stalls twice per session timeout, masters that move four times, masters
    that die: only the time counts in which a coordinator could hear members
    (`simulator.checkers.dead_members`)."""
    found = 0
    for seed in SEEDS:
        verdict = run_world(Job(seed, settings=(BROKER, *settings)))
        assert not verdict.failure, verdict.report
        found += verdict.statistics["dead members found out"]
        if "stall_every_ns" in "".join(settings):
            assert verdict.statistics["consumer group paused"] > 10
        else:
            assert verdict.statistics["generations"] > 0
    assert found > 0, "nobody died in any of these worlds"
