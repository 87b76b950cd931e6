"""Scenario 6: N applies the Steal late, after it has promised a rival's higher ballot."""

from paxos.messages import Accept, Commit, Learned
from paxos.proposer import Role
from simulator.script import Script


def test_target_applies_late() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    ballot = script.replica(0).proposer.ballot
    late = script.hold(Commit, Learned, source=0, target=1)
    script.steal(1)
    script.until(lambda: script.replica(0).lease.holder == 1)
    script.drop(Accept, source=2)
    higher = script.prepare(2)
    script.until(lambda: script.replica(1).acceptor.promised == higher)
    assert script.replica(1).lease.holder == 0, "N does not know yet that it is master"

    script.release(late)
    script.until(lambda: script.replica(1).lease.holder == 1)
    assert script.replica(1).proposer.role is Role.FOLLOWER, "b is below what it promised"
    script.until(lambda: script.replica(1).ready())
    assert script.replica(1).proposer.ballot > higher > ballot
    assert script.masters() == [1]
    script.until_acknowledged(script.write(1, 3))
