"""What the handlers that serve clients count for load reports."""

from broker.traffic import ALL_BELOW, EVERY, WAITS_MAX, Latency, Traffic
from paxos.ids import MS, GroupId

G1, G2 = GroupId(1), GroupId(2)


def test_traffic_is_counted_by_group_and_taken_once() -> None:
    traffic = Traffic()
    traffic.produced(G1, 100)
    traffic.produced(G1, 50)
    traffic.fetched(G2, 70)
    groups, p99_ns = traffic.take()
    assert (groups[G1].bytes_in, groups[G1].bytes_out, groups[G1].requests) == (150, 0, 2)
    assert (groups[G2].bytes_in, groups[G2].bytes_out, groups[G2].requests) == (0, 70, 1)
    assert p99_ns == 0
    assert traffic.take() == ({}, 0)


def test_the_99th_percentile_is_of_what_was_timed() -> None:
    traffic = Traffic()
    for ms in range(1, 101):
        traffic.waited(ms * MS)
    assert traffic.take()[1] == 100 * MS
    traffic.waited(5 * MS)
    assert traffic.take()[1] == 5 * MS


def test_of_many_requests_few_are_timed_and_fewer_remembered() -> None:
    traffic = Traffic()
    timed = 0
    for _ in range(EVERY * 2 * WAITS_MAX):
        if traffic.samples():
            timed += 1
            traffic.waited(1 if timed <= WAITS_MAX else 7)
    assert 2 * WAITS_MAX <= timed < 2 * WAITS_MAX + ALL_BELOW
    assert sum(traffic.produce.counts) == timed, "the histogram goes on"
    assert traffic.take()[1] == 1, "the report does not"
    assert all(traffic.samples() for _ in range(ALL_BELOW))


def test_of_many_fetches_few_are_timed() -> None:
    traffic = Traffic()
    assert sum(traffic.samples_fetch() for _ in range(10 * EVERY)) == 10


def test_a_histogram_has_each_request_in_one_bucket() -> None:
    latency = Latency()
    for ns in (0, MS // 2, MS // 2 + 1, MS, 5_000 * MS, 5_000 * MS + 1):
        latency.took(ns)
    assert latency.counts == [2, 2, *[0] * 10, 1, 1]
    assert latency.sum_ns == 10_002 * MS + 2
