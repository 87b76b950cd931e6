"""How it is between the simulated machines: what is cut, slow, or without power."""

import random
from collections.abc import MutableMapping
from typing import Protocol

from simulator.environment.dice import between


class Machine(Protocol):
    @property
    def powered(self) -> bool: ...


class WorldLinks:
    """simulator.whole.streams.Links."""

    def __init__(self, chance: random.Random, low_ns: int, high_ns: int) -> None:
        self._chance, self._low_ns, self._high_ns = chance, low_ns, high_ns
        self.hosts: MutableMapping[int, Machine] = {}
        self.cut: set[tuple[int, int]] = set()
        self.ajar: set[tuple[int, int]] = set()
        """Cut links that let something through for a moment, less than a question and its answer
        need."""
        self.slow: dict[tuple[int, int], int] = {}
        """Links with more delay, and how much at most."""

    def delay_ns(self, source: int, target: int) -> int | None:
        link = (source, target)
        if link in self.cut and link not in self.ajar:
            return None
        for end in link:
            host = self.hosts.get(end)
            if host is not None and not host.powered:
                return None
        delay = between(self._chance, self._low_ns, self._high_ns)
        more = self.slow.get(link)
        return delay if more is None else delay + between(self._chance, 0, more)

    def heal(self) -> None:
        self.cut.clear()
        self.ajar.clear()
        self.slow.clear()
