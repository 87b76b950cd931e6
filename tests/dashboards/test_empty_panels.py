"""A panel without any series says 0 where that is what it means, and nothing where it is not."""

import pytest

from dashboards import __main__ as dashboards
from dashboards.panels import Kind, Panel, Query, Unit, to_json


def test_numbers_and_counts_are_zero_if_nothing_answers() -> None:
    count = 0
    for board in dashboards.DASHBOARDS:
        drawn = [one for one in to_json(board)["panels"] if one["type"] != "row"]
        for panel, shown in zip(board.panels(), drawn, strict=True):
            says = shown["fieldConfig"]["defaults"].get("noValue")
            assert says == ("0" if panel.zero_if_empty else None), panel.title
            count += says == "0"
    assert count > 60


@pytest.mark.parametrize(
    ("unit", "words", "expected"),
    [
        (Unit.COUNT, (), True),
        (Unit.PER_S, (), True),
        (Unit.BYTES, (), True),
        (Unit.SECONDS, (), False),
        (Unit.DATE, (), False),
        (Unit.COUNT, ((0, "no", "red"),), False),
    ],
)
def test_no_time_and_no_state_is_not_zero(
    unit: Unit, words: tuple[tuple[float, str, str], ...], expected: bool
) -> None:
    panel = Panel(title="t", description="d", queries=[Query("x")], unit=unit, words=words)
    assert panel.zero_if_empty is expected


def test_the_numbers_of_the_first_row_need_no_series() -> None:
    """Grafana may hide noValue behind a query's error: these say 0 by themselves."""
    row = dashboards.DASHBOARDS[0].rows[0]
    stats = [one for one in row.panels if one.kind is Kind.STAT]
    assert len(stats) == 6
    assert all(query.expr.endswith("or vector(0)") for one in stats for query in one.queries)
