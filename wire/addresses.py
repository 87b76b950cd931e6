"""Broker addresses as users write them: `host:port,host:port`, with IPv6 addresses in brackets. And
the one way in which a client's address is compared."""

import ipaddress
from collections.abc import Iterable
from typing import Final

PORT: Final = 9092
PORT_END: Final = 65536


def parse_addresses(text: str | Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Parse a list of addresses, in order; the port defaults to Kafka's.

    Raises:
        ValueError: one of them is not an address, or there is none.
    """
    words = text.split(",") if isinstance(text, str) else list(text)
    found = []
    for word in (one.strip() for one in words if one.strip()):
        bare = word.endswith("]") or ":" not in word
        host, _, port = (word, "", str(PORT)) if bare else word.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < PORT_END:
            raise ValueError(f"'{word}' is not an address")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no bootstrap address")
    return tuple(found)


def canonical_host(host: str) -> str:
    """An IP address in one of the many ways to write it: an IPv4 client of an IPv6 socket is an
    IPv4 client. What is no address is returned as it is."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
