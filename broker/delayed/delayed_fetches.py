"""Fetches that wait for data (long polling), woken only by what they wait for.

A parked fetch is notified of new batches in its partitions (once a round, however many there were),
of changes of mastership, and of its deadline. Thousands may wait for one partition: each round
checks some of those woken (`STEPS_PER_ROUND`), and the next round continues. One timer serves all:
it is set to the earliest deadline, and fetches answered before theirs are skipped when their turn
comes.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

import attrs

from broker.ports import Groups, Timers
from paxos.ids import MS

FETCH_BYTES: Final = 2_000
PARTITION_BYTES: Final = 800
"""Memory of a parked fetch, and of each of its partitions: the request, what was looked up, and its
entry in the wake lists (measured with `tracemalloc`)."""
FETCH_STEPS: Final = 10
"""Answering a fetch costs as much as checking this many partitions."""
STEPS_PER_ROUND: Final = 1_000
"""Some milliseconds' worth: hundreds of fetches may end, or be woken, together."""
_STALE_MIN: Final = 256
"""Up to this many answered fetches may stay in the queue of deadlines."""


class WaitingFetch(Protocol):
    """A fetch that has not been answered yet. Neither method may raise."""

    @property
    def uids(self) -> Sequence[int]:
        """The partitions it waits for, each once."""

    def try_complete(self) -> bool:
        """Something has changed: answer if possible. True if it has answered."""

    def expired(self) -> None:
        """Its time is over: it must answer with what there is."""


def _held_by(fetch: WaitingFetch) -> int:
    return FETCH_BYTES + PARTITION_BYTES * len(fetch.uids)


@attrs.define(eq=False)
class _Entry:
    fetch: WaitingFetch | None
    """None once it is answered."""
    woken: bool = False
    """It waits for its turn to check what has changed."""


@attrs.frozen
class DelayedFetch:
    """A handle on a parked fetch; both do nothing once it is answered."""

    end: Callable[[], None]
    """Its time is over."""
    wake: Callable[[], None]
    """Something has changed for it alone."""


class DelayedFetches:
    def __init__(
        self, groups: Groups, timers: Timers, fetches_max: int, bytes_max: int = 1 << 40
    ) -> None:
        self._groups = groups
        self._timers = timers
        self._fetches_max, self._bytes_max = fetches_max, bytes_max
        self.bytes = 0
        """Estimate of the memory they hold."""
        self._by_uid: dict[int, dict[_Entry, None]] = {}
        self._all: dict[_Entry, None] = {}
        self._woken: deque[_Entry] = deque()
        self._deadlines: list[tuple[int, int, _Entry]] = []
        self._serial = 0
        self._timer: object = None
        self._timer_boot_ns: int | None = None

    def __len__(self) -> int:
        return len(self._all)

    @property
    def full(self) -> bool:
        return len(self._all) >= self._fetches_max or self.bytes >= self._bytes_max

    def park(self, fetch: WaitingFetch, wait_ms: int) -> "DelayedFetch":
        """Keep it until it is answered; must not be `full`."""
        assert not self.full
        entry = _Entry(fetch)
        self._all[entry] = None
        self.bytes += _held_by(fetch)
        for uid in fetch.uids:
            self._by_uid.setdefault(uid, {})[entry] = None
        deadline = self._groups.now().boot_ns + wait_ms * MS
        self._serial += 1
        heapq.heappush(self._deadlines, (deadline, self._serial, entry))
        self._arm()
        return DelayedFetch(partial(self._end, entry), partial(self._look, entry))

    def _end(self, entry: _Entry) -> None:
        fetch = entry.fetch
        if fetch is not None:
            self._forget(entry)
            fetch.expired()

    def appended(self, uids: Iterable[int]) -> None:
        """These partitions have grown or are gone; call it at the end of a round."""
        by_uid = self._by_uid
        for uid in uids:
            waiting = by_uid.get(uid)
            if waiting is not None:
                self._wake(waiting)
        self._look_at_some()

    def masters_changed(self) -> None:
        """Some group has another master, or this node may act for one again, or no longer."""
        self._wake(self._all)
        self._look_at_some()

    def _wake(self, entries: Iterable[_Entry]) -> None:
        for one in entries:
            if not one.woken:
                one.woken = True
                self._woken.append(one)

    def _look_at_some(self) -> None:
        """Those woken first; the others in the next round."""
        steps = 0
        while self._woken and steps < STEPS_PER_ROUND:
            entry = self._woken.popleft()
            entry.woken = False  # later changes wake it again
            fetch = entry.fetch
            if fetch is not None:
                steps += FETCH_STEPS + len(fetch.uids)
                self._look(entry)
        if self._woken:
            self._arm()

    def _look(self, entry: _Entry) -> None:
        fetch = entry.fetch
        if fetch is not None and fetch.try_complete():
            self._forget(entry)

    def _forget(self, entry: _Entry) -> None:
        fetch = entry.fetch
        assert fetch is not None
        entry.fetch = None
        self.bytes -= _held_by(fetch)
        del self._all[entry]
        for uid in fetch.uids:
            waiting = self._by_uid[uid]
            del waiting[entry]
            if not waiting:
                del self._by_uid[uid]
        if len(self._deadlines) > _STALE_MIN + 2 * len(self._all):
            self._deadlines = [one for one in self._deadlines if one[2].fetch is not None]
            heapq.heapify(self._deadlines)

    # -- time ---------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer to the earliest deadline or earlier; to now where some are woken."""
        if self._woken:
            deadline = self._groups.now().boot_ns
        elif self._deadlines:
            deadline = max(self._deadlines[0][0], self._groups.now().boot_ns)
        else:
            return
        if self._timer_boot_ns is not None:
            if self._timer_boot_ns <= deadline:
                return
            self._timers.cancel(self._timer)
        self._timer_boot_ns = deadline
        self._timer = self._timers.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_boot_ns = None
        self._look_at_some()
        boot_ns = self._groups.now().boot_ns
        deadlines = self._deadlines
        due = []
        steps = 0
        while deadlines and (deadlines[0][0] <= boot_ns or deadlines[0][2].fetch is None):
            if steps >= STEPS_PER_ROUND:  # the rest in the next round
                break
            due.append(heapq.heappop(deadlines)[2])
            fetch = due[-1].fetch
            steps += 0 if fetch is None else FETCH_STEPS + len(fetch.uids)
        for entry in due:
            fetch = entry.fetch
            if fetch is not None:
                self._forget(entry)
                fetch.expired()
        self._arm()
