"""Who watches the cluster through this node, and the loop that makes them see it.

There is one loop for all watchers, and it runs while there are any: it asks the other nodes, makes
a picture once a second (sooner when a group has got another master), and says what has changed.
Every watcher gets the same bytes. One that has just come, or could not keep up, gets the whole
picture instead of changes; one that does not take a piece in time is cut off (runtime.http.server).
So a slow watcher holds one piece and nothing queues.
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
"""Two pictures are at least so far apart, whatever happens."""
HEARTBEAT_S: Final = 10.0
AFTER_BUG_S: Final = 5.0
GOODBYE_S: Final = 0.5

Sections = dict[str, Any]


@attrs.define(eq=False)
class _Frame:
    """One picture: what changed since the one before, and all of it for whoever needs that."""

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

    `begin` is called when the first watcher comes, and `end` when the last one has gone.
    """

    begin: Callable[[], Awaitable[None]]
    render: Callable[[Sections], Awaitable[Sections]]
    """The sections as they are now; those that were not looked at are taken over."""
    news: Callable[[], Any]
    """The samples since the last call."""
    samples: Callable[[], Any]
    """All samples."""
    end: Callable[[], None]


class TooMany(Exception):
    """WATCHERS_MAX of them are there already."""


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
        """Made so far: nothing is made while nobody watches."""

    # -- watchers -----------------------------------------------------------------------------

    def admit(self) -> Callable[[Send], Awaitable[None]]:
        """A place for one more watcher, who has it while he is being sent to.

        Raises:
            TooMany: there is none.
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
        """The node stops: watchers are told so, as far as they read."""
        self.closed = True
        self._next.set()
        with trio.move_on_after(GOODBYE_S):
            while self.watchers:
                self._gone = trio.Event()
                await self._gone.wait()

    # -- pictures -----------------------------------------------------------------------------

    def hurry(self) -> None:
        """Something that people look at has changed: do not wait for the next second."""
        if self.watchers:
            self._hurry.set()

    async def run(self) -> None:
        while not self.closed:
            if not self.watchers:
                self._watched = trio.Event()
                await self._watched.wait()
            try:
                await self._show()
            except Exception as error:  # noqa: BLE001  told with its traceback; the node goes on
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
            self.frames += 1  # never used twice: who saw the last one of another loop goes on
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
