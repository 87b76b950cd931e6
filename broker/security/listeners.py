"""By which listener a client came, and what that asks of it."""

from enum import Enum
from typing import Final

import attrs


class SecurityProtocol(Enum):
    """With Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@attrs.frozen
class ClientListener:
    name: str
    protocol: SecurityProtocol


DEFAULT: Final = ClientListener("PLAINTEXT", SecurityProtocol.PLAINTEXT)
