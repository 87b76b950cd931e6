"""Load reports and the built-in estimator: what is sent, what is believed, and for how long."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.planner.problem import WEIGHT_NORMAL, Unfit
from balancer.registry.load import (
    FRESH_NS,
    NUMBER_MAX,
    REPORT_BYTES_MAX,
    ClusterLoad,
    GroupLoad,
    LoadError,
    LoadReport,
    UnknownVersionError,
    decode_report,
    encode_report,
)
from balancer.registry.records import GROUPS_MAX, NODES_MAX
from paxos.ids import MS, GroupId, Incarnation, NodeId
from tests.balancer.literals import START_NS, at

numbers = st.integers(0, NUMBER_MAX)
loads = st.builds(
    GroupLoad, st.integers(0, GROUPS_MAX).map(GroupId), numbers, numbers, numbers, numbers, numbers
)
reports = st.builds(
    LoadReport,
    node=numbers,
    incarnation=numbers,
    wall_ms=numbers,
    interval_ms=st.integers(1, NUMBER_MAX),
    produce_p99_us=numbers,
    lag_slots=numbers,
    uptime_ms=numbers,
    groups=st.lists(loads, max_size=6, unique_by=lambda one: one.group).map(
        lambda found: tuple(sorted(found))
    ),
)


def report(node: int, at_s: float, cpu_us: dict[int, int], **changes: Any) -> LoadReport:
    """Five seconds of a node that spent that many µs of CPU a second on each group."""
    base = LoadReport(
        node=NodeId(node),
        incarnation=Incarnation(1),
        wall_ms=START_NS // MS + int(at_s * 1_000),
        interval_ms=5_000,
        produce_p99_us=900,
        lag_slots=0,
        uptime_ms=60_000,
        groups=tuple(GroupLoad(GroupId(one), 0, 0, 1, us * 5) for one, us in cpu_us.items()),
    )
    return attrs.evolve(base, **changes)


def told(book: ClusterLoad, until_s: int, cpu_us: dict[int, int], start_s: int = 0) -> ClusterLoad:
    for second in range(start_s, until_s, 5):
        book.observe(report(1, second, cpu_us), at(second * 1_000))
    return book


@given(reports)
def test_a_report_comes_back_as_it_went(one: LoadReport) -> None:
    data = encode_report(one)
    assert decode_report(memoryview(data)) == one
    assert json.loads(data)["node"] == one.node


def test_a_report_of_an_older_node_says_nothing_of_what_groups_keep() -> None:
    older = json.loads(encode_report(report(1, 0, {3: 9})))
    del older["groups"]["3"]["bytes_kept"]
    assert decode_report(json.dumps(older).encode()) == report(1, 0, {3: 9})


def test_what_groups_keep_is_known_while_their_masters_tell() -> None:
    book = ClusterLoad()
    kept = GroupLoad(GroupId(3), 0, 0, 0, 0, 700)
    book.observe(report(1, 0, {}, groups=(kept,)), at(0))
    assert book.bytes_kept(at(1_000)) == {3: 700}
    assert book.bytes_kept(at(100_000)) == {}


@given(st.binary(max_size=200) | reports.map(encode_report), st.data())
def test_any_bytes_are_a_report_or_a_load_error(data: bytes, draw: st.DataObject) -> None:
    at_byte = draw.draw(st.integers(0, len(data)))
    damaged = data[:at_byte] + draw.draw(st.binary(max_size=3)) + data[at_byte + 1 :]
    try:
        found = decode_report(damaged)
    except LoadError:
        return
    assert decode_report(encode_report(found)) == found


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": "1"},
        {"version": True},
        {"node": -1},
        {"node": 1.5},
        {"node": True},
        {"interval_ms": 0},
        {"wall_ms": NUMBER_MAX + 1},
        {"groups": []},
        {"groups": {"x": {}}},
        {"groups": {"1": 5}},
        {"groups": {"1": {"bytes_in": 1}}},
        {"groups": {str(at): {} for at in range(GROUPS_MAX + 2)}},
        {"groups": {name: dict.fromkeys(GroupLoad._fields[1:], 1) for name in ("1", "01")}},
    ],
)
def test_what_is_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    value = json.loads(encode_report(report(1, 0, {1: 5}))) | change
    with pytest.raises(LoadError):
        decode_report(json.dumps(value).encode())


def test_a_newer_report_is_told_from_one_that_is_broken() -> None:
    newer = json.loads(encode_report(report(1, 0, {1: 5}))) | {"version": 2, "groups": []}
    with pytest.raises(UnknownVersionError):
        decode_report(json.dumps(newer).encode())


def test_a_report_is_bounded_in_bytes() -> None:
    with pytest.raises(LoadError, match="at most"):
        decode_report(b" " * (REPORT_BYTES_MAX + 1))


def test_weights_are_relative_and_have_a_floor() -> None:
    """A group with three times the load of another, and an idle one."""
    book = told(ClusterLoad(), 60, {1: 30_000, 2: 10_000, 3: 0})
    weights = book.weights(at(60_000), [GroupId(1), GroupId(2), GroupId(3)])
    assert weights is not None
    assert sum(weights.values()) == pytest.approx(3 * WEIGHT_NORMAL, abs=3)
    assert weights[GroupId(3)] == WEIGHT_NORMAL // 4
    assert (weights[GroupId(1)] - 250) == pytest.approx(3 * (weights[GroupId(2)] - 250), abs=3)


def test_bytes_cost_as_well() -> None:
    book = ClusterLoad()
    for second in range(0, 60, 5):
        both = (
            GroupLoad(GroupId(1), 50_000_000, 50_000_000, 1, 0),
            GroupLoad(GroupId(2), 0, 0, 1, 0),
        )
        book.observe(report(1, second, {}, groups=both), at(second * 1_000))
    weights = book.weights(at(60_000), [GroupId(1), GroupId(2)])
    assert weights == {1: 1_750, 2: 250}


def test_an_idle_cluster_weighs_all_groups_the_same() -> None:
    book = told(ClusterLoad(), 60, {1: 900, 2: 0})
    assert book.weights(at(60_000), [GroupId(1), GroupId(2)]) == {1: 1_000, 2: 1_000}


def test_too_little_or_too_old_is_nothing() -> None:
    """Not before it has warmed up, not for half of the groups, and not when the reports have
    stopped."""
    groups = [GroupId(1), GroupId(2)]
    cold = told(ClusterLoad(), 20, {1: 9_000, 2: 9_000})
    assert cold.weights(at(20_000), groups) is None
    warm = told(ClusterLoad(), 60, {1: 9_000, 2: 9_000})
    assert warm.weights(at(60_000), groups) is not None
    assert warm.weights(at(55_000 + FRESH_NS // MS + 1), groups) is None
    assert warm.weights(at(60_000), [*groups, GroupId(3), GroupId(4), GroupId(5)]) is None


def test_a_shift_of_load_is_half_believed_after_a_minute() -> None:
    book = told(ClusterLoad(), 600, {1: 10_000, 2: 10_000})
    told(book, 660, {1: 30_000, 2: 10_000}, start_s=600)
    weights = book.weights(at(660_000), [GroupId(1), GroupId(2)])
    assert weights is not None
    assert (weights[GroupId(1)] - 250) / (weights[GroupId(2)] - 250) == pytest.approx(2, rel=0.02)


def test_a_report_from_the_past_changes_nothing() -> None:
    book = told(ClusterLoad(), 60, {1: 10_000, 2: 10_000})
    before = book.weights(at(60_000), [GroupId(1), GroupId(2)])
    book.observe(report(1, 20, {1: 900_000}), at(60_000))
    book.observe(report(1, 99, {1: 900_000}, incarnation=Incarnation(0)), at(60_000))
    book.observe(report(2, 20, {}, uptime_ms=5), at(60_000))
    assert book.unfit(at(60_000), lag_slots_max=1, hold_down_ms=100) == {}
    assert book.weights(at(60_000), [GroupId(1), GroupId(2)]) == before


def test_what_nodes_say_of_themselves() -> None:
    book = ClusterLoad()
    book.observe(report(1, 0, {}, produce_p99_us=2_000_000), at(0))
    book.observe(report(2, 0, {}, lag_slots=500), at(0))
    book.observe(report(3, 0, {}, uptime_ms=1_000, lag_slots=500), at(0))
    assert book.slow(at(0), 1_000) == {1}
    assert book.unfit(at(0), lag_slots_max=100, hold_down_ms=3_000) == {
        2: Unfit.LAGGING,
        3: Unfit.RESTARTED,
    }
    assert book.slow(at(15_001), 1_000) == frozenset()
    assert book.unfit(at(15_001), lag_slots_max=100, hold_down_ms=3_000) == {}


def test_the_book_is_bounded_by_the_number_of_nodes() -> None:
    book = ClusterLoad()
    for node in range(NODES_MAX + 10):
        book.observe(report(node, 0, {}), at(0))
    assert len(book.reports) == NODES_MAX
