"""Scenario 15: the target's queue is full: the answer is a retriable error, and nothing is lost."""

from broker.config import IntakeConfig
from paxos.entry import EntryKind
from simulator.node.state_machine import COMMAND
from simulator.script import Script, is_kind


def test_forwarded_queue_is_full() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 1)
    script.held(1).intake.config = IntakeConfig(queue_bytes_max=2 * COMMAND.size)
    held = script.hold(source=0, where=is_kind(EntryKind.STEAL))
    script.steal(1)
    script.until(lambda: script.replica(0).suspended > 0)
    tickets = [script.write(0, seq) for seq in range(2, 6)]
    script.until(lambda: tickets[3].refused)
    assert [ticket.refused for ticket in tickets] == [False, False, True, True]
    script.release(held)
    script.until(lambda: script.acting(1))
    for seq in (4, 5):
        script.until_acknowledged(script.write(1, seq))  # the client's retry
    slots = [ticket.slot for ticket in tickets]
    assert slots == sorted(slots)
    assert all(slots)
