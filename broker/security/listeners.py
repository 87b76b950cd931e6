"""The listener that a client came by: its name decides which addresses the client is told."""

from enum import Enum
from typing import Final

import attrs


class SecurityProtocol(Enum):
    """Kafka's security protocols; the value is their number in Kafka, and in the registry."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

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
"""That of `listen.kafka`. The registry has its address as that of the node itself."""
