"""A request that waits, for the log or for other members, and is answered exactly once."""

from typing import Generic, TypeVar

import attrs

from coordinator.model import Request, Token

R_co = TypeVar("R_co", bound=Request, covariant=True)


@attrs.frozen(eq=False)
class Pending(Generic[R_co]):
    serial: int
    token: Token
    request: R_co
