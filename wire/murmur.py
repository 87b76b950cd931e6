"""The hash that maps a key to its partition: the same in Kafka's clients of every language."""

from typing import Final

MULTIPLIER: Final = 0x5BD1E995
SEED: Final = 0x9747B28C
POSITIVE: Final = 0x7FFFFFFF
"""Java's hashes are signed; the partition is that of the hash without its sign bit."""
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 with Kafka's seed, unsigned."""
    size = len(data)
    value = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & _MASK
        k ^= k >> 24
        value = (value * MULTIPLIER & _MASK) ^ (k * MULTIPLIER & _MASK)
    if size & 3:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & _MASK
    value = (value ^ value >> 13) * MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & POSITIVE) % partitions
