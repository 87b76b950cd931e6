"""The language of effects: what one step of the core wants done, and in which order.

The order is part of the safety argument (R18), and the shell only obeys it. All groups share the
Step of a round, so that all their records share one fsync:

1. send `before` (it claims nothing about our disk and may overtake the fsync);
2. append `persist` to the write-ahead log and fsync it, once for all groups;
3. send `after` only when all that was persisted so far, by this step and earlier ones, is durable
   (messages to ourselves included: our own vote counts when it is durable);
4. hand `applied` to the state machines, in order, any time after step 1 (what is chosen is chosen).
"""

from typing import NamedTuple, TypeAlias

import attrs

from paxos.entry import Entry
from paxos.ids import SLOT_ZERO, Ballot, GroupId, NodeId, Slot
from paxos.messages import Message


@attrs.define(eq=False)
class PromiseRecord:
    """acc.promised: durable before Promise leaves and before our own Prepare leaves (R1)."""

    group: GroupId
    ballot: Ballot


@attrs.define(eq=False)
class AcceptRecord:
    """acc.votes[slot] = (ballot, entry), and promised = ballot: durable before Accepted (R18).

    `applied` is the length of our applied prefix when the record was made. The log is FIFO, so a
    recovered record proves that every slot up to `applied` is chosen, and that the last earlier
    record of each of those slots holds the chosen entry: a restart replays them without asking.
    """

    group: GroupId
    slot: Slot
    ballot: Ballot
    entry: Entry
    applied: Slot


@attrs.define(eq=False)
class LearnedRecord:
    """A chosen entry that was learned by value, or a Config that was applied. It is not a vote; it
    is kept to be replayed and served. `applied` as in AcceptRecord; for a Config, its own slot."""

    group: GroupId
    slot: Slot
    entry: Entry
    applied: Slot


@attrs.define(eq=False)
class VotingRecord:
    """Whether this acceptor may vote; `floor` is the ballot below which it must never promise.
    `applied` as in AcceptRecord, or 0: only paxos.changes.rewriting sets it."""

    group: GroupId
    voting: bool
    floor: Ballot
    applied: Slot = SLOT_ZERO


Record: TypeAlias = PromiseRecord | AcceptRecord | LearnedRecord | VotingRecord


class Send(NamedTuple):
    to: NodeId
    message: Message


@attrs.define(eq=False)
class Applied:
    """A chosen entry: in slot order, without gaps, once per incarnation."""

    group: GroupId
    slot: Slot
    entry: Entry


@attrs.frozen
class ServeLog:
    """Read applied entries `start`..`end` from the log and send them to `to` as Learned, or Trimmed
    if the log no longer has `start`."""

    to: NodeId
    group: GroupId
    start: Slot
    end: Slot


@attrs.frozen
class FetchState:
    """Our log ends before `source`'s begins: get the group's state from it, or from another member
    that is ahead, make it durable, then call `Replica.install`. The effect may be repeated."""

    group: GroupId
    source: NodeId


@attrs.define(eq=False)
class Step:
    """The effects of one round, collected over all groups, in the order that the module gives."""

    before: list[Send] = attrs.Factory(list)
    persist: list[Record] = attrs.Factory(list)
    after: list[Send] = attrs.Factory(list)
    applied: list[Applied] = attrs.Factory(list)
    serve: list[ServeLog] = attrs.Factory(list)
    fetch: list[FetchState] = attrs.Factory(list)
    notices: list["Notice"] = attrs.Factory(list)


@attrs.frozen
class Notice:
    """Something an operator may want to know; docs/protocol.md lists the codes in `what`."""

    group: GroupId
    what: str
    detail: str = ""
