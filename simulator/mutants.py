"""Planted bugs: each takes one rule of protocol.md section 3 away, and the swarm must notice.

A mutant patches a method or two while a world runs. The table that `make mutants` will print comes
from here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
class Patch:
    owner: Any
    """A class or module. Any: setattr on it is the point."""
    attribute: str
    replacement: Callable[..., Any]


@attrs.frozen
class Mutant:
    rule: str
    what: str
    patches: tuple[Patch, ...]


def mutant(rule: str, what: str, *patches: tuple[Any, str, Callable[..., Any]]) -> Mutant:
    return Mutant(rule, what, tuple(Patch(*patch) for patch in patches))


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run the body with the mutant in place; with no name, as it is."""
    with ExitStack() as originals:
        for patch in MUTANTS[name].patches if name else ():
            original = patch.owner.__dict__[patch.attribute]
            originals.callback(setattr, patch.owner, patch.attribute, original)
            setattr(patch.owner, patch.attribute, patch.replacement)
        yield


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
    "forget-promise": mutant(
        "R1", "a restarted node re-uses ballots", (SimNode, "recovered_of", _forget_promise)
    ),
    "reply-before-fsync": mutant(
        "R18", "what needs the disk leaves before it", (SimNode, "may_send_after", _send_at_once)
    ),
    "naive-fresh-ballot": mutant(
        "R5", "the target makes up its own ballot", (Replica, "_take_over", _naive_take_over)
    ),
    "resume-same-ballot": mutant(
        "R4", "an unresolved Steal is forgotten", (handover, "tick_suspended", _resume_same_ballot)
    ),
    "no-incarnation": mutant(
        "R6, R11", "boots are not counted", (SimNode, "incarnation_of", _same_incarnation)
    ),
    "act-until-apply": mutant(
        "R3", "the master acts while suspended", (Replica, "acting", _acting_while_suspended)
    ),
    "no-holder-margin": mutant(
        "R12", "the holder acts to the last moment", (Lease, "safely_before_expiry", _no_margin)
    ),
    "no-other-margin": mutant(
        "R12", "others start too early", (Lease, "free", _no_margin_for_others)
    ),
    "no-cas": mutant(
        "R8",
        "lease entries are valid whatever they have seen",
        (Lease, "apply_be_master", _no_cas),
        (Lease, "apply_steal", _no_cas_steal),
    ),
    "read-no-epoch": mutant(
        "R14",
        "a read survives a change of master",
        (SimNode, "may_answer_read", _read_without_epoch),
    ),
}
