"""Worlds from seeds: they keep their guarantees, and can be replayed bit for bit."""

import attrs
import pytest

from paxos.ids import MS
from paxos.timing import Strategy
from simulator.environment.options import (
    RECOVERY_LEASES_MAX,
    Clocks,
    DiskKind,
    Fault,
    Temper,
    Workload,
    draw,
)
from simulator.swarm import Job, Summary, again, run_world, run_worlds
from simulator.world import THINKS_PER_ROUND, World
from tests.doses import FULL, ONLY_IN_FULL, some
from tests.simulator.hashing import digests

SEEDS = (
    *range(2),  # `make sim` runs 200; every test run has a few of them
    122,  # an echo from before the crash looked like an answer to the boot, and its sender died
    267,  # three of five nodes left out: a client never happened to ask one of the others
    551,  # restarted nodes let a reader wait, where TCP would have reset its connection
    705,  # a voter heard of four slots too late for the end: a whole window, for another's sake
    555,  # a lease ended, its holder was master again, and had forgotten how long it had waited
    774,  # commands came back from another node after the barrier of their connection had gone
    862,  # three members on their way back at once: each one's return raised the others' bar
    116,  # data was tiered in pieces that reached beyond the end of a segment not yet written
    128,  # a node left a group, forgot its vote for that, and a member that was to know went down
    158,  # a change of members was chosen after the heal: half of the new ones were left out
    1106,  # a damaged checkpoint took the vote of a node that had lost nothing by it
    1157,  # a node's own checkpoint was put above the newer one from a peer
)


@pytest.mark.parametrize("seed", some(SEEDS))
def test_a_world_keeps_its_promises(seed: int) -> None:
    verdict = run_world(Job(seed))
    assert not verdict.failure, f"{verdict.report}\nreplay: {Job(seed).replay_command()}"
    assert verdict.statistics["acknowledged"] > 0


@pytest.mark.parametrize("seed", some([900, 901, 902, 903, 30, 63]))
def test_the_real_log_under_power_cuts(seed: int) -> None:
    """storage/: the write-ahead log and its recovery, on a disk that tears unsynced data. 30, 63:
    see test_bad_blocks.py."""
    verdict = run_world(Job(seed, DiskKind.WAL))
    assert not verdict.failure, verdict.report


@pytest.mark.parametrize("seed", [3, 9] if FULL else [3])
@pytest.mark.parametrize("strategy", some(one for one in Strategy if one is not Strategy.DELEGATE))
def test_the_older_ways_to_hand_over(strategy: Strategy, seed: int) -> None:
    """E19: slower, but as safe."""
    job = Job(seed, strategy=strategy)
    verdict = run_world(job)
    assert not verdict.failure, f"{verdict.report}\nreplay: {job.replay_command()}"
    assert verdict.statistics["notice leading"] > 0


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_seed_is_the_same_world_under_every_hash_seed() -> None:
    """The digest covers every frame sent and every line of the trace."""
    (found,) = digests((3, 5, 12), ["duration_ns=25000000000"])
    assert len(set(found)) == 3, "and different seeds are different worlds"


def test_what_is_drawn_in_one_place_shifts_no_other() -> None:
    """One root seed is split by name: with another number of clients, the same faults come at the
    same times."""
    few = World(attrs.evolve(draw(4), clients_per_group=1))
    many = World(attrs.evolve(draw(4), clients_per_group=3))
    for world in (few, many):
        world.nemesis.start()
    assert [few.nemesis._gaps.random() for _ in range(5)] == [
        many.nemesis._gaps.random() for _ in range(5)
    ]


def test_the_swarm_reports_in_the_order_of_its_seeds() -> None:
    jobs = [Job(seed, mutant="act-until-apply") for seed in (2, 3)]
    summary = Summary()
    for verdict in run_worlds(jobs, processes=2):
        summary.add(verdict)
    assert summary.worlds == 2
    assert 2 in summary.failed
    assert "simulated s per real s" in next(summary.lines())


def test_drawn_options_cover_what_they_should() -> None:
    drawn = [draw(seed) for seed in range(200)]
    assert {options.nodes for options in drawn} == {3, 4, 5, 7}
    assert set().union(*(options.faults for options in drawn)) == set(Fault)
    assert {options.temper for options in drawn} == set(Temper)
    assert {options.disk for options in drawn} == set(DiskKind)
    assert {options.clocks for options in drawn} == set(Clocks)
    assert {options.balancing for options in drawn} == {True, False}
    assert all(55_000 * MS <= options.duration_ns <= 65_000 * MS for options in drawn)
    assert all(fault in draw(1).describe() for fault in ("faults", "seed = 1", "timing"))


def test_progress_is_demanded_within_ten_leases_of_the_heal() -> None:
    """exam.md, D2; a world whose clocks were beyond the bound may have to wait for an expiry that
    they left in the log."""
    for seed in range(500):
        options = draw(seed)
        assert options.recovery_ns <= RECOVERY_LEASES_MAX * options.timing.lease_ns


def test_a_client_that_hears_nothing_goes_round_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So "a client is answered after the heal" depends on the nodes, not on luck."""
    seed = next(seed for seed in range(1_000) if draw(seed).nodes == 7)
    world = World(attrs.evolve(draw(seed), workload=Workload.COMMANDS))
    asked: list[int] = []
    monkeypatch.setattr(world.network, "send", lambda _source, target, _what: asked.append(target))
    world.clients[0].start()
    world.loop.run_until(200 * MS + 7 * THINKS_PER_ROUND * world.options.client_think_ns)
    assert set(asked) == set(world.addresses)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_world_that_runs_twice_must_be_the_same() -> None:
    job = Job(3, settings=("kept=",))
    first = run_world(job)
    assert not again(job, first).failure
    other = attrs.evolve(first, digest="another")
    assert "not deterministic" in again(job, other).failure
