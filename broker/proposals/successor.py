"""The node to which this one has handed a Paxos group, and whose clients still send to this one.

For a moment after a handover everything is forwarded: clients are redirected once they have a
connection there, and what was on its way need not come twice (`forward_grace_ns`). After that a
command is forwarded only if its client cannot know where the group is now: it wants no answer
(acks=0), or acts on no hint and has not been told since (ADR 50). Those are forwarded to whoever is
master by then, however often the group moves on.
"""

from typing import ClassVar, Protocol

import attrs

from broker.config import IntakeConfig
from paxos.ids import NOBODY, NodeId, Now
from paxos.replica import Replica


class FromClient(Protocol):
    """A command, as far as it matters here (broker.proposals.intake.Pending)."""

    anywhere: bool
    ordered: ClassVar[bool]

    def misses_move(self, moved_ns: int, now_ns: int) -> bool: ...


@attrs.define(eq=False)
class Successor:
    _config: IntakeConfig
    node: NodeId = NOBODY
    """NOBODY: in this life this node has not handed the group over."""
    _since_ns: int = 0

    def took_over(self, now: Now, node: NodeId) -> None:
        self.node, self._since_ns = node, now.boot_ns

    def in_grace(self, now: Now) -> bool:
        """Whether everything is forwarded to it still."""
        lasts_ns = self._config.forward_grace_ns
        return self.node != NOBODY and now.boot_ns < self._since_ns + lasts_ns

    def gets_all(self, now: Now, replica: Replica, holder: NodeId | None) -> bool:
        """Whether the commands of all clients are forwarded just now; `holder` is the master, if
        known."""
        if replica.forwarding_to(now) is not None:
            return True
        return not replica.acting(now) and holder in (None, self.node) and self.in_grace(now)

    def moved_ns(self, now: Now) -> int:
        """When it took over, if there may be clients that do not know it; or 0."""
        lately = now.boot_ns - self._since_ns < self._config.forward_unaware_ns
        return self._since_ns if lately else 0

    def is_missed_by(self, now: Now, pending: FromClient) -> bool:
        """Whether the client of a command goes on sending it here, for want of anything better."""
        if not pending.ordered or self.node == NOBODY:
            return pending.anywhere and not pending.ordered
        moved_ns = self.moved_ns(now)
        return pending.anywhere or (moved_ns > 0 and pending.misses_move(moved_ns, now.boot_ns))
