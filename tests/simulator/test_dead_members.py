"""Worlds about members that die: how long they are waited for, whatever happens to coordinators."""

import pytest

from paxos.ids import MS
from simulator.checkers.dead_members import LOOK_NS, MemberWatch
from simulator.environment.loop import Loop
from simulator.environment.options import Workload
from simulator.environment.violation import Violation
from simulator.mutants.broker import MOVES, STALLS
from simulator.swarm import Job, run_world
from tests.doses import FULL, some

BROKER = f"workload={Workload.BROKER.value}"
BOTH = (*MOVES, "stall_every_ns=900000000")
SEEDS, WITH_CRASHES = some((0, 2)), some((1, 3))
CRASHES = (*MOVES, "faults=CRASH,CUT_MASTER,DOOM", "fault_gap_ns=2000000000")


@pytest.mark.parametrize(
    "settings",
    [*((STALLS, MOVES) if FULL else ()), BOTH, CRASHES],
    ids=[*(("stalls", "moves") if FULL else ()), "both", "crashes"],
)
def test_a_dead_member_is_replaced_within_a_session_and_one_grace(
    settings: tuple[str, ...],
) -> None:
    """A coordinator that stalls twice per session timeout, masters that move four times, masters
    that die: only the time counts in which a coordinator could hear members
    (`simulator.checkers.dead_members`)."""
    found = 0
    for seed in WITH_CRASHES if settings is CRASHES else SEEDS:
        verdict = run_world(Job(seed, settings=(BROKER, *settings)))
        assert not verdict.failure, verdict.report
        found += verdict.statistics["dead members found out"]
        if "stall_every_ns" in "".join(settings):
            assert verdict.statistics["consumer group paused"] > 10
        else:
            assert verdict.statistics["generations"] > 0
    assert found > 0, "nobody died in any of these worlds"


class _Watch(MemberWatch[str]):
    def coordinator(self) -> str:
        return "always the same one"

    def life_of(self, node: str) -> int:
        return 1


def test_time_counts_once_whoever_died_before() -> None:
    """Whole nodes, 831: one death was detected, and another member died before the next look; from
    then on each 20 ms counted twice."""
    loop = Loop()
    watch = _Watch(loop, "readers")
    watch.died("first", 1_000, 1_000)
    loop.run_until(LOOK_NS + LOOK_NS // 2)
    watch.notice("member_gone", "first: left", 1_000)
    watch.died("second", 1_000, 1_000)
    limit_ms = (1_000 + 1_000) * 11 // 10 + 500
    loop.run_until(limit_ms * MS)
    with pytest.raises(Violation, match="dead-member: second"):
        loop.run_until((limit_ms + 60) * MS)
