"""Percentiles are those of a sorted list, within the width of a bucket."""

import json
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.histogram import Histogram, bucket_of, highest_in

LATENCIES = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)
PRECISION = 1 / 512


@given(st.integers(0, 10**15))
def test_a_bucket_is_narrow_and_buckets_follow_each_other(value: int) -> None:
    bucket = bucket_of(value)
    assert value <= highest_in(bucket) <= value * (1 + PRECISION)
    assert bucket_of(highest_in(bucket)) == bucket
    assert bucket_of(highest_in(bucket) + 1) == bucket + 1


@given(LATENCIES, st.sampled_from([0.1, 1, 50, 90, 99, 99.9, 100]))
def test_percentiles_are_those_of_the_sorted_values(values: list[int], percent: float) -> None:
    exact = sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]
    told = Histogram(values).percentile(percent)
    assert exact <= told <= exact * (1 + PRECISION)


@given(LATENCIES, LATENCIES)
def test_histograms_add_up(first: list[int], second: list[int]) -> None:
    total = Histogram(first)
    total.add(Histogram(second))
    assert total.to_json() == Histogram(first + second).to_json()
    assert total.max == max(first + second)


@given(LATENCIES)
def test_a_histogram_survives_json(values: list[int]) -> None:
    before = Histogram(values)
    after = Histogram.from_json(json.loads(json.dumps(before.to_json())))
    assert after.count == len(values)
    assert [after.percentile(one) for one in (1, 50, 99, 100)] == [
        before.percentile(one) for one in (1, 50, 99, 100)
    ]


def test_a_closed_loop_is_corrected_for_what_it_did_not_send() -> None:
    """A request a millisecond for a second, then a stall of a second: half of the time is in the
    stall, so half of all requests would have been too."""
    ms = 1_000_000
    closed = Histogram([ms] * 1000 + [1000 * ms])
    assert closed.percentile(99) <= ms * (1 + PRECISION)
    corrected = closed.corrected(ms)
    assert corrected.count == 2000
    assert 475 * ms <= corrected.percentile(75) <= 525 * ms
    assert corrected.max == closed.max
    assert closed.count == 1001


@given(LATENCIES, st.integers(10**9, 10**12))
def test_nothing_is_added_where_nothing_was_left_out(values: list[int], interval: int) -> None:
    short = [value for value in values if value < 1.9 * interval]  # buckets are not exact
    assert Histogram(short).corrected(interval).to_json() == Histogram(short).to_json()


def test_nothing_recorded_is_zero() -> None:
    assert Histogram().percentile(99) == 0
    assert Histogram().to_json() == []
