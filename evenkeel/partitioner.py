"""Which partition a record goes to, the way Java's producer does it.

With a key: murmur2 of the key, so that a key lands in the same partition whatever client wrote it.
Without: one partition until its batch is full, then another at random (KIP-480): larger batches
than going round, and as even over time.
"""

from random import Random
from typing import Final

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits with Kafka's seed, as an unsigned number."""
    size = len(data)
    value = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k ^= k >> 24
        value = (value * _M & _MASK) ^ (k * _M & _MASK)
    if size & 3:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitions:
    """The partition each topic's keyless records go to at the moment."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._current: dict[str, int] = {}

    def current(self, topic: str, partitions: int) -> int:
        partition = self._current.get(topic, partitions)
        return partition if partition < partitions else self.move_on(topic, partitions)

    def move_on(self, topic: str, partitions: int) -> int:
        """Another one than before, where there are several: a batch there has become full."""
        before = self._current.get(topic, partitions)
        if before < partitions and partitions > 1:
            drawn = self._dice.randrange(partitions - 1)
            chosen = drawn + (drawn >= before)
        else:
            chosen = self._dice.randrange(partitions)
        self._current[topic] = chosen
        return chosen
