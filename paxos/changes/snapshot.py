"""Going on from a base: that of a checkpoint on our own disk, or of one that a peer sent.

A replica starts from its own (`begin_with`), or takes over a peer's (`install`), when it is behind
and nobody has the log from there on any more.

A base proves that every slot up to its own is chosen; it says nothing about ballots. So what it
covers is treated as applied: votes there are forgotten (ADR 3), a suspension whose slot it covers
ends (R7: the Steal's fate is in the lease). But nothing in it is applied *live*: no ballot is taken
over (R5, R6), and nobody acts on a lease that came that way, its own included, before it has
renewed it (R11). docs/adr/0022 has each of these in a table.
"""

from paxos.base import Base
from paxos.changes import testimony
from paxos.ids import Now
from paxos.proposer import Role
from paxos.state.core import Core
from paxos.step import Notice, Step


def taken(replica: Core) -> Base:
    """The base at what is applied now."""
    lease = replica.lease
    return Base(
        slot=replica.learner.applied,
        chain=replica.chain.value,
        members=replica.members,
        configured=replica.configured,
        holder=lease.holder,
        incarnation=lease.incarnation,
        ver=lease.ver,
        since=lease.since,
        epoch=lease.epoch,
        expires_wall_ns=lease.expires_wall_ns,
        renewals=lease.renewals,
    )


def begin_with(replica: Core, base: Base) -> None:
    """Start from our own base: the first slot to be replayed comes after it."""
    _cover(replica, base)
    replica.lease.restore(base)


def _cover(replica: Core, base: Base) -> None:
    replica.learner.skip(base.slot)
    replica.acceptor.note_recorded(base.slot)
    replica.chain.begin_after(base.slot, base.chain)
    replica.become_members(base.members, base.configured)


def install(replica: Core, now: Now, base: Base, step: Step) -> bool:
    """Go on from a peer's base, which is durable here; False if we are at least as far already.

    What we promised and voted above it stays as it is: no peer can take that back.
    """
    if base.slot <= replica.learner.applied:
        return False
    if replica.proposer.role is not Role.FOLLOWER:
        replica.step_down(now, step)
    _cover(replica, base)
    testimony.found_again(replica, [slot for slot in replica.lost if slot <= base.slot])
    for slot in [slot for slot in replica.acceptor.votes if slot <= base.slot]:
        replica.acceptor.forget(slot)
    lease = replica.lease
    if lease.ver != base.ver:  # else we applied it, and know when it ends by our own clock
        lease.restore(base)
        if lease.holder == replica.me:
            lease.lapse(now)
        else:
            lease.start_deadline(now, replica.timing.lease_ns)
    step.notices.append(Notice(replica.group, "installed", f"slot {base.slot}"))
    return True
