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
    """The highest slot that it claims to be chosen, if that is beyond what it has applied."""
    asked: bool = False
    """Whether we ever asked it for entries."""
    had_nothing_after: Slot | None = None
    """Our applied prefix when it answered that it has no entries after that."""
    questioned_boot_ns: int | None = None
    """When we asked it what it remembers of us, while the answer is outstanding."""
    ahead: tuple[Slot, int] | None = None
    """A slot that we have not reached yet, and its hash there."""
    agreed: Slot | None = None
    """The last slot at which our hashes were compared and were equal."""
    differs: Slot = SLOT_ZERO
    """The first slot at which they were not, while the peer is in `Core.diverged`."""
    help: Help | None = None
    """Set if it cannot vote, and needs slots to be chosen."""
    cannot_vote_boot_ns: int | None = None
    """When it last said that it does not vote."""
    progress_boot_ns: int | None = None
    """When it last told us its position."""
    reported_boot_ns: int | None = None
    """When we last told it our position although it is no member."""
