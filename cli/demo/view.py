"""What `evenkeel demo` shows while it works: a live display on a terminal, else plain lines."""

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from cluster.status import ClusterView

FACTS_EVERY_S: Final = 2.0
NOTES_SHOWN: Final = 3
NODE_COLOURS: Final = ("cyan", "magenta", "yellow", "green", "blue", "red")


class View(Protocol):
    """Gets the events of the demo and shows them in order."""

    def phase(self, title: str) -> None:
        """A new phase begins, and the previous one is over."""

    def note(self, line: str) -> None: ...

    def cluster(self, view: ClusterView, facts: Mapping[str, str]) -> None:
        """The latest state of the cluster, several times a second."""

    def close(self) -> None: ...


@attrs.define
class PlainView:
    """For pipes and logs: a line for each phase and note, and the state of things now and then."""

    write: Callable[[str], None]
    _began: float = attrs.Factory(time.monotonic)
    _facts_at: float = 0.0

    def phase(self, title: str) -> None:
        self._line(f"== {title}")

    def note(self, line: str) -> None:
        self._line(f"   {line}")

    def cluster(self, view: ClusterView, facts: Mapping[str, str]) -> None:
        now = time.monotonic()
        if now - self._facts_at >= FACTS_EVERY_S:
            self._facts_at = now
            masters = ", ".join(
                f"{node}: {count}" for node, count in view.count_by_master().items()
            )
            text = "; ".join(f"{name} {value}" for name, value in facts.items())
            self._line(f"   masters by node {masters}" + (f"; {text}" if text else ""))

    def close(self) -> None:
        """Nothing is held back."""

    def _line(self, text: str) -> None:
        self.write(f"[{time.monotonic() - self._began:5.1f} s] {text}")


@attrs.define
class LiveView:
    """For terminals: the phases, the masters of every node, and the producer's figures."""

    _console: Console
    _phases: list[tuple[str, float]] = attrs.Factory(list)
    _notes: list[str] = attrs.Factory(list)
    _view: ClusterView | None = None
    _facts: dict[str, str] = attrs.Factory(dict)
    _spinner: Spinner = attrs.Factory(lambda: Spinner("dots"))
    _live: Live = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._live = Live(get_renderable=self._picture, console=self._console, refresh_per_second=8)
        self._live.start()

    def phase(self, title: str) -> None:
        self._phases.append((title, time.monotonic()))

    def note(self, line: str) -> None:
        self._notes.append(line)

    def cluster(self, view: ClusterView, facts: Mapping[str, str]) -> None:
        self._view, self._facts = view, dict(facts)

    def close(self) -> None:
        self._phases.append(("", time.monotonic()))
        self._live.stop()

    def _picture(self) -> RenderableType:
        parts: list[RenderableType] = [*self._phase_lines(), Text()]
        if self._view is not None:
            parts += [_masters(self._view), Text()]
        if self._facts:
            text = "   ".join(f"{name} {value}" for name, value in self._facts.items())
            parts.append(Text(text, style="bold"))
        parts += [Text(line, style="dim") for line in self._notes[-NOTES_SHOWN:]]
        return Group(*parts)

    def _phase_lines(self) -> list[RenderableType]:
        lines: list[RenderableType] = []
        ends = [began for _, began in self._phases[1:]]
        for place, (title, began) in enumerate(self._phases):
            if not title:
                continue
            if place < len(ends):
                lines.append(Text(f"✓ {title}  ({ends[place] - began:.1f} s)", style="green"))
            else:
                self._spinner.update(text=Text(f"{title}  ({time.monotonic() - began:.0f} s)"))
                lines.append(self._spinner)
        return lines


def colour_of(node: int) -> str:
    return NODE_COLOURS[(node - 1) % len(NODE_COLOURS)]


def _masters(view: ClusterView) -> Table:
    """One line per node: the Paxos groups it is master of, each always in the same column."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("node")
    table.add_column("state")
    table.add_column("masters", justify="right")
    table.add_column("of the Paxos groups")
    masters, counts = view.masters(), view.count_by_master()
    for row in view.nodes:
        style = colour_of(row.spec.id) if row.state == "running" else "dim"
        mine = Text()
        for group, master in masters.items():
            text = f"{group:>3}"
            mine.append(text if master == row.spec.id else " " * len(text), style)
        table.add_row(Text(str(row.spec.id), style), row.state, str(counts[row.spec.id]), mine)
    without = [str(group) for group, master in masters.items() if master is None]
    if without:
        table.add_row("-", "nobody", str(len(without)), Text(" ".join(without), "bold red"))
    return table
