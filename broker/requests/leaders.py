"""Who leads a partition, as this node tells its clients: an epoch never goes backwards.

Clients ignore what carries an older leader epoch than they have seen (KIP-320), so a node that said
an older one would be believed by those who know nothing yet and by nobody else. After the replica
of a group was set back to a checkpoint, its lease may for a moment be one from before: then nobody
leads, as far as we can tell.
"""

from typing import NamedTuple

from broker.ports import Groups
from paxos.ids import GroupId, NodeId


class Leader(NamedTuple):
    """`node` None: nobody, as far as we know."""

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
