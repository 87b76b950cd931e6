"""In place of a replica, once its group has left this node: for the intake that stands in.

A former master goes on forwarding for clients that do not know of the move (ADR 50), also when the
group has other members by now. Its intake needs little of a replica then: it never acts, and hears
of masters from what they tell nodes that are not members (runtime.membership.masters).
"""

from typing import Final, cast

from paxos.ids import NOBODY, NodeId, Now
from paxos.replica import Replica


class _NoLease:
    holder: Final = NOBODY


class _FormerMember:
    handover: Final = None
    handing_to: Final = None
    suspended: Final = False
    lease: Final = _NoLease()

    def __init__(self, me: NodeId) -> None:
        self.me = me

    def acting(self, _now: Now) -> bool:
        return False

    def forwarding_to(self, _now: Now) -> NodeId | None:
        return None


def former_member(me: NodeId) -> Replica:
    """All that an intake asks of a replica that does not act."""
    return cast(Replica, _FormerMember(me))
