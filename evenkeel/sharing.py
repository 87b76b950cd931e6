"""What the leader of a consumer group knows when it assigns partitions, and the interface of
assignors.

The built-in ones are in `assignors`; `PartitionAssignor` is for your own.
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
        """What members agree on."""

    def subscription(self, topics: frozenset[str]) -> bytes | None:
        """What this member tells the leader beside its topics, whenever it joins."""

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
        """As the leader: who gets what. `partitions` says how many each existing topic has that any
        member wants; a member that is left out gets nothing."""

    def on_assignment(self, places: Collection[TopicPartition], generation: int) -> None:
        """What this member was assigned, before its listener is called."""
