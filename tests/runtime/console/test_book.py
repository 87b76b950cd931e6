"""The nodes' reports put together: masters, charts, and readers' lag."""

from typing import Any

import attrs

from broker.statistics import BrokerStatistics
from paxos.ids import GroupId, NodeId, Now
from runtime.console.messages import (
    SAMPLES_MAX,
    Acting,
    Committed,
    Consumers,
    Data,
    Ends,
    Held,
    Sample,
)
from runtime.console.recent_traffic import SECOND_NS, RecentTraffic
from runtime.console.reports import BELIEVED_NS, ClusterReports, lag_of
from tests.runtime.console.test_words import STATE

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def at(second: float) -> Now:
    return Now(1_800_000_000 * SECOND_NS, int(second * SECOND_NS))


def state(**changes: Any) -> Any:
    return attrs.evolve(STATE, **{"acting": (), "samples": (), **changes})


def sample(second: int, produced: int = 0) -> Sample:
    return Sample(second, produced, 0, 0, 0)


def consumers(*committed: Committed) -> Consumers:
    return Consumers(
        name="readers",
        state="Stable",
        kind="classic",
        group=1,
        members=1,
        clients=(),
        committed=committed,
    )


def test_of_two_who_say_that_they_are_master_the_later_one_is() -> None:
    """A node that lost a group a moment ago has not reported it yet."""
    book = ClusterReports()
    book.hear_state(TWO, state(acting=(Acting(7, 100, 4, 0),)), at(1))
    book.hear_state(ONE, state(acting=(Acting(7, 2900, 5, 0),)), at(1))
    book.hear_state(THREE, state(acting=(Acting(7, 2900, 3, 0),)), at(1))
    assert book.acting(at(1))[GroupId(7)] == (ONE, Acting(7, 2900, 5, 0))


def test_who_has_not_answered_for_long_says_nothing_any_more() -> None:
    book = ClusterReports()
    book.hear_state(TWO, state(acting=(Acting(7, 100, 4, 0),)), at(1))
    late = at(1 + BELIEVED_NS / SECOND_NS + 0.1)
    assert book.state(TWO, at(2)) is not None
    assert book.state(TWO, late) is None
    assert book.acting(late) == {}


def test_samples_are_kept_by_our_own_seconds() -> None:
    """The boot clock of another machine started at another time."""
    book = ClusterReports()
    book.hear_state(TWO, state(second=9_000, samples=(sample(8_999, 1), sample(9_000, 2))), at(50))
    assert book.samples(TWO) == (sample(49, 1), sample(50, 2))
    assert book.known_to(TWO) == 9_000
    # An answer that took longer moves nothing.
    book.hear_state(TWO, state(second=9_001, samples=(sample(9_001, 3),)), at(52))
    assert book.samples(TWO) == (sample(49, 1), sample(50, 2), sample(51, 3))
    # Its next incarnation is asked from the beginning, and its past stays.
    book.hear_state(TWO, state(incarnation=8, second=5, samples=(sample(5, 4),)), at(60))
    assert book.samples(TWO)[-2:] == (sample(51, 3), sample(60, 4))
    assert book.known_to(TWO) == 5


def test_a_chart_is_bounded() -> None:
    book = ClusterReports()
    for second in range(1, 3 * SAMPLES_MAX):
        book.hear_state(TWO, state(second=second, samples=(sample(second),)), at(second))
    assert len(book.samples(TWO)) == SAMPLES_MAX


def test_a_past_is_a_rate_by_the_time_that_passed() -> None:
    """A tick may come late; each second is reported once."""
    counts = BrokerStatistics()
    past = RecentTraffic(counts)
    past.tick(at(10))
    counts.produce_requests, counts.fetch_bytes = 100, 3_000
    past.tick(at(12))
    counts.produce_requests = 101
    past.tick(at(12.5))
    past.tick(at(13.5))
    assert past.since(0) == (Sample(12, 50, 0, 0, 1_500), Sample(13, 0, 0, 0, 0))
    assert past.since(12) == (Sample(13, 0, 0, 0, 0),)
    for second in range(14, 14 + 2 * SAMPLES_MAX):
        past.tick(at(second))
    assert len(past.since(0)) == SAMPLES_MAX


def test_a_lag_is_from_what_was_committed_to_the_end() -> None:
    """Records that were deleted before they were read are no lag; an unknown end is shown as
    unknown."""
    book = ClusterReports()
    book.hear_data(ONE, Data(ends=(Ends("orders", [0, 1], [0, 40], [10, 50]),)), at(1))
    book.hear_data(TWO, Data(ends=(Ends("orders", [2], [0], [5]),)), at(1))
    book.add_up(at(1))
    readers = consumers(Committed("orders", [0, 1, 2], [4, 7, 9]), Committed("gone", [0], [3]))
    assert lag_of(readers, book.partitions) == (6 + 10 + 0, 1)


def test_who_was_master_until_now_does_not_take_records_back() -> None:
    book = ClusterReports()
    book.hear_data(ONE, Data(ends=(Ends("orders", [0], [0], [100]),)), at(1))
    book.hear_data(TWO, Data(ends=(Ends("orders", [0], [0], [90]),)), at(1))
    book.add_up(at(1))
    assert book.partitions["orders"][0] == (ONE, 0, 100)


def test_records_a_second_are_what_came_since_the_last_look() -> None:
    book = ClusterReports()
    for second, end in ((10, 100), (15, 600), (20, 600)):
        book.hear_data(ONE, Data(ends=(Ends("orders", [0], [0], [end]),)), at(second))
        book.add_up(at(second))
        assert book.records_per_s.get("orders") == {10: None, 15: 100, 20: 0}[second]


def test_bytes_are_those_of_all_copies() -> None:
    book = ClusterReports()
    for node in (ONE, TWO):
        book.hear_data(node, Data(held=(Held("orders", 1000, -1),)), at(1))
    book.hear_data(THREE, Data(held=(Held("orders", 500, 20),), cut=1), at(1))
    assert book.held(at(1)) == {"orders": (2500, 20)}
    assert book.cut(at(1))


def test_nothing_is_kept_when_nobody_watches() -> None:
    book = ClusterReports()
    book.hear_state(ONE, state(samples=(sample(1),)), at(1))
    book.hear_data(ONE, Data(ends=(Ends("orders", [0], [0], [1]),)), at(1))
    book.add_up(at(1))
    book.clear()
    assert not book.partitions
    assert not book.samples(ONE)
    assert book.state(ONE, at(1)) is None
