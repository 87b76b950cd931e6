"""What a trace contains: the protocol's events of one group, in the order in which they happened.

Events are what can be seen of a node from outside: what has become durable, what it tells others
(when it leaves), what it applies, and when it believes that it may act. A trace is a list of
events.
"""

import hashlib
from typing import NamedTuple, TypeAlias

from paxos.entry import BeMaster, Config, Entry, EntryKind, Steal
from paxos.ids import BALLOT_ZERO, NOBODY, Ballot, Epoch, GroupId, Incarnation, NodeId, Slot


class Value(NamedTuple):
    """An entry: its digest is its identity, the protocol looks at the rest."""

    digest: str
    kind: EntryKind
    node: NodeId = NOBODY
    """Whom a lease entry makes master."""
    incarnation: Incarnation = Incarnation(0)
    prev_ver: Slot = Slot(0)
    expires_ns: int = 0
    source: NodeId = NOBODY
    """In a Steal: who gives the lease away, and the ballot it gives with it."""
    ballot: Ballot = BALLOT_ZERO
    members: tuple[NodeId, ...] = ()


Vote: TypeAlias = tuple[Slot, Ballot, Value]


def value_of(entry: Entry) -> Value:
    sha = hashlib.blake2b(digest_size=10)
    for chunk in entry.chunks:
        sha.update(chunk)
    digest, kind, control = sha.hexdigest(), entry.kind, entry.control
    if isinstance(control, BeMaster):
        return Value(
            digest,
            kind,
            control.node,
            control.incarnation,
            control.prev_ver,
            control.expires_wall_ns,
        )
    if isinstance(control, Steal):
        return Value(
            digest,
            kind,
            control.target,
            control.target_incarnation,
            control.prev_ver,
            control.expires_wall_ns,
            control.source,
            control.ballot,
        )
    if isinstance(control, Config):
        return Value(digest, kind, members=control.members)
    return Value(digest, kind)


# -- a node's life ----------------------------------------------------------------------------


class Booted(NamedTuple):
    """What a restarted node believes: it replayed `log`; `votes` are for slots not applied."""

    group: GroupId
    node: NodeId
    incarnation: Incarnation
    promised: Ballot
    applied: Slot
    votes: tuple[Vote, ...]
    log: tuple[Value, ...]
    forgot: bool
    """Its disk has lost what it had acknowledged (docs/adr/0004)."""


class Crashed(NamedTuple):
    group: GroupId
    node: NodeId


# -- what has become durable ------------------------------------------------------------------


class PromiseDurable(NamedTuple):
    group: GroupId
    node: NodeId
    ballot: Ballot


class VoteDurable(NamedTuple):
    group: GroupId
    node: NodeId
    slot: Slot
    ballot: Ballot
    value: Value


# -- what leaves a node, and the two arrivals that have to be known ---------------------------


class Prepared(NamedTuple):
    group: GroupId
    node: NodeId
    ballot: Ballot
    start: Slot


class Promised(NamedTuple):
    group: GroupId
    node: NodeId
    ballot: Ballot
    votes: tuple[Vote, ...]


class PromiseReceived(NamedTuple):
    group: GroupId
    node: NodeId
    source: NodeId
    ballot: Ballot
    votes: tuple[Vote, ...]


class Told(NamedTuple):
    """`source` has told this incarnation of `node` the highest ballot it remembers of it, or an
    earlier one: the network may deliver what was sent to an earlier incarnation (Progress)."""

    group: GroupId
    node: NodeId
    source: NodeId
    incarnation: Incarnation


class Proposed(NamedTuple):
    """An Accept leaves, perhaps not for the first time."""

    group: GroupId
    node: NodeId
    ballot: Ballot
    slot: Slot
    value: Value
    suspended: Slot
    wall_ns: int


class Accepted(NamedTuple):
    group: GroupId
    node: NodeId
    ballot: Ballot
    slot: Slot


class Counted(NamedTuple):
    """`node` says, in an Accept or a Commit, that these slots are decided at its ballot."""

    group: GroupId
    node: NodeId
    ballot: Ballot
    first: Slot
    last: Slot


class Taught(NamedTuple):
    group: GroupId
    node: NodeId
    slot: Slot
    value: Value


# -- what it does -----------------------------------------------------------------------------


class Applied(NamedTuple):
    group: GroupId
    node: NodeId
    slot: Slot
    value: Value


class Suspended(NamedTuple):
    """The slot of its unresolved Steal has changed; 0: it may act again."""

    group: GroupId
    node: NodeId
    slot: Slot


class Acts(NamedTuple):
    """At this reading of its clock it would answer a client."""

    group: GroupId
    node: NodeId
    wall_ns: int


class ReadAnswered(NamedTuple):
    group: GroupId
    node: NodeId
    epoch: Epoch
    """The epoch under which the read began."""
    wall_ns: int


class Acknowledged(NamedTuple):
    """The node that proposed a command says that it is done, in the entry applied in `slot`; 0: it
    says so without having applied anything just now."""

    group: GroupId
    node: NodeId
    slot: Slot
    wall_ns: int


Event: TypeAlias = (
    Booted
    | Crashed
    | PromiseDurable
    | VoteDurable
    | Prepared
    | Promised
    | PromiseReceived
    | Told
    | Proposed
    | Accepted
    | Counted
    | Taught
    | Applied
    | Suspended
    | Acts
    | ReadAnswered
    | Acknowledged
)
