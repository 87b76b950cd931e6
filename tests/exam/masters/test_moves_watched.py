"""The judge of row R12 objects to each violation, and to nothing else."""

from collections.abc import Mapping
from typing import Final

import attrs
import pytest

from tests.exam.masters.moves_watched import Away, Look, Notes, Planned, Steal

NOBODY: Final[frozenset[int]] = frozenset()
NO_LAG: Final[Mapping[tuple[int, int], int]] = {}
KILLED: Final = Away(2, from_ms=10_000, killed=True, until_ms=20_000)
STOPPED: Final = Away(3, from_ms=30_000, killed=False, until_ms=32_000)


def stolen(began_ms: float, group: int = 5, target: int = 2, outcome: str = "done") -> Steal:
    return Steal(group, 1, target, outcome, began_ms, began_ms + 50)


def looks(at_ms: float, unled: frozenset[int] = NOBODY, lag: int = 0) -> tuple[Look, Look]:
    return (
        Look(at_ms, unled, 20, {(2, 5): lag} if lag else NO_LAG),
        Look(at_ms + 100, unled, 20, {(2, 5): lag} if lag else NO_LAG),
    )


def notes(*steals: Steal, **changes: object) -> Notes:
    kept = {(one.group, one.ended_ms): one for one in steals}
    return attrs.evolve(Notes(aways=[KILLED, STOPPED], steals=kept), **changes)


def objections(seen: Notes) -> list[str]:
    return seen.objections(hold_down_ms=500, cool_down_ms=1_000, dead_after_ms=2_000)


GOOD: Final = {
    "before and after": notes(stolen(9_900), stolen(20_600)),
    "a node that was only stopped has not started": notes(stolen(32_100, target=3)),
    "another group within the cool-down": notes(stolen(1_000), stolen(1_100, group=6)),
    "it was asked for": notes(stolen(1_000), stolen(1_500), orders=[(1_400.0, 1_500.0)]),
    "it was being asked for": notes(stolen(1_000), stolen(1_500), orders=[(900.0, 1_100.0)]),
    "somebody had died": notes(
        stolen(1_000), stolen(1_500), planned={Planned(900, 7, 3, evenness=False)}
    ),
    "nobody was asked": notes(stolen(1_000, outcome="abandoned"), stolen(1_500)),
    "caught up meanwhile": notes(
        stolen(1_050), looks=[looks(1_000, lag=900)[0], looks(1_000, lag=9)[1]]
    ),
    "two of twenty": notes(looks=[*looks(1_000, frozenset({1, 2}))]),
    "three, but not for long": notes(
        looks=[looks(1_000, frozenset({1, 2, 3}))[0], *looks(1_100, frozenset({3, 4, 5}))[1:]]
    ),
    "a plan that counts on a node that is away for a moment": notes(
        planned={Planned(11_900, 5, 2, evenness=True)}
    ),
}
BAD: Final = {
    "down": notes(stolen(15_000)),
    "stopped": notes(stolen(31_000, target=3)),
    "just started": notes(stolen(20_400)),
    "lags": notes(stolen(1_050), looks=[*looks(1_000, lag=129)]),
    "it was asked for before": notes(stolen(1_000), stolen(1_500), orders=[(800.0, 950.0)]),
    "again, for evenness": notes(
        stolen(1_000), stolen(1_500), planned={Planned(1_100, 5, 3, evenness=True)}
    ),
    "again": notes(stolen(1_000), stolen(2_000)),
    "again, after a failure": notes(stolen(1_000, outcome="aborted"), stolen(2_000)),
    "three of twenty": notes(looks=[*looks(1_000, frozenset({1, 2, 3}))]),
    "a plan for a dead node": notes(planned={Planned(12_100, 5, 2, evenness=True)}),
}


@pytest.mark.parametrize("seen", GOOD.values(), ids=GOOD)
def test_nothing_is_objected_to(seen: Notes) -> None:
    assert objections(seen) == []


@pytest.mark.parametrize("seen", BAD.values(), ids=BAD)
def test_each_is_objected_to(seen: Notes) -> None:
    assert len(objections(seen)) == 1
