"""What the members of one group say to each other (docs/protocol.md, "Exchanges").

Every message may be lost, duplicated, reordered or arbitrarily late. Every reply goes to the sender
of the request, never to `ballot.node` (R9). Classes are plain slotted attrs, built positionally.
"""

from typing import Final, TypeAlias

import attrs

from paxos.entry import Entry
from paxos.ids import Ballot, GroupId, Incarnation, Slot


@attrs.frozen
class Prepare:
    """Phase 1, once for all slots from `start` on."""

    group: GroupId
    ballot: Ballot
    start: Slot


@attrs.frozen
class Promise:
    """`votes`: (slot, ballot, entry) for every slot from the Prepare's `start` on in which the
    sender has voted."""

    group: GroupId
    ballot: Ballot
    votes: tuple[tuple[Slot, Ballot, Entry], ...]


@attrs.frozen
class Nack:
    """The sender has promised `promised`, which is above `ballot`."""

    group: GroupId
    ballot: Ballot
    promised: Ballot


@attrs.frozen
class Behind:
    """The Prepare starts at a slot that the sender has applied: learn up to `applied` first."""

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
    """A vote: the sender has accepted the entry of `ballot` in `slot`, and that is durable."""

    group: GroupId
    ballot: Ballot
    slot: Slot


@attrs.frozen
class Commit:
    """The sender itself counted a quorum at `ballot` for slots counted_from..counted_to (R17). Or
    it lost entries that are chosen there, and had them in votes at `ballot` (testimony.py)."""

    group: GroupId
    ballot: Ballot
    counted_from: Slot
    counted_to: Slot


ASK_PROGRESS: Final = Slot((1 << 62) - 1)
"""`Learn.applied` of a node that wants no entries: nobody has applied so much, so the answer is a
Progress. (It is not a message of its own, so that members of all versions answer it.)"""


@attrs.frozen
class Learn:
    """A request for chosen entries after `applied`, and in any case for a Progress."""

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
    """Answers a Learn for slots that the sender's log no longer has: the log begins with `first`,
    so only a state transfer helps. The shell sends it, for it has the log."""

    group: GroupId
    first: Slot
    applied: Slot


@attrs.frozen
class Progress:
    """A member's position, sent now and then: a node that is behind asks one that is ahead.

    `witnessed` is the highest ballot used by the sender in which it has seen the receiver promise
    or accept. A receiver whose disk knows less has lost a promise (ADR 4). `chosen_to` is what the
    sender knows at first hand, not what others claim. `incarnation` is the receiver's, as far as
    the sender knows: a Progress for an earlier life may have left before that life made the promise
    that is forgotten now.
    """

    group: GroupId
    applied: Slot
    chosen_to: Slot
    witnessed: Ballot
    incarnation: Incarnation
    chain: int = -1
    """The chain hash of everything up to `applied` (paxos.chain); -1 if the sender has none."""


@attrs.frozen
class RejoinAsk:
    """An acceptor that lost its disk asks what it must not contradict."""

    group: GroupId
    incarnation: Incarnation


@attrs.frozen
class RejoinAnswer:
    """`last_voted`: the highest slot in which the sender has voted, or that it has proposed or
    applied. `applied`: the applied prefix that its records prove, so that it survives a restart."""

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
    """The registry's steal token that the sender holds; the master's shell checks it."""


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
