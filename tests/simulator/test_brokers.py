"""The production broker and coordinator in the swarm: worlds that keep their guarantees."""

import pytest

from simulator.environment.options import DiskKind, Workload
from simulator.swarm import Job, run_world
from tests.doses import FULL, ONLY_IN_FULL, some
from tests.simulator.hashing import digests

SEEDS = (
    *(range(3) if FULL else ()),
    10,  # a tail with a hole, where a node was master, followed, and was master again
    22,  # a producer's second batch overtook the first, which nobody was master for
)
BROKER = (f"workload={Workload.BROKER.value}", "writers=0", "reborn=0")
"""The settings under which these seeds found something; without them all later frames shift."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_of_brokers_keeps_its_promises(seed: int) -> None:
    """Nothing acknowledged is lost, doubled or reordered; each partition has one owner per
    group."""
    verdict = run_world(Job(seed, settings=BROKER))
    assert not verdict.failure, verdict.report
    assert verdict.statistics["acknowledged"] > 0
    assert verdict.statistics["fetches"] > 0


@pytest.mark.parametrize("seed", some([1, 4]))
def test_nothing_of_a_topic_outlives_it(seed: int) -> None:
    """It is deleted and made again while its clients go on (1: offsets came back; 4: epochs
    fell)."""
    verdict = run_world(Job(seed, settings=(BROKER[0], "reborn=1")))
    assert not verdict.failure, verdict.report
    assert verdict.statistics["topics made anew"] >= 2


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_all_crash_when_one_has_heard_of_a_change_of_members() -> None:
    """The nodes left out then must not be half of the older members either."""
    verdict = run_world(Job(1005, DiskKind.WAL, settings=(BROKER[0], "reborn=0")))
    assert not verdict.failure, verdict.report


@pytest.mark.parametrize("seed", some([911, 910]))
def test_brokers_on_the_real_log(seed: int) -> None:
    """Consumers are served from storage's log, which is cut, torn and recovered."""
    settings = (*BROKER, "tail_bytes=0", "consumers=2")
    verdict = run_world(Job(seed, DiskKind.WAL, settings=settings))
    assert not verdict.failure, verdict.report
    assert verdict.statistics["commits"] > 0


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_seed_with_brokers_is_the_same_world_under_every_hash_seed() -> None:
    (found,) = digests((3, 5), [*BROKER, "consumers=2", "writers=1"])
    assert len(set(found)) == 2, "and different seeds are different worlds"


SETTLING = (
    *BROKER,
    "judged=0",
    "checkpoint_slots=20",
    "faults=AMNESIA,BAD_LINK,CRASH_ALL,CUT_ONE,DOOM,FAILED_DISK,FULL_DISK,LOST_DISK,MEMBERS",
)


@pytest.mark.parametrize(
    "seed",
    some(
        [
            0,
            7,  # a state that had just come was written down as if its parts were level
        ]
    ),
)
def test_data_leaves_the_log_and_comes_from_peers(seed: int) -> None:
    """With the real log, checkpoints, cold segments, and threads that die in the middle: every node
    can read what was acknowledged, wherever it is by then."""
    verdict = run_world(Job(seed, DiskKind.WAL, settings=SETTLING))
    assert not verdict.failure, verdict.report
    assert verdict.statistics["checkpoints"] > 20
    assert verdict.statistics["log windows settled"] > 10
    assert verdict.statistics["state transfer done"] > 0


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("seed", [3])
def test_jobs_that_die_and_run_their_micro_batches_again_write_everything_once(seed: int) -> None:
    """Under faults and steals, from checkpoints and from states that came from peers."""
    verdict = run_world(Job(seed, DiskKind.WAL, settings=(*SETTLING, "writers=2")))
    assert not verdict.failure, verdict.report
    assert verdict.statistics["micro-batches run again"] > 10
    assert verdict.statistics["chunks that were there"] > 50
    assert verdict.statistics["state transfer done"] > 0
