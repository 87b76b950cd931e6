"""Scenario 2: the 18 steps that break a takeover with a fresh ballot (docs/protocol.md)."""

import pytest

from paxos.ids import Ballot, NodeId, Now, Slot
from paxos.messages import Accept, Commit, Learned, Nack, Prepare, Progress, Promise
from paxos.replica import Replica
from simulator.environment.violation import Violation
from simulator.script import GROUP, Script


def eighteen_steps() -> Script:
    """M's Steal is chosen; a rival with a higher ballot gets x chosen; then N proposes y."""
    script = Script()
    script.elect(0)
    script.write_all(0, 1)
    script.same_everywhere()
    # The Steal reaches node 1 (the target), which votes; node 2 gets no message of it.
    script.cut(0, 2)
    script.cut(1, 2)
    commit = script.drop(Commit, source=0)
    script.steal(1)
    script.until(lambda: script.replica(0).lease.holder == 1)
    steal_slot = script.replica(0).lease.ver
    assert script.acting(1) is False, "N has not heard that it is chosen"
    # The rival, node 2, learns slot i from M and prepares above M's ballot at M and itself: they
    # have seen nothing in slot i+1, where it gets x chosen.
    script.mend()
    commit.lift()
    script.cut(2, 1)
    script.cut(0, 1)
    script.cut(1, 2)
    script.cut(1, 0)
    script.until(lambda: script.replica(2).lease.ver == steal_slot)
    script.prepare(2)
    script.until(script.replica(2).ready)
    x_slot = script.place(2, 2)
    script.until(lambda: script.replica(2).learner.applied >= x_slot)
    # Now N learns that slot i is the Steal, takes over, and proposes y in the slot of x.
    script.mend()
    script.drop(Progress, Learned, Prepare, target=1)
    script.drop(Accept, Commit, source=2, target=1)
    steal = script.held(2).log[steal_slot - 1]
    node = script.node(1)
    script.replica(1).peer(NodeId(2)).asked = True
    script.wire.deliver(
        next(iter(script.sent(Promise)))._replace(
            source=NodeId(2), target=NodeId(1), message=Learned(GROUP, steal_slot, (steal,))
        )
    )
    script.until(lambda: script.acting(1))
    assert node.groups[GROUP].replica.proposer.next == x_slot
    script.write(1, 2, client=200)
    script.wait(200)
    return script


def test_the_naive_takeover_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = Replica._take_over

    def naive(replica: Replica, now: Now, slot: Slot, ballot: Ballot) -> None:
        take_over(replica, now, slot, Ballot(ballot.round + 2, replica.me))

    monkeypatch.setattr(Replica, "_take_over", naive)
    with pytest.raises(Violation, match="I2"):
        eighteen_steps()


def test_the_delegated_ballot_survives_the_same_steps() -> None:
    script = eighteen_steps()
    assert list(script.sent(Nack)), "node 0 had promised the rival's ballot"
