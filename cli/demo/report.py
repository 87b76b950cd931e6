"""The findings of the demonstration, and the tables that show them."""

from collections.abc import Iterator
from typing import Final

import attrs
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

ONE_MACHINE: Final = (
    "All nodes and the client share this machine's cores: the two QPS figures say nothing about "
    "separate machines."
)
GAPS: Final = (
    "During a steal the old master forwards. After it, it sends its clients to the new one, and "
    "they wait 100 ms before they ask again (retry.backoff.ms)."
)


@attrs.frozen
class Check:
    name: str
    passed: bool
    detail: str


@attrs.frozen
class Move:
    """One steal: the master before and after, and its effect on a producer."""

    group: int
    before: int
    after: int
    steal_ms: float
    gaps_ms: tuple[float, float] | None
    """The longest gaps between two acknowledgements of the group's partition: during the steal, and
    after it, until the client has moved to the new master. None for the registry's Paxos group,
    which has no partition."""


@attrs.define
class Findings:
    phase: str = ""
    checks: list[Check] = attrs.Factory(list)
    moves: list[Move] = attrs.Factory(list)
    figures: list[tuple[str, str]] = attrs.Factory(list)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(one.passed for one in self.checks)

    def check(self, name: str, passed: bool, detail: str) -> None:
        self.checks.append(Check(name, passed, detail))

    def figure(self, name: str, value: str) -> None:
        self.figures.append((name, value))


def render(findings: Findings) -> Iterator[RenderableType]:
    """The summary, top to bottom."""
    if findings.moves:
        yield Text()
        yield _moves(findings)
    if findings.figures:
        yield Text()
        yield _figures(findings)
        yield Text(ONE_MACHINE, style="dim")
    yield Text()
    yield _checks(findings)
    verdict = "everything passed" if findings.passed else "NOT EVERYTHING PASSED"
    style = "bold green" if findings.passed else "bold red"
    yield Text(f"{verdict}, {findings.seconds:.0f} s", style=style)


def _moves(findings: Findings) -> Table:
    title = "Steals under load, and the longest gap between two acknowledgements"
    table = Table(title=title, title_justify="left")
    for column in ("Paxos group", "before", "after", "steal", "gap during it", "gap after it"):
        table.add_column(column, justify="right")
    for move in findings.moves:
        gaps = ("-", "-") if move.gaps_ms is None else [f"{gap:.0f} ms" for gap in move.gaps_ms]
        row = (str(move.group), f"node {move.before}", f"node {move.after}")
        table.add_row(*row, f"{move.steal_ms:.0f} ms", *gaps)
    table.caption = GAPS
    table.caption_justify = "left"
    return table


def _figures(findings: Findings) -> Table:
    table = Table(title="Figures", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in findings.figures:
        table.add_row(name, value)
    return table


def _checks(findings: Findings) -> Table:
    table = Table(title="Checks", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_column()
    for one in findings.checks:
        verdict = Text("PASS", "green") if one.passed else Text("FAIL", "bold red")
        table.add_row(verdict, one.name, Text(one.detail))
    return table
