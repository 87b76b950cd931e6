"""Rows E1 to E7 of the seeds (docs/seeds.md): what a balancer of masters relies on.

Engines, replicas and handlers are the production ones; time, network and disk are simulated.
"""

import pytest

from balancer.registry.commands import CreateTopic
from broker.proposals.intake import NotDone, Outcome
from paxos.entry import BeMaster
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now, Slot
from paxos.lease import Lease
from tests.broker.batches import batch, contents
from tests.broker.data_world import DataWorld, want
from tests.runtime.engines import TICK_MS
from tests.runtime.offices import GROUPS, Cluster
from wire.error_codes import ErrorCode

SECOND = 1_000 * MS


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.until(cluster.is_placed)
    cluster.advance(500)
    return cluster


def test_E1_a_node_has_many_groups_and_a_group_many_topics() -> None:
    """Data is stored by group: what is produced to a partition is only in its group's log."""
    world = DataWorld(groups=2)
    world.run(CreateTopic("second", b"2" * 16, 4))
    registry = world[1].registry
    in_group = registry.partitions_of_group(world.group(0))
    assert {one.topic for one in in_group.values()} == {"orders", "second"}
    world.produce(1, 0, batch("a", "b"))
    for node in (1, 2, 3):
        machines = world[node].machines
        assert len(machines) == 3
        holding = [group for group, machine in machines.items() if machine.partitions]
        assert holding == [world.group(0)]


def test_E3_producers_and_consumers_are_served_by_the_master_alone() -> None:
    """Every other node names it; the master of another partition is another node."""
    world = DataWorld()
    world.cluster.install(world.group(1), 2)
    for partition, master in ((0, 1), (1, 2)):
        for node in (1, 2, 3):
            produced = world.produce(node, partition, batch(f"by-{node}"))
            fetched = world.fetch(node, want(partition, 0))
            if node == master:
                assert produced.error_code == fetched.error_code == ErrorCode.NONE
                assert contents(fetched.records) == [(0, f"by-{master}")]
            else:
                assert produced.error_code == fetched.error_code
                assert produced.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert produced.current_leader.leader_id == master


def test_E4_there_is_one_master_or_none_and_only_it_proposes(cluster: Cluster) -> None:
    """Masters crash, are cut off and come back; `masters` raises if two ever act for one group."""
    net = cluster.net
    for victim in (1, 2, 3, 1):
        net.cut(victim, 1 + victim % 3)
        for _ in range(0, 2_000, TICK_MS):
            cluster.advance(TICK_MS)
            cluster.masters()
        net.crash(victim)
        for _ in range(0, 4_000, TICK_MS):
            cluster.advance(TICK_MS)
            cluster.masters()
        net.heal(victim, 1 + victim % 3)
        cluster.restart(victim)
    cluster.until(lambda: None not in cluster.masters().values())
    masters = cluster.masters()
    for group in range(1, GROUPS + 1):
        for member in net.up():
            if member.node != masters[group]:
                refused: list[Outcome] = []
                before = member.engine.statistics.proposals
                member.engine.submit(GroupId(group), (b"x",), refused.append)
                net.settle()
                assert [type(one) for one in refused] == [NotDone]
                assert member.engine.statistics.proposals == before


def test_E5_be_master_succeeds_only_for_nobody_or_oneself(cluster: Cluster) -> None:
    """In the lease: compare-and-set on its version. In the cluster: the master stays master."""
    lease = Lease()
    first = BeMaster(NodeId(1), Incarnation(1), Slot(0), 10 * SECOND)
    assert lease.apply_be_master(Slot(1), first, Now(SECOND, SECOND), 3 * SECOND)
    late = BeMaster(NodeId(2), Incarnation(1), Slot(0), 10 * SECOND)
    assert not lease.apply_be_master(Slot(2), late, Now(SECOND, SECOND), 3 * SECOND)
    assert lease.holder == 1
    again = BeMaster(NodeId(1), Incarnation(1), Slot(1), 12 * SECOND)
    assert lease.apply_be_master(Slot(3), again, Now(SECOND, SECOND), 3 * SECOND)

    def epochs() -> list[int]:
        return [cluster[1].member.engine.epoch(GroupId(group)) for group in range(GROUPS + 1)]

    before, masters = epochs(), cluster.masters()
    cluster.advance(10_000)  # more than three leases: all nodes would have tried by now
    assert (epochs(), cluster.masters()) == (before, masters)


def test_E6_the_master_lets_go_before_anybody_else_may_try(cluster: Cluster) -> None:
    """By its own clock it stops a margin before the lease is over. By theirs, the others start to
    draw their waiting times a margin after that. So both margins are between the two."""
    master = cluster.masters()[1]
    assert master is not None
    group = GroupId(1)
    timing = cluster.net[master].multi.replicas[group].timing
    others = cluster.net.others(master)
    for other in others:
        cluster.net.cut(master, other.node)
    let_go = free = None
    for at_ms in range(0, 20_000, TICK_MS):
        cluster.advance(TICK_MS)
        if let_go is None and not cluster.net[master].acting(group):
            let_go = at_ms
        if any(other.multi.replicas[group].election.was_free for other in others):
            free = at_ms
            break
    assert let_go is not None
    assert free is not None
    assert free - let_go >= 2 * timing.margin_ns // MS - TICK_MS
    cluster.until(lambda: cluster.masters()[1] not in (None, master))


def test_E7_a_lease_is_renewed_in_time_and_a_dead_master_replaced_within_seconds(
    cluster: Cluster,
) -> None:
    replica = cluster[1].member.multi.replicas[GroupId(1)]
    version = replica.lease.ver
    cluster.advance(5_000)
    assert replica.lease.ver > version, "renewed by a BeMaster inside the lease"
    victim = cluster.masters()[1]
    assert victim is not None
    cluster.net.crash(victim)
    timing = replica.timing
    lease_ms = (timing.lease_ns + 2 * timing.margin_ns) // MS
    cluster.until(
        lambda: all(node not in (None, victim) for node in cluster.masters().values()),
        ms_max=lease_ms + 2_000,
    )
