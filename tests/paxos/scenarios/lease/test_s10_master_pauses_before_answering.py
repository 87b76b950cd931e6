"""Scenario 10: M stops after checking the lease and before answering a read (R14)."""

import pytest

from paxos.ids import MS, Epoch
from paxos.replica import Replica
from simulator.environment.violation import Violation
from simulator.node.command_node import CommandNode
from simulator.script import Script


def a_read_across_a_change_of_master() -> Script:
    """The read begins on M with an old value; M sleeps; another master acknowledges more."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.node(0)._chance.choice = lambda _options: 1 * MS  # type: ignore[method-assign] # the read takes 1 ms
    script.read(0)
    lease = script.options.timing
    script.pause(0, (lease.lease_ns + 2 * lease.margin_ns) / MS + 3_000)
    script.until(lambda: script.masters() not in ([], [0]))
    script.write_all(script.masters()[0], 3, start=3)
    script.read(0)  # a read that begins now must see them
    script.wait(5_000)
    return script


def test_a_sleeper_does_not_answer() -> None:
    assert a_read_across_a_change_of_master().reads.count == 0


def test_an_answer_without_the_check_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def anything_goes(_node: CommandNode, _replica: Replica, _epoch: Epoch) -> bool:
        return True

    monkeypatch.setattr(CommandNode, "may_answer_read", anything_goes)
    with pytest.raises(Violation, match="I7"):
        a_read_across_a_change_of_master()
