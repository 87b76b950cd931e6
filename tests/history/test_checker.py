"""Every anomaly by its name, in the smallest history that has it, and its verdict."""

import pytest

from history.anomaly import EXAMPLES_MAX, MEANING, Anomaly, Verdict
from history.checker import check
from history.known import Options
from history.record import NO_KEY, Key, Op, Outcome, Record

KEY = Key("t", 0)


def send(value: str, offset: int, *, at: int = 0, process: str = "p") -> Record:
    return Record(Op.SEND, process, KEY, value, offset, Outcome.OK, at, at + 1)


def poll(value: str, offset: int, *, at: int | None = None, process: str = "r") -> Record:
    """Each message came with a poll of its own, unless times are given."""
    at = 1000 + offset if at is None else at
    return Record(Op.POLL, process, KEY, value, offset, Outcome.OK, at, at)


def assign(offset: int = 0, process: str = "r") -> Record:
    return Record(Op.ASSIGN, process, KEY, None, offset)


def subscribe(process: str = "r") -> Record:
    return Record(Op.SUBSCRIBE, process, KEY)


def drained(offset: int, process: str = "r", node: str | None = None) -> Record:
    return Record(Op.DRAINED, process, KEY, node, offset, Outcome.OK, 5000, 5000)


def nothing(offset: int, *, at: int = 1000, process: str = "r") -> Record:
    """A poll from this offset on that returned nothing."""
    return Record(Op.POLL, process, KEY, None, offset, Outcome.OK, at, at)


def told(
    op: str, offset: int, *, at: int = 2000, until: int | None = None, process: str = "w"
) -> Record:
    """An answer about the key: an end of its log, or group g's committed offset."""
    until = at + 1 if until is None else until
    value = "g" if op in ("commit", "committed") else None
    return Record(Op(op), process, KEY, value, offset, Outcome.OK, at, until)


def unsure(record: Record) -> Record:
    record.outcome, record.ended_ns = Outcome.INFO, 0
    return record


FAILED = Record(Op.SEND, "p", KEY, "a", -1, Outcome.FAIL, 0, 1)
UNKNOWN = Record(Op.SEND, "p", KEY, "a", -1, Outcome.INFO, 0, 1)


@pytest.mark.parametrize(
    ("history", "anomalies"),
    [
        ([], set()),
        ([send("a", 0), assign(), poll("a", 0), drained(1)], set()),
        (
            [send("a", 0), poll("b", 0)],
            {"inconsistent-offsets", "lost-write", "lost-middle", "unexpected"},
        ),
        ([send("a", 0), poll("a", 0), poll("a", 1, process="s")], {"duplicate"}),
        ([send("a", 0), send("b", 1, at=5), poll("b", 1)], {"lost-write", "lost-prefix"}),
        ([send("a", 0), send("b", 1, at=5), poll("a", 0)], {"unseen", "lost-postfix"}),
        ([send("a", -1)], {"unseen", "lost-postfix"}),
        (
            [
                send("a", 0),
                send("b", 1, at=5),
                send("c", 2, at=9),
                poll("a", 0),
                poll("c", 2, process="s"),
            ],
            {"lost-write", "lost-middle"},
        ),
        ([FAILED, poll("a", 0)], {"G1a"}),
        ([FAILED], set()),
        ([UNKNOWN, poll("a", 0)], set()),
        ([UNKNOWN], set()),
        ([poll("a", 0)], {"unexpected"}),
        ([send("a", 0), send("a", 0, process="q"), poll("a", 0)], {"reused-value"}),
        (
            [send("a", 1), send("b", 0, at=5, process="q"), poll("b", 0), poll("a", 1)],
            {"realtime-order"},
        ),
        (
            [send("a", 1, at=5), send("b", 0, at=5), poll("b", 0), poll("a", 1)],
            {"nonmonotonic-send"},
        ),
    ],
)
def test_each_anomaly_of_sends_by_name(history: list[Record], anomalies: set[str]) -> None:
    report = check(history)
    assert set(report.counts) == anomalies, report.summary()


THREE = [send("a", 0, at=1), send("b", 1, at=3), send("c", 2, at=5)]
ALL = [poll("a", 0, process="s"), poll("b", 1, process="s"), poll("c", 2, process="s")]


