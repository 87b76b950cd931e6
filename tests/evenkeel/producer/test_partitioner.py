"""Keys go to the same partitions as with Java's producer; records without a key stay together for a
while."""

from collections import Counter
from random import Random

import pytest

from evenkeel.producer.partitioner import StickyPartitions
from wire.murmur import murmur2, partition_of_key

JAVA = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]
"""Published values of Kafka's own hash function, signed as in Java."""


@pytest.mark.parametrize(("key", "expected"), JAVA)
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of_key(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_keyless_records_stick_and_move_on() -> None:
    sticky = StickyPartitions(Random(1))
    first = sticky.current("t", 3)
    assert [sticky.current("t", 3) for _ in range(10)] == [first] * 10
    seen = Counter()
    for _ in range(3000):
        before = sticky.current("t", 3)
        after = sticky.move_on("t", 3)
        assert after != before
        seen[after] += 1
    assert min(seen.values()) > 900
    assert sticky.move_on("single", 1) == sticky.move_on("single", 1) == 0


def test_a_topic_that_shrank_is_no_error() -> None:
    """It was deleted and created again with fewer partitions."""
    sticky = StickyPartitions(Random(1))
    sticky.current("t", 1000)
    assert sticky.current("t", 1) == 0
