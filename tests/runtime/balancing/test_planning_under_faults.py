"""The planning loop on whole nodes that crash, are cut off, drain and come back, in simulated time.

When the faults are over, the masters follow the placement, which is as even as possible, and stay
there. No two nodes ever act for one group, and plans have not caused more plans.
"""

from collections import Counter
from random import Random

import pytest

from balancer.registry.commands import DrainNode, SetPolicy
from balancer.registry.policy import Policy
from paxos.ids import NodeId
from tests.runtime.offices import GROUPS, Cluster

FAULTS = 4
QUIET_MS = 20_000
PLANS_PER_FAULT_MAX = 4
"""A plan when a node is lost, one more if that plan met another one, one when it is back, ..."""


def disturb(cluster: Cluster, dice: Random) -> None:
    """A fault or an operator's order begins, lasts for a while, and ends."""
    node = dice.choice((1, 2, 3))
    lasts_ms = dice.choice((500, 4_000, 25_000))
    what = dice.choice(("crash", "cut", "drain"))
    if what == "crash":
        cluster.net.crash(node)
        cluster.advance(lasts_ms)
        cluster.restart(node)
    elif what == "cut":
        for other in (1, 2, 3):
            if other != node:
                cluster.net.cut(node, other)
        cluster.advance(lasts_ms)
        for other in (1, 2, 3):
            if other != node:
                cluster.net.heal(node, other)
    else:
        by = 1 + node % 3
        cluster[by].propose(DrainNode(NodeId(node), True))
        cluster.advance(lasts_ms)
        cluster[by].propose(DrainNode(NodeId(node), False))
    cluster.advance(dice.choice((0, 1_000)))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_has_happened_masters_are_even_again_and_stay(seed: int) -> None:
    dice = Random(seed)
    cluster = Cluster()
    cluster.until(cluster.is_placed)
    for _ in range(FAULTS):
        disturb(cluster, dice)
    while any(node.draining for node in cluster[1].registry.nodes.values()):
        for node in (1, 2, 3):  # the end of a drain may have been lost with the node that was asked
            cluster[1].propose(DrainNode(NodeId(node), False))
        cluster.advance(1_000)

    def settled() -> bool:
        counts = sorted(Counter(cluster.masters().values()).values())
        return counts == [2, 2, 3] and cluster.is_placed()

    cluster.until(settled, ms_max=120_000)
    plans, version = cluster[1].registry.plans, cluster[1].registry.versions.placement
    cluster.advance(QUIET_MS)
    assert settled()
    assert cluster[1].registry.versions.placement == version
    assert len(plans) <= FAULTS * PLANS_PER_FAULT_MAX


def test_with_a_budget_of_two_steals_run_side_by_side_and_never_share_a_node() -> None:
    """Four nodes swap places in pairs: both pairs at once, and all masters get home. One pair
    notices late that a steal is over; otherwise each would be over before the next begins."""
    cluster = Cluster(nodes=4)
    cluster.until(cluster.is_placed)
    cluster[1].propose(SetPolicy(None, Policy(steals_max=2)))
    registry = cluster[1].registry
    cluster.until(lambda: registry.policy.steals_max == 2)
    partner = {1: 2, 2: 1, 3: 4, 4: 3}
    wanted = {group: partner[node] for group, node in registry.placement.items()}
    cluster.set_placement({int(group): node for group, node in wanted.items()})
    cluster.looks_every = {NodeId(1): 10, NodeId(2): 10}
    at_once = 0

    def home() -> bool:
        nonlocal at_once
        now = cluster[1].member.engine.now()
        held = [one for one in registry.tokens if not one.free_at(now.wall_ns)]
        at_once = max(at_once, len(held))
        nodes = [node for one in held for node in (one.source, one.target)]
        assert len(nodes) == len(set(nodes)), held
        return cluster.masters() == wanted

    cluster.until(home, ms_max=60_000)
    assert at_once == 2
    assert len(wanted) == GROUPS + 1
