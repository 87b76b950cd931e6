"""Produce requests that wait for the log, and the one coarse timer that ends stuck ones.

A producer says how long it will wait (its request timeout). Nearly all requests are answered within
milliseconds, so each only enters and leaves a dict. A sweep now and then counts down the remaining
time; a request may therefore wait up to two sweeps longer than it asked for.
"""

from typing import Final, Protocol

from broker.ports import Groups, Timers
from paxos.ids import MS

SWEEP_MS: Final = 250
TIMEOUT_MS_MAX: Final = 300_000
"""A longer timeout is cut to this."""


class DelayedProduce(Protocol):
    def timed_out(self) -> None:
        """Answer what can be answered; called at most once. It must not raise."""


class DelayedProduces:
    def __init__(self, groups: Groups, timers: Timers) -> None:
        self._groups = groups
        self._timers = timers
        self._sweeps_left: dict[DelayedProduce, int] = {}
        self._armed = False

    def __len__(self) -> int:
        return len(self._sweeps_left)

    def add(self, request: DelayedProduce, timeout_ms: int) -> None:
        timeout_ms = min(max(timeout_ms, 0), TIMEOUT_MS_MAX)
        self._sweeps_left[request] = timeout_ms // SWEEP_MS + 1
        if not self._armed:
            self._arm()

    def remove(self, request: DelayedProduce) -> None:
        self._sweeps_left.pop(request, None)

    def _arm(self) -> None:
        self._armed = True
        self._timers.call_at(self._groups.now().boot_ns + SWEEP_MS * MS, self._sweep)

    def _sweep(self) -> None:
        self._armed = False
        stuck = []
        for request, left in self._sweeps_left.items():
            if left == 0:
                stuck.append(request)
            else:
                self._sweeps_left[request] = left - 1
        for request in stuck:
            if self._sweeps_left.pop(request, None) is not None:
                request.timed_out()
        if self._sweeps_left and not self._armed:
            self._arm()
