"""Who is at the other end of a connection, once that is proved."""

from typing import Final, Self

import attrs


@attrs.frozen
class Principal:
    """As Kafka writes it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Raises:
            ValueError: it has no type, or no name.
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise ValueError(f"{text[:100]!r} is not a principal: expected 'User:' and a name")
        return cls(kind, name)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A client that has proved nothing (Kafka's KafkaPrincipal.ANONYMOUS)."""
