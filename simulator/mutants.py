"""Planted bugs: each takes one rule of protocol.md section 3 away, and the swarm must notice.

A mutant is a patch of one method while a world runs. The table that `make mutants` will print comes
from here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from paxos import handover
from paxos.entry import BeMaster, Steal
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, Epoch, Incarnation, Now, Slot
from paxos.lease import Lease
from paxos.replica import Recovered, Replica
from paxos.step import Step
from simulator.node import SimNode


@attrs.frozen
class Mutant:
    rule: str
    what: str
    owner: Any
    """A class or module. Any: setattr on it is the point."""
    attribute: str
    replacement: Any
    """A function, or a property."""


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run the body with the mutant in place; with no name, as it is."""
    if not name:
        yield
        return
    mutant = MUTANTS[name]
    original = mutant.owner.__dict__[mutant.attribute]
    setattr(mutant.owner, mutant.attribute, mutant.replacement)
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.attribute, original)


# -- R1, R18: what is durable -----------------------------------------------------------------


def _forget_promise(_node: SimNode, recovered: Recovered) -> Recovered:
    """Of all promises it remembers only those that a vote came with."""
    voted = max((ballot for ballot, _ in recovered.votes.values()), default=BALLOT_ZERO)
    return attrs.evolve(recovered, promised=voted)


def _send_at_once(_node: SimNode) -> bool:
    return True


# -- R4, R5, R6: the delegated ballot ----------------------------------------------------------

_take_over: Final[Callable[..., None]] = Replica._take_over


def _naive_take_over(replica: Replica, now: Now, slot: Slot, ballot: Ballot) -> None:
    fresh = Ballot(1 + max(ballot.round, replica.acceptor.promised.round), replica.me)
    _take_over(replica, now, slot, fresh)


def _resume_same_ballot(replica: Replica, now: Now, _step: Step, _may_prepare: bool) -> None:
    if now.boot_ns - replica.settle_since > replica.timing.settle_ns:
        replica.suspended, replica.handover = SLOT_ZERO, None
        replica.proposer.hi = Slot(2**62)


def _same_incarnation(_node: SimNode, _counted: Incarnation) -> Incarnation:
    return Incarnation(1)


# -- R3, R7, R8, R12: the lease ----------------------------------------------------------------


def _acting_while_suspended(replica: Replica, now: Now) -> bool:
    return replica.lease.held_by(
        replica.me, replica.incarnation
    ) and replica.lease.safely_before_expiry(now, replica.timing.margin_ns)


_before_expiry: Final[Callable[..., bool]] = Lease.safely_before_expiry
_free: Final[Callable[..., bool]] = Lease.free


def _no_margin(lease: Lease, now: Now, _margin_ns: int) -> bool:
    return _before_expiry(lease, now, 0)


def _no_margin_for_others(lease: Lease, now: Now, margin_ns: int) -> bool:
    return _free(lease, now, -margin_ns)


_apply_be_master: Final[Callable[..., bool]] = Lease.apply_be_master


def _no_cas(lease: Lease, slot: Slot, value: BeMaster, now: Now, longest_ns: int) -> bool:
    return _apply_be_master(lease, slot, attrs.evolve(value, prev_ver=lease.ver), now, longest_ns)


_apply_steal: Final[Callable[..., bool]] = Lease.apply_steal


def _no_cas_steal(lease: Lease, slot: Slot, value: Steal, now: Now, longest_ns: int) -> bool:
    return _apply_steal(lease, slot, attrs.evolve(value, prev_ver=lease.ver), now, longest_ns)


# -- R14 ---------------------------------------------------------------------------------------


def _read_without_epoch(node: SimNode, replica: Replica, _epoch: Epoch) -> bool:
    return replica.acting(node.now())


MUTANTS: Final[Mapping[str, Mutant]] = {
    "forget-promise": Mutant(
        "R1", "a restarted node re-uses ballots", SimNode, "recovered_of", _forget_promise
    ),
    "reply-before-fsync": Mutant(
        "R18", "`after` leaves before it is durable", SimNode, "may_send_after", _send_at_once
    ),
    "naive-fresh-ballot": Mutant(
        "R5", "the target makes up a ballot of its own", Replica, "_take_over", _naive_take_over
    ),
    "resume-same-ballot": Mutant(
        "R4", "an unresolved Steal is forgotten", handover, "tick_suspended", _resume_same_ballot
    ),
    "no-incarnation": Mutant(
        "R6", "boots are not counted", SimNode, "incarnation_of", _same_incarnation
    ),
    "act-until-apply": Mutant(
        "R3", "the master acts while suspended", Replica, "acting", _acting_while_suspended
    ),
    "no-holder-margin": Mutant(
        "R12", "the holder acts to the last moment", Lease, "safely_before_expiry", _no_margin
    ),
    "no-other-margin": Mutant(
        "R12", "others start too early", Lease, "free", _no_margin_for_others
    ),
    "no-cas": Mutant("R8", "a BeMaster is always valid", Lease, "apply_be_master", _no_cas),
    "no-cas-steal": Mutant("R8", "a Steal is always valid", Lease, "apply_steal", _no_cas_steal),
    "read-no-epoch": Mutant(
        "R14", "a read survives a change of master", SimNode, "may_answer_read", _read_without_epoch
    ),
}
