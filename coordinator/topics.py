"""The present topics, and for which of them an offset was committed.

A name may refer to one topic after another, so stored offsets contain a *uid* of the partition: the
registry gives each partition a number that only grows and is never reused. An offset with a lower
uid than the present partition was committed for an earlier topic of that name.

This node may be behind the registry. An offset with a uid that it does not know yet therefore
belongs to a newer topic, not to an older one.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

ANY_TOPIC: Final = 0
"""No partition's uid: the release that wrote the offset did not record it, so it counts for
whatever topic has that name, until a coordinator has bound it to one."""
NO_TOPIC: Final = 2**32 - 1
"""No partition's uid either: binding an offset to it means to forget the offset."""


class Topics(NamedTuple):
    """The cluster's topics, as far as they matter here; the version changes with every change."""

    version: int
    ids: Mapping[str, tuple[bytes, int]]
    """Name -> id and number of partitions."""
    uids: Mapping[str, tuple[int, ...]] | None = None
    """Name -> the uids of its partitions; None if partitions have no uids."""
    next_uid: int = 0
    """All uids below this have been given out."""

    def uid(self, topic: str, partition: int) -> int | None:
        """The partition's uid; None if there is no such partition, as far as we know."""
        if self.uids is None:
            return ANY_TOPIC
        known = self.uids.get(topic, ())
        return known[partition] if 0 <= partition < len(known) else None

    def is_of(self, topic: str, partition: int, uid: int) -> bool:
        """Whether an offset committed under this uid belongs to the topic that has this name
        now."""
        if self.uids is None:
            return True
        if uid == ANY_TOPIC:
            return topic in self.uids
        return uid == self.uid(topic, partition) or uid >= self.next_uid
