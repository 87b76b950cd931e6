"""Figures of several repetitions, their bars, and the file they are kept in."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

import attrs

from benchmarks.load.histogram import Histogram
from benchmarks.load.jobs import Measured
from cli.bench import OURS

FORMAT: Final = 1
PERCENTS: Final = (50, 90, 99, 99.9, 100)
"""The statistics reported for latencies."""
MS: Final = 1e6
"""Nanoseconds."""


@attrs.frozen
class Bar:
    """What a figure has to reach (issue 2)."""

    limit: float
    at_most: bool = False

    def passed(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {number(self.limit)}"


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(values)


@attrs.frozen(kw_only=True)
class Figure:
    """One quantity, measured several times: in every repetition, or in every node."""

    name: str
    values: tuple[float, ...] = attrs.field(
        converter=_floats, validator=attrs.validators.min_len(1)
    )
    bar: Bar | None = None
    of_worst: bool = False
    """The largest value is compared with the bar, instead of the median."""
    less_is_better: bool = False

    @property
    def value(self) -> float:
        return max(self.values) if self.of_worst else median(self.values)

    @property
    def spread(self) -> float:
        """From the smallest to the largest value, relative to the median."""
        middle = median(self.values)
        return (max(self.values) - min(self.values)) / middle if middle else 0.0

    @property
    def passed(self) -> bool | None:
        return None if self.bar is None else self.bar.passed(self.value)


@attrs.frozen(kw_only=True)
class Outcome:
    """One benchmark's result. Without figures, `failure` or `skipped` says why."""

    name: str
    title: str
    system: str = OURS
    """What was measured: our own cluster, given brokers, or a peer."""
    figures: tuple[Figure, ...] = ()
    settings: Mapping[str, Any] = attrs.Factory(dict)
    """The settings of each repetition."""
    repetitions: tuple[Mapping[str, Any], ...] = ()
    """Each repetition in full."""
    latency_ns: Histogram = attrs.Factory(Histogram)
    others_share: float = 0.0
    """The largest part of this machine that anything else took during a repetition."""
    retried: tuple[str, ...] = ()
    """Why repetitions were discarded and repeated."""
    failure: str = ""
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return not self.failure and all(figure.passed is not False for figure in self.figures)


def latency_figures(
    measured: Sequence[Measured],
    percents: Sequence[float] = PERCENTS,
    bars: Mapping[float, Bar] = MappingProxyType({}),
    prefix: str = "",
) -> list[Figure]:
    """Percentiles of every repetition, in milliseconds; 100 is the maximum."""
    return [
        Figure(
            name=f"{prefix}{'max' if percent == 100 else f'p{percent:g}'} ms",
            values=[one.latency_ns.percentile(percent) / MS for one in measured],
            bar=bars.get(percent),
            less_is_better=True,
        )
        for percent in percents
    ]


def corrected_figure(measured: Sequence[Measured], percent: float = 99) -> Figure:
    """Of a closed loop, which hides requests it did not send: as if it had kept its median pace."""
    values = []
    for one in measured:
        usual_ns = max(1, one.latency_ns.percentile(50))
        values.append(one.latency_ns.corrected(usual_ns).percentile(percent) / MS)
    return Figure(name=f"p{percent:g} ms corr.", values=values, less_is_better=True)


def merged(measured: Sequence[Measured]) -> Histogram:
    total = Histogram()
    for one in measured:
        total.add(one.latency_ns)
    return total


def number(value: float) -> str:
    """For people: three significant digits below a thousand, thousands with commas above."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "title": outcome.title,
        "system": outcome.system,
        "passed": outcome.passed,
        "failure": outcome.failure,
        "skipped": outcome.skipped,
        "retried": list(outcome.retried),
        "settings": dict(outcome.settings),
        "others_share": outcome.others_share,
        "figures": [
            {
                "name": figure.name,
                "value": figure.value,
                "values": list(figure.values),
                "of_worst": figure.of_worst,
                "less_is_better": figure.less_is_better,
                "spread": figure.spread,
                "bar": None if figure.bar is None else attrs.asdict(figure.bar),
                "passed": figure.passed,
            }
            for figure in outcome.figures
        ],
        "repetitions": list(outcome.repetitions),
        "latency_ns": outcome.latency_ns.to_json(),
    }


def write(path: Path, context: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {
        "format": FORMAT,
        **context,
        "benchmarks": [outcome_to_json(outcome) for outcome in outcomes],
    }
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
