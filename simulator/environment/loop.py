"""Virtual time: a heap of events. Ties run in the order of scheduling, so runs repeat."""

import heapq
from collections.abc import Callable
from typing import Any


class Died(Exception):
    """A node died in the middle of an event: the rest of that event does not happen."""


class Loop:
    def __init__(self) -> None:
        self.now_ns = 0
        self.end_ns = 0
        """The end of the current `run_until`."""
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0

    def at(self, when_ns: int, call: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 # passed on untouched
        self._scheduled += 1
        if when_ns < self.now_ns:
            when_ns = self.now_ns
        heapq.heappush(self._heap, (when_ns, self._scheduled, call, args))

    def after(self, delay_ns: int, call: Callable[..., None], *args: Any) -> None:  # noqa: ANN401 # passed on untouched
        self._scheduled += 1
        heapq.heappush(self._heap, (self.now_ns + delay_ns, self._scheduled, call, args))

    def skip_to(self, when_ns: int) -> bool:
        """Whether the next event may as well run now: nothing else is due until `when_ns`, and the
        run does not end before. Only for the last action of an event."""
        heap = self._heap
        if when_ns > self.end_ns or (heap and heap[0][0] <= when_ns):
            return False
        self.now_ns = when_ns
        self.events += 1
        return True

    def run_until(self, end_ns: int) -> None:
        """Carry out everything that is due up to and including `end_ns`."""
        heap, pop = self._heap, heapq.heappop
        self.end_ns = end_ns
        while heap and heap[0][0] <= end_ns:
            self.now_ns, _, call, args = pop(heap)
            self.events += 1
            try:  # `suppress` would cost a fifth of the loop
                call(*args)
            except Died:
                continue
        self.now_ns = max(self.now_ns, end_ns)
