"""What people see while benchmarks run: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from typing import Protocol

import attrs
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class View(Protocol):
    def begin(self, title: str) -> None:
        """Announce the next step."""

    def say(self, line: str) -> None: ...

    def done(self) -> None:
        """One benchmark is over."""

    def close(self) -> None: ...


@attrs.define
class PlainView:
    write: Callable[[str], None]
    _began: float = attrs.Factory(time.monotonic)

    def begin(self, title: str) -> None:
        self._line(f"== {title}")

    def say(self, line: str) -> None:
        self._line(f"   {line}")

    def done(self) -> None:
        """Does nothing: the lines say it all."""

    def close(self) -> None:
        """Does nothing: nothing is held back."""

    def _line(self, text: str) -> None:
        self.write(f"[{time.monotonic() - self._began:5.1f} s] {text}")


class LiveView:
    def __init__(self, console: Console, benchmarks: int) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("", total=benchmarks)
        self._progress.start()

    def begin(self, title: str) -> None:
        self._progress.update(self._task, description=title)
        self._progress.console.print(f"[bold]{title}", highlight=False)

    def say(self, line: str) -> None:
        self._progress.console.print(f"  {line}", markup=False, highlight=False)

    def done(self) -> None:
        self._progress.advance(self._task)

    def close(self) -> None:
        self._progress.stop()


def view_of(console: Console, benchmarks: int) -> View:
    if console.is_terminal:
        return LiveView(console, benchmarks)
    return PlainView(lambda line: print(line, flush=True))
