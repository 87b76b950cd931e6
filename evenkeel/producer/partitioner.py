"""Which partition a record goes to, as in Java's producer.

With a key: murmur2 of the key (`wire.murmur`), so that a key is always in the same partition,
whichever client wrote it. Without a key: one partition until its batch is full, then another at
random (KIP-480). That makes larger batches than round robin, and is as even over time.
"""

from random import Random


class StickyPartitions:
    """The present partition for keyless records of each topic."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._current: dict[str, int] = {}

    def current(self, topic: str, partitions: int) -> int:
        partition = self._current.get(topic, partitions)
        return partition if partition < partitions else self.move_on(topic, partitions)

    def move_on(self, topic: str, partitions: int) -> int:
        """Choose another partition, if there are several, because the batch is full."""
        before = self._current.get(topic, partitions)
        if before < partitions and partitions > 1:
            drawn = self._dice.randrange(partitions - 1)
            chosen = drawn + (drawn >= before)
        else:
            chosen = self._dice.randrange(partitions)
        self._current[topic] = chosen
        return chosen
