"""The checker of histories: a good one is clean, and every way to spoil it is found."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.evenkeel.tasks.histories import Line, Reader, What, overlaps


def run(task: str, token: int, by: str, begin: int, end: int) -> list[Line]:
    middle = [Line(at, What.WORKED, task, token, by) for at in range(begin + 1, end)]
    return [
        Line(begin, What.STARTED, task, token, by),
        *middle,
        Line(end, What.STOPPED, task, token, by),
    ]


GOOD = [
    *run("a", 3, "m1-x", 100, 110),
    *run("a", 7, "m2-x", 111, 120),
    *run("a", 9, "m1-x", 125, 130),
    *run("b", 3, "m1-x", 100, 130),
    Line(200, What.LOST, "a", 3, "m1-x"),
    Line(201, What.REFUSED, "a", 3, "m1-x"),
]


def test_a_good_history_is_clean() -> None:
    assert overlaps(GOOD) == []
    assert overlaps(reversed(GOOD)) == []


@given(some.sampled_from([line for line in GOOD if line.task == "a" and line.token == 7]))
def test_one_moment_of_work_at_the_wrong_time_is_found(line: Line) -> None:
    """Whatever m2 did with token 7 is wrong before m1 had stopped, and after m1 has begun again."""
    for at_ns in (105, 127):
        moved = line._replace(at_ns=at_ns)
        spoilt = [moved if one == line else one for one in GOOD]
        assert len(overlaps(spoilt)) == 1


@pytest.mark.parametrize(
    "planted",
    [
        Line(126, What.WORKED, "a", 3, "m1-x"),
        Line(126, What.STOPPED, "a", 7, "m2-x"),
        Line(115, What.WORKED, "a", 9, "m3-x"),
        Line(115, What.WORKED, "a", 7, "m3-x"),
    ],
    ids=["an old owner goes on", "stops too late", "begins too early", "two with one token"],
)
def test_planted_overlaps_are_found(planted: Line) -> None:
    assert overlaps([*GOOD, planted])


def test_files_are_read_back_and_half_a_line_is_left_for_later(tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    files[0].write_text("".join(line.text() for line in GOOD[:20]))
    files[1].write_text("".join(line.text() for line in GOOD[20:]) + GOOD[0].text()[:7])
    reader = Reader()
    assert reader.more(files) == GOOD
    with files[1].open("a") as opened:
        opened.write(GOOD[0].text()[7:])
    assert reader.more(files) == GOOD[:1]
    assert reader.more(files) == []
