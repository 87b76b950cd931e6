"""Faults of nodes, directories, topics and members: worlds are clean, and planted bugs are
found."""

import pytest

from paxos.ids import MS
from simulator.mutants.planting import plant
from simulator.whole.hunts.hunting import small
from simulator.whole.mutants import MUTANTS
from simulator.whole.options import Fault
from simulator.whole.swarm import run_world
from tests.doses import some

S = 1_000 * MS
PLAIN = dict(operators=0, pipeliners=0, consumers=0)
BUSY = dict(producers=3, client_think_ns=50 * MS, client_window=4, segment_bytes=64 << 10)
MOVING = dict(
    **{**BUSY, "producers": 1, "client_think_ns": 20 * MS},
    pipeliners=3,
    fault_gap_ns=400 * MS,
    lease_ms=1_500,
    groups=1,
    writers=0,
    liars=0,
    families=(),
)
"""Groups move all the time, and clients do not stop meanwhile."""


@pytest.mark.parametrize(
    ("seed", "faults", "changes", "happened"),
    some(
        [
            (
                11,
                {Fault.STOP, Fault.ROLL, Fault.MEMBER_DIES, Fault.MEMBER_STALLS, Fault.PLACES},
                {"reborn": True, "consumers": 2},
                ("nodes stopped", "dead members found out", "topics made anew"),
            ),
            (
                2,
                {Fault.MOVE, Fault.ADD_NODE, Fault.REMOVE_NODE, Fault.LOST_DIRECTORY},
                {"nodes": 4, "producers": 1, "pipeliners": 0},
                ("nodes added", "directories lost"),
            ),
            (
                3,
                {Fault.DAMAGE, Fault.WRONG_CLOCK, Fault.OTHER_VERSION},
                {"trimmed": True, "compacted": True, "producers": 2, "segment_bytes": 64 << 10},
                ("files damaged", "clocks far off", "trims by retention", "compacted topic read"),
            ),
            (
                1,
                {Fault.CUT_TAKER},
                {**MOVING, "patience_ms": 5_000},
                ("new masters hit",),
            ),
        ]
    ),
)
def test_worlds_are_clean(
    seed: int, faults: set[Fault], changes: dict[str, object], happened: tuple[str, ...]
) -> None:
    usual = {"duration_ns": 14 * S, "fault_gap_ns": 400 * MS, "faults": frozenset(faults)}
    options = small(seed, **{**usual, **changes})
    verdict = run_world(options)
    assert not verdict.failure, f"{verdict.failure}\n{verdict.report}"
    for what in happened:
        assert verdict.statistics[what], what


@pytest.mark.parametrize(
    ("name", "seed", "faults", "changes", "says"),
    [
        (
            "sessions-never-end",
            1,
            {Fault.MEMBER_DIES},
            {"consumers": 1, "duration_ns": 12 * S},
            "dead-member",
        ),
        ("epochs-begin-anew", 1, set(), {"reborn": True}, "reborn-epoch"),
        (
            "retention-takes-half",
            1,
            set(),
            {"trimmed": True, "duration_ns": 15 * S, **BUSY},
            "trim",
        ),
        (
            "compaction-takes-the-latest",
            1,
            set(),
            {"compacted": True, "tail_bytes": 0, "segment_bytes": 64 << 10},
            "keyed",
        ),
        ("drains-nothing", 2, {Fault.STOP}, {}, "drain"),
        ("any-format-is-spoken", 1, {Fault.OTHER_VERSION}, {}, "formats"),
        ("lost-forwards-are-refused", 0, {Fault.CUT_TAKER}, MOVING, "duplicate"),
    ],
)
def test_planted_bugs_are_found(
    name: str, seed: int, faults: set[Fault], changes: dict[str, object], says: str
) -> None:
    options = small(seed, **{**PLAIN, "fault_gap_ns": S, "faults": frozenset(faults), **changes})
    with plant(MUTANTS[name]):
        verdict = run_world(options)
    assert verdict.failure.startswith(f"Violation: {says}"), verdict.failure
