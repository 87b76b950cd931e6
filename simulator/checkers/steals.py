"""A steal never aims at a node that is dead or behind, as far as the master can know.

At the moment at which a master proposes a Steal:
- a frame of its target has reached it within the time that a steal may take to prepare (or, if the
  master hands over by itself, within the time after which a node counts as silent);
- if the target runs in the life that the Steal names, it has applied all that the master has
  applied, except for a number of slots: the bound for the request, and a window that may have been
  chosen meanwhile;
- nothing below it is in flight: what was proposed is applied, so every client has its answer (the
  drain; without it the log is as safe, but clients see errors).

All of this is taken from the world: when frames were delivered, and what the target's replica has
applied.
"""

from typing import TYPE_CHECKING, Final

from paxos.ids import MS
from paxos.timing import STEAL_LAG_SLOTS_MAX, WINDOW_MAX
from simulator.environment.violation import Violation

if TYPE_CHECKING:
    from paxos.replica import Replica
    from simulator.node.node import SimNode

PREPARING_NS: Final = 500 * MS
"""A request may wait for the master's copy of the registry, and for consumers' last commits."""


class StealAim:
    def __init__(self, *, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self.count = 0

    def proposed(self, master: "SimNode", target: "SimNode", replica: "Replica") -> None:
        handover, timing = replica.handover, replica.timing
        assert handover is not None
        self.count += 1
        slot = replica.suspended
        if replica.learner.applied != slot - 1:
            raise Violation(
                f"drain: node {master.me} steals group {replica.group} for node {target.me} "
                f"in slot {slot}, and has applied {replica.learner.applied}"
            )
        silent_ns = master.world.loop.now_ns - master.heard_at.get(target.me, 0)
        may_ns = timing.heard_ns + timing.drain_ns + PREPARING_NS + 2 * self._tick_ns
        if silent_ns > may_ns:
            raise Violation(
                f"aim: node {master.me} steals group {replica.group} for node {target.me}, which "
                f"it has not heard for {silent_ns / 1e9} s"
            )
        if target.up and target.core.incarnation == handover.target_incarnation:
            there = target.groups[replica.group].replica.learner.applied
            behind = replica.learner.applied - there
            if behind > STEAL_LAG_SLOTS_MAX + WINDOW_MAX:
                raise Violation(
                    f"aim: node {master.me} steals group {replica.group} for node {target.me}, "
                    f"which is {behind} slots behind"
                )
