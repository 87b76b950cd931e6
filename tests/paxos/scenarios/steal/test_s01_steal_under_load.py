"""Scenario 1: a steal under load costs no client an error, and the target no Prepare."""

from paxos.messages import Accept, Prepare
from simulator.script import Script


def test_steal_under_load() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 3)
    ballot, began_ns = script.replica(0).proposer.ballot, script.loop.now_ns

    tickets = [script.write(0, seq) for seq in range(4, 7)]
    script.steal(1)
    for seq in range(7, 40):
        script.wait(1)
        tickets.append(script.write(0, seq))  # the client stays with the old master
    script.until(lambda: all(ticket.slot for ticket in tickets))

    assert script.masters() == [1]
    assert not any(ticket.refused for ticket in tickets)
    assert script.statistics["forwards"] > 0
    assert not list(script.sent(Prepare, since_ns=began_ns)), "the handover is one propose"
    assert script.ballots(Accept, since_ns=began_ns) == {ballot}, "N goes on under M's ballot"
    slots = [ticket.slot for ticket in tickets]
    assert slots == sorted(slots)


def test_the_handover_itself_takes_about_one_round_trip() -> None:
    """From the request until the target acts: request, Steal to a quorum, Commit, with fsyncs
    between."""
    script = Script()
    script.elect(0)
    began_ns = script.loop.now_ns
    script.steal(1)
    script.until(lambda: script.acting(1))
    assert script.loop.now_ns - began_ns < 6_000_000
