"""Clients that are not read for a while, and what those can know that were refused something."""

from typing import Any, Generic, Protocol, TypeVar

import attrs

C = TypeVar("C", bound="Held")


@attrs.define
class RefusalSight:
    """From when on a client could see the refusals up to `number`, and has nothing on its way to us
    that it sent before: the answers are out; its kernel has acknowledged them; and what it had
    given its kernel by then has come, because nothing more comes or because enough has."""

    number: int
    told_at: int | None = None
    """Bytes sent, once the answers are among them."""
    behind: int | None = None
    """Bytes received, with all that the client may have had in its socket at that time."""


class Held(Protocol):
    """Who waits (runtime.clients.clients)."""

    last_size: int
    held_by: Any


class Backpressure(Generic[C]):
    """Clients that are not read, because together they send more than is done; first come, first
    served. Otherwise a refusal in the middle of a pipeline would let later requests overtake."""

    def __init__(self) -> None:
        self.clients: dict[C, None] = {}
        self.released_bytes = 0
        """What those who went on of late are likely to send, and have not sent yet."""

    def join(self, client: C) -> None:
        client.held_by = self
        self.clients[client] = None
        self.released_bytes = max(0, self.released_bytes - client.last_size)

    def leave(self, client: C) -> None:
        client.held_by = None
        del self.clients[client]

    def let_go(self, room: int) -> list[C]:
        """Those for whom there is room now; one at least where there is any."""
        gone = []
        while self.clients and self.released_bytes < room:
            client = next(iter(self.clients))
            self.leave(client)
            self.released_bytes += client.last_size
            gone.append(client)
        return gone
