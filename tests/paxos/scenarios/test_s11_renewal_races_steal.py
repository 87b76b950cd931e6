"""Scenario 11: a renewal raced with a Steal: exactly one of the two takes effect (R8)."""

import pytest

from paxos.entry import BeMaster, Entry, Steal, be_master, steal
from paxos.ids import Incarnation, NodeId
from paxos.messages import Accepted
from simulator.script import GROUP, Script


def both(script: Script) -> tuple[Entry, Entry]:
    """A renewal and a Steal that have seen the same version of the lease."""
    replica = script.replica(0)
    expires = script.node(0).now().wall_ns + script.options.timing.lease_ns
    ver, ballot = replica.lease.ver, replica.proposer.ballot
    renewal = be_master(BeMaster(NodeId(0), Incarnation(1), ver, expires))
    taken = steal(Steal(NodeId(0), NodeId(1), Incarnation(1), ballot, ver, expires))
    return renewal, taken


@pytest.mark.parametrize("renewal_first", [True, False])
def test_the_first_in_the_log_wins(renewal_first: bool) -> None:
    """Placed by hand one after the other, as no drained master would."""
    script = Script()
    script.elect(0)
    renewal, taken = both(script)
    order = (renewal, taken) if renewal_first else (taken, renewal)
    first = script.node(0).place(GROUP, order[0])
    second = script.node(0).place(GROUP, order[1])
    script.until(lambda: all(script.replica(n).learner.applied >= second for n in range(3)))
    for node in range(3):
        assert script.replica(node).lease.ver == first
        assert script.replica(node).lease.holder == (0 if renewal_first else 1)
    assert script.masters() == ([0] if renewal_first else [1])


def test_a_steal_waits_for_a_renewal_under_way() -> None:
    """The drain covers lease entries, too: the Steal names the version the renewal makes."""
    script = Script()
    script.elect(0)
    held = script.hold(Accepted, target=0)
    script.until(lambda: script.replica(0).lease_in_flight())
    slot = script.replica(0).proposer.next - 1
    script.steal(1)
    script.wait(20)
    assert script.replica(0).handing_to == 1
    assert not script.replica(0).suspended
    script.release(held)
    script.until(lambda: script.acting(1))
    value = script.held(1).log[script.replica(1).lease.ver - 1].control
    assert isinstance(value, Steal)
    assert value.prev_ver == slot
