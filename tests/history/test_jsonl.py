"""Histories as lines: they round-trip, and invalid input is refused with its line number."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.jsonl import LINE_BYTES_MAX, HistoryError, line_of, records_of
from history.record import NEEDS, NO_KEY, Key, Op, Outcome, Record, problem

GOOD: dict[str, object] = {
    "op": "send",
    "process": "p",
    "key": ["t", 0],
    "value": "a",
    "offset": 7,
    "outcome": "ok",
    "began_ns": 1,
    "ended_ns": 2,
}

records = st.builds(
    Record,
    op=st.sampled_from(Op),
    process=st.text(),
    key=st.builds(Key, st.text(min_size=1), st.integers(0, 2**31)),
    value=st.text(),
    offset=st.integers(0, 2**63),
    outcome=st.sampled_from(Outcome),
    began_ns=st.integers(0, 2**62),
    ended_ns=st.integers(2**62, 2**63),
)


@given(st.lists(records, max_size=5))
def test_a_history_survives_its_lines(history: list[Record]) -> None:
    lines = [line_of(one).encode() for one in history]
    assert list(records_of(lines, "h")) == history


def test_what_is_as_always_is_left_out() -> None:
    assert line_of(Record(Op.SUBSCRIBE, "r", Key("t", 3))) == (
        '{"op":"subscribe","process":"r","key":["t",3],"outcome":"ok"}\n'
    )
    assert list(records_of([b'{"op":"heal","process":"o"}'], "h")) == [Record(Op.HEAL, "o", NO_KEY)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op": "jump"}, "'jump' is not a valid Op"),
        ({"op": ["send"]}, "expected str, got ['send']"),
        ({"outcome": "good"}, "'good' is not a valid Outcome"),
        ({"key": ["t"]}, "not enough values"),
        ({"key": ["t", "0"]}, "expected int, got '0'"),
        ({"key": None}, "send needs a key"),
        ({"value": None}, "send needs a value"),
        ({"value": 7}, "expected str, got 7"),
        ({"offset": None}, "expected int, got None"),
        ({"offset": True}, "expected int, got True"),
        ({"offset": 1.5}, "expected int, got 1.5"),
        ({"offset": -2}, "no offset is -2"),
        ({"op": "latest", "offset": -1}, "latest needs an offset"),
        ({"ended_ns": 0, "began_ns": "x"}, "expected int, got 'x'"),
        ({"began_ns": 5, "ended_ns": 4}, "it ended before it began"),
        ({"extra": 1}, "expected the fields began_ns, ended_ns, key, offset"),
    ],
)
def test_a_line_that_is_no_record_is_named(change: dict[str, object], message: str) -> None:
    lines = [json.dumps(GOOD).encode(), json.dumps({**GOOD, **change}).encode()]
    with pytest.raises(HistoryError) as caught:
        list(records_of(lines, "h.jsonl"))
    assert "h.jsonl:2: not a record: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b'{"op":"send"}',
        b'"' + b"x" * LINE_BYTES_MAX + b'"',
        b"[" * 100_000,
        b'{"op":"poll","process":"p","key":["t",0],"offset":' + b"9" * 5000 + b"}",
    ],
    ids=lambda line: line[:8].decode("ascii", "replace") + f"-{len(line)}",
)
def test_a_line_that_is_nothing_is_named(line: bytes) -> None:
    with pytest.raises(HistoryError, match=r"h:1: not a record: "):
        list(records_of([line], "h"))


def test_every_cut_of_a_line_is_refused() -> None:
    """Its writer died in the middle. (Only the line's end itself may be missing.)"""
    line = json.dumps(GOOD).encode()
    assert list(records_of([line], "h"))
    for size in range(len(line)):
        with pytest.raises(HistoryError):
            list(records_of([line[:size]], "h"))


def test_bytes_are_a_record_or_refused() -> None:
    """Whatever is in a line: no error but this one."""
    dice = random.Random(1)
    line = json.dumps(GOOD).encode()
    for _ in range(2000):
        hurt = bytearray(line)
        for _ in range(dice.randint(1, 3)):
            hurt[dice.randrange(len(hurt))] = dice.randrange(256)
        try:
            (record,) = records_of([bytes(hurt)], "h")
        except HistoryError:
            continue
        assert not problem(record)


def test_every_operation_says_what_it_needs() -> None:
    assert NEEDS.keys() == set(Op)
