"""The weights of groups: time windows, the value of a window, and when there is too little data."""

import json
import random
import statistics
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.planner.problem import WEIGHT_NORMAL
from balancer.registry.load import REQUEST_BYTES, ClusterLoad, GroupLoad, LoadReport, encode_report
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now
from pipeline.placement.logic import (
    AHEAD,
    DUPLICATE,
    MALFORMED,
    UNKNOWN_VERSION,
    GroupCost,
    Measure,
    Nothing,
    Rules,
    Timing,
    Weighed,
    closed_until_ms,
    group_costs,
    measure_of,
    reports_in,
    weigh,
)
from tests.pipeline.placement.reports import START_MS, report, steady

TIMING = Timing()
MEAN = Measure()


def work_of(reports: Sequence[LoadReport], until_s: int, timing: Timing = TIMING) -> dict[int, int]:
    found = group_costs(reports, START_MS + until_s * 1_000, timing, MEAN)
    return {one.group: round(one.work / REQUEST_BYTES) for one in found}


def windows_of(reports: Sequence[LoadReport], until_s: int) -> dict[int, int]:
    found = group_costs(reports, START_MS + until_s * 1_000, TIMING, MEAN)
    return {one.group: one.windows for one in found}


# ---- what groups cost ----------------------------------------------------------------------------


def test_a_steady_load_costs_what_it_costs() -> None:
    told = steady({1: {1: 3_000, 2: 40}, 2: {3: 500}}, 0, 900)
    assert work_of(told, 900) == {1: 3_000, 2: 40, 3: 500}
    assert windows_of(told, 900) == {1: 20, 2: 20, 3: 20}


def test_bytes_are_work_and_cost_as_well() -> None:
    load = GroupLoad(GroupId(4), 5_000_000, 10_000_000, 10, 1_000)
    told = [report(1, second, {}, groups=(load,)) for second in range(0, 300, 5)]
    (found,) = group_costs(told, START_MS + 300_000, TIMING, MEAN)
    assert found == GroupCost(GroupId(4), 3_000_000 + 2 * REQUEST_BYTES, 3_200, 10)


def test_a_group_whose_master_moved_within_a_time_window_is_the_sum_over_its_masters() -> None:
    """Half a minute on each node, and its cost is the same as before."""
    told = [
        *steady({1: {1: 6_000, 2: 10}, 2: {3: 10}}, 0, 330),
        *steady({1: {2: 10}, 2: {1: 6_000, 3: 10}}, 330, 600),
    ]
    assert work_of(told, 600)[1] == 6_000


def test_a_master_that_died_leaves_what_it_told_of() -> None:
    told = [*steady({1: {1: 6_000}, 2: {2: 9}}, 0, 330), *steady({2: {1: 6_000, 2: 9}}, 345, 600)]
    assert work_of(told, 600) == {1: 6_000, 2: 9}


def test_reports_that_were_lost_leave_the_mean_of_the_others() -> None:
    told = steady({1: {1: 6_000}}, 0, 600)
    assert work_of([one for at, one in enumerate(told) if at % 3], 600) == {1: 6_000}


def test_a_time_window_that_is_hardly_told_of_says_nothing() -> None:
    told = steady({1: {1: 6_000}}, 0, 25)
    assert work_of(told, 60) == {}
    assert work_of([*told, report(1, 25, {1: 6_000})], 60) == {1: 6_000}


def test_a_time_window_has_its_begin_and_not_its_end() -> None:
    """At exactly 60 s a report belongs to the time windows that end at 90 and 120 s."""
    told = [report(1, 60, {1: 12_000}, interval_ms=30_000)]
    assert work_of(told, 60) == {}
    assert work_of(told, 90) == {1: 2_000}
    assert windows_of(told, 120) == {1: 2}


def test_only_the_past_counts() -> None:
    told = [*steady({1: {1: 90_000}}, 0, 300), *steady({1: {1: 1_000}}, 300, 1_200)]
    assert work_of(told, 900) == {1: pytest.approx(1_000 + 89_000 / 40, abs=1)}
    assert work_of(told, 930) == {1: 1_000}
    assert work_of(told, 300) == {1: 90_000}


@given(st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_matters(dice: random.Random) -> None:
    told = steady({1: {1: 700, 2: 80}, 2: {3: 9_000}}, 0, 300)
    again = told + dice.choices(told, k=20)
    dice.shuffle(again)
    assert work_of(again, 300) == work_of(told, 300)


def test_another_life_of_a_node_may_tell_at_the_same_moment() -> None:
    one = report(1, 40, {1: 100}, interval_ms=30_000)
    other = attrs.evolve(
        one, incarnation=Incarnation(2), groups=(GroupLoad(GroupId(2), 0, 0, 0, 9),)
    )
    assert set(work_of([one, other], 60)) == {1, 2}


@pytest.mark.parametrize(
    ("newest_s", "closed_s"), [(20, 0), (49.999, 0), (50, 30), (79.9, 30), (19.9, -30)]
)
def test_a_time_window_is_closed_when_the_lateness_is_over(newest_s: float, closed_s: int) -> None:
    newest_ms = START_MS + round(newest_s * 1_000)
    assert closed_until_ms(newest_ms, TIMING) == START_MS + closed_s * 1_000


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=30), st.integers(1, 99))
def test_percentiles_lie_between_costs_as_usual(costs: list[float], percent: int) -> None:
    usual = statistics.quantiles(costs, n=100, method="inclusive")[percent - 1]
    assert Measure(percent).of(costs) == pytest.approx(usual, rel=1e-9, abs=1e-6)


def test_the_ends_of_percentiles() -> None:
    assert (Measure(0).of([3, 1, 2]), Measure(100).of([3, 1, 2]), Measure(95).of([7])) == (1, 3, 7)


