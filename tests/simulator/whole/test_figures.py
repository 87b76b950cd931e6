"""Everything nodes do beside serving clients, seen from outside: each of these checks can fail."""

import attrs
import pytest

from paxos.entry import NOOP
from paxos.ids import MS, Ballot, GroupId, NodeId, Slot
from paxos.messages import Learned
from simulator.environment.violation import Violation
from simulator.whole.checkers.figures import (
    AHEAD_MAX,
    FOUNDED_NS,
    GIVES_UP_NS,
    ROUNDS_MAX,
    TAUGHT_MAX,
    Figures,
)
from simulator.whole.options import Fault
from tests.simulator.whole.standins import GROUPS, standing_in

ONE = NodeId(1)


def test_a_disk_is_known_to_hang_and_its_node_stays_master() -> None:
    world = standing_in()
    figures, host = Figures(world), world.nodes[ONE]
    host.node.engine.disk_health.hung = True
    host.replica(1).acting = lambda _now: True
    figures.look()
    world.loop.now_ns += world.options.lease_ms * MS + GIVES_UP_NS
    figures.look()
    world.loop.now_ns += 1
    with pytest.raises(Violation, match="I11: node 1's disk hangs, and it acts for group 1"):
        figures.look()


def test_a_disk_that_goes_on_is_no_hung_one_and_a_lone_member_stays_master() -> None:
    world = standing_in()
    figures, host = Figures(world), world.nodes[ONE]
    host.replica(1).acting = lambda _now: True
    for members, pauses in (((1, 2, 3), True), ((1,), False)):
        host.replica(1).members = members
        for _ in range(10):
            host.node.engine.disk_health.hung = True
            figures.look()
            world.loop.now_ns += world.options.lease_ms * MS // 2
            host.node.engine.disk_health.hung = not pauses
            figures.look()


def test_who_has_forgotten_nothing_gives_up_its_vote() -> None:
    world = standing_in()
    with pytest.raises(Violation, match="votes: node 1 gives up its vote"):
        Figures(world).said(ONE, "non-voting", {"group": 1})
    world.options = attrs.evolve(world.options, faults=frozenset({Fault.LOST_DIRECTORY}))
    Figures(world).said(ONE, "non-voting", {"group": 1})


def test_the_same_entries_are_sent_again_and_again() -> None:
    world = standing_in()
    figures = Figures(world)
    message = Learned(GroupId(1), Slot(5), (NOOP, NOOP))
    for _ in range(TAUGHT_MAX):
        figures.taught(ONE, message)
        figures.taught(NodeId(2), message)
    world.nodes[NodeId(2)].life += 1
    figures.taught(NodeId(2), message)  # a new life may want it again
    with pytest.raises(Violation, match=f"waste: node 1 was sent slot 6 {TAUGHT_MAX} times"):
        figures.taught(ONE, message)


def test_a_node_that_was_ready_knows_no_master_though_nothing_hurts() -> None:
    world = standing_in()
    figures, host = Figures(world), world.nodes[ONE]
    world.loop.now_ns = FOUNDED_NS
    host.why = "group 2 has no master yet"
    figures.look()  # it never was
    host.why = ""
    figures.look()
    host.why = "group 2 is 9 slots behind"
    figures.look()
    host.why = "group 2 has no master yet"
    with pytest.raises(Violation, match="unready: node 1 is not ready any more: group 2 has no"):
        figures.look()


def test_wrong_numbers_are_believed() -> None:
    lengths = dict.fromkeys(GROUPS, 10)
    world = standing_in()
    learner, acceptor = world.nodes[ONE].replica(1).learner, world.nodes[ONE].replica(2).acceptor
    learner.chosen_to = 10 + AHEAD_MAX
    Figures(world).at_the_end(lengths)
    learner.chosen_to += 1
    with pytest.raises(Violation, match="numbers: node 1 believes in slot"):
        Figures(world).at_the_end(lengths)
    learner.chosen_to = 10
    acceptor.promised = Ballot(ROUNDS_MAX + 1, ONE)
    with pytest.raises(Violation, match="numbers: node 1 has promised"):
        Figures(world).at_the_end(lengths)
