"""What the leader of a consumer group knows when it assigns partitions, and the interface of
assignors.

The built-in assignors are in `assignors`; implement `PartitionAssignor` for your own.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from wire.cluster_view import TopicPartition

Shares = dict[str, list[TopicPartition]]
"""Member id -> its partitions."""


@attrs.frozen
class Member:
    """What a member says about itself when it joins.

    `user_data` is what its assignor added: a rack, a load, its memory.
    """

    id: str
    topics: frozenset[str]
    instance: str | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    user_data: bytes | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members come first and keep their place over restarts, as in Kafka."""
        return (self.instance is None, self.instance or self.id)


class PartitionAssignor(Protocol):
    """An assignor of your own. All members of a consumer group need one of the same name.

    As with RANGE, members give up everything before each rebalance. None of these methods may
    block; an exception ends the consumer.
    """

    @property
    def name(self) -> str:
        """The name that members agree on."""

    def subscription(self, topics: frozenset[str]) -> bytes | None:
        """What this member tells the leader besides its topics, each time it joins."""

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
        """As the leader: each member's partitions. `partitions` has the number of partitions of
        each existing topic that any member wants; a member that is left out gets none."""

    def on_assignment(self, places: Collection[TopicPartition], generation: int) -> None:
        """Called with what this member was assigned, before its listener."""
