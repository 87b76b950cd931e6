"""Clients that are not read until a given time, because they have used up a quota (KIP-219).

Their answers leave as usual, and what they send waits in their sockets. The node's tick lifts the
mute, so it lasts up to a tick longer; there is no timer and no task for a connection.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Mutable(Protocol):
    @property
    def gone(self) -> bool: ...

    def pause(self) -> None: ...


C = TypeVar("C", bound=Mutable)


class MutedClients(Generic[C]):
    def __init__(self) -> None:
        self._until: dict[C, int] = {}
        self._first = 0
        """No mute ends before; the tick looks at no client until then."""

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, client: C) -> bool:
        return client in self._until

    def __iter__(self) -> Iterator[C]:
        return iter(self._until)

    def join(self, client: C, until_boot_ns: int) -> None:
        """Mute it; a mute that ends later stays."""
        if client.gone:
            return
        self._first = min(self._first, until_boot_ns) if self._until else until_boot_ns
        self._until[client] = max(until_boot_ns, self._until.get(client, 0))
        client.pause()

    def leave(self, client: C) -> None:
        self._until.pop(client, None)

    def let_go(self, boot_ns: int) -> list[C]:
        """Those whose mute has ended; they are no longer muted."""
        if not self._until or boot_ns < self._first:
            return []
        over = [client for client, until in self._until.items() if until <= boot_ns]
        for client in over:
            del self._until[client]
        self._first = min(self._until.values(), default=0)
        return over
