"""Leaving: every master is given away first, one group at a time.

Who calls `step` waits `STEP_S` between two of them, and for no longer than `DRAIN_S` in all.
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
        """Whether anything can still go."""
        if not self._loop.drain_next(self._now()):
            return False
        self._end_of_round()
        return True

    def end(self) -> int:
        """How many masters are left here."""
        self._end_of_round()
        left = len(self._loop.masters(self._now()))
        self._journal.info("drained", masters_left=left)
        return left
