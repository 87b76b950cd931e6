"""Clients that are not read for a while, and when a client can have seen a refusal."""

from typing import Any, Generic, Protocol, TypeVar

import attrs

C = TypeVar("C", bound="Held")


@attrs.define
class RefusalSight:
    """Finds out when a client could have seen the refusals up to `number`, and nothing is on its
    way to us that it sent before that: the answers are sent; the client's kernel has acknowledged
    them; and everything that the client's socket contained by then has arrived, because nothing
    more arrives, or because enough has."""

    number: int
    told_at: int | None = None
    """The count of sent bytes that includes the answers, once they are sent."""
    behind: int | None = None
    """The count of received bytes that includes all that the client's socket may have contained
    when it had the answers."""


class Held(Protocol):
    """A client that waits (runtime.clients.clients)."""

    last_size: int
    held_by: Any


class Backpressure(Generic[C]):
    """Clients that are not read, because together they send more than can be handled; first come,
    first served. Refusing a request in a pipeline instead would let later ones overtake it."""

    def __init__(self) -> None:
        self.clients: dict[C, None] = {}
        self.released_bytes = 0
        """What recently released clients are likely to send, and have not sent yet."""

    def join(self, client: C) -> None:
        client.held_by = self
        self.clients[client] = None
        self.released_bytes = max(0, self.released_bytes - client.last_size)

    def leave(self, client: C) -> None:
        client.held_by = None
        del self.clients[client]

    def let_go(self, room: int) -> list[C]:
        """Release the clients that there is room for; at least one if there is any room."""
        gone = []
        while self.clients and self.released_bytes < room:
            client = next(iter(self.clients))
            self.leave(client)
            self.released_bytes += client.last_size
            gone.append(client)
        return gone
