"""Scenario 3: the Steal is lost on every link; M settles its slot with a higher ballot."""

from paxos.entry import EntryKind
from paxos.ids import MS
from paxos.messages import Prepare
from simulator.script import Script, is_kind


def test_steal_is_lost_and_the_slot_is_settled() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    timing, ballot = script.options.timing, script.replica(0).proposer.ballot
    lost = script.drop(source=0, where=is_kind(EntryKind.STEAL))
    script.steal(1)
    script.until(lambda: script.replica(0).suspended > 0)
    began_ns, slot = script.loop.now_ns, script.replica(0).suspended
    script.wait(timing.settle_ns / MS - 50)
    assert script.replica(0).suspended == slot, "only the slot's fate ends the suspension (R7)"
    assert script.masters() == []
    lost.lift()
    lost = script.drop(source=0, where=lambda m: is_kind(EntryKind.STEAL)(m) and m.ballot == ballot)

    script.until(lambda: not script.replica(0).suspended)
    assert script.loop.now_ns - began_ns < timing.settle_ns + 200 * MS, "it does not wait it out"
    assert min(script.ballots(Prepare, since_ns=began_ns)) > ballot, "R4: a higher ballot"
    assert script.replica(0).learner.applied >= slot
    script.until(lambda: len(script.masters()) == 1)
    script.until_acknowledged(script.write(script.masters()[0], 3))
