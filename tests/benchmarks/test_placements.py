"""Balanced against concentrated: the order of the phases, the ratios, what is refused."""

import pytest

from benchmarks.jobs import Measured
from benchmarks.placements import UNLIMITED, Rate, options_of, phases, ratios, table
from benchmarks.samples import BALANCED, CONCENTRATED
from benchmarks.usage import Usage


def rate(pair: int, layout: str, size: int, per_s: int) -> Rate:
    usage = Usage(1.0, (0.1, 0.1, 0.1), 0.1, 0.0)
    measured = Measured(seconds=1.0, count=per_s, bytes=per_s * size, usage=usage)
    return Rate(pair=pair, layout=layout, message_bytes=size, measured=measured)


RATES = [
    rate(0, CONCENTRATED, 100, 1000),
    rate(0, BALANCED, 100, 1500),
    rate(1, BALANCED, 100, 900),
    rate(1, CONCENTRATED, 100, 1000),
    rate(2, CONCENTRATED, 100, 2000),
    rate(2, BALANCED, 100, 2400),
    rate(0, CONCENTRATED, 1000, 500),
]


def test_the_order_within_pairs_alternates() -> None:
    order = [(phase.pair, phase.layout) for phase in phases(3)]
    assert order == [
        (0, CONCENTRATED),
        (0, BALANCED),
        (1, BALANCED),
        (1, CONCENTRATED),
        (2, CONCENTRATED),
        (2, BALANCED),
    ]


def test_ratios_are_of_pairs_that_are_complete() -> None:
    assert ratios(RATES) == {100: [1.5, 0.9, 1.2]}


def test_the_table_has_medians_and_the_ratios_spread() -> None:
    lines = table(RATES).splitlines()
    assert lines[-1].split() == ["100", "B", "1,000/s", "1,500/s", "1.20", "0.90", "-", "1.50", "3"]
    assert "nothing about nodes on machines of their own" in UNLIMITED


@pytest.mark.parametrize("wrong", [["--sizes", "0"], ["--sizes", "2000000"], ["--pairs", "x"]])
def test_what_cannot_be_measured_is_refused(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(wrong)
    assert "is not a number from 1 to" in capsys.readouterr().err


def test_the_dose_may_be_small() -> None:
    options = options_of(["--sizes", "100", "1000", "--seconds", "0.5", "--pairs", "1"])
    assert (options.sizes, options.seconds, options.pairs) == ([100, 1000], 0.5, 1)
