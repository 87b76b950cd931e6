"""What the demonstration found, and the tables that tell it."""

from collections.abc import Iterator
from typing import Final

import attrs
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

ONE_MACHINE: Final = (
    "All nodes and the client share this machine's cores, so the two QPS figures say nothing about "
    "separate machines."
)


@attrs.frozen
class Check:
    name: str
    passed: bool
    detail: str


@attrs.frozen
class Move:
    """One steal: where the master was before and after, and what a producer noticed of it."""

    group: int
    before: int
    after: int
    steal_ms: float
    gap_ms: float | None
    """The longest gap between two acknowledgements of the group's partition around the steal; None
    for the registry's group, which has none."""


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
    table = Table(title="Steals under load", title_justify="left")
    for column in ("group", "master before", "after", "steal", "longest gap between two acks"):
        table.add_column(column, justify="right")
    for move in findings.moves:
        gap = "(the registry: no partition)" if move.gap_ms is None else f"{move.gap_ms:.0f} ms"
        steal = f"{move.steal_ms:.0f} ms"
        table.add_row(str(move.group), str(move.before), str(move.after), steal, gap)
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
