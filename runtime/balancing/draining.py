"""Draining before a stop: this node gives away all its masters, one group at a time.

The caller of `step` waits `STEP_S` between two calls, and at most `DRAIN_S` in all.
"""

from collections.abc import Callable
from typing import Final

from paxos.ids import Now
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.system.journal import Journal

DRAIN_S: Final = 5.0
STEP_S: Final = 0.005


class Draining:
    def __init__(
        self,
        loop: BalancingLoop,
        tell_peers: Callable[[], None],
        end_of_round: Callable[[], object],
        now: Callable[[], Now],
        journal: Journal,
    ) -> None:
        self._loop, self._end_of_round, self._now, self._journal = loop, end_of_round, now, journal
        journal.info("draining")
        loop.start_draining()
        tell_peers()
        end_of_round()

    def step(self) -> bool:
        """Hand over the next group; False if no more can be."""
        if not self._loop.drain_next(self._now()):
            return False
        self._end_of_round()
        return True

    def end(self) -> int:
        """Finish; returns how many masters are left here."""
        self._end_of_round()
        left = len(self._loop.masters(self._now()))
        self._journal.info("drained", masters_left=left)
        return left
