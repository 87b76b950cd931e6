"""Scenario 5: N crashes just before or just after applying; restarted, it does not use b (R6)."""

import pytest

from paxos.ids import Ballot
from paxos.messages import Accept
from simulator.script import Script


def proposals(script: Script, ballot: Ballot, incarnation: int) -> list[int]:
    """Slots proposed by node 1 of that incarnation at `ballot`."""
    return [
        sent.message.slot
        for sent in script.sent(Accept)
        if isinstance(sent.message, Accept)
        and (sent.source, sent.incarnation, sent.message.ballot) == (1, incarnation, ballot)
    ]


@pytest.mark.parametrize("keep", [0, 100])
def test_target_crashes_before_applying(keep: int) -> None:
    """The Steal is chosen, and the lease belongs to an incarnation that has ended."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    ballot = script.replica(0).proposer.ballot
    deaf = script.drop(target=1, source=0)
    script.steal(1)
    script.until(lambda: script.replica(0).lease.holder == 1)
    script.crash(1, keep=keep)
    deaf.lift()
    script.boot(1)
    script.until(lambda: script.acting(1))
    assert script.replica(1).proposer.ballot > ballot
    assert proposals(script, ballot, 2) == []
    script.until_acknowledged(script.write(1, 3))


@pytest.mark.parametrize("keep", [0, 100])
def test_target_crashes_after_applying(keep: int) -> None:
    """It has even proposed at (b, i+1); its next life must not propose another value there."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    ballot = script.replica(0).proposer.ballot
    script.steal(1)
    script.until(lambda: script.acting(1))
    script.write(1, 3)
    assert proposals(script, ballot, 1)
    script.crash(1, keep=keep)
    script.boot(1)
    script.until(lambda: script.acting(1))
    assert proposals(script, ballot, 2) == []
    assert script.replica(1).proposer.ballot > ballot
    script.until_acknowledged(script.write(1, 3))
    script.same_everywhere()