@pytest.mark.parametrize(
    ("reads", "anomalies"),
    [
        ([poll("a", 0), poll("c", 2)], {"poll-skip"}),
        ([assign(), poll("b", 1)], {"poll-skip"}),
        ([assign(1), poll("b", 1), poll("c", 2), drained(3)], set()),
        ([poll("b", 1), poll("c", 2)], set()),
        ([poll("b", 1), poll("a", 0)], {"nonmonotonic-poll"}),
        ([poll("b", 1), poll("b", 1, at=1500)], {"nonmonotonic-poll"}),
        ([poll("b", 1), assign(0), poll("a", 0)], set()),
        ([subscribe(), poll("b", 1), poll("b", 1), poll("a", 0), poll("c", 2)], set()),
        ([assign(), poll("a", 0), poll("b", 1), drained(3)], {"lost-on-reader"}),
        ([assign(), poll("a", 0), poll("b", 1), drained(2)], {"lost-on-reader"}),
        ([assign(3), drained(3)], set()),
        ([assign(1), poll("a", 0)], {"nonmonotonic-poll"}),
        ([poll("a", 0), nothing(2), poll("b", 1)], set()),
        ([poll("a", 0, at=900), poll("c", 2, at=900)], {"int-poll-skip"}),
        ([poll("b", 1, at=900), poll("a", 0, at=900)], {"int-nonmonotonic-poll"}),
        ([assign(), poll("a", 0), poll("b", 1), drained(3, node="n1")], {"lost-on-node"}),
        ([told("earliest", 2), assign(), poll("c", 2), drained(3)], set()),
        (
            [told("earliest", 1), assign(), poll("c", 2), drained(3)],
            {"poll-skip", "lost-on-reader"},
        ),
    ],
)
def test_each_anomaly_of_a_reader_by_name(reads: list[Record], anomalies: set[str]) -> None:
    report = check([*THREE, *ALL, *reads])
    assert set(report.counts) == anomalies, report.summary()


def test_a_drained_reader_need_not_see_what_was_acknowledged_after_it_looked() -> None:
    late = send("d", 3, at=6000)
    seen = poll("d", 3, process="s", at=7000)
    reads = [assign(), poll("a", 0), poll("b", 1), poll("c", 2), drained(3)]
    assert check([*THREE, late, *ALL, seen, *reads]).clean


def test_what_retention_removed_is_not_lost() -> None:
    history = [*THREE, poll("c", 2)]
    assert set(check(history).counts) == {"lost-write", "lost-prefix"}
    assert check([*history, told("earliest", 2)]).clean


@pytest.mark.parametrize(
    ("answers", "anomalies"),
    [
        ([told("latest", 3)], set()),
        ([told("latest", 2)], {"stale-offsets"}),
        ([told("latest", 2, at=5, until=5000)], set()),
        ([told("latest", 9), told("latest", 8, at=2001)], set()),
        ([told("latest", 9), told("latest", 8, at=2002)], {"list-offsets-back"}),
        ([told("earliest", 2), told("earliest", 1, at=3000)], {"list-offsets-back"}),
        ([told("latest", 9, at=1, until=2)], {"realtime-order"}),
        ([told("committed", -1)], set()),
        ([told("committed", 3)], {"committed-back"}),
        ([told("commit", 3), told("committed", 3, at=2500)], set()),
        ([told("commit", 3), told("committed", -1, at=2500)], {"committed-back"}),
        ([told("commit", 3), told("committed", -1, at=2000)], set()),
        ([told("commit", 3), told("commit", 1, at=2100), told("committed", 1, at=2500)], set()),
        (
            [told("commit", 3), told("commit", 1, at=2100), told("committed", 3, at=2500)],
            {"committed-back"},
        ),
        (
            [told("commit", 3), told("commit", 1, until=2100), told("committed", 3, at=2500)],
            set(),
        ),
        ([unsure(told("commit", 3)), told("committed", 3, at=2500)], set()),
        ([unsure(told("commit", 3)), told("committed", -1, at=2500)], set()),
        ([unsure(told("commit", 3, at=2600)), told("committed", 3, at=2500)], {"committed-back"}),
    ],
)
def test_each_anomaly_of_what_is_told_by_name(answers: list[Record], anomalies: set[str]) -> None:
    """Two answers have an order only if one was there before the other was asked for."""
    report = check([*THREE, *ALL, *answers])
    assert set(report.counts) == anomalies, report.summary()


def test_clocks_that_differ_give_no_order_within_their_error() -> None:
    history = [*THREE, *ALL, told("latest", 2, at=506)]
    assert not check(history).clean
    assert not check(history, Options(clock_error_ns=499)).clean
    assert check(history, Options(clock_error_ns=500)).clean


