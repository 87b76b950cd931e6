"""Scenario 22: the registry group itself is stolen, by a token that lives in its own log."""

from balancer.registry.records import Outcome
from paxos.ids import REGISTRY_GROUP, GroupId
from paxos.messages import Prepare
from simulator.script import GROUP, Script


def test_registry_group_is_stolen() -> None:
    script = Script(groups=(REGISTRY_GROUP, GROUP), balancing=True)
    script.elect(0, REGISTRY_GROUP)
    script.elect(0, GROUP)
    script.until(lambda: len(script.registry(0).nodes) == 3)
    script.wait(600)
    began_ns = script.loop.now_ns
    script.place_master(0, 1)
    tickets = []
    for seq in range(1, 60):
        script.wait(2)
        tickets.append(script.write(0, seq, group=REGISTRY_GROUP))  # clients of the old master
    script.until(lambda: script.masters(REGISTRY_GROUP) == [1])
    assert not any(ticket.refused for ticket in tickets)
    script.until(lambda: all(ticket.slot for ticket in tickets))
    # The token was granted by the old master and given back to the new one.
    script.until(lambda: script.registry(1).token is None and len(script.registry(1).history) == 1)
    assert script.registry(1).history[0].outcome is Outcome.DONE
    assert not list(script.sent(Prepare, since_ns=began_ns))
    # And the next steal is run by the new master of the registry.
    script.place_master(1, 2)
    script.until(lambda: script.masters(GroupId(1)) == [2])
