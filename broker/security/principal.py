"""Who a client is, as Kafka writes it: `User:alice`."""

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
        """Raises:
        ValueError: it is not a kind, a colon and a name.
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise ValueError(f'a principal is "User:NAME", not {text!r}')
        return cls(kind, name)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Of a listener that asks nobody who they are, as in Kafka."""
