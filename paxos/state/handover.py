"""How far a master has got in giving its group away (paxos/changes/handover.py)."""

from enum import Enum

import attrs

from paxos.ids import Incarnation, NodeId


class Stage(Enum):
    DRAINING = "draining"
    """No new entries. It can be called off at no cost."""
    SENT = "sent"
    """The entry is proposed; the master is suspended until its slot is applied (R3, R7)."""
    EXPIRING = "expiring"
    """The lease is not renewed; the next master's election ends the handover (paxos/strategies)."""


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
