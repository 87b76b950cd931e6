"""The handover benchmark's arithmetic: silences, percentiles, limits, and the page it writes."""

from pathlib import Path

import attrs
import pytest

from benchmarks.handoff.figures import (
    MS,
    Interval,
    Move,
    Result,
    Run,
    Watched,
    gap_ms,
    missed_bars,
    percentile,
    silences_ms,
    watched,
)
from benchmarks.handoff.report import BEGIN, END, markdown, write_into

PAGE = Path(__file__).parents[3] / "docs" / "handoff.md"


def times(*at_ms: float) -> list[int]:
    return [int(one * MS) for one in at_ms]


def interval(from_ms: float, to_ms: float) -> Interval:
    return Interval(int(from_ms * MS), int(to_ms * MS))


@pytest.mark.parametrize(
    ("acks_ms", "where", "expected_ms"),
    [
        ((0, 1, 2, 3), (1, 2), 1),
        ((0, 1, 9, 10), (2, 3), 8),  # nothing in it: the silence that spans it
        ((0, 1, 9, 10), (0, 12), 8),
        ((0, 1), (0, 20), 19),  # without an end it lasts until the run ends
        ((), (5, 8), 3),
        ((10,), (0, 12), 2),
    ],
)
def test_the_longest_silence(
    acks_ms: tuple[float, ...], where: tuple[float, float], expected_ms: float
) -> None:
    assert gap_ms(times(*acks_ms), interval(*where)) == expected_ms


def test_all_silences_that_touch_an_interval() -> None:
    assert silences_ms(times(0, 5, 6, 10, 30), interval(1, 9)) == [5, 1, 4]


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(one) for one in range(1, 51)]
    assert [percentile(values, p) for p in (50, 99, 100)] == [25, 50, 50]
    assert percentile([3.0], 99) == 3.0


def a_move() -> Move:
    return Move(
        source=1,
        target=2,
        quiet=interval(0, 9),
        handover=interval(10, 20),
        redirect=interval(20, 200),
        phases_ms={"freeze": 1.5},
    )


def a_result() -> Result:
    acks = times(*range(12), 18, *range(19, 100), 180, *range(181, 210))
    seen = watched(acks, [a_move()])
    return Result(
        run=Run(strategy="delegate", rate=1000, moves=1, grace_ms=600),
        moves=(a_move(),),
        produce=seen,
        fetch=seen,
        sent=10,
        acknowledged=10,
        errors=(),
        lost=0,
        duplicates=0,
        refusals=1,
        forwarded=2,
        phases_ms={"freeze": [1.5]},
        first_contact_ms=(100.0,),
    )


def test_the_handover_and_the_redirect_are_told_apart() -> None:
    seen = a_result().produce
    assert seen.quiet_ms == (1,)
    assert seen.handover_ms == (7,)
    assert seen.above_ms == (6,)
    assert seen.redirect_ms == (81,)
    assert seen.blips_max == 1


def test_every_bar_can_be_missed() -> None:
    slow = a_result()
    assert [one.split()[0] for one in missed_bars(slow)] == ["6"]  # p50 above 5 ms
    seen = Watched(quiet_ms=(1,), handover_ms=(30,), redirect_ms=(140,), blips_max=2)
    bad = attrs.evolve(slow, produce=seen, errors=("x",), lost=1, duplicates=1)
    assert len(missed_bars(bad)) == 7
    good = attrs.evolve(slow, produce=attrs.evolve(seen, handover_ms=(2,), redirect_ms=(3,)))
    assert missed_bars(attrs.evolve(good, produce=attrs.evolve(good.produce, blips_max=1))) == []


CONTEXT = {
    "began": "2026-11-20T21:00:00+00:00",
    "commit": "0123456789abcdef",
    "uncommitted_changes": False,
    "machine": {"cpu": "a cpu", "cores": 2, "load_average": [0.5, 0.4, 0.3]},
    "packages": {"confluent-kafka": "2.16.1"},
    "took_s": 120.0,
    "niceness": 0,
}


def test_the_page_is_rewritten_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    write_into(page, markdown(CONTEXT, [a_result().summary()]))
    text = page.read_text()
    assert "| idempotent | 1000 | 600 | 1 | 1.0 / 1.0 / 1.0 | 7.0 / 7.0 / 7.0 |" in text
    before, after = PAGE.read_text().partition(BEGIN)[0], PAGE.read_text().partition(END)[2]
    assert text.startswith(before)
    assert text.endswith(after)


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(ValueError, match="no place"):
        write_into(page, "figures")
    assert page.read_text() == "nothing here\n"
