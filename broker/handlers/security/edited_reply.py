"""A reply that changes the answer before it leaves: what its client may not see is taken out, and
what was refused ahead of the handler is put in."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from broker.requests.context import Broker
from broker.requests.refusals import BACKGROUND_FROM
from broker.requests.reply_around import ReplyAround
from broker.requests.request import Request
from wire.apis import decode_response, encode_response
from wire.codec.primitives import Buffer

Edit = Callable[[Any], None]
"""Changes a decoded Response in place. It may run in another thread."""
AT_ONCE_BYTES: Final = 16 * 1024
"""A longer answer is decoded and encoded again in the background."""


class EditedReply(ReplyAround):
    """The edits add `rows` of their own."""

    def __init__(
        self, broker: Broker, request: Request, edits: Sequence[Edit], rows: int = 0
    ) -> None:
        self._broker, self._edits, self._rows = broker, edits, rows
        self._header = request.header
        super().__init__(request.reply)

    def complete(self, chunks: list[Buffer]) -> None:
        if self._rows < BACKGROUND_FROM and sum(map(len, chunks)) <= AT_ONCE_BYTES:
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
