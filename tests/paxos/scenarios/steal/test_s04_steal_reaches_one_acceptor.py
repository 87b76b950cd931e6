"""Scenario 4: the Steal reaches one acceptor, M crashes, a rival recovers with and without it.

Also without a crash: M's own phase 1 finds another value above its Steal, a third ballot does not.
"""

from paxos.entry import EntryKind
from paxos.ids import NodeId, Slot
from paxos.messages import Accept, Prepare, Promise
from paxos.proposer import Role
from simulator.script import Script, is_kind


def suspended_with_one_vote(voter: int, target: int) -> Script:
    """Five nodes. Only `voter` has voted for M's Steal to `target`, and M is gone."""
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


def test_who_voted_for_the_lost_steal_restarts_with_the_chosen_entry() -> None:
    """Its disk holds its vote for the Steal, and after it the chosen entry, learned by value."""
    script = suspended_with_one_vote(voter=4, target=1)
    slot = next(iter(script.replica(4).acceptor.votes))
    script.isolate(4)
    script.prepare(3)
    script.until(lambda: len(script.masters()) == 1)
    script.write_all(script.masters()[0], 2, start=3)
    script.mend()
    script.boot(0)
    script.same_everywhere()
    script.write_all(script.masters()[0], 2, start=5)
    script.same_everywhere()
    script.crash(4)
    script.boot(4)
    assert script.replica(4).learner.applied > slot, "it needed nobody for that"
    assert script.held(4).log[slot - 1].kind != EntryKind.STEAL
    script.same_everywhere()


def rival_value_above_the_steal() -> tuple[Script, Slot]:
    """Five nodes. Nodes 0 (M) and 4 have voted for M's Steal to node 1; node 2 has voted for a
    value of its own in that slot at a higher ballot. Nothing is chosen there."""
    script = Script(nodes=5)
    script.elect(0)
    script.write_all(0, 2)
    script.same_everywhere()
    for node in (1, 2, 3):
        script.drop(source=0, target=node, where=is_kind(EntryKind.STEAL))
    script.steal(1)
    script.until(lambda: script.replica(4).acceptor.votes.get(script.replica(0).suspended))
    slot = script.replica(0).suspended
    blind = [script.drop(Promise, source=node, target=2) for node in (0, 4)]
    script.drop(Accept, source=2)
    script.prepare(2)
    script.until(lambda: script.replica(2).proposer.role is Role.LEADER)
    assert script.place(2, 3) == slot, "its quorum has not seen the Steal"
    script.wait(5)
    for rule in blind:
        rule.lift()
    return script, slot


def test_what_phase_1_of_the_master_has_found_does_not_end_its_suspension() -> None:
    """R7: M's phase 1 finds the rival's value above its Steal, so the Steal looks lost. It is
    not: a third ballot asks other nodes, finds the Steal and gets it chosen while M's lease
    still runs."""
    script, slot = rival_value_above_the_steal()
    for node in (1, 4):
        script.drop(Prepare, source=0, target=node)
    mute = script.drop(Accept, source=0)
    script.until(lambda: script.replica(0).proposer.role is Role.LEADER)
    vote = script.replica(0).acceptor.votes[slot]
    assert vote[1].kind == EntryKind.BATCH, "it proposes the rival's value again"
    assert script.replica(0).suspended == slot
    assert script.masters() == []

    script.isolate(0)
    script.drop(Prepare, source=3, target=2)
    script.prepare(3)
    script.until(lambda: script.replica(1).lease.holder == 1)
    lease, now = script.replica(0).lease, script.node(0).now()
    assert lease.holder == 0
    assert lease.safely_before_expiry(now, script.options.timing.margin_ns), "it still could act"
    script.until(lambda: script.masters() == [1])
    mute.lift()
    script.mend()
    script.until(lambda: not script.replica(0).suspended)
    assert script.held(0).log[slot - 1].kind == EntryKind.STEAL
    script.until_acknowledged(script.write(1, 3))
    script.same_everywhere()
