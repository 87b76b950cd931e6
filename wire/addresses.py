"""Broker addresses, as users write them: `host:port,host:port`; an IPv6 address in brackets."""

from collections.abc import Iterable
from typing import Final

PORT: Final = 9092
PORT_END: Final = 65536


def parse_addresses(text: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """The addresses in a list, in its order; where no port is given it is Kafka's.

    Raises:
        ValueError: if one is no address, or there is none.
    """
    words = text.split(",") if isinstance(text, str) else list(text)
    found = []
    for word in (one.strip() for one in words if one.strip()):
        bare = word.endswith("]") or ":" not in word
        host, _, port = (word, "", str(PORT)) if bare else word.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < PORT_END:
            raise ValueError(f"'{word}' is no address")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no bootstrap address")
    return tuple(found)
