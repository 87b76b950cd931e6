"""What the members of one group say to each other (protocol.md section 1, "Messages").

Every message may be lost, duplicated, reordered or arbitrarily late. Every reply goes to the sender
of the request, never to `ballot.node` (R9). Classes are plain slotted attrs, built positionally.
"""

from typing import Final, TypeAlias

import attrs

from paxos.entry import Buffer, Entry
from paxos.ids import Ballot, GroupId, Incarnation, Slot


@attrs.frozen
class Prepare:
    """Phase 1 for every slot from `start` on, once."""

    group: GroupId
    ballot: Ballot
    start: Slot


@attrs.frozen
class Promise:
    """`votes`: (slot, ballot, entry) of every slot from Prepare's `start` on that we voted in."""

    group: GroupId
    ballot: Ballot
    votes: tuple[tuple[Slot, Ballot, Entry], ...]


@attrs.frozen
class Nack:
    """We promised `promised`, which is above `ballot`."""

    group: GroupId
    ballot: Ballot
    promised: Ballot


@attrs.frozen
class Behind:
    """Your Prepare starts at a slot we have already applied: learn up to `applied` first."""

    group: GroupId
    ballot: Ballot
    applied: Slot


@attrs.define(eq=False)
class Accept:
    """Phase 2. The sender itself counted a quorum at `ballot` for counted_from..counted_to."""

    group: GroupId
    ballot: Ballot
    slot: Slot
    entry: Entry
    counted_from: Slot
    counted_to: Slot


@attrs.define(eq=False)
class Accepted:
    group: GroupId
    ballot: Ballot
    slot: Slot


@attrs.frozen
class Commit:
    """The sender itself counted a quorum at `ballot` for slots counted_from..counted_to (R17), or
    has lost an entry that it knows to be chosen, and had it in a vote at `ballot` (testimony)."""

    group: GroupId
    ballot: Ballot
    counted_from: Slot
    counted_to: Slot


ASK_PROGRESS: Final = Slot((1 << 62) - 1)
"""`Learn.applied` of who wants no entries: nobody has applied so much, so Progress is the answer.
(No message of its own: members of every version answer it so.)"""


@attrs.frozen
class Learn:
    """Please send chosen entries after `applied`, and say in any case how far you are."""

    group: GroupId
    applied: Slot


@attrs.frozen
class Learned:
    """Chosen entries by value, of consecutive slots from `start` on."""

    group: GroupId
    start: Slot
    entries: tuple[Entry, ...]


@attrs.frozen
class Trimmed:
    """The answer to a Learn for slots that the sender's log no longer has: it begins with `first`,
    and only a transfer of state will help. The shell sends it, for it has the log."""

    group: GroupId
    first: Slot
    applied: Slot


@attrs.frozen
class Progress:
    """A member's position, sent now and then: who is behind asks who is ahead.

    `witnessed` is the highest ballot of the sender's own use that it has ever seen the receiver
    promise or accept in; a receiver whose disk knows less has lost a promise (protocol.md section
    4, "Lost disk"). `chosen_to` is what the sender knows at first hand, not what it was told.
    `incarnation` is the receiver's, as far as the sender knows: what was sent to an earlier one may
    have left before that one did what is forgotten now.
    """

    group: GroupId
    applied: Slot
    chosen_to: Slot
    witnessed: Ballot
    incarnation: Incarnation
    chain: int = -1
    """The chain hash of everything up to `applied` (paxos.chain); -1 where it is not told."""


@attrs.frozen
class RejoinAsk:
    """An acceptor that lost its disk asks what it must not contradict."""

    group: GroupId
    incarnation: Incarnation


@attrs.frozen
class RejoinAnswer:
    """`last_voted`: the highest slot the sender has voted in, proposed or applied. `applied`: how
    far its applied prefix goes whatever happens to it, for its log says so."""

    group: GroupId
    incarnation: Incarnation
    promised: Ballot
    last_voted: Slot
    applied: Slot


@attrs.frozen
class StealRequest:
    """The ideal node asks the master for the group, fenced by incarnation and lease version."""

    group: GroupId
    incarnation: Incarnation
    lease_ver: Slot
    applied: Slot
    token: int
    """The registry's steal token under which N acts; the shell of the master checks it."""


@attrs.frozen
class StealAbort:
    """The master keeps the group: `reason` is a short code for logs and metrics."""

    group: GroupId
    lease_ver: Slot
    reason: str


Message: TypeAlias = (
    Prepare
    | Promise
    | Nack
    | Behind
    | Accept
    | Accepted
    | Commit
    | Learn
    | Learned
    | Trimmed
    | Progress
    | RejoinAsk
    | RejoinAnswer
    | StealRequest
    | StealAbort
)

Payload: TypeAlias = tuple[Buffer, ...]
