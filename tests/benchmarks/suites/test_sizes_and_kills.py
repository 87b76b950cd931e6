"""Idle cost by the number of groups, silence after a kill: the parts that need no cluster."""

import pytest

from benchmarks.report.results import Figure, Outcome
from benchmarks.suites import failover, sizes
from benchmarks.suites.failover import Kill
from benchmarks.suites.suite import BENCHMARKS


def idle(groups: int, mb: list[float], percent: list[float]) -> Outcome:
    return Outcome(
        name=f"groups-{groups}",
        title="",
        settings={"groups": groups},
        figures=(
            Figure(name="RSS MB", values=mb),
            Figure(name="% of one core", values=percent),
        ),
    )


def test_the_cost_of_a_group_is_the_slope_over_all_sizes() -> None:
    outcomes = [
        idle(1, [50.1, 50.1], [1.0, 1.2]),
        idle(11, [51.0, 51.2], [1.5, 1.7]),
        idle(101, [60.1, 60.1], [6.0, 6.2]),
        Outcome(name="groups-300", title="", failure="no room"),
        Outcome(name="nodes-5", title="", settings={"groups": 48}),
    ]
    slopes = sizes.cost_of_a_group(outcomes)
    assert slopes == {"kB": pytest.approx(100), "% of a core": pytest.approx(0.05)}
    assert not sizes.cost_of_a_group(outcomes[:1])
    assert not sizes.cost_of_a_group([])


def test_every_size_has_its_cluster() -> None:
    by_name = {one.name: one for one in BENCHMARKS}
    assert {by_name[name].groups for name in ("groups-1", "groups-300")} == {1, 300}
    assert {by_name[f"nodes-{count}"].nodes for count in (3, 5, 7)} == {3, 5, 7}
    assert by_name["failover"].alone


def test_a_partition_goes_on_when_more_came_than_can_have_been_under_way() -> None:
    acks = list(range(100))
    assert failover._goes_on(acks, 79)
    assert not failover._goes_on(acks, 80)
    assert not failover._goes_on([], 0)


def test_the_median_of_each_kill_and_the_worst_partition_of_all() -> None:
    kills = [
        Kill(node=1, without_s=(2.9, 3.1, 3.0), others_s=(0.1, 0.2)),
        Kill(node=2, without_s=(2.8, 4.5), others_s=(0.3,)),
    ]
    middle, worst, others, errors = failover._figures(kills, 0)
    assert middle.values == (3.0, 3.65)
    assert (worst.value, others.value) == (4.5, 0.3)
    assert errors.passed
    assert not failover._figures(kills, 1)[-1].passed
