"""What a replica knows of each other node in its group."""

import attrs

from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, Slot
from paxos.state.rejoin import Help


@attrs.define(eq=False)
class Peer:
    """What we know of another node in this group."""

    applied: Slot = SLOT_ZERO
    witnessed: Ballot = BALLOT_ZERO
    """The highest ballot, of those we used ourselves, that we saw it promise or accept in."""
    chosen: Slot = SLOT_ZERO
    """Up to where it says that slots are chosen, if that is beyond what it has applied."""
    asked: bool = False
    """Whether we ever asked it for entries."""
    questioned_boot_ns: int | None = None
    """When we asked it what it remembers of us, while the answer is on its way."""
    told: tuple[Slot, int] | None = None
    """A slot and its hash there that we have not reached yet."""
    agreed: Slot | None = None
    """The last slot at which our hashes were compared, and equal."""
    differs: Slot = SLOT_ZERO
    """The first at which they were not, while it is among `Replica.diverged`."""
    help: Help | None = None
    """It cannot vote, and wants slots to be chosen."""
    told_boot_ns: int | None = None
    """When it last told us how far it is."""
    answered_boot_ns: int | None = None
    """When we last told it how far we are, though it is no member."""
