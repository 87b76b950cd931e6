"""Three older ways to give a group away, kept to be measured against a Steal (docs/handoff.md).

They run through the same stages as a handover (paxos/changes/handover.py), with a weaker last
entry, or none, and leave the rest to an ordinary election, in which the target should be first.
Nobody needs them; a cluster uses one only if its configuration says so (`balancer.strategy`).

Which rules of docs/protocol.md they do not keep, and why that is safe:

- *two-proposes*: the last entry frees the lease and gives no ballot away. R5, R6, R6b: there is
  nothing to take over; the target prepares a ballot of its own, and proposes its own BeMaster (R8).
- *move-expiry*: the last entry moves the holder's own expiry nearer. R15 says that nothing shortens
  a lease; here the holder does. But it does not act from before it proposes the entry until it has
  applied it (R3), so nobody acts on what the entry takes away. R5, R6, R6b as above.
- *wait-expiry*: there is no last entry. R3, R4, R4b, R7, R13 have no slot to speak of: the master
  does not suspend itself, gives no slots away, and acts until R12 ends its lease. It only stops
  renewing. So the group is without a master for at least twice the clock margin.

R4 is kept by the two with an entry, as by a Steal: what is above it is nobody's under that ballot.
"""

from collections.abc import Mapping
from typing import Final

from paxos.entry import Steal
from paxos.ids import BALLOT_ZERO, Now
from paxos.state.core import Core
from paxos.state.handover import Handover, Stage
from paxos.step import Step
from paxos.timing import Strategy

FIRST_STAGE: Final[Mapping[Strategy, Stage]] = {
    Strategy.TWO_PROPOSES: Stage.DRAINING,
    Strategy.MOVE_EXPIRY: Stage.DRAINING,
    Strategy.WAIT_EXPIRY: Stage.EXPIRING,
}


def last_entry(replica: Core, handover: Handover, now: Now) -> Steal:
    """What our last entry at this ballot says: a Steal that gives no ballot away."""
    to, incarnation, expires_ns = handover.target, handover.target_incarnation, now.wall_ns
    if replica.timing.strategy is Strategy.MOVE_EXPIRY:
        to, incarnation = replica.me, replica.incarnation
        expires_ns = now.wall_ns + replica.timing.margin_ns  # so that we stop acting at once
    return Steal(replica.me, to, incarnation, BALLOT_ZERO, replica.lease.ver, expires_ns)


def tick_expiring(replica: Core, now: Now, step: Step) -> None:
    """Wait for the end of the lease, then for its new holder, but not for ever."""
    handover, timing = replica.handover, replica.timing
    assert handover is not None
    if not replica.is_heard(handover.target, now):
        replica.call_off_handover("target not heard", step)
    elif replica.lease.free(now, timing.margin_ns + timing.settle_ns):
        replica.call_off_handover("not taken", step)
