"""What each node is limited to, so that it resembles a machine of its own.

`--limit WHAT`:

    network            a link of its own, as fast as BITS_BY_SIZE says for the message size
    network=50mbit     a link of its own, of this rate, for all sizes
    egress             only what the node sends is limited; it receives as fast as it can
    egress=50mbit      likewise, of this rate
    none               no limit: nodes share cores, disk and network as they like

The rates are so low that this machine's CPU is not the limit. A measurement in which it was is
marked (ratios.py): its ratio says nothing about machines.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from benchmarks.load.samples import NO_LIMITS
from benchmarks.load.usage import Usage, cores

MEGA: Final = 1_000_000
BITS_BY_SIZE: Final[Mapping[int, int]] = {
    0: 3 * MEGA,
    1_000: 8 * MEGA,
    10_000: 30 * MEGA,
    100_000: 100 * MEGA,
}
"""The rate of a link for messages of at least this size: small ones cost CPU, not bandwidth."""
BITS_MIN: Final = 1 * MEGA
BITS_MAX: Final = 10_000 * MEGA
UNITS: Final[Mapping[str, int]] = {"kbit": 1_000, "mbit": MEGA, "gbit": 1_000 * MEGA}
BUSY_MAX: Final = 0.9
"""Above this share of the machine, or of a core by one process, CPU counts as the limit."""
WRITTEN: Final = "none, network, egress, or one of these with a rate as in network=50mbit"


@attrs.frozen(kw_only=True)
class Limit:
    """The value of `--limit`."""

    network: bool
    bits_per_s: int = 0
    """Of each link, in each direction; 0: by message size."""
    both_ways: bool = True
    """False: only what a node sends is limited."""

    def bits_for(self, message_bytes: int) -> int:
        """The rate of each link while messages of this size are measured; 0 for no limit."""
        if not self.network or self.bits_per_s:
            return self.bits_per_s
        return BITS_BY_SIZE[max(size for size in BITS_BY_SIZE if size <= message_bytes)]

    def label(self, message_bytes: int) -> str:
        """The value of `limits` in the samples."""
        bits = self.bits_for(message_bytes)
        kind = "network" if self.both_ways else "egress"
        return f"{kind} {rate_text(bits)}" if bits else NO_LIMITS


UNLIMITED: Final = Limit(network=False)
BY_SIZE: Final = Limit(network=True)


def parse(text: str) -> Limit:
    """Parse the value of `--limit`.

    Raises:
        ValueError: if it is not a known limit.
    """
    kind, given, rate = text.partition("=")
    if kind == "none" and not given:
        return UNLIMITED
    if kind in ("network", "egress"):
        bits_per_s = _bits(rate) if given else 0
        return Limit(network=True, bits_per_s=bits_per_s, both_ways=kind == "network")
    raise ValueError(f"{text!r} is not a limit: expected {WRITTEN}")


def _bits(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})(kbit|mbit|gbit)", text)
    bits = int(found[1]) * UNITS[found[2]] if found else 0
    if not BITS_MIN <= bits <= BITS_MAX:
        raise ValueError(
            f"{text!r} is not a rate: expected {rate_text(BITS_MIN)} to {rate_text(BITS_MAX)}, "
            f"a number and one of {', '.join(UNITS)}"
        )
    return bits


def rate_text(bits_per_s: int) -> str:
    """As tc(8) writes it, in the largest unit without a fraction."""
    for unit, size in sorted(UNITS.items(), key=lambda one: -one[1]):
        if bits_per_s % size == 0:
            return f"{bits_per_s // size}{unit}"
    return f"{bits_per_s}bit"


def busy(usage: Usage) -> tuple[float, float]:
    """The share of the machine's CPU that was used, and the largest share of a core by one process.

    Nearly all of a node's work is on one thread, and so is a client's.
    """
    spent = sum(usage.nodes_s) + usage.client_s + usage.others_s
    most = max((*usage.nodes_s, usage.client_s))
    return spent / (usage.seconds * cores()), most / usage.seconds


def cpu_bound(usages: Sequence[Usage]) -> bool:
    """Whether in any of these CPU may have been the limit, instead of the intended limit."""
    return any(max(busy(one)) >= BUSY_MAX for one in usages)


def link_shares(usage: Usage, bits_per_s: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The part of its link that each node used: for sending, and for receiving."""
    if not bits_per_s or not usage.sent_bytes:
        return (), ()
    full = bits_per_s / 8 * usage.seconds
    return (
        tuple(one / full for one in usage.sent_bytes),
        tuple(one / full for one in usage.received_bytes),
    )
