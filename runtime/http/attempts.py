"""How often an address may try a password: a bucket of attempts each, refilled slowly.

An attempt is taken when it begins, and given back when the password was right; so many attempts at
once count as much as one after the other. A /64 of IPv6 is one address: one machine has all of it.
The table has a limit; the address that has tried least recently is forgotten.
"""

import ipaddress
from collections import OrderedDict
from math import ceil
from typing import Final

FAILURES_MAX: Final = 10
"""Wrong passwords at once, after a quiet time."""
REFILL_S: Final = 6.0
"""Then one more after each of these."""
ADDRESSES_MAX: Final = 1024
IPV6_PREFIX: Final = 64
_S: Final = 1_000_000_000


class Attempts:
    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Of each address that has tried: the attempts left, and when that was right."""

    def begin(self, host: str, boot_ns: int) -> int:
        """Take an attempt. Returns the seconds to wait if there is none left, else 0."""
        key = key_of(host)
        left = self._now_left(key, boot_ns)
        if left < 1:
            return max(1, ceil((1 - left) * REFILL_S))
        self._keep(key, left - 1, boot_ns)
        return 0

    def give_back(self, host: str, boot_ns: int) -> None:
        """The attempt was none: the password was right, or was not looked at."""
        key = key_of(host)
        if key in self._left:
            self._keep(key, self._now_left(key, boot_ns) + 1, boot_ns)

    def _now_left(self, key: str, boot_ns: int) -> float:
        left, since = self._left.get(key, (FAILURES_MAX, boot_ns))
        return min(FAILURES_MAX, left + max(0, boot_ns - since) / _S / REFILL_S)

    def _keep(self, key: str, left: float, boot_ns: int) -> None:
        self._left[key] = (left, boot_ns)
        self._left.move_to_end(key)
        if left >= FAILURES_MAX:
            del self._left[key]
        elif len(self._left) > ADDRESSES_MAX:
            self._left.popitem(last=False)


def key_of(host: str) -> str:
    """What counts as one address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return str(address)
