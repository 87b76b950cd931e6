"""Waits and their deadlines, in a heap that is corrected lazily: heartbeats only postpone them.

A wait counts only the time in which we listen: while this process stands still, and between two
masterships, it stands still as well (`grant`, `resume`). A wait that has little time left after
that gets a short grace, so that the data in our sockets can be read, or the new address be found.
It gets the grace once, however often it is interrupted: it ends after its length and one grace at
most.
"""

import heapq
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import attrs

from coordinator.model import NO_MEMBER, ConsumerGroupId, MemberId

HEAP_SLACK: Final = 64
"""Cancelled places in the heap that are not worth cleaning up."""


class TimerKind(Enum):
    SESSION = "a member has not been heard of"
    PENDING = "a member was given an id and has not joined with it"
    REBALANCE = "members have been waited for long enough"
    SYNC = "members have joined and not asked for their assignment"
    CONSUMER = "a member of a group with broker-side assignment has not been heard of"
    REVOCATION = "such a member has not given up what it was told to"
    REJOIN = "a classic member among them was told to join again, or has joined, and not synced"


SESSION_KINDS: Final = frozenset((TimerKind.SESSION, TimerKind.CONSUMER))
"""Waits for a sign of life; the others are for something to be done."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group: ConsumerGroupId
    member: MemberId = NO_MEMBER


class Wait(NamedTuple):
    """What is left of a wait, and whether it has had its grace."""

    left_ms: int
    graced: bool = False


NOTHING_LEFT: Final = Wait(0)


@attrs.define(eq=False)
class Running:
    """A wait that goes on. `rhythm_ms`: how long its member usually lets us wait, as far as we have
    seen; None until it was heard of twice."""

    deadline_ms: int
    whole_ms: int
    graced: bool = False
    rhythm_ms: int | None = None

    def left(self, now_ms: int) -> Wait:
        return Wait(max(0, self.deadline_ms - now_ms), self.graced)

    def spent_ms(self, now_ms: int) -> int:
        return self.whole_ms - (self.deadline_ms - now_ms)

    def top_up(self, now_ms: int, grace_ms: int) -> None:
        """After an interruption: give the grace, if less than that is left and it is the first."""
        if not self.graced and self.deadline_ms - now_ms < min(grace_ms, self.whole_ms):
            self.deadline_ms, self.graced = now_ms + min(grace_ms, self.whole_ms), True


class Timers:
    """At most one wait for each key; restarting one costs a dictionary look-up."""

    def __init__(self) -> None:
        self._running: dict[TimerKey, Running] = {}
        self._queued: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, key: TimerKey, now_ms: int, wait_ms: int) -> None:
        """Wait from now on; the event waited for has come."""
        running = self._running.get(key)
        if running is None:
            self._running[key] = Running(now_ms + wait_ms, wait_ms)
        else:
            spent_ms, rhythm_ms = running.spent_ms(now_ms), running.rhythm_ms or 0
            running.rhythm_ms = max(spent_ms, rhythm_ms - rhythm_ms // 8)
            running.deadline_ms, running.whole_ms = now_ms + wait_ms, wait_ms
            running.graced = False
        self._queue(key, now_ms + wait_ms)

    def resume(
        self, key: TimerKey, now_ms: int, wait_ms: int, known: Wait | None, grace_ms: int
    ) -> None:
        """Continue a wait of `wait_ms` of which an earlier mastership has left `known`."""
        if known is None:
            self.begin(key, now_ms, wait_ms)
            return
        left_ms = min(known.left_ms, wait_ms)
        running = self._running[key] = Running(now_ms + left_ms, wait_ms, known.graced)
        running.top_up(now_ms, grace_ms)
        self._queue(key, running.deadline_ms)

    def grant(self, now_ms: int, away_ms: int, grace_ms: int) -> None:
        """We were away for this long, not they: add it to every wait."""
        for running in self._running.values():  # all become later; the heap notices by itself
            running.deadline_ms += away_ms
            running.top_up(now_ms, grace_ms)

    def has(self, key: TimerKey) -> bool:
        return key in self._running

    def cancel(self, key: TimerKey) -> None:
        self._running.pop(key, None)

    def take(self, key: TimerKey, now_ms: int) -> Wait | None:
        """End a wait; returns what was left of it."""
        running = self._running.pop(key, None)
        return None if running is None else running.left(now_ms)

    def items(self) -> Iterator[tuple[TimerKey, Running]]:
        """For reading: do not begin or end a wait meanwhile."""
        return iter(self._running.items())

    def next_ms(self) -> int | None:
        """When to call `pop_due` next; never too late, at times too early."""
        return self._heap[0][0] if self._running and self._heap else None

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """Take out one deadline that has passed, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue  # a younger, earlier place in the heap has replaced this one
            del self._queued[key]
            running = self._running.get(key)
            if running is None:
                continue
            if running.deadline_ms > now_ms:
                self._push(key, running.deadline_ms)
                continue
            del self._running[key]
            return key
        return None

    def _queue(self, key: TimerKey, deadline_ms: int) -> None:
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def _push(self, key: TimerKey, deadline_ms: int) -> None:
        if len(self._heap) > 2 * len(self._running) + HEAP_SLACK:
            self._compact()
        self._queued[key] = deadline_ms
        self._serial += 1  # ties are popped in the order they were set, not by comparing keys
        heapq.heappush(self._heap, (deadline_ms, self._serial, key))

    def _compact(self) -> None:
        """Drop cancelled deadlines, so that members coming and going do not pile up here."""
        self._heap = [place for place in self._heap if self._is_live(place)]
        heapq.heapify(self._heap)
        self._queued = {key: queued_ms for queued_ms, _, key in self._heap}

    def _is_live(self, place: tuple[int, int, TimerKey]) -> bool:
        queued_ms, _, key = place
        return key in self._running and self._queued.get(key) == queued_ms
