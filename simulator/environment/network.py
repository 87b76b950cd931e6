"""The simulated network: loses, duplicates, delays, reorders; links can be cut one way, or clogged.

A frame is bytes, as on a real link, so every world uses the codec. A frame may reach a later
incarnation of the receiver than the one it was meant for. TCP would not do that: this is harsher.
"""

import random
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import Final

import attrs

from paxos.ids import MS
from simulator.environment.loop import Loop

LATE_CHANCE: Final = 0.002
LATE_MEAN_NS: Final = 4_000 * MS
"""Now and then a frame is held up somewhere and arrives among later incarnations (scenario 24)."""
HELD_MAX: Final = 4_000
"""Most frames that wait at clogged nodes; more are lost, as from a full queue."""
PAST_MAX: Final = 256
PAST_EVERY: Final = 16
"""One frame in this many is remembered, to arrive once more when nobody expects it."""


@attrs.frozen(kw_only=True)
class Quality:
    """How bad a link is: probabilities for each frame."""

    loss: float = 0.0
    duplication: float = 0.0
    slow: float = 0.0
    slow_mean_ns: int = 400 * MS
    late: float = 0.0


GOOD: Final = Quality()
USUAL: Final = Quality(late=LATE_CHANCE)


class Network:
    def __init__(
        self, loop: Loop, chance: random.Random, delay_min_ns: int, delay_max_ns: int
    ) -> None:
        self._loop, self._chance = loop, chance
        self._delay_min_ns, self._delay_span_ns = delay_min_ns, delay_max_ns - delay_min_ns
        self._deliver: dict[int, Callable[[int, object], None]] = {}
        self.cut: set[tuple[int, int]] = set()
        self.quality = USUAL
        self.links: dict[tuple[int, int], Quality] = {}
        """Links that are worse, or better, than the default."""
        self.stalled: dict[tuple[int, int], list[object]] = {}
        """Links that hold the frames given to them, in order, and those frames."""
        self.clogged: set[int] = set()
        self._held: list[tuple[int, int, object]] = []
        self._past: deque[tuple[int, int, object]] = deque(maxlen=PAST_MAX)
        self.sent = 0
        self.spoil: Callable[[int, int, object], object] | None = None
        """Turns what a faulty peer sends into something wrong."""

    def attach(self, address: int, deliver: Callable[[int, object], None]) -> None:
        self._deliver[address] = deliver

    def send(self, source: int, target: int, what: object) -> None:
        chance = self._chance.random
        self.sent += 1
        link = (source, target)
        if link in self.cut:
            return
        quality = self.links.get(link, self.quality) if self.links else self.quality
        if quality.loss and chance() < quality.loss:
            return
        if self.sent % PAST_EVERY == 0:
            self._past.append((source, target, what))
        if self.stalled and link in self.stalled:
            if len(self.stalled[link]) < HELD_MAX:
                self.stalled[link].append(what)
            return
        if self.clogged and (source in self.clogged or target in self.clogged):
            if len(self._held) < HELD_MAX:
                self._held.append((source, target, what))
            return
        if self.spoil is not None and (said := self.spoil(source, target, what)) is not what:
            self._loop.after(self._delay_min_ns, self._deliver[target], source, said)  # once
            return
        copies = 2 if quality.duplication and chance() < quality.duplication else 1
        for _ in range(copies):
            delay = self._delay_min_ns + int(chance() * self._delay_span_ns)
            if quality.slow and chance() < quality.slow:
                delay += int(self._chance.expovariate(1.0) * quality.slow_mean_ns)
            elif quality.late and chance() < quality.late:
                delay += int(self._chance.expovariate(1.0) * LATE_MEAN_NS)
            self._loop.after(delay, self._deliver[target], source, what)

    def heal(self) -> None:
        self.cut.clear()
        self.links.clear()
        self.quality = GOOD
        self.spoil = None
        for address in sorted(self.clogged):
            self.unclog(address)
        for link in sorted(self.stalled):
            self.flow(link)

    def isolate(
        self, node: int, others: Iterable[int], *, inbound: bool = True, outbound: bool = True
    ) -> None:
        for other in others:
            if other != node:
                if inbound:
                    self.cut.add((other, node))
                if outbound:
                    self.cut.add((node, other))

    def connect(self, one: int, other: int) -> None:
        """Undo a cut between two nodes."""
        self.cut.discard((one, other))
        self.cut.discard((other, one))

    def stall(self, link: tuple[int, int]) -> None:
        """Like TCP when the other end does not read, or a router is stuck: nothing is lost."""
        self.stalled.setdefault(link, [])

    def flow(self, link: tuple[int, int]) -> None:
        source, target = link
        for what in self.stalled.pop(link, ()):
            self._loop.after(self._delay_min_ns, self._deliver[target], source, what)

    def clog(self, address: int) -> None:
        """Frames from and to this address wait, in order."""
        self.clogged.add(address)

    def unclog(self, address: int) -> None:
        self.clogged.discard(address)
        held, self._held = self._held, []
        for source, target, what in held:
            if source in self.clogged or target in self.clogged:
                self._held.append((source, target, what))
            else:
                self._loop.after(self._delay_min_ns, self._deliver[target], source, what)

    def echo(self, chance: random.Random, among: Container[int]) -> None:
        """Deliver an old frame again, or for the first time, between nodes only: a client's frame
        delivered twice would be two requests, and TCP never does that (seed 419)."""
        if self._past:
            source, target, what = self._past[chance.randrange(len(self._past))]
            if source in among and target in among:
                self._loop.after(self._delay_min_ns, self._deliver[target], source, what)
