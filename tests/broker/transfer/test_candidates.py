"""Which nodes a replica may ask for the state of its group."""

from types import SimpleNamespace
from typing import Any

from broker.transfer.driver import CatchingUp
from paxos.ids import NodeId
from tests.runtime.engines import GROUP, Net

ONE, STRANGER = NodeId(1), NodeId(9)


def asked(net: Net) -> list[NodeId]:
    engine = net.members[ONE].engine
    links = SimpleNamespace(connected=lambda _node: True)
    driver: Any = SimpleNamespace(_node=engine, links=links)
    return [one.node for one in CatchingUp.candidates(driver, GROUP)]


def test_those_who_are_members_by_now_are_asked_although_the_own_log_does_not_know_them() -> None:
    """An old copy of a directory may name members that have all left the group and dropped it
    (world 12 of whole nodes)."""
    net = Net()
    replica = net.members[ONE].engine.multi.replicas[GROUP]
    assert set(asked(net)) == set(replica.others(replica.members))
    replica.ask_also([STRANGER])
    assert set(asked(net)) == {*replica.others(replica.members), STRANGER}
