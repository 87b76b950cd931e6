"""The listeners that clients come by, as far as the broker needs to know them."""

from enum import Enum
from typing import Final

import attrs


class SecurityProtocol(Enum):
    """What a listener demands of its clients; the values are Kafka's names."""

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
    """`name` is unique on a node; clients of one listener are told the addresses of that one."""

    name: str
    protocol: SecurityProtocol


DEFAULT: Final = ClientListener("PLAINTEXT", SecurityProtocol.PLAINTEXT)
