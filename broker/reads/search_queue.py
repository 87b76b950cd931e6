"""Searches that take too long for the loop: done in the background, one piece at a time, in turn.

Searching requests take turns: after one request's next piece of work, the worker gets the next
request's. So only one batch is held and decompressed at any time, however many requests search, and
a large request delays the others by one batch. A search that does not end in time is answered with
a time-out: there is no answer before the right one is found.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import attrs

from broker.ports import BackgroundWorker, Groups, Timers
from broker.reads.time_search import Work
from paxos.ids import MS
from storage.errors import StorageError
from wire.records.batch import DECOMPRESSED_BYTES_MAX, BatchError
from wire.records.times import Timed

WAITING_MAX: Final = 1_000
"""Most requests that may search at the same time."""


class Searching(Protocol):
    """A request that has not been answered yet. No method may raise."""

    def next_work(self) -> Work | None:
        """The next piece of work for it; None: it has answered."""

    def heard(self, outcome: Timed | Exception | None) -> bool:
        """Take the result of the work; returns whether it has answered now."""

    def expired(self) -> None:
        """Its time is over: it must answer with what there is."""


@attrs.define(eq=False)
class _Turn:
    """Also its pace: called in the worker's thread."""

    searching: Searching
    rest: Callable[[], None]
    timer: object = None
    stopped: bool = False


class SearchQueue:
    def __init__(
        self,
        background: BackgroundWorker,
        groups: Groups,
        timers: Timers,
        unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> None:
        self._unpacked_bytes_max = unpacked_bytes_max
        self._background, self._groups, self._timers = background, groups, timers
        self._turns: deque[_Turn] = deque()
        self._waiting = 0
        self._busy = False
        self._going = False

    def __len__(self) -> int:
        return self._waiting

    @property
    def full(self) -> bool:
        return self._waiting >= WAITING_MAX

    def add(self, searching: Searching, wait_ms: int) -> None:
        """Give it turns until it has answered; must not be `full`."""
        assert not self.full
        turn = _Turn(searching, self._background.rest)
        deadline = self._groups.now().boot_ns + wait_ms * MS
        turn.timer = self._timers.call_at(deadline, partial(self._expire, turn))
        self._waiting += 1
        self._turns.append(turn)
        self._go()

    def _go(self) -> None:
        """Have the worker do the next piece; it may be done immediately."""
        if self._going:
            return
        self._going = True
        try:
            while self._turns and not self._busy:
                self._begin(self._turns.popleft())
        finally:
            self._going = False

    def _begin(self, turn: _Turn) -> None:
        if turn.stopped:
            return
        work = turn.searching.next_work()
        if work is None:
            self._end(turn)
            return
        self._busy = True
        heard = partial(self._heard, turn)
        self._background.submit(partial(_do, work, turn, self._unpacked_bytes_max), heard, heard)

    def _heard(self, turn: _Turn, outcome: Timed | Exception | None) -> None:
        self._busy = False
        if not turn.stopped:
            if turn.searching.heard(outcome):
                self._end(turn)
            else:
                self._turns.append(turn)
        self._go()

    def _expire(self, turn: _Turn) -> None:
        if not turn.stopped:
            self._end(turn)
            turn.searching.expired()

    def _end(self, turn: _Turn) -> None:
        self._timers.cancel(turn.timer)
        turn.stopped = True
        self._waiting -= 1


def _do(work: Work, turn: _Turn, bytes_max: int) -> Timed | Exception | None:
    try:
        return work(turn, bytes_max)
    except BatchError as error:
        return error
    except StorageError:
        raise
    except Exception as error:  # noqa: BLE001  told to whoever asks, as the bug that it is
        return error
