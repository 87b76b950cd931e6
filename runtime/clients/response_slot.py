"""The slots of a connection's requests, in which their answers wait."""

from collections.abc import Callable
from typing import Protocol

from broker.ports import Connection
from paxos.entry import Buffer
from paxos.ids import GroupId


class Asking(Protocol):
    """The client of a request (runtime.clients.clients)."""

    connection: Connection

    @property
    def gone(self) -> bool: ...

    @property
    def answer_room(self) -> int: ...

    def holds_answers(self, size: int) -> None: ...

    def answered(self, size: int) -> None: ...

    def refused(self, topic: str, index: int) -> int: ...

    def hold_back(self, size: int, group: GroupId) -> None: ...

    def produces(self, producer_id: int) -> None: ...

    def stop_reading(self) -> None: ...

    def read_on(self) -> None: ...

    def mute(self, until_boot_ns: int) -> None: ...

    def close(self, reason: str) -> None: ...

    def proved(self) -> None: ...

    def has_hung_up(self) -> bool: ...


class ResponseSlot:
    """A request's slot in its connection's queue of answers (a broker.ports.Reply)."""

    __slots__ = (
        "answer",
        "answer_bytes",
        "client",
        "connection",
        "done",
        "hurry",
        "refusal",
        "size",
    )

    def __init__(self, client: Asking, size: int) -> None:
        self.client = client
        self.connection = client.connection
        self.size = size
        self.done = False
        self.answer: list[Buffer] | None = None
        self.answer_bytes = 0
        self.hurry: Callable[[], None] | None = None
        self.refusal = 0
        """The number of the last refusal in its answer, counted per connection; 0: none."""

    def complete(self, chunks: list[Buffer]) -> None:
        client = self.client
        if client.gone:
            return  # the client is gone
        assert not self.done, "a request is answered once"
        self.done = True
        self.answer = chunks
        self.answer_bytes = size = sum(map(len, chunks))
        client.holds_answers(size)
        client.answered(self.size)

    @property
    def room(self) -> int:
        return self.client.answer_room

    def nothing(self) -> None:
        if self.client.gone:
            return
        assert not self.done, "a request is answered once"
        self.done = True
        self.client.answered(self.size)

    def when_waited(self, hurry: Callable[[], None]) -> None:
        self.hurry = hurry

    def refused(self, topic: str, index: int) -> None:
        self.refusal = self.client.refused(topic, index)

    def hold_back(self, group: GroupId) -> None:
        self.client.hold_back(self.size, group)

    def produces(self, producer_id: int) -> None:
        self.client.produces(producer_id)

    def stop_reading(self) -> None:
        self.client.stop_reading()

    def read_on(self) -> None:
        self.client.read_on()

    def mute(self, until_boot_ns: int) -> None:
        self.client.mute(until_boot_ns)

    def close(self, reason: str) -> None:
        self.client.close(reason)

    def proved(self) -> None:
        self.client.proved()

    def has_hung_up(self) -> bool:
        return self.client.has_hung_up()
