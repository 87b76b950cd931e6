"""What a node has made durable, as far as the checkers and the nemesis need it.

The rest is gone with the node's life. So code that asks what a node that is down will know when it
is up again asks here, not what the node knew last (seed 128).
"""

from paxos.entry import Config
from paxos.ids import GroupId, NodeId
from paxos.step import AcceptRecord, LearnedRecord
from simulator.node.disk import Disk
from simulator.node.surroundings import Surroundings


class DurableState:
    def __init__(self, world: Surroundings, me: NodeId) -> None:
        self._world, self._me = world, me
        self.members: dict[GroupId, tuple[NodeId, ...]] = {}
        """Whom the next life will take for the members; at worst the previous ones."""

    def note(self, disk: Disk) -> None:
        """Note what has become durable on the disk since the last time."""
        world = self._world
        for record in disk.durable:
            if type(record) is AcceptRecord:
                slot, ballot = record.slot, record.ballot
                world.proposal_seen(record.group, slot, ballot, record.entry)
                world.chosen.voted(self._me, record.group, slot, ballot, record.entry)
            elif type(record) is LearnedRecord and record.applied == record.slot:
                control = record.entry.control
                assert isinstance(control, Config), "others are written before they are applied"
                self.members[record.group] = tuple(sorted(control.members))
        disk.durable.clear()
