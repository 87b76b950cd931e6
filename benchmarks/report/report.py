"""The results as tables of at most 80 columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks.report.comparison import Change, Earlier
from benchmarks.report.results import Figure, Outcome, number

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
        yield f"{outcome.name:<24}FAILED: {_why(outcome)}"
    for index, figure in enumerate(outcome.figures):
        verdict = {True: "pass", False: "MISS", None: ""}[figure.passed]
        bar = "" if figure.bar is None else str(figure.bar)
        spread = f"{figure.spread:.0%}"
        name = outcome.name if index == 0 else ""
        yield _row(name, figure.name, number(figure.value), spread, bar, verdict)


def _row(name: str, figure: str, value: str, spread: str, bar: str, verdict: str) -> str:
    row = f"{name:<24}{figure:<18}{value:>11}{spread:>8}  {bar:<12} {verdict}"
    return row.rstrip()


# --- beside a peer -------------------------------------------------------------------------------


def beside(ours: Sequence[Outcome], peers: Sequence[Outcome]) -> str:
    """What a peer reached in the same rounds, and the ratio of ours to it, round by round."""
    ours_by_name = {one.name: one for one in ours}
    system = peers[0].system
    lines = [
        f"{'benchmark':<24}{'figure':<15}{ours[0].system:>10}{system[:10]:>11}"
        f"{'ratio':>7}  from - to",
        "-" * COLUMNS,
    ]
    for theirs in peers:
        if theirs.failure or theirs.skipped:
            lines.append(f"{theirs.name:<24}{system}: {_why(theirs)}")
            continue
        figures = {figure.name: figure for figure in ours_by_name[theirs.name].figures}
        pairs = [(figures[one.name], one) for one in theirs.figures if one.name in figures]
        for index, (mine, other) in enumerate(pairs):
            lines.append(_beside_row(theirs.name if index == 0 else "", mine, other))
    lines += [
        "",
        f"ratio: {ours[0].system} / {system} in each pair of rounds, the median and from - to;",
        "+ ours was better in every round, - theirs was, ? neither",
    ]
    return "\n".join(lines)


def _why(outcome: Outcome) -> str:
    """The first line of the reason for missing figures; the file has all of it."""
    return (outcome.failure or outcome.skipped).splitlines()[0]


def _beside_row(name: str, ours: Figure, theirs: Figure) -> str:
    ratios = [
        mine / other for mine, other in zip(ours.values, theirs.values, strict=False) if other
    ]
    row = f"{name:<24}{ours.name:<15}{number(ours.value):>10}{number(theirs.value):>11}"
    if not ratios:
        return row
    ahead = [ratio > 1 for ratio in ratios if ratio != 1]
    mark = "?" if not ahead or len(set(ahead)) > 1 else "+-"[ahead[0] == ours.less_is_better]
    return f"{row}{median(ratios):>7.2f}  {number(min(ratios))}-{number(max(ratios))} {mark}"


# --- against earlier results ---------------------------------------------------------------------


def comparison(
    outcomes: Sequence[Outcome], earlier: Sequence[Earlier], changes: Sequence[Change]
) -> str:
    """What has changed. `?` if the change is within the spread of repetitions."""
    told = [one for one in earlier if one.figures]
    by_run = Counter(one.run for one in told)
    lines = [f"compared with {run}: {count} of {len(told)}" for run, count in by_run.items()]
    lines += [
        f"{'benchmark':<24}{'figure':<18}{'before':>11}{'now':>11}{'change':>8}",
        "-" * COLUMNS,
    ]
    last = ""
    for change in changes:
        lines.append(_change("" if change.benchmark == last else change.benchmark, change))
        last = change.benchmark
    counts = Counter(change.verdict for change in changes)
    lines += [
        "",
        f"{counts['better']} better, {counts['worse']} worse, {counts['?']} within the spread (?)",
    ]
    shares = (
        max((one.others_share for one in told), default=0.0),
        max((one.others_share for one in outcomes), default=0.0),
    )
    if max(shares) > OTHERS_WORTH_TELLING:
        lines.append(
            f"others took up to {shares[0]:.0%} of this machine then, {shares[1]:.0%} now: "
            "trust `node us` first"
        )
    return "\n".join(lines)


def _change(name: str, change: Change) -> str:
    before, now = number(change.before.value), number(change.now.value)
    told = f"{change.ratio - 1:+.0%}"
    return f"{name:<24}{change.now.name:<18}{before:>11}{now:>11}{told:>8} {change.verdict}"
