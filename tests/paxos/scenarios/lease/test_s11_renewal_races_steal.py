"""Scenario 11: a renewal and a Steal race: exactly one of the two takes effect (R8)."""

import pytest

from paxos.entry import BeMaster, Entry, Steal, be_master, steal
from paxos.ids import Incarnation, NodeId
from paxos.messages import Accepted
from simulator.environment.violation import Violation
from simulator.mutants.catalogue import planted
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
    """The test places them one after the other; a master that has drained never would."""
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
    """The drain covers lease entries too: the Steal names the version that the renewal makes."""
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


def an_old_renewal_comes_back() -> Script:
    """M's last renewal reached nobody. Another is master when M prepares and finds it."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.same_everywhere()
    ver = script.replica(0).lease.ver
    script.isolate(0)
    script.write(0, 3)
    script.write(0, 4)  # so that the new master's first slots stay below the renewal's
    script.until(lambda: script.replica(0).lease_in_flight())
    script.until(lambda: script.masters() not in ([], [0]))
    other = script.masters()[0]
    script.mend()
    script.until(lambda: script.replica(0).lease.holder == other)
    assert script.replica(0).lease.ver == ver + 3, "in the slot of M's first write"
    script.prepare(0)
    script.until(lambda: script.replica(0).learner.applied >= ver + 5)
    renewal = script.held(0).log[ver + 4].control
    assert isinstance(renewal, BeMaster)
    assert (renewal.node, renewal.prev_ver) == (0, ver)
    script.wait(20)
    assert script.masters() == [other]
    return script


def test_an_old_renewal_that_comes_back_is_void() -> None:
    script = an_old_renewal_comes_back()
    script.until_acknowledged(script.write(script.masters()[0], 1, client=200))


def test_without_compare_and_set_it_makes_two_masters() -> None:
    with planted("no-cas"), pytest.raises(Violation, match="I4"):
        an_old_renewal_comes_back()
