"""Which connection is closed when the limit is reached and a new one comes.

The first choice is the oldest connection without a request in its first second, preferably from
the same address. The second, as with Kafka's `max.connections` (KIP-402), is the one whose last
request was longest ago: its client connects again when it needs to. It is chosen from the address
with the most connections, so that one address cannot push out the others. A connection that
receives an answer, sends a request, or had one a moment ago is kept.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from runtime.system.connection_limits import SilentConnections

FIRST_WORD_NS: Final = 1_000_000_000
"""A connection without a request may just have been opened; after this time it is silent."""
RESTED_NS: Final = 10_000_000_000
"""A connection without a request for this long may be closed in favour of another one."""
LOOK_EVERY_NS: Final = 1_000_000_000
"""How often idle connections are searched for: that takes all connections, so not each time."""


class Holder(Protocol):
    """A connection that counts towards the limit."""

    opened_boot_ns: int
    active_boot_ns: int

    @property
    def host(self) -> str: ...

    @property
    def rests(self) -> bool:
        """Whether it has no request in progress, and nothing to receive or send."""

    def close(self, reason: str) -> None: ...


C = TypeVar("C", bound=Holder)


class Places(Generic[C]):
    """`connections` are all connections, `count` is their number by address, `silent` are those
    without a request so far."""

    def __init__(
        self,
        connections: Iterable[C],
        count: Mapping[str, int],
        silent: SilentConnections[C],
        boot_ns: Callable[[], int],
    ) -> None:
        self._connections, self._count, self._silent = connections, count, silent
        self._boot_ns = boot_ns
        self._looked_ns = -LOOK_EVERY_NS
        self._rested: dict[str, list[C]] = {}
        """The idle connections of each address; the one that was idle for longest is last."""
        self._hosts: list[str] = []
        """Their addresses; the one with the most connections is last."""

    def make(self, host: str, *, of_any: bool) -> bool:
        """Close a connection of this address, or, if `of_any`, of any; False if none may be."""
        now = self._boot_ns()
        found = self._silent_since(host, now - FIRST_WORD_NS)
        if found is None and of_any:
            found = self._silent_since(None, now - FIRST_WORD_NS)
        if found is not None:
            found.close("it has not asked anything, and its place is wanted")
            return True
        found = self._resting(None if of_any else host, now)
        if found is not None:
            found.close("idle, and its place is wanted")
            return True
        found = self._silent.oldest(host) or (self._silent.oldest() if of_any else None)
        if found is not None:
            found.close("it has not asked anything, and its place is wanted")
        return found is not None

    def _silent_since(self, host: str | None, opened_until_ns: int) -> C | None:
        oldest = self._silent.oldest(host)
        if oldest is None or oldest.opened_boot_ns > opened_until_ns:
            return None
        return oldest

    def _resting(self, host: str | None, now: int) -> C | None:
        if now - self._looked_ns >= LOOK_EVERY_NS:
            self._look(now)
        if host is not None:
            return self._take(self._rested.get(host, []), now)
        while self._hosts:
            found = self._take(self._rested[self._hosts[-1]], now)
            if found is not None:
                return found
            self._hosts.pop()
        return None

    def _look(self, now: int) -> None:
        self._looked_ns = now
        self._rested = {}
        rested = [one for one in self._connections if self._has_rested(one, now)]
        rested.sort(key=lambda one: one.active_boot_ns)
        for one in reversed(rested):
            self._rested.setdefault(one.host, []).append(one)
        self._hosts = sorted(self._rested, key=lambda host: self._count[host])

    def _take(self, rested: list[C], now: int) -> C | None:
        """Take the connection that was idle for longest and still is."""
        while rested:
            one = rested.pop()
            if self._has_rested(one, now):
                return one
        return None

    @staticmethod
    def _has_rested(one: C, now: int) -> bool:
        return now - one.active_boot_ns >= RESTED_NS and one.rests
