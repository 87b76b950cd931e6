"""Draining before a stop: this node gives away all its masters, one group at a time, and then
answers what clients have asked of it.

To those that do not know of the moves it goes on being the master (ADR 50), so there is always
something under way when the last group has gone. A client that loses its connection with a request
under way cannot know what became of it, and sends it again. So the node stops reading first, and
closes connections when what it has read is answered.

The caller of `step` waits `STEP_S` between two calls, and at most `DRAIN_S` in all.
"""

from collections.abc import Callable
from typing import Final

import trio

from paxos.ids import MS, Now
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.system.journal import Journal

DRAIN_S: Final = 5.0
STEP_S: Final = 0.005
ANSWER_NS: Final = 1_000 * MS
"""How long it waits for the last answers."""


class Draining:
    def __init__(
        self,
        loop: BalancingLoop,
        tell_peers: Callable[[], None],
        stop_reading: Callable[[], None],
        owes_answers: Callable[[], bool],
        end_of_round: Callable[[], object],
        now: Callable[[], Now],
        journal: Journal,
    ) -> None:
        self._loop, self._end_of_round, self._now, self._journal = loop, end_of_round, now, journal
        self._stop_reading, self._owes_answers = stop_reading, owes_answers
        self._given_boot_ns: int | None = None
        """When the last group that could be handed over was."""
        journal.info("draining")
        loop.start_draining()
        tell_peers()
        end_of_round()

    def step(self) -> bool:
        """Hand over the next group, or wait for the last answers; False when there is nothing more
        to do."""
        now = self._now()
        if self._given_boot_ns is None and not self._loop.drain_next(now):
            self._given_boot_ns = now.boot_ns
            self._stop_reading()
        self._end_of_round()
        if self._given_boot_ns is None:
            return True
        return self._owes_answers() and now.boot_ns - self._given_boot_ns < ANSWER_NS

    def end(self) -> int:
        """Finish; returns how many masters are left here."""
        self._end_of_round()
        left = len(self._loop.masters(self._now()))
        self._journal.info("drained", masters_left=left)
        return left


async def drain(leaving: Draining) -> None:
    """Hand over all masters before stopping, and answer what was asked, for at most DRAIN_S."""
    with trio.move_on_after(DRAIN_S):
        while leaving.step():  # noqa: ASYNC110 (a step of work, not a condition)
            await trio.sleep(STEP_S)
    leaving.end()
