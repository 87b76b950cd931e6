"""Most groups of a node have nothing to do most of the time: then their timers rest."""

from paxos.ids import NOBODY, Now
from paxos.liveness.live import Live
from paxos.proposer import Role


def rests(replica: Live, now: Now) -> bool:
    """Whether `tick` would find nothing to do: nothing has happened since `rest` found so, and
    nothing that it waits for is due."""
    if now.boot_ns >= replica.rests_until_boot_ns or now.wall_ns >= replica.rests_until_wall_ns:
        return False
    replica.standstill.rested(now.boot_ns)  # the one thing that `tick` would have noted
    return True


def rest(replica: Live, now: Now) -> None:
    """Note until when nothing is due by time alone; any event ends the rest (`Live.wake`).

    A group rests only when everything is applied, nothing is in flight, and a lease runs that fits
    our role. What comes next is the Progress for the others, a renewal, or the lease's end.
    """
    lease, proposer, timing = replica.lease, replica.proposer, replica.timing
    replica.wake()
    if (
        replica.commit_due
        or proposer.in_flight
        or replica.learner.behind
        or now.boot_ns < replica.learn_at
        or replica.changing is not None
        or replica.suspended
        or replica.handover is not None
        or replica.election.abstaining
        or not replica.can_vote()
    ):
        return
    if lease.holder == replica.me:
        if not (lease.held_by(replica.me, replica.incarnation) and replica.ready()):
            return
        replica.rests_until_wall_ns = lease.expires_wall_ns - timing.lease_ns
        replica.rests_until_wall_ns += timing.renew_every_ns  # `renewal_due`
    elif lease.holder != NOBODY and proposer.role is Role.FOLLOWER:
        replica.rests_until_wall_ns = lease.expires_wall_ns + timing.margin_ns  # not `free` before
    else:
        return
    replica.rests_until_boot_ns = replica.progress_at
