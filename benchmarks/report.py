"""The results as tables of at most 80 columns."""

from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.results import Earlier, Figure, Outcome, number

COLUMNS: Final = 80
OTHERS_WORTH_TELLING: Final = 0.1


def table(outcomes: Sequence[Outcome]) -> str:
    """Every figure with its spread, its bar, and whether it has passed."""
    lines = [_row("benchmark", "figure", "value", "spread", "bar", ""), "-" * COLUMNS]
    for outcome in outcomes:
        lines += _outcome_rows(outcome)
    noisy = max((outcome.others_share for outcome in outcomes), default=0.0)
    lines += [
        "",
        "value: median of the repetitions (idle: worst node); spread: from least to most",
    ]
    if noisy > OTHERS_WORTH_TELLING:
        lines.append(f"others took up to {noisy:.0%} of this machine: rates are lower for it")
    return "\n".join(lines)


def _outcome_rows(outcome: Outcome) -> Iterator[str]:
    if outcome.skipped:
        yield f"{outcome.name:<24}skipped: {outcome.skipped}"
    if outcome.failure:
        yield f"{outcome.name:<24}FAILED: {outcome.failure}"
    for index, figure in enumerate(outcome.figures):
        verdict = {True: "pass", False: "MISS", None: ""}[figure.passed]
        bar = "" if figure.bar is None else str(figure.bar)
        spread = f"{figure.spread:.0%}"
        name = outcome.name if index == 0 else ""
        yield _row(name, figure.name, number(figure.value), spread, bar, verdict)


def _row(name: str, figure: str, value: str, spread: str, bar: str, verdict: str) -> str:
    row = f"{name:<24}{figure:<18}{value:>11}{spread:>8}  {bar:<12} {verdict}"
    return row.rstrip()


def comparison(outcomes: Sequence[Outcome], earlier: Earlier) -> str:
    """What has changed. `?` where the change is within what repetitions differ anyway."""
    lines = [
        f"compared with commit {earlier.commit[:12]}",
        f"{'benchmark':<24}{'figure':<18}{'before':>11}{'now':>11}{'change':>9}",
        "-" * COLUMNS,
    ]
    for outcome in outcomes:
        for figure in outcome.figures:
            before = earlier.figures.get((outcome.name, figure.name))
            if before is not None:
                lines.append(_change(outcome.name, before, figure))
    return "\n".join(lines)


def _change(name: str, before: Figure, now: Figure) -> str:
    ratio = now.value / before.value - 1 if before.value else 0.0
    overlap = min(now.values) <= max(before.values) and min(before.values) <= max(now.values)
    return (
        f"{name:<24}{now.name:<18}{number(before.value):>11}{number(now.value):>11}"
        f"{ratio:>+9.0%}{' ?' if overlap else ''}"
    )
