"""Who a client is, as Kafka writes it: a kind and a name, `User:alice`."""

from typing import Final

import attrs


@attrs.frozen
class Principal:
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """Read `User:alice`; a name may contain colons.

        Raises:
            ValueError: there is no kind, or no name.
        """
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"expected a kind and a name, as in User:alice, and not {text!r}")
        return cls(kind, name)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""A client that has proved nothing (Kafka's KafkaPrincipal.ANONYMOUS)."""
