"""`evenkeel data usage` of a running cluster: it fits a terminal, adds up, and reports problems."""

import json
from typing import Any

import pytest

from broker.lifecycle.disk_forecast import Limits, TopicUse, forecast
from broker.lifecycle.retention import Retention, Segments
from cli.usage import COLUMNS, NodeUse, duration, render, size, to_json
from runtime.upkeep.disk_usage import Look, look_as_json
from storage.usage import Usage

GB = 10**9
LIMITS = Limits(
    log_bytes=GB,
    segment_bytes=GB // 10,
    checkpoint_bytes=GB // 4,
    settle_bytes_per_s=0,
    reserve_bytes=0,
    low_water_bytes=0,
    check_ms=10_000,
)


def topic(name: str, ms: int | None, rate: float | None, held: int = GB) -> TopicUse:
    return TopicUse(
        topic=name,
        partitions=12,
        log=0,
        cold=held,
        batches_in_log=0,
        rate=rate,
        growth=rate,
        rules=None if ms is None else Retention(ms),
        compacted=False,
        segments=Segments(GB, 1_000),
    )


def node(number: int, *topics: TopicUse, free: int = 900 * GB, known: bool = True) -> NodeUse:
    cold = {at: one.cold for at, one in enumerate(topics)}
    found = Usage(
        log=GB, log_segments=10, checkpoints=123_456, cold=cold, reserve=0, other=0, free=free
    )
    look = Look(found, forecast(topics, found, [], 1e6, LIMITS), 7_000.0, known)
    answer: dict[str, Any] = json.loads(json.dumps(look_as_json(look)))
    return NodeUse(number, {"node": number, **answer})


def test_it_fits_a_terminal_and_adds_up() -> None:
    wide = [topic("a-topic-with-a-very-long-name-" * 3 + str(at), 10**9, 1e6) for at in range(260)]
    hour = topic("hour", 3_600_000, 2e6, held=7 * GB)
    text = render([node(1, hour, *wide), node(2, hour), NodeUse(3, None, "killed " * 30)])
    lines = text.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert lines[1].split()[:9] == ["1", "268", "GB", "1.0", "GB", "267", "GB", "123", "KB"]
    assert lines[3].split()[:2] == ["3", "killed"]
    (row,) = (line.split() for line in lines if line.startswith("hour"))
    assert row[:6] == ["hour", "24", "14.0", "GB", "4.0", "MB"]  # on both nodes
    assert "... and 241 smaller ones" in lines


@pytest.mark.parametrize(
    ("uses", "words", "not_said"),
    [
        ([node(1, topic("hour", 3_600_000, 1e6))], "it fits, at the rates of", "WILL NOT"),
        (
            [node(1, topic("week", 604_800_000, 1e6), free=200 * GB), node(2)],
            "IT WILL NOT FIT: node 1 is full in 2 days at today's rates",
            "it fits",
        ),
        ([node(1, topic("hour", 3_600_000, 1e6), free=0)], "node 1 is full now", "it fits"),
        ([node(1, topic("all", None, 1e6))], "counted with their present size: all", "it fits"),
        ([node(1, topic("all", None, 0.0))], "it fits, at the rates of", "WILL NOT"),
        ([node(1, topic("hour", 3_600_000, None), known=False)], "not known yet", "fits"),
        ([NodeUse(1, None, "no answer in time")], "no node answers", "fits"),
    ],
)
def test_what_is_said(uses: list[NodeUse], words: str, not_said: str) -> None:
    text = render(uses)
    assert words in text
    assert not_said not in text


def test_numbers_that_are_not_known_are_null() -> None:
    """And so is an infinite time: JSON has no value for it."""
    early, calm = node(1, topic("t", 1_000, None), known=False), node(2)
    told = json.loads(json.dumps(to_json([early, calm, NodeUse(3, None, "killed")])))
    assert told[0]["predicted_bytes"] is told[0]["fits"] is told[0]["full_in_s"] is None
    assert told[0]["topics"][0]["bytes_per_s"] is None
    assert (told[1]["fits"], told[1]["full_in_s"]) == (True, None)
    assert told[2] == {"node": 3, "silence": "killed"}


def test_sizes_and_times_in_words() -> None:
    values = (0, 999, 1_000, 99_949, 99_960, 999_600, 10**15, None)
    assert [size(value) for value in values] == [
        *("0 B", "999 B", "1.0 KB", "99.9 KB", "100 KB", "1.0 MB", "1.0 PB", "-")
    ]
    times = (0, 90, 180, 7_200, 200_000)
    assert [duration(one) for one in times] == [
        *("0 seconds", "90 seconds", "3 minutes", "2 hours", "2 days")
    ]
