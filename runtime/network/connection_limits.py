"""Who is let in: a bounded number of connections, of which those that say nothing hold no place.

A connection costs whoever opens it next to nothing, so silence must not keep others out: where
there is no place left, the oldest that has not asked anything yet goes, first of all those from the
same address. Whoever has asked something stays. An address that opens connections faster than any
client does is refused: otherwise the silence of its newest would push out those that were about to
speak.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

BURST_S: Final = 2
"""So many seconds' worth of connections may come at once: all clients come back after an outage."""
HOSTS_MAX: Final = 10_000
"""Addresses whose rate is remembered; beyond it all are forgotten, which lets in too many once."""


class Caller(Protocol):
    @property
    def host(self) -> str: ...

    def close(self, reason: str) -> None: ...


C = TypeVar("C", bound=Caller)


class SilentConnections(Generic[C]):
    """Connections that have not said anything yet, the oldest first, by address and together."""

    def __init__(self) -> None:
        self._all: dict[C, None] = {}
        self._by_host: dict[str, dict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[C]:
        return iter(self._all)

    def add(self, caller: C) -> None:
        self._all[caller] = None
        self._by_host.setdefault(caller.host, {})[caller] = None

    def discard(self, caller: C) -> None:
        if caller in self._all:
            del self._all[caller]
            same = self._by_host[caller.host]
            del same[caller]
            if not same:
                del self._by_host[caller.host]

    def oldest(self, host: str | None = None) -> C | None:
        """Of all, or of one address."""
        found = self._all if host is None else self._by_host.get(host, {})
        return next(iter(found), None)


class ConnectionRate:
    """Buckets of connections, one for each address: `per_s` flow in, BURST_S of them fit."""

    def __init__(self, per_s: int, boot_ns: Callable[[], int]) -> None:
        self._per_s, self._boot_ns = per_s, boot_ns
        self._full_at: dict[str, int] = {}
        """When each bucket will be full again; one that is full is not kept."""

    def takes(self, host: str) -> bool:
        """Whether one more connection of this address may be let in now."""
        now = self._boot_ns()
        each_ns = 1_000_000_000 // self._per_s
        full_at = max(now, self._full_at.get(host, now)) + each_ns
        if full_at - now > BURST_S * 1_000_000_000:
            return False
        if host not in self._full_at and len(self._full_at) >= HOSTS_MAX:
            self._forget(now)
        self._full_at[host] = full_at
        return True

    def _forget(self, now: int) -> None:
        self._full_at = {host: at for host, at in self._full_at.items() if at > now}
        if len(self._full_at) >= HOSTS_MAX:
            self._full_at.clear()
