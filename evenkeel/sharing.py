"""What the leader of a group knows when it shares partitions, and the interface of those who do it.

The ready-made ones are in `assignors`; `PartitionAssignor` is for ways of sharing of your own.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from wire.cluster_view import TopicPartition

Shares = dict[str, list[TopicPartition]]
"""Member id -> its partitions."""


@attrs.frozen
class Member:
    """What a member says of itself when it joins.

    `user_data` is what its assignor added: a rack, a load, what it remembers.
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
    """A way of sharing of your own. All members of a group need one of the same name.

    As with RANGE, members let go of everything before each rebalance. None of these may block; what
    one raises ends the consumer.
    """

    @property
    def name(self) -> str:
        """What members agree on."""

    def subscription(self, topics: frozenset[str]) -> bytes | None:
        """What this member tells the leader beside its topics, whenever it joins."""

    def assign(self, members: Sequence[Member], partitions: Mapping[str, int]) -> Shares:
        """As the leader: who gets what. `partitions` says how many each topic has that any member
        wants and that exists; a member that is left out gets nothing."""

    def on_assignment(self, places: Collection[TopicPartition], generation: int) -> None:
        """What this member was given, before its listener hears of it."""