def test_replicas_that_differ_and_epochs_with_two_masters() -> None:
    key = Key("paxos-group", 1)
    chains = [Record(Op.CHAIN, f"n{node}", key, "aa", 7) for node in (1, 2)]
    masters = [Record(Op.MASTER, f"n{node}", key, None, node) for node in (1, 2, 2)]
    assert check([*chains, *masters]).clean
    assert check([*chains, Record(Op.CHAIN, "n3", key, "bb", 8)]).clean
    report = check([*chains, Record(Op.CHAIN, "n3", key, "bb", 7)])
    assert report.counts == {Anomaly.DIVERGED: 1}
    report = check([*masters, Record(Op.MASTER, "n3", key, None, 2)])
    assert report.counts == {Anomaly.TWO_MASTERS: 1}


def test_duplicates_are_allowed_without_idempotence() -> None:
    history = [send("a", 0), poll("a", 0), poll("a", 1)]
    assert not check(history).clean
    report = check(history, Options(idempotent=False))
    assert report.clean
    assert report.with_verdict(Verdict.ALLOWED) == {Anomaly.DUPLICATE: 1}


def test_a_rebalance_may_skip_and_repeat() -> None:
    """Both are reported, because somebody may not want them."""
    reads = [subscribe(), poll("a", 0, at=9), poll("c", 2, at=9), poll("b", 1, at=9)]
    report = check([*THREE, *ALL, *reads])
    assert report.clean
    allowed = {Anomaly.INT_POLL_SKIP: 1, Anomaly.INT_NONMONOTONIC_POLL: 1}
    assert report.with_verdict(Verdict.ALLOWED) == allowed


def mark(op: Op, at: int) -> Record:
    return Record(op, "o", NO_KEY, "kill", began_ns=at, ended_ns=at)


def test_lag_is_told_and_has_a_limit_only_where_one_is_given() -> None:
    """Known at 6, requested from offset 2 on at 800, and not received; but at 500 all was well
    again."""
    reads = [poll("a", 0, at=2), poll("b", 1, at=4), nothing(2, at=800), poll("c", 2, at=900)]
    history = [*THREE, *reads]
    report = check(history)
    assert report.clean
    assert report.worst_lag_ns == 794
    assert report.with_verdict(Verdict.REPORT) == {Anomaly.REALTIME_LAG: 1}
    assert check(history, Options(lag_ns_max=794)).clean
    assert set(check(history, Options(lag_ns_max=793)).counts) == {"realtime-lag"}
    healed = [mark(Op.FAULT, 100), mark(Op.HEAL, 500), *history]
    assert check(healed, Options(lag_ns_max=300)).clean
    assert not check(healed, Options(lag_ns_max=299)).clean
    during = [mark(Op.FAULT, 100), mark(Op.HEAL, 801), *history]
    assert check(during, Options(lag_ns_max=0)).clean


def test_after_the_last_healing_everybody_gets_something_done() -> None:
    faults = [mark(Op.FAULT, 2), mark(Op.HEAL, 4)]
    report = check([*faults, *THREE, *ALL])
    assert report.clean
    assert report.acknowledged_during_faults == 1
    late = unsure(send("d", -1, at=9, process="q"))
    assert set(check([*faults, *THREE, *ALL, late]).counts) == {"stuck"}
    assert check([*THREE, *ALL, late]).clean
    earlier = unsure(send("d", -1, at=3, process="q"))
    assert check([*faults, *THREE, *ALL, earlier]).clean


def test_an_operation_that_never_ended_may_have_happened() -> None:
    begun = Record(Op.SEND, "p", KEY, "d", outcome=Outcome.INVOKE, began_ns=7)
    report = check([*THREE, begun, *ALL])
    assert report.clean
    assert report.sent[Outcome.INFO] == 1
    report = check([*THREE, begun, *ALL, poll("d", 3, process="s")])
    assert report.clean
    assert report.with_verdict(Verdict.REPORT)[Anomaly.RECOVERED] == 1
    ended = send("d", 3, at=7)
    report = check([*THREE, begun, ended, *ALL])
    assert set(report.counts) == {"unseen", "lost-postfix"}


def test_the_report_names_examples_and_counts_the_rest() -> None:
    report = check([poll(f"v{number}", number) for number in range(50)])
    assert report.counts == {Anomaly.UNEXPECTED: 50}
    assert len(report.findings) == EXAMPLES_MAX
    assert str(report.findings[0]) == "unexpected on t-0: v0 at offset 0"
    assert "0 acknowledged" in report.summary()
    assert "NOT A LOG" in report.summary()
    assert "50 x unexpected: a value that was never sent was read" in report.summary()
    (found,) = report.to_json()["anomalies"]
    assert (found["name"], found["verdict"], found["count"]) == ("unexpected", "bad", 50)
    assert len(found["examples"]) == EXAMPLES_MAX


def test_every_anomaly_has_a_meaning() -> None:
    assert MEANING.keys() == set(Anomaly)
