"""Scenario 7: M -> N -> M under one ballot; then an Accept of M's first range arrives (R6b)."""

from paxos.messages import Accept, Prepare
from simulator.script import Script


def test_there_and_back_under_one_ballot() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 4)
    ballot = script.replica(0).proposer.ballot
    began_ns = script.loop.now_ns
    first_range = [s for s in script.sent(Accept) if s.source == 0]
    script.steal(1)
    script.until(lambda: script.acting(1))
    script.write_all(1, 3, start=5)
    script.steal(0)
    script.until(lambda: script.acting(0))

    proposer = script.replica(0).proposer
    assert proposer.ballot == ballot
    assert proposer.lo == script.replica(0).lease.since + 1, "the range begins at the new Steal"
    for old in first_range:
        script.wire.deliver(old)
        script.wire.deliver(old._replace(target=3 - old.target))
    script.write_all(0, 3, start=8)
    script.same_everywhere()
    assert not list(script.sent(Prepare, since_ns=began_ns))
    assert script.masters() == [0]
