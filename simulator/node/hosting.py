"""A simulated node gives a group up: it drops everything it has of it, and may return to it one
day.

What runtime/balancing/hosting.py does in two steps, with any time between them, happens at once
here: the node keeps what storage keeps for ever (what it has promised, and that it does not vote),
and begins the group as one that was told who the members are and knows the founders.
"""

from typing import TYPE_CHECKING

from paxos.ids import GroupId
from paxos.step import Step
from simulator.node.group_state import Group

if TYPE_CHECKING:
    from simulator.node.node import SimNode


def leave(node: "SimNode", ident: GroupId) -> None:
    world, now = node.world, node.now()
    members, old = world.members_now(ident), node.groups[ident]
    assert node.me not in members
    node.enter(old.intake.close, now)
    recovered = node.disk.forget(ident)
    node.wrote()
    del node.core.replicas[ident]
    replica = node.core.add(ident, world.members[ident], recovered)
    replica.ask_also(members)
    group = node.groups[ident] = Group(replica, old.intake.config)
    node.left(ident)
    node.begin_group(ident)
    node.checkpoints.left(ident)
    world.statistics["groups left"] += 1
    step = Step()
    replica.replayed(now, step)
    node.finish(now, step, (group,))
