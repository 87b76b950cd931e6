"""What the loss of each machine would cost: which Paxos groups have several replicas there.

A machine is a zone. While there are as many machines as replicas, no group has two replicas on one
(`replicas.py`), and the loss of a machine costs each group at most one. With fewer machines, or
while a machine is gone, replicas must share: that is said, by machine, to operators and alerts.
"""

from collections import Counter
from collections.abc import Collection, Mapping

import attrs

from paxos.ids import REGISTRY_GROUP, GroupId, NodeId
from paxos.quorum import quorum_size


@attrs.frozen
class MachineReplicas:
    machine: str
    nodes: tuple[NodeId, ...]
    groups: int
    """Groups with at least one replica here."""
    crowded: tuple[GroupId, ...] = ()
    """Groups with two or more; the registry's only if it is also below."""
    stopped: tuple[GroupId, ...] = ()
    """Those of them that have no majority without this machine."""


def machines_of(
    zones: Mapping[NodeId, str], members: Mapping[GroupId, Collection[NodeId]]
) -> tuple[MachineReplicas, ...]:
    """By name. A node without a zone is of no machine that is known."""
    nodes: dict[str, list[NodeId]] = {}
    for node, zone in sorted(zones.items()):
        if zone:
            nodes.setdefault(zone, []).append(node)
    there = {
        group: Counter(zones.get(node, "") for node in mine)
        for group, mine in sorted(members.items())
    }
    found = []
    for machine, mine in sorted(nodes.items()):
        several = [group for group, count in there.items() if count[machine] > 1]
        stopped = tuple(
            group
            for group in several
            if len(members[group]) - there[group][machine] < quorum_size(members[group])
        )
        # The registry's group has more replicas than there may be machines: its majority counts.
        crowded = tuple(one for one in several if one != REGISTRY_GROUP or one in stopped)
        groups = sum(count[machine] > 0 for count in there.values())
        found.append(MachineReplicas(machine, tuple(mine), groups, crowded, stopped))
    return tuple(found)


def statement(one: MachineReplicas, machines: int, replicas: int) -> str:
    """What is wrong about a machine, and what to do; "" if nothing is."""
    if not one.crowded:
        return ""
    count, stops = len(one.crowded), len(one.stopped)
    what = "1 Paxos group has" if count == 1 else f"{count} Paxos groups have"
    loss = f"its loss would stop {stops} of them" if stops else "its loss would stop none of them"
    if machines < replicas:
        why = (
            f"{machines} cannot keep {replicas} copies apart: add a machine"
            if machines > 1
            else f"one machine cannot keep {replicas} copies apart: add machines"
        )
    else:
        why = (
            "copies move apart by themselves, unless a set was chosen by hand or nodes are missing"
        )
    return f"{what} two or more copies on machine {one.machine}, and {loss}; {why}"
