"""Scenario 16: the drain takes too long: M resumes, and N returns its queue with a hint."""

from paxos.messages import Accepted, Prepare
from simulator.script import Script


def test_abort_while_draining() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 1)
    ballot, began_ns = script.replica(0).proposer.ballot, script.loop.now_ns
    held = script.hold(Accepted, target=0)
    under_way = script.write(0, 2)
    script.wait(2)
    script.steal(1)
    script.until(lambda: script.replica(0).handing_to == 1)
    forwarded = script.write(0, 3)
    script.until(lambda: len(script.held(1).intake.adopted) == 1)

    script.until(lambda: script.replica(0).handing_to is None)
    assert script.aborts() == ["drain timed out"]
    script.until(lambda: forwarded.refused)
    assert forwarded.answers[0].master == 0, "the hint is the master that resumed"
    assert script.masters() == [0]
    script.release(held)
    script.until_acknowledged(under_way)
    script.until_acknowledged(script.write(0, 3))
    assert script.replica(0).proposer.ballot == ballot, "nothing had been given up"
    assert not list(script.sent(Prepare, since_ns=began_ns))
