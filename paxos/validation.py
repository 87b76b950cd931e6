"""Refuses messages with numbers that no honest member sends (docs/peer-work.md lists them all).

An honest member's messages may be lost, late, repeated, or from an earlier life, but never contain
what is refused here. Such a frame costs its sender the link, and changes nothing. A number that is
possible and still wrong is dealt with where it is used: a peer's newest message replaces the one
before, and only answers to our own questions change what is durable (F3).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from paxos.codec import PeerError
from paxos.ids import Ballot, NodeId
from paxos.messages import (
    Accept,
    Accepted,
    Commit,
    Message,
    Nack,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
)
from paxos.proposer import Role
from paxos.state.core import Core
from paxos.timing import ACCEPT_AHEAD_SLOTS_MAX, ROUND_AHEAD_MAX, WINDOW_MAX


def check(replica: Core, sender: NodeId, message: Message) -> None:
    """Refuse what is impossible.

    Raises:
        PeerError: if the message has a number that no honest member sends.
    """
    rule = _RULES.get(type(message))
    if rule is not None and sender != replica.me:
        rule(replica, sender, message)


def _round(replica: Core, ballot: Ballot) -> None:
    if ballot[0] > replica.round_seen + ROUND_AHEAD_MAX:
        raise PeerError(f"round {ballot[0]} in group {replica.group}: {replica.round_seen} is seen")


def _prepare(replica: Core, sender: NodeId, message: Prepare) -> None:
    _round(replica, message.ballot)
    if message.ballot.node != sender:
        raise PeerError(f"a Prepare with {message.ballot}, which is another node's")


def _promise(replica: Core, sender: NodeId, message: Promise) -> None:
    """A member that promises has applied nothing from the start of the Prepare on. So all its votes
    are within so many slots of that, and none is at a higher ballot than the promised one."""
    proposer = replica.proposer
    if message.ballot != proposer.ballot or proposer.role is not Role.PREPARING:
        return  # it answers a Prepare that is over: nobody reads it, and `lo` may have moved on
    first = proposer.lo
    for slot, ballot, _ in message.votes:
        if not first <= slot < first + ACCEPT_AHEAD_SLOTS_MAX or ballot > message.ballot:
            raise PeerError(f"a vote in slot {slot} at {ballot}: asked from {first} on")


def _nack(replica: Core, sender: NodeId, message: Nack) -> None:
    _round(replica, message.promised)


def _accept(replica: Core, sender: NodeId, message: Accept) -> None:
    _round(replica, message.ballot)
    if message.counted_to > message.slot + WINDOW_MAX:
        raise PeerError(f"slots counted to {message.counted_to} when {message.slot} is proposed")


def _accepted(replica: Core, sender: NodeId, message: Accepted) -> None:
    _round(replica, message.ballot)


def _commit(replica: Core, sender: NodeId, message: Commit) -> None:
    _round(replica, message.ballot)
    if message.counted_to < message.counted_from:
        raise PeerError(f"slots counted from {message.counted_from} to {message.counted_to}")


def _progress(replica: Core, sender: NodeId, message: Progress) -> None:
    _round(replica, message.witnessed)
    if message.chosen_to < message.applied:
        raise PeerError(f"applied to {message.applied}, and chosen to {message.chosen_to} only")


def _rejoin_answer(replica: Core, sender: NodeId, message: RejoinAnswer) -> None:
    _round(replica, message.promised)
    if message.last_voted < message.applied:
        raise PeerError(f"voted to {message.last_voted}, and applied to {message.applied}")


_RULES: Final[Mapping[type[Any], Callable[[Any, Any, Any], None]]] = {
    Prepare: _prepare,
    Promise: _promise,
    Nack: _nack,
    Accept: _accept,
    Accepted: _accepted,
    Commit: _commit,
    Progress: _progress,
    RejoinAnswer: _rejoin_answer,
}
