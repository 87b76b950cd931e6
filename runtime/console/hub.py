"""The watchers of the cluster on this node, and the loop that makes pictures for them.

There is one loop for all watchers, which runs while there are any: it asks the other nodes, makes a
picture once a second (sooner if a group has a new master), and sends the changes. Every watcher
gets the same bytes. One that is new, or could not keep up, gets the whole picture instead of
changes; one that does not read in time is disconnected (runtime.http.server). So a slow watcher
needs memory for one piece, and there is no queue.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from runtime.console.changes import HEARTBEAT, RETRY, difference, event
from runtime.http.server import Send

WATCHERS_MAX: Final = 16
EVERY_S: Final = 1.0
SOONEST_S: Final = 0.2
"""The shortest time between two pictures."""
HEARTBEAT_S: Final = 10.0
AFTER_BUG_S: Final = 5.0
GOODBYE_S: Final = 0.5

Sections = dict[str, Any]


@attrs.define(eq=False)
class _Frame:
    """One picture: the change since the last one, and the whole, for watchers that need it."""

    number: int
    change: bytes
    sections: Sections
    samples: Callable[[], Any]
    _whole: bytes = b""

    def whole(self) -> bytes:
        if not self._whole:
            value = {"number": self.number, "all": self.sections, "samples": self.samples()}
            self._whole = event("all", value)
        return self._whole


@attrs.frozen(kw_only=True)
class Source:
    """Where pictures come from.

    `begin` is called when the first watcher comes, and `end` when the last one is gone.
    """

    begin: Callable[[], Awaitable[None]]
    render: Callable[[Sections], Awaitable[Sections]]
    """The current sections; those that are not updated are taken over."""
    news: Callable[[], Any]
    """The samples since the last call."""
    samples: Callable[[], Any]
    """All samples."""
    end: Callable[[], None]


class TooMany(Exception):
    """There are WATCHERS_MAX watchers already."""


class Hub:
    def __init__(self, source: Source, on_bug: Callable[[str, Exception], None]) -> None:
        self._source, self._on_bug = source, on_bug
        self.watchers = 0
        self.closed = False
        self._watched = trio.Event()
        self._gone = trio.Event()
        self._hurry = trio.Event()
        self._frame: _Frame | None = None
        self._next = trio.Event()
        self.frames = 0
        """Pictures made so far; none are made without watchers."""

    # -- watchers -----------------------------------------------------------------------------

    def admit(self) -> Callable[[Send], Awaitable[None]]:
        """Admit one more watcher, for as long as the returned function sends to it.

        Raises:
            TooMany: there are too many.
        """
        if self.watchers >= WATCHERS_MAX or self.closed:
            raise TooMany
        return self._watch

    async def _watch(self, send: Send) -> None:
        self.watchers += 1
        self._watched.set()
        try:
            await send(RETRY)
            seen = -1
            while not self.closed:
                frame = self._frame
                if frame is not None and frame.number != seen:
                    follows = frame.number == seen + 1
                    seen = frame.number
                    await send(frame.change if follows else frame.whole())
                    continue
                with trio.move_on_after(HEARTBEAT_S) as patience:
                    await self._next.wait()
                if patience.cancelled_caught:
                    await send(HEARTBEAT)
            await send(event("bye", {}))
        finally:
            self.watchers -= 1
            if not self.watchers:
                self._gone.set()

    async def close(self) -> None:
        """Tell watchers that the node stops; waits for them for at most GOODBYE_S."""
        self.closed = True
        self._next.set()
        with trio.move_on_after(GOODBYE_S):
            while self.watchers:
                self._gone = trio.Event()
                await self._gone.wait()

    # -- pictures -----------------------------------------------------------------------------

    def hurry(self) -> None:
        """Make the next picture soon, because something important has changed."""
        if self.watchers:
            self._hurry.set()

    async def run(self) -> None:
        while not self.closed:
            if not self.watchers:
                self._watched = trio.Event()
                await self._watched.wait()
            try:
                await self._show()
            except Exception as error:  # noqa: BLE001  logged with its traceback; the node goes on
                self._on_bug("console", error)
                await trio.sleep(AFTER_BUG_S)
            finally:
                self._frame = None
                self._source.end()

    async def _show(self) -> None:
        sections = Sections()
        await self._source.begin()
        while self.watchers and not self.closed:
            self._hurry = trio.Event()
            after = await self._source.render(sections)
            self.frames += 1  # never reused: a watcher may have seen the last one of another loop
            change: Sections = {"number": self.frames, "change": difference(sections, after)}
            news = self._source.news()
            if news:
                change["samples"] = news
            sections = after
            self._frame = _Frame(self.frames, event("change", change), after, self._source.samples)
            self._next.set()
            self._next = trio.Event()
            await trio.sleep(SOONEST_S)
            with trio.move_on_after(EVERY_S - SOONEST_S):
                await self._hurry.wait()
