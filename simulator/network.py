"""The simulated network: loses, duplicates, delays, reorders; links can be cut one way.

A frame is bytes, as on a real link: the codec works in every world. Frames may arrive in a later
incarnation of the receiver than the one they were meant for, which TCP would not do: it is harsher.
"""

import random
from collections.abc import Callable
from typing import Final

from paxos.ids import MS
from simulator.loop import Loop

LATE_CHANCE: Final = 0.002
LATE_MEAN_NS: Final = 4_000 * MS
"""Now and then a frame sleeps somewhere and arrives among later incarnations (scenario 24)."""


class Network:
    def __init__(
        self, loop: Loop, chance: random.Random, delay_min_ns: int, delay_max_ns: int
    ) -> None:
        self._loop, self._chance = loop, chance
        self._delay_min_ns, self._delay_span_ns = delay_min_ns, delay_max_ns - delay_min_ns
        self._deliver: dict[int, Callable[[int, object], None]] = {}
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.duplication = 0.0
        self.slow = 0.0
        self.slow_mean_ns = 400 * MS
        self.late = LATE_CHANCE
        self.sent = 0

    def attach(self, address: int, deliver: Callable[[int, object], None]) -> None:
        self._deliver[address] = deliver

    def send(self, source: int, target: int, what: object) -> None:
        chance = self._chance.random
        self.sent += 1
        if (source, target) in self.cut or (self.loss and chance() < self.loss):
            return
        copies = 2 if self.duplication and chance() < self.duplication else 1
        for _ in range(copies):
            delay = self._delay_min_ns + int(chance() * self._delay_span_ns)
            if self.slow and chance() < self.slow:
                delay += int(self._chance.expovariate(1.0) * self.slow_mean_ns)
            elif self.late and chance() < self.late:
                delay += int(self._chance.expovariate(1.0) * LATE_MEAN_NS)
            self._loop.after(delay, self._deliver[target], source, what)

    def heal(self) -> None:
        self.cut.clear()
        self.loss = self.duplication = self.slow = self.late = 0.0

    def isolate(self, node: int, others: list[int], *, inbound: bool, outbound: bool) -> None:
        for other in others:
            if other != node:
                if inbound:
                    self.cut.add((other, node))
                if outbound:
                    self.cut.add((node, other))
