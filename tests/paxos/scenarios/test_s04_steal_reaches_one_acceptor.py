"""Scenario 4: the Steal reaches one acceptor, M crashes, a rival recovers with and without it."""

from paxos.entry import EntryKind
from paxos.ids import NodeId
from simulator.script import Script, is_kind


def suspended_with_one_vote(voter: int, target: int) -> Script:
    """Five nodes; of M's Steal to `target` only node `voter` holds a vote, and M is gone."""
    script = Script(nodes=5)
    script.elect(0)
    script.write_all(0, 2)
    script.same_everywhere()
    for node in range(1, 5):
        if node != voter:
            script.drop(source=0, target=node, where=is_kind(EntryKind.STEAL))
    script.stall_disk(0)
    script.steal(target)
    script.until(lambda: script.replica(voter).acceptor.votes.get(script.replica(0).suspended))
    script.wait(5)
    script.crash(0, keep=0)
    script.heal_disk(0)
    return script


def test_the_rival_finds_the_steal() -> None:
    """The voter is in the rival's quorum: the Steal is chosen after all, and N holds the lease."""
    script = suspended_with_one_vote(voter=4, target=1)
    script.isolate(2)
    script.prepare(3)
    script.until(lambda: script.replica(3).lease.holder == 1)
    script.until(lambda: script.acting(1))
    script.mend()
    script.boot(0)
    script.until_acknowledged(script.write(1, 3))
    script.same_everywhere()


def test_the_rival_does_not_find_the_steal() -> None:
    """The voter is away: another value is chosen there, and the late vote changes nothing."""
    script = suspended_with_one_vote(voter=4, target=1)
    slot = next(iter(script.replica(4).acceptor.votes))
    script.isolate(4)
    script.prepare(3)
    script.until(lambda: len(script.masters()) == 1)
    assert script.replica(3).lease.ver >= slot
    assert script.held(script.masters()[0]).log[slot - 1].kind != EntryKind.STEAL
    script.mend()
    script.boot(0)
    script.same_everywhere()
    assert not script.replica(0).suspended
    assert NodeId(0) in script.replica(1).members
