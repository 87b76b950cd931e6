"""Whom a connection belongs to, in Kafka's notation: a kind and a name, "User:alice"."""

from typing import Final, Self

import attrs


@attrs.frozen
class Principal:
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The principal that this text names; the name may contain colons.

        Raises:
            ValueError: if it has no kind or no name.
        """
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text[:100]!r} is no principal: write it as User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Who has proved nothing."""