@pytest.mark.parametrize(("text", "name"), [("mean", "mean"), ("p95", "p95"), ("99.9", "p99.9")])
def test_measures_have_names(text: str, name: str) -> None:
    assert str(measure_of(text)) == name


@pytest.mark.parametrize("text", ["", "median", "p101", "p-1", "pp5", "nan"])
def test_what_is_no_measure_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"percentile|neither"):
        measure_of(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slide_s": 0},
        {"slide_s": 61},
        {"slide_s": 40},
        {"past_s": 615},
        {"past_s": 30},
        {"lateness_s": -1},
    ],
)
def test_time_windows_that_do_not_fit_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="slide"):
        Timing(**wrong)


# ---- weights, or nothing -------------------------------------------------------------------------


def known(*costs: float, windows: int = 20) -> list[GroupCost]:
    return [GroupCost(GroupId(group), 9 * cost, cost, windows) for group, cost in enumerate(costs)]


def groups(count: int) -> list[GroupId]:
    return [GroupId(group) for group in range(count)]


def test_weights_have_the_floor_of_the_built_in_ones_and_the_registrys_unit() -> None:
    found = weigh(known(30_000, 10_000, 0, 0), START_MS, groups(4), START_MS, Rules())
    assert found == Weighed(START_MS, {0: 2_500, 1: 1_000, 2: 250, 3: 250}, ())


def test_what_a_node_does_for_others_makes_none_of_its_groups_heavy() -> None:
    """Group 2 is alone on a node that follows the hot group 0, and its reported cost is as high. By
    its own work it is as light as group 1."""
    costs = [
        GroupCost(GroupId(0), 8_000, 20_000, 20),
        GroupCost(GroupId(1), 1_000, 2_500, 20),
        GroupCost(GroupId(2), 1_000, 17_500, 20),
    ]
    found = weigh(costs, START_MS, groups(3), START_MS, Rules())
    assert found == Weighed(START_MS, {0: 2_050, 1: 475, 2: 475}, ())


def test_a_group_that_little_is_known_of_is_average() -> None:
    costs = [*known(3_000, 1_000), GroupCost(GroupId(2), 90_000, 90_000, 2)]
    found = weigh(costs, START_MS, groups(4), START_MS, Rules())
    assert isinstance(found, Weighed)
    assert found.unknown == (2, 3)
    assert [found.weights[group] for group in groups(4)] == [
        1_375,
        625,
        WEIGHT_NORMAL,
        WEIGHT_NORMAL,
    ]


def test_an_idle_cluster_weighs_all_groups_the_same() -> None:
    found = weigh(known(900, 0), START_MS, groups(2), START_MS, Rules())
    assert isinstance(found, Weighed)
    assert set(found.weights.values()) == {WEIGHT_NORMAL}


def test_groups_that_the_registry_does_not_have_are_not_weighed() -> None:
    found = weigh(known(3_000, 1_000, 7_000), START_MS, groups(2), START_MS, Rules())
    assert isinstance(found, Weighed)
    assert found.weights == {0: 1_375, 1: 625}


@pytest.mark.parametrize(
    ("costs", "age_ms", "why"),
    [
        ([], 0, "0 of 4 groups"),
        (known(5_000), 0, "1 of 4 groups"),
        (known(1.0, 1.0, 1.0, 1.0, windows=2), 0, "0 of 4 groups"),
        (known(1.0, 1.0, 1.0, 1.0), 120_001, "120 s old"),
    ],
)
def test_too_little_or_too_old_is_nothing(costs: list[GroupCost], age_ms: int, why: str) -> None:
    found = weigh(costs, START_MS, groups(4), START_MS + age_ms, Rules())
    assert isinstance(found, Nothing)
    assert why in found.why


@given(
    st.dictionaries(
        st.integers(0, 11).map(GroupId), st.integers(1_500, 400_000), min_size=2, max_size=12
    )
)
def test_of_a_steady_load_the_built_in_estimator_says_the_same(rates: dict[GroupId, int]) -> None:
    """These weights are better only in how they follow a load that changes."""
    book = ClusterLoad()
    told = steady({1: rates}, 0, 900)
    for one in told:
        book.observe(one, Now(one.wall_ms * MS, one.wall_ms * MS, True))
    last_ms = told[-1].wall_ms
    built_in = book.weights(Now(last_ms * MS, last_ms * MS, True), rates)
    until_ms = closed_until_ms(last_ms, TIMING)
    costs = group_costs(told, until_ms, TIMING, MEAN)
    found = weigh(costs, until_ms, rates.keys(), last_ms, Rules())
    assert isinstance(found, Weighed)
    assert built_in is not None
    assert all(abs(found.weights[group] - built_in[group]) <= 1 for group in rates)


# ---- records of the topic ------------------------------------------------------------------------


def test_what_is_no_report_is_counted_and_passed_over() -> None:
    sound = report(1, 0, {1: 5})
    ahead = report(1, 100, {1: 5})
    newer = json.dumps(json.loads(encode_report(sound)) | {"version": 2}).encode()
    values = [encode_report(sound), b"{", None, newer, encode_report(ahead), encode_report(sound)]
    found, tally = reports_in(values, START_MS)
    assert found == [sound]
    assert tally.records == 6
    assert tally.passed_over == {MALFORMED: 2, UNKNOWN_VERSION: 1, AHEAD: 1, DUPLICATE: 1}
    assert str(tally) == (
        "6 reports, of these passed over: 1 ahead, 1 duplicate, 2 malformed, 1 unknown_version"
    )


def test_where_all_are_sound_nothing_else_is_said() -> None:
    _, tally = reports_in([encode_report(report(NodeId(1), 0, {1: 5}))], START_MS)
    assert str(tally) == "1 reports"
