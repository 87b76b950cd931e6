"""How far a master has come in giving its group away (paxos/changes/handover.py)."""

from enum import Enum

import attrs

from paxos.ids import Incarnation, NodeId


class Stage(Enum):
    DRAINING = "draining"
    """No new entries; can be called off at no cost."""
    SENT = "sent"
    """Suspended until the entry's slot is applied."""
    EXPIRING = "expiring"
    """Not renewing: whoever is elected when the lease is over ends the handover."""


@attrs.define(eq=False)
class Handover:
    target: NodeId
    target_incarnation: Incarnation
    since_boot_ns: int
    stage: Stage
    sent_boot_ns: int = 0
    """When the last entry left, 0 before."""

    @property
    def draining(self) -> bool:
        return self.stage is Stage.DRAINING
