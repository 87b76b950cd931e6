"""Results as tables of at most 80 columns, and as Markdown for docs/performance.md."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.limits.loads import LOADS, Load
from benchmarks.limits.measure import BARE, CONSUME, PRODUCT
from benchmarks.report.report import COLUMNS, OTHERS_WORTH_TELLING
from benchmarks.report.results import Figure, Outcome, number

BY_NAME: Final = {load.name: load for load in LOADS}
BEGIN: Final = "<!-- limits: python -m benchmarks.limits writes what is between these marks -->"
END: Final = "<!-- end of limits -->"
HEAD: Final = ("load", "unit", "bare", "product", "share", "from - to", "bar", "")


def table(outcomes: Sequence[Outcome]) -> str:
    """For a terminal."""
    parts = []
    if machine := list(_machine_rows(outcomes)):
        lines = [f"{'machine':<12}{'figure':<20}{'value':>12}{'from - to':>24}", "-" * COLUMNS]
        lines += [
            f"{name:<12}{what:<20}{value:>12}{span:>24}" for name, what, value, span in machine
        ]
        parts.append("\n".join(lines))
    if loads := list(_load_rows(outcomes)):
        lines = [_line(HEAD), "-" * COLUMNS, *map(_line, loads), "", *_notes(outcomes)]
        parts.append("\n".join(lines))
    parts += [f"{one.name} FAILED: {one.failure}" for one in outcomes if one.failure]
    return "\n\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    load, unit, bare, product, share, span, bar, verdict = cells
    line = f"{load:<14}{unit:<11}{bare:>10}{product:>10}{share:>7}{span:>13}  {bar:<7}{verdict}"
    return line.rstrip()


def _notes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "share: product divided by bare, median of the pairs of rounds, least - greatest"
    yield "us: CPU time of all three servers"
    yield "consume: no bare append is beside it, only the loopback"
    noisy = max((outcome.others_share for outcome in outcomes), default=0.0)
    if noisy > OTHERS_WORTH_TELLING:
        yield f"other processes took up to {noisy:.0%} of this machine, the idle side included"


def markdown(outcomes: Sequence[Outcome], context: Mapping[str, Any]) -> str:
    """The same for a page, with a description of the machine."""
    machine = context["machine"]
    changed = " with changes" if context["uncommitted_changes"] else ""
    parts = [
        f"Commit `{context['commit'][:12]}`{changed}, {context['began'][:10]}; {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['kernel']}, {machine['file_system']}, Python "
        f"{context['python']}; {context['pairs']} pairs of rounds of {context['window_s']:g} s, "
        f"{context['partitions']} partitions, masters {context['masters']}."
    ]
    if loads := list(_load_rows(outcomes)):
        parts.append(_grid((*HEAD[:-1], "reached"), loads, left=2))
        parts.append("; ".join(_notes(outcomes)) + ".")
    parts += [f"Not measured: {one.name}, {one.failure}" for one in outcomes if one.failure]
    if found := list(_machine_rows(outcomes)):
        parts.append(_grid(("machine", "figure", "value", "from - to"), found, left=2))
    return "\n\n".join(parts)


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int) -> str:
    marks = ["---" if index < left else "---:" for index in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, marks, *rows))


def _machine_rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str, str, str]]:
    """Figures of the machine: everything that is not a load."""
    for outcome in outcomes:
        if outcome.name not in BY_NAME and outcome.name != CONSUME.name:
            for index, figure in enumerate(outcome.figures):
                name = outcome.name if index == 0 else ""
                yield name, figure.name, number(figure.value), _span(figure, number)


def _load_rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    loopback = next((one.figures[0] for one in outcomes if one.name == "loopback"), None)
    for outcome in outcomes:
        if not outcome.figures:
            continue
        if outcome.name in BY_NAME:
            yield from _rows_of(BY_NAME[outcome.name], outcome)
        elif outcome.name == CONSUME.name:
            rate = next(one for one in outcome.figures if one.name == "MB/s")
            beside = "" if loopback is None else number(loopback.value)
            own = number(rate.value), "", _span(rate, number), str(rate.bar), _verdict(rate)
            yield CONSUME.name, "MB/s", beside, *own


def _rows_of(load: Load, outcome: Outcome) -> Iterator[tuple[str, ...]]:
    """The load's value with its verdict; then medians of latencies, and the cost."""
    share, *rest = outcome.figures
    figures = {figure.name: figure for figure in rest}
    for unit in dict.fromkeys((load.unit, "p50 ms", load.cost_unit)):
        bare, product = figures.get(f"{BARE} {unit}"), figures.get(f"{PRODUCT} {unit}")
        if bare is None or product is None:
            continue
        both = unit, number(bare.value), number(product.value)
        if unit == load.unit:
            judged = f"{share.value:.2f}", _span(share, _share), str(share.bar), _verdict(share)
            yield load.name, *both, *judged
        else:
            times = product.value / bare.value if bare.value else 0.0
            yield "", *both, f"x{times:.1f}", "", "", ""


def _span(figure: Figure, show: Callable[[float], str]) -> str:
    return f"{show(min(figure.values))} - {show(max(figure.values))}"


def _share(value: float) -> str:
    return f"{value:.2f}"


def _verdict(figure: Figure) -> str:
    return {True: "pass", False: "MISS", None: ""}[figure.passed]
