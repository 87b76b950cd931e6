"""Which nodes act and serve, seen from outside: each of these checks can fail.

The nodes are stand-ins that report what a faulty one would.
"""

from typing import Any

import attrs
import pytest

from paxos.ids import MS, GroupId, NodeId
from runtime.membership.quorum_contact import ANSWER_LASTS_NS, BLINK_NS, CLOSE_NS_LEAST
from simulator.environment.violation import Violation
from simulator.whole.checkers.contact import HEARS_NS, MADE_ANEW_NS, SLACK_NS, Contact
from simulator.whole.options import Fault
from tests.simulator.whole.standins import StandIn, standing_in

GROUP = GroupId(1)
LOOK_NS = 200 * MS


def looks(world: Any, contact: Contact, ns: int) -> None:
    """For so long."""
    end_ns = world.loop.now_ns + ns
    while world.loop.now_ns < end_ns:
        world.loop.now_ns += LOOK_NS
        contact.look()


def acting(host: StandIn, *groups: int) -> None:
    for group in groups:
        host.replica(group).acting = lambda _now: True


def test_one_master_of_a_group_is_right_and_two_are_not() -> None:
    world = standing_in()
    one, two, _ = world.nodes.values()
    contact = Contact(world)
    acting(one, 1)
    acting(two, 2)
    looks(world, contact, 2 * LOOK_NS)
    acting(two, 1)
    with pytest.raises(Violation, match="I4: nodes 1 and 2 act for group 1"):
        contact.look()


def test_who_stood_still_may_take_itself_for_master_until_it_has_heard_others() -> None:
    world = standing_in()
    one, two, _ = world.nodes.values()
    contact = Contact(world)
    acting(one, 1)
    two.process.running = False
    contact.look()
    acting(two, 1)
    two.process.running = True
    looks(world, contact, HEARS_NS - LOOK_NS)
    with pytest.raises(Violation, match="I4"):
        looks(world, contact, 2 * LOOK_NS)


def test_a_node_that_is_cut_off_gives_its_clients_up() -> None:
    world = standing_in()
    alone = world.nodes[NodeId(3)]
    contact = Contact(world)
    alone.node.clients.connections = [object()]
    world.links.cut |= {(3, 1), (2, 3)}
    closes_ns = max(CLOSE_NS_LEAST, world.options.lease_ms * MS - ANSWER_LASTS_NS)
    looks(world, contact, ANSWER_LASTS_NS + BLINK_NS + closes_ns)
    with pytest.raises(Violation, match="captive: node 3 has been cut off for"):
        looks(world, contact, SLACK_NS + 2 * LOOK_NS)


def test_a_node_that_blames_those_who_are_there() -> None:
    world = standing_in()
    contact = Contact(world)
    looks(world, contact, MADE_ANEW_NS + 2 * LOOK_NS)
    world.nodes[NodeId(2)].node.shell.gate.contact.cut_off_total += 1
    with pytest.raises(Violation, match="blame: node 2 says that nodes"):
        contact.look()


@pytest.mark.parametrize("why", ["cut", "slow", "away", "begun anew"])
def test_who_may_have_missed_the_others_blames_nobody(why: str) -> None:
    world = standing_in()
    contact = Contact(world)
    looks(world, contact, MADE_ANEW_NS + 2 * LOOK_NS)
    others = world.nodes[NodeId(1)], world.nodes[NodeId(3)]
    match why:
        case "cut":
            world.links.cut |= {(1, 2), (3, 2)}
        case "slow":
            world.links.slow |= {(2, 1): 1_000 * MS, (2, 3): 1_000 * MS}
        case "away":
            for other in others:
                other.process.running = False
        case "begun anew":
            for other in others:
                other.life += 1
    contact.look()
    world.nodes[NodeId(2)].node.shell.gate.contact.cut_off_total += 1
    contact.look()


def test_blame_is_not_looked_for_where_connections_end_unseen() -> None:
    world = standing_in()
    world.options = attrs.evolve(world.options, faults=frozenset({Fault.RESET}))
    contact = Contact(world)
    looks(world, contact, MADE_ANEW_NS + 2 * LOOK_NS)
    world.nodes[NodeId(2)].node.shell.gate.contact.cut_off_total += 1
    contact.look()
