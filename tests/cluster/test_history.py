"""The history checker: it accepts what a log can show, and objects to every single change of it."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from cluster.history import (
    Anomaly,
    HistoryError,
    Key,
    Op,
    Outcome,
    Record,
    check,
    read_jsonl,
    write_jsonl,
)

KEY = Key("t", 0)
SEEDS = range(100)


def good_history(dice: random.Random) -> list[Record]:
    """Three producers and a real log of two partitions, then two readers that read everything.

    Some sends fail, some have an unknown outcome; of those, some have happened.
    """
    history: list[Record] = []
    logs: dict[Key, list[str]] = {Key("t", 0): [], Key("t", 1): []}
    now = 0
    for number in range(60):
        key = dice.choice(sorted(logs))
        sent = Record(Op.SEND, f"producer-{dice.randrange(3)}", key, f"v{number}", began_ns=now)
        now += 10
        outcome = dice.choices(list(Outcome), [8, 1, 1])[0]
        sent.outcome, sent.ended_ns = outcome, now
        if outcome == Outcome.OK or (outcome == Outcome.INFO and dice.random() < 0.5):
            logs[key].append(f"v{number}")
            sent.offset = len(logs[key]) - 1 if outcome == Outcome.OK else -1
        history.append(sent)
    for reader in ("reader-1", "reader-2"):
        for key, values in logs.items():
            history.append(Record(Op.ASSIGN, reader, key, offset=0))
            for offset, value in enumerate(values):
                now += 1
                polled = Record(Op.POLL, reader, key, value, offset, Outcome.OK, now, now)
                history.append(polled)
            drained = Record(Op.DRAINED, reader, key, offset=len(values), began_ns=now)
            history.append(drained)
    return history


def in_the_log(history: list[Record]) -> list[int]:
    """Places of the records that say something about a message which is in the log."""
    polled = {one.value for one in history if one.op == Op.POLL}
    return [place for place, one in enumerate(history) if one.value in polled]


def drop(history: list[Record], dice: random.Random) -> None:
    del history[dice.choice(in_the_log(history))]


def duplicate(history: list[Record], dice: random.Random) -> None:
    place = dice.choice(in_the_log(history))
    history.insert(place, attrs.evolve(history[place]))


def swap(history: list[Record], dice: random.Random) -> None:
    """Two messages of one process and key change places, their values or their offsets."""
    while True:
        one, two = (history[place] for place in dice.sample(in_the_log(history), 2))
        if (one.op, one.process, one.key) != (two.op, two.process, two.key):
            continue
        if one.outcome == two.outcome == Outcome.OK:
            break
    if dice.random() < 0.5:
        one.offset, two.offset = two.offset, one.offset
    else:
        one.value, two.value = two.value, one.value


def renumber(history: list[Record], dice: random.Random) -> None:
    known = [place for place in in_the_log(history) if history[place].offset >= 0]
    record = history[dice.choice(known)]
    record.offset += dice.choice((-1, 1, 2, 7) if record.offset else (1, 2, 7))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_good_history_is_clean(seed: int) -> None:
    history = good_history(random.Random(seed))
    report = check(history)
    assert report.clean, report.summary()
    assert report.sent[Outcome.OK] == sum(
        one.op == Op.SEND and one.outcome == Outcome.OK for one in history
    )


@pytest.mark.parametrize("mutate", [drop, duplicate, swap, renumber], ids=lambda one: one.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_change_of_one_record_is_caught(
    seed: int, mutate: Callable[[list[Record], random.Random], None]
) -> None:
    dice = random.Random(seed)
    history = good_history(dice)
    mutate(history, dice)
    assert not check(history).clean


def send(value: str, offset: int, *, at: int = 0, process: str = "p") -> Record:
    return Record(Op.SEND, process, KEY, value, offset, Outcome.OK, at, at + 1)


def poll(value: str, offset: int, *, at: int = 1000, process: str = "r") -> Record:
    return Record(Op.POLL, process, KEY, value, offset, Outcome.OK, at, at)


def assign(offset: int = 0, process: str = "r") -> Record:
    return Record(Op.ASSIGN, process, KEY, None, offset)


def subscribe(process: str = "r") -> Record:
    return Record(Op.SUBSCRIBE, process, KEY)


def drained(offset: int, process: str = "r") -> Record:
    return Record(Op.DRAINED, process, KEY, None, offset, Outcome.OK, 5000, 5000)


FAILED = Record(Op.SEND, "p", KEY, "a", -1, Outcome.FAIL, 0, 1)
UNKNOWN = Record(Op.SEND, "p", KEY, "a", -1, Outcome.INFO, 0, 1)


@pytest.mark.parametrize(
    ("history", "anomalies"),
    [
        ([], set()),
        ([send("a", 0), assign(), poll("a", 0), drained(1)], set()),
        ([send("a", 0), poll("b", 0)], {"inconsistent-offsets", "lost-write", "unexpected"}),
        ([send("a", 0), poll("a", 0), poll("a", 1, process="s")], {"duplicate"}),
        ([send("a", 0), send("b", 1, at=5), poll("b", 1)], {"lost-write"}),
        ([send("a", 0), send("b", 1, at=5), poll("a", 0)], {"unseen"}),
        ([FAILED, poll("a", 0)], {"G1a"}),
        ([FAILED], set()),
        ([UNKNOWN, poll("a", 0)], set()),
        ([UNKNOWN], set()),
        ([poll("a", 0)], {"unexpected"}),
        ([send("a", 0), send("a", 0, process="q"), poll("a", 0)], {"reused-value"}),
        (
            [send("b", 0, at=5), send("a", 1), poll("b", 0, process="s"), poll("a", 1)],
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
        ([poll("b", 1), poll("b", 1)], {"nonmonotonic-poll"}),
        ([poll("b", 1), assign(0), poll("a", 0)], set()),
        ([subscribe(), poll("b", 1), poll("b", 1), poll("a", 0), poll("c", 2)], set()),
        ([assign(), poll("a", 0), poll("b", 1), drained(3)], {"lost-on-reader"}),
        ([assign(), poll("a", 0), poll("b", 1), drained(2)], {"lost-on-reader"}),
        ([assign(3), drained(3)], set()),
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


def test_duplicates_are_legal_without_idempotence() -> None:
    history = [send("a", 0), poll("a", 0), poll("a", 1)]
    assert not check(history).clean
    assert check(history, idempotent=False).clean


def test_the_report_names_examples_and_counts_the_rest() -> None:
    report = check([poll(f"v{number}", number) for number in range(50)])
    assert report.counts == {Anomaly.UNEXPECTED: 50}
    assert len(report.findings) == 5
    assert str(report.findings[0]) == "unexpected on t-0: v0 at offset 0"
    assert "0 acknowledged" in report.summary()
    assert "NOT A LOG" in report.summary()
    assert "50 x unexpected: a value that nobody sent was read" in report.summary()


def test_a_history_survives_the_file(tmp_path: Path) -> None:
    history = good_history(random.Random(1))
    write_jsonl(history, tmp_path / "h.jsonl")
    assert read_jsonl(tmp_path / "h.jsonl") == history


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": "jump"}, "'jump' is not a valid Op"),
        ({"key": ["t"]}, "not enough values"),
        ({"key": ["t", "0"]}, "expected int, got '0'"),
        ({"offset": None}, "expected int, got None"),
        ({"extra": 1}, "expected the fields began_ns, ended_ns, key, offset"),
    ],
)
def test_a_line_that_is_no_record_is_named(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "h.jsonl"
    write_jsonl([send("a", 0)], path)
    line = json.loads(path.read_text())
    path.write_text(path.read_text() + json.dumps({**line, **change}) + "\n")
    with pytest.raises(HistoryError) as caught:
        read_jsonl(path)
    assert f"{path}:2: not a record: " in str(caught.value)
    assert message in str(caught.value)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_jsonl([send("a", 0)], path)
    path.write_text(path.read_text()[:-3])
    with pytest.raises(HistoryError, match=r"h\.jsonl:1"):
        read_jsonl(path)
