"""What a simulated node keeps for a group, and what travels between nodes beside messages."""

from typing import NamedTuple

from broker.config import IntakeConfig
from broker.proposals.intake import Forward, Intake, Outcome
from paxos.entry import Buffer, Entry
from paxos.ids import Epoch, GroupId, Incarnation, Now, Slot
from paxos.replica import Replica
from simulator.node.recovery import Saved


class Frame(NamedTuple):
    """The content of a link's frame: messages of the core, and which incarnation sent them."""

    incarnation: Incarnation
    data: bytes


class Forwarded(NamedTuple):
    ident: int
    group: GroupId
    chunks: tuple[Buffer, ...]
    handing: bool
    ordered: bool = False
    first: bool = True
    link: int = 0
    number: int = 0
    """It is the `number`th on the sender's `link`th connection."""
    until_wall_ns: int = 0

    @classmethod
    def of(cls, ident: int, group: GroupId, forward: Forward, until_wall_ns: int) -> "Forwarded":
        says = (forward.handing, forward.ordered, forward.first)
        return cls(ident, group, forward.pending.chunks, *says, until_wall_ns=until_wall_ns)

    def flags(self) -> dict[str, bool]:
        return {"handing": self.handing, "ordered": self.ordered, "first": self.first}


class Settled(NamedTuple):
    """The answer to Forwarded."""

    ident: int
    outcome: Outcome


class AskState(NamedTuple):
    """Our log ends at `applied`, and yours begins later: what is your newest checkpoint?"""

    group: GroupId
    applied: Slot


class GiveState(NamedTuple):
    """The answer: a checkpoint, if there is one that helps."""

    group: GroupId
    saved: Saved


class CatchUp(NamedTuple):
    """A message of broker.transfer."""

    frame: bytes


class Group:
    """What a node keeps beside the replica: the commands' intake, the log, what was seen last."""

    def __init__(self, replica: Replica, config: IntakeConfig) -> None:
        self.replica = replica
        self.intake = Intake(replica, config)
        self.log: list[Entry] = []
        """The entries of slots `log_start`, `log_start` + 1, ... up to the last one applied."""
        self.log_start = Slot(replica.learner.applied + 1)
        self.lease_seen = Slot(0)
        self.suspended_seen = Slot(0)
        self.mastership_seen: tuple[bool, Epoch] = (False, Epoch(Slot(-1)))
        """Whether we act, and the lease's epoch."""

        self.since_boot_ns = 0
        """When this node was first seen to act under that epoch."""

    def see_mastership(self, acting: bool, now: Now) -> bool:
        """Whether acting, or its epoch, has changed since the last call."""
        seen = (acting, self.replica.lease.epoch)
        if seen == self.mastership_seen:
            return False
        self.mastership_seen, self.since_boot_ns = seen, now.boot_ns
        return True

    def entries(self, start: Slot, end: Slot) -> tuple[Entry, ...]:
        return tuple(self.log[start - self.log_start : end - self.log_start + 1])

    def retire(self, until: Slot) -> None:
        """Drop slots up to this one: a checkpoint covers them."""
        if until >= self.log_start:
            del self.log[: until - self.log_start + 1]
            self.log_start = Slot(until + 1)
