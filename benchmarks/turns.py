"""Which system may load the machine now: one at a time, in rounds whose order alternates.

Systems that are compared (A B, B A, A B, ...) must not load the machine at the same time, and drift
over time must favour neither. Each is measured by a task of its own, which takes its turn before
every load; what it does between its turns, such as creating a topic, may overlap with another's.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Turns:
    def __init__(self, seats: int) -> None:
        self._present = list(range(seats))
        self._round = deque(self._present)
        """The participants that have not had their turn in this round, in order."""
        self._forward = True
        self._changed = trio.Condition()

    @asynccontextmanager
    async def turn(self, seat: int) -> AsyncIterator[None]:
        """Wait for the turn and hold it: no other participant has it meanwhile."""
        assert seat in self._present, "a participant that has left gets no turn"
        async with self._changed:
            while self._round[0] != seat:
                await self._changed.wait()
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):  # no holder keeps it for long
                async with self._changed:
                    self._round.popleft()
                    self._refill()
                    self._changed.notify_all()

    async def leave(self, seat: int) -> None:
        """No more turns for this participant; the others do not wait for it."""
        with trio.CancelScope(shield=True):
            async with self._changed:
                self._present.remove(seat)
                if seat in self._round:
                    self._round.remove(seat)
                self._refill()
                self._changed.notify_all()

    def _refill(self) -> None:
        if not self._round and self._present:
            self._forward = not self._forward
            self._round.extend(self._present if self._forward else reversed(self._present))
