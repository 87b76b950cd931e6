"""Which partition a record goes to, as in Java's producer.

With a key: murmur2 of the key (`wire.murmur`), so that a key is in the same partition whatever
client wrote it. Without: one partition until its batch is full, then another at random (KIP-480):
larger batches than with round robin, and as even over time.
"""

from random import Random


class StickyPartitions:
    """The partition each topic's keyless records go to at the moment."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._current: dict[str, int] = {}

    def current(self, topic: str, partitions: int) -> int:
        partition = self._current.get(topic, partitions)
        return partition if partition < partitions else self.move_on(topic, partitions)

    def move_on(self, topic: str, partitions: int) -> int:
        """Choose another one than before, if there are several: a batch there has become full."""
        before = self._current.get(topic, partitions)
        if before < partitions and partitions > 1:
            drawn = self._dice.randrange(partitions - 1)
            chosen = drawn + (drawn >= before)
        else:
            chosen = self._dice.randrange(partitions)
        self._current[topic] = chosen
        return chosen
