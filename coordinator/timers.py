"""Deadlines: a heap that is corrected lazily, since every heartbeat moves one deadline later."""

import heapq
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from coordinator.model import NO_MEMBER, ConsumerGroupId, MemberId

HEAP_SLACK: Final = 64
"""Cancelled places in the heap that are not worth cleaning up."""


class TimerKind(Enum):
    SESSION = "a member has not been heard of"
    PENDING = "a member was given an id and has not joined with it"
    REBALANCE = "members have been waited for long enough"
    SYNC = "members have joined and not asked for their assignment"
    CONSUMER = "a member of a group that the broker shares out has not been heard of"
    REVOCATION = "such a member has not given up what it was told to"


class TimerKey(NamedTuple):
    kind: TimerKind
    group: ConsumerGroupId
    member: MemberId = NO_MEMBER


class Timers:
    """At most one deadline for each key; moving one later costs a dictionary store."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._queued: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def has(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def cancel(self, key: TimerKey) -> None:
        self._deadlines.pop(key, None)

    def items(self) -> Iterator[tuple[TimerKey, int]]:
        return iter(list(self._deadlines.items()))

    def next_ms(self) -> int | None:
        """A time by which `pop_due` should be asked; never too late, at times too early."""
        return self._heap[0][0] if self._deadlines and self._heap else None

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """Take out one deadline that has passed, the earliest first."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue  # a younger, earlier place in the heap has replaced this one
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._deadlines[key]
            return key
        return None

    def _push(self, key: TimerKey, deadline_ms: int) -> None:
        if len(self._heap) > 2 * len(self._deadlines) + HEAP_SLACK:
            self._compact()
        self._queued[key] = deadline_ms
        self._serial += 1  # ties are popped in the order they were set, not by comparing keys
        heapq.heappush(self._heap, (deadline_ms, self._serial, key))

    def _compact(self) -> None:
        """Drop what was cancelled, so that members coming and going do not pile up here."""
        self._heap = [place for place in self._heap if self._is_live(place)]
        heapq.heapify(self._heap)
        self._queued = {key: queued_ms for queued_ms, _, key in self._heap}

    def _is_live(self, place: tuple[int, int, TimerKey]) -> bool:
        queued_ms, _, key = place
        return key in self._deadlines and self._queued.get(key) == queued_ms
