"""Scenario 20: one-way partitions: mastership moves on, and nobody raises a ballot storm."""

import pytest

from paxos.messages import Prepare
from simulator.script import Script

SECONDS = 20


def run(script: Script) -> float:
    """Returns the Prepares per second while the partition lasts."""
    began_ns = script.loop.now_ns
    script.wait(SECONDS * 1_000)
    return len(script.ballots(Prepare, since_ns=began_ns)) / SECONDS


def test_a_master_that_hears_nobody_but_is_heard() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.isolate(0, outbound=False)
    assert run(script) < 1
    assert script.masters() not in ([], [0])
    script.until_acknowledged(script.write(script.masters()[0], 3))


def test_a_master_that_is_ahead_and_deaf_does_not_stop_the_election() -> None:
    """Its last Commit is lost: it alone has applied the slot, and it answers no Learn."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.same_everywhere()
    ahead = script.replica(0).proposer.next
    commits = script.drop(source=0, where=lambda m: getattr(m, "counted_to", 0) >= ahead)
    script.until_acknowledged(script.write(0, 3))
    script.isolate(0, outbound=False)
    script.wait(30)
    assert script.replica(0).learner.applied > script.replica(1).learner.applied
    assert commits.caught
    script.until(lambda: script.masters() not in ([], [0]))
    assert run(script) < 1


def test_a_master_that_hears_everybody_and_is_not_heard() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.isolate(0, inbound=False)
    assert run(script) < 1
    assert script.masters() not in ([], [0])


@pytest.mark.parametrize(("inbound", "outbound"), [(True, False), (False, True), (True, True)])
def test_a_follower_cut_off_either_way_disturbs_nobody(inbound: bool, outbound: bool) -> None:
    script = Script()
    script.elect(0)
    script.isolate(1, inbound=inbound, outbound=outbound)
    assert run(script) == 0
    assert script.masters() == [0]
    script.mend()
    assert run(script) == 0, "nor when it comes back"
    script.same_everywhere()


def test_one_link_cut_between_a_master_and_a_follower() -> None:
    """Node 1 learns through node 2 and sees that the lease is valid."""
    script = Script()
    script.elect(0)
    script.cut(0, 1)
    script.cut(1, 0)
    assert run(script) < 0.2
    assert script.masters() == [0]


@pytest.mark.parametrize("hears", [True, False])
def test_a_suspended_master_cut_off_one_way(hears: bool) -> None:
    script = Script()
    script.elect(0)
    script.isolate(0, inbound=not hears, outbound=hears)
    script.handed_over(0, 1)
    script.wait(5)
    assert script.replica(0).suspended
    assert run(script) < 1
    script.mend()
    script.until(lambda: not script.replica(0).suspended)
    script.until(lambda: len(script.masters()) == 1)
