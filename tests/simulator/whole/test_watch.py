"""The checks that run all the time can fail: accounts, holes, clients that get nowhere."""

import pytest

from paxos.ids import MS
from simulator.environment.violation import Violation
from simulator.mutants.planting import plant
from simulator.whole.hunts.hunting import small
from simulator.whole.mutants import MUTANTS
from simulator.whole.options import Fault
from simulator.whole.swarm import run_world
from simulator.whole.world import World

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
