"""A reply that changes the answer before it leaves: what its client may not see is taken out, and
what was refused ahead of the handler is put in."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from broker.ports import Connection, Reply
from broker.requests.context import Broker
from broker.requests.request import Request
from paxos.ids import GroupId
from wire.apis import decode_response, encode_response
from wire.codec.primitives import Buffer

Edit = Callable[[Any], None]
"""Changes a decoded Response in place. It may run in another thread."""
AT_ONCE_BYTES: Final = 16 * 1024
"""A longer answer is decoded and encoded again in the background."""


class EditedReply(Reply):
    def __init__(self, broker: Broker, request: Request, edits: Sequence[Edit]) -> None:
        self._broker, self._edits = broker, edits
        self._header, self._reply = request.header, request.reply

    @property
    def connection(self) -> Connection:
        return self._reply.connection

    @property
    def room(self) -> int:
        return self._reply.room

    def complete(self, chunks: list[Buffer]) -> None:
        if sum(map(len, chunks)) <= AT_ONCE_BYTES:
            self._reply.complete(self._edited(chunks))
        else:
            self._broker.background.submit(lambda: self._edited(chunks), self._reply.complete)

    def _edited(self, chunks: list[Buffer]) -> list[Buffer]:
        header = self._header
        frame = memoryview(b"".join(chunks))[4:]
        answer = decode_response(header.api_key, header.api_version, frame)
        for edit in self._edits:
            edit(answer)
        return encode_response(header, answer)

    def nothing(self) -> None:
        """Something was refused, and acks=0 leaves no answer to say so."""
        self._reply.close("Topic authorization failed.")

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

    def close(self, reason: str) -> None:
        self._reply.close(reason)

    def mute(self, until_boot_ns: int) -> None:
        self._reply.mute(until_boot_ns)

    def proved(self) -> None:
        self._reply.proved()

    def has_hung_up(self) -> bool:
        return self._reply.has_hung_up()
