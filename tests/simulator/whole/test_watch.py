"""The checks that run all the time can fail: accounts, holes, clients that get nowhere."""

import pytest

from paxos.ids import MS, NodeId
from simulator.checkers.partition_logs import Log
from simulator.environment.violation import Violation
from simulator.mutants.planting import plant
from simulator.whole.hunts.hunting import small
from simulator.whole.mutants import MUTANTS
from simulator.whole.nemesis import Struck
from simulator.whole.options import Fault
from simulator.whole.swarm import run_world
from simulator.whole.watch import BOUNDS, Watch
from simulator.whole.world import World
from tests.simulator.whole.standins import standing_in

ALONE = dict(operators=0, consumers=0, families=(), liars=0, pipeliners=0, writers=0)
ALONE |= dict(reborn=False, trimmed=False, compacted=False)


def test_bytes_of_connections_that_are_gone_are_found_in_the_account() -> None:
    """The disks are slow, so much is under way when connections are reset."""
    options = small(
        1,
        faults=frozenset({Fault.RESET}),
        fault_gap_ns=200 * MS,
        sync_min_ns=20 * MS,
        sync_max_ns=60 * MS,
        families=("librdkafka",),
    )
    with plant(MUTANTS["the-gone-stay-counted"]):
        assert "account: " in run_world(options).failure


def quiet_world() -> World:
    """Without faults; the topic exists after five seconds."""
    world = World(small(1, faults=frozenset(), lease_ms=800, **ALONE))
    world.begin()
    world.loop.run_until(5_000 * MS)
    return world


def test_a_hole_is_found_where_a_majority_could_go_on() -> None:
    """Its producers stop: from outside, the cluster acknowledges nothing."""
    world = quiet_world()
    for client in world.clients:
        client.stopped = True
    with pytest.raises(Violation, match="hole: partition"):
        world.loop.run_until(20_000 * MS)


def test_no_hole_is_found_where_no_majority_could_go_on() -> None:
    world = quiet_world()
    for host in [*world.nodes.values()][:2]:
        host.kill()
    world.loop.run_until(20_000 * MS)


def test_one_client_that_gets_nowhere_is_found() -> None:
    world = quiet_world()
    world.healed_ns = world.loop.now_ns
    world.clients[-1].stopped = True
    with pytest.raises(Violation, match="starved: "):
        world.loop.run_until(22_000 * MS)


def hole_of(ns: int, *struck: Struck, healed: bool = False, bad: int = 0) -> None:
    """For that long nobody acknowledges anything, though two nodes could; a lease is a second."""
    world = standing_in(faults=frozenset(BOUNDS))
    world.struck.extend(struck)
    world.healed_ns = 0 if healed else None
    world.partition_logs.logs[0] = Log(7, acknowledged_to=5)
    watch = Watch(world)
    watch._able = lambda _number: (frozenset({NodeId(1), NodeId(2)}), bad)  # type: ignore[method-assign]
    world.loop.now_ns = 20_000 * MS
    watch._look_for_holes()
    world.loop.now_ns += ns
    watch._look_for_holes()


@pytest.mark.parametrize(
    ("fault", "most_s"),
    [
        (None, 7),
        (Fault.CLOCK, 7),
        (Fault.MEMBER_DIES, 7),
        (Fault.PLACES, 8),
        (Fault.STOP, 8),
        (Fault.KILL, 9),
        (Fault.CUT, 9),
        (Fault.HUNG_DISK, 9),
        (Fault.CUT_TAKER, 9),
    ],
)
def test_how_long_a_hole_may_be_depends_on_the_kind_of_fault(
    fault: Fault | None, most_s: int
) -> None:
    struck = [Struck(fault, 18_000 * MS, 19_000 * MS)] if fault else []
    hole_of(most_s * 1_000 * MS, *struck)
    name = fault.name if fault else "nothing that was done"
    with pytest.raises(Violation, match=f"hole: .*; .*{name}.* may cost {most_s}.0 s"):
        hole_of(most_s * 1_000 * MS + 1, *struck)


def test_the_fault_that_costs_most_counts_while_its_echo_lasts() -> None:
    kinds = Struck(Fault.CLOCK, 0, 25_000 * MS), Struck(Fault.KILL, 0, 10_000 * MS)
    hole_of(9_000 * MS, *kinds)
    with pytest.raises(Violation, match=r"KILL may cost 9\.0 s"):
        hole_of(9_001 * MS, *kinds)
    long_ago = kinds[0], Struck(Fault.KILL, 0, 10_000 * MS - 1)
    with pytest.raises(Violation, match=r"CLOCK may cost 7\.0 s"):
        hole_of(7_001 * MS, *long_ago)


def test_each_node_that_is_hurt_may_be_asked_in_vain_and_none_after_the_heal() -> None:
    kill = Struck(Fault.KILL, 0, 20_000 * MS)
    hole_of(11_000 * MS, kill, bad=1)
    with pytest.raises(Violation, match=r"may cost 11\.0 s"):
        hole_of(11_001 * MS, kill, bad=1)
    with pytest.raises(Violation, match=r"nothing that was done may cost 7\.0 s"):
        hole_of(7_001 * MS, kill, healed=True, bad=1)


def test_every_strike_is_noted_with_its_kind_and_its_end() -> None:
    world = World(small(1, faults=frozenset({Fault.KILL, Fault.PAUSE}), fault_gap_ns=300 * MS))
    world.begin()
    world.loop.run_until(5_000 * MS)
    kinds = {one.fault for one in world.struck}
    assert kinds == {Fault.KILL, Fault.PAUSE}
    assert all(
        any(one.until_ns > one.since_ns for one in world.struck if one.fault is kind)
        for kind in kinds
    )
