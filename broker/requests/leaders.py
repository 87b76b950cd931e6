"""The leader of a partition, as this node reports it to clients: an epoch never goes backwards.

Clients ignore answers with an older leader epoch than they have seen (KIP-320), so only clients
that know nothing yet would believe a node that reports an older one. After a replica was reset to a
checkpoint, its lease may be an older one for a moment: then no leader is known.
"""

from typing import NamedTuple

from broker.ports import Groups
from paxos.ids import GroupId, NodeId


class Leader(NamedTuple):
    """`node` None: no leader is known."""

    node: NodeId | None
    epoch: int


class Leaders:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._highest_epoch: dict[GroupId, int] = {}

    def of(self, group: GroupId) -> Leader:
        epoch = self._groups.epoch(group)
        highest = self._highest_epoch.get(group, 0)
        if epoch < highest:
            return Leader(None, highest)
        if epoch > highest:
            self._highest_epoch[group] = epoch
        return Leader(self._groups.master(group), epoch)
