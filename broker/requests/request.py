"""A request as its handler sees it."""

import attrs

from broker.ports import Reply
from wire.apis import RequestHeader


@attrs.define(eq=False)
class Request:
    """One decoded request. `frame` is valid only until the handler returns unless `owned`."""

    header: RequestHeader
    message: object
    frame: memoryview
    owned: bool
    client_host: str
    reply: Reply
