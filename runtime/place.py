"""The places of a connection's requests: what their answers wait in."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from paxos.entry import Buffer
from paxos.ids import GroupId

if TYPE_CHECKING:
    from runtime.clients import Client


class Place:
    """One request's place in its connection's queue of answers (a broker.ports.Reply)."""

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

    def __init__(self, client: "Client", size: int) -> None:
        self.client = client
        self.connection = client.connection
        self.size = size
        self.done = False
        self.answer: list[Buffer] | None = None
        self.answer_bytes = 0
        self.hurry: Callable[[], None] | None = None
        self.refusal = 0
        """The last that its answer tells of, counted in the connection."""

    def complete(self, chunks: list[Buffer]) -> None:
        client = self.client
        if client.gone:
            return  # an answer to nobody
        assert not self.done, "a request is answered once"
        self.done = True
        self.answer = chunks
        self.answer_bytes = size = sum(map(len, chunks))
        client.holds_answers(size)
        client.answered(self.size)

    @property
    def room(self) -> int:
        return self.client.clients.memory.answer_room

    def nothing(self) -> None:
        if self.client.gone:
            return
        assert not self.done, "a request is answered once"
        self.done = True
        self.client.answered(self.size)

    def when_waited(self, hurry: Callable[[], None]) -> None:
        self.hurry = hurry

    def refused(self, topic: str, index: int) -> None:
        client = self.client
        self.refusal = client.connection.refused(topic, index)
        if not client.gone:
            client.clients.wary[client] = None

    def hold_back(self, group: GroupId) -> None:
        self.client.last_size = self.size
        self.client.clients.hold_back(self.client, group)

    def produces(self, producer_id: int) -> None:
        client = self.client
        if client.producer_id != producer_id and not client.gone:
            client.clients.homes.changed(client.producer_id, producer_id)
            client.producer_id = producer_id

    def stop_reading(self) -> None:
        self.client.looked_at += 1
        self.client.pause()

    def read_on(self) -> None:
        self.client.looked_at -= 1
        self.client.go_on()

    def close(self, reason: str) -> None:
        self.client.close(reason)

    def has_hung_up(self) -> bool:
        channel = self.client.channel
        return channel is None or channel.has_hung_up()
