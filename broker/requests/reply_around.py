"""A reply around another one: everything is passed on, but for what a subclass does itself."""

from collections.abc import Callable
from typing import TypeVar

from broker.ports import Connection, Reply
from paxos.entry import Buffer
from paxos.ids import GroupId

R = TypeVar("R", bound="ReplyAround")


class ReplyAround(Reply):
    """`_reply` is what it is around: that of the connection, or another one around that."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def layer(self, kind: type[R]) -> R | None:
        """This one or one that it is around, of a kind; None if there is none."""
        reply: Reply = self
        while isinstance(reply, ReplyAround):
            if isinstance(reply, kind):
                return reply
            reply = reply._reply
        return None

    @property
    def connection(self) -> Connection:
        return self._reply.connection

    @property
    def room(self) -> int:
        return self._reply.room

    def complete(self, chunks: list[Buffer]) -> None:
        self._reply.complete(chunks)

    def nothing(self) -> None:
        self._reply.nothing()

    def when_waited(self, hurry: Callable[[], None]) -> None:
        self._reply.when_waited(hurry)

    def produces(self, producer_id: int) -> None:
        self._reply.produces(producer_id)

    def refused(self, topic: str, index: int) -> None:
        self._reply.refused(topic, index)

    def hold_back(self, group: GroupId) -> None:
        self._reply.hold_back(group)

    def stop_reading(self) -> None:
        self._reply.stop_reading()

    def read_on(self) -> None:
        self._reply.read_on()

    def mute(self, until_boot_ns: int) -> None:
        self._reply.mute(until_boot_ns)

    def proved(self) -> None:
        self._reply.proved()

    def close(self, reason: str) -> None:
        self._reply.close(reason)

    def has_hung_up(self) -> bool:
        return self._reply.has_hung_up()
