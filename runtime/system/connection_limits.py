"""Limits for client connections: silent ones must not keep others out.

Opening a connection costs a client almost nothing. So when the limit is reached, the oldest
connection that has not sent a request yet is closed, preferably one from the same address. A
connection that has sent a request stays. An address that opens connections faster than any client
would is refused: otherwise its new silent connections would push out those that are about to send
their first request.
"""

from collections.abc import Callable, Container, Iterator
from typing import Final, Generic, Protocol, TypeVar

BURST_S: Final = 2
"""A burst may have this many seconds' worth of connections: after an outage, all clients return."""
HOSTS_MAX: Final = 10_000
"""Addresses whose rate is tracked; beyond it all are forgotten, which once accepts too many."""


class Caller(Protocol):
    @property
    def host(self) -> str: ...

    def close(self, reason: str) -> None: ...


C = TypeVar("C", bound=Caller)


class SilentConnections(Generic[C]):
    """Connections that have not sent a request yet, oldest first, overall and by address."""

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
        """The oldest of all, or of one address; None if there is none."""
        found = self._all if host is None else self._by_host.get(host, {})
        return next(iter(found), None)

    def least(self, host: str, known: Container[str]) -> C | None:
        """The one to close for a new connection from `host`: those from `known` addresses are kept
        as long as there are others, unless the new one is from the same address."""
        others = (one for one in self._all if one.host not in known)
        oldest = self.oldest(host) if host in known else None
        return oldest or next(others, None) or self.oldest()


class ConnectionRate:
    """A token bucket per address: `per_s` connections flow in, BURST_S seconds' worth fit, of fewer
    than one a second one. A quota of the address takes the place of `per_s` (KIP-612)."""

    def __init__(self, per_s: int, boot_ns: Callable[[], int]) -> None:
        self._per_s, self._boot_ns = per_s, boot_ns
        self.quota: Callable[[str], float | None] = lambda _host: None
        """Returns the connections a second of an address's own quota, if it has one."""
        self._full_at: dict[str, int] = {}
        """When each bucket will be full again; full buckets may be dropped."""

    def takes(self, host: str) -> bool:
        """Count one more connection of this address; False if it must be refused."""
        now = self._boot_ns()
        each_ns = int(1_000_000_000 / (self.quota(host) or self._per_s))
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
