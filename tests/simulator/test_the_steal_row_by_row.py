"""The steal's rows of docs/seeds.md on the real core and the real balancer, each by its id.

E12 to E14 are in tests/broker/groups/test_progress.py and
tests/runtime/balancing/test_handovers.py, E19 in scenario 25, E21 here and in scenario 26.
"""

import pytest

from balancer.registry.commands import AcquireStealToken, PauseBalancer
from balancer.registry.records import Outcome
from balancer.stealing.steal import Action, ProposeRegistry
from paxos.entry import BeMaster, EntryKind
from paxos.ids import MS, REGISTRY_GROUP, GroupId, Slot
from paxos.messages import Accept, Prepare, StealRequest
from simulator.environment.options import draw
from simulator.node.balancing import CONFIG, SimBalancing
from simulator.script import FIRST_CLIENT, Script
from simulator.swarm import make_world

ONE, TWO, THREE = GroupId(1), GroupId(2), GroupId(3)
GROUPS = (REGISTRY_GROUP, ONE, TWO, THREE)


def founded(groups: tuple[GroupId, ...] = GROUPS) -> Script:
    """Node 0 is master of everything, all nodes are registered, and the hold-down is over."""
    script = Script(groups=groups, balancing=True)
    for group in groups:
        script.elect(0, group)
    script.until(lambda: len(script.registry(0).nodes) == 3)
    script.wait(600)
    return script


def test_E9_a_difference_between_actual_and_ideal_is_found_and_mended() -> None:
    """Nobody asks for a steal: every node looks for differences again and again."""
    script = founded((REGISTRY_GROUP, ONE))
    script.wait(1_000)
    assert script.steals.count == 0, "nothing is misplaced, nothing moves"
    script.place_master(ONE, 2)
    script.until(lambda: script.masters(ONE) == [2], within_ns=1_000 * MS)
    # And again when the master drifts away from its ideal node by itself.
    script.crash(2)
    script.until(lambda: script.masters(ONE) in ([0], [1]))
    script.boot(2)
    script.until(lambda: script.masters(ONE) == [2])


def test_E10_one_group_at_a_time_the_lowest_number_first() -> None:
    script = founded()
    for group, node in ((THREE, 1), (TWO, 2), (ONE, 1)):
        script.place_master(group, node)
    order: list[GroupId] = []
    began_ns = script.loop.now_ns
    while len(order) < 3:
        script.wait(0.25)
        suspended = [g for g in (ONE, TWO, THREE) if script.replica(0, g).handover is not None]
        assert len(suspended) <= 1
        order += [g for g in (ONE, TWO, THREE) if not script.acting(0, g) and g not in order]
        assert script.loop.now_ns < began_ns + 20_000 * MS
    assert order == [ONE, TWO, THREE]
    script.until(lambda: len(script.registry(0).history) == 3)
    assert [one.outcome for one in script.registry(0).history] == [Outcome.DONE] * 3


def test_E11_only_the_ideal_node_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other nodes do not even ask for the token; that the registry would refuse it is another
    rule."""
    begun: list[tuple[GroupId, int]] = []
    carry_out = SimBalancing._carry_out

    def watch(self: SimBalancing, actions: list[Action]) -> None:
        begun.extend(
            (action.command.group, self._node.me)
            for action in actions
            if isinstance(action, ProposeRegistry) and isinstance(action.command, AcquireStealToken)
        )
        carry_out(self, actions)

    monkeypatch.setattr(SimBalancing, "_carry_out", watch)
    script = founded()
    ideal = {ONE: 2, TWO: 1, THREE: 2}
    for group, node in ideal.items():
        script.place_master(group, node)
    script.until(lambda: all(script.masters(group) == [node] for group, node in ideal.items()))
    asked = [
        (sent.message.group, sent.source)
        for sent in script.sent(StealRequest)
        if isinstance(sent.message, StealRequest)
    ]
    assert sorted(set(asked)) == sorted(set(begun)) == sorted(ideal.items())


def test_E15_what_a_client_sends_again_after_a_steal_went_wrong_is_there_once() -> None:
    """The row leaves duplicates to the application. Here the producer's sequence finds them: both
    the old master's proposal and the retry at the new one are chosen, and one is executed."""
    script = founded((REGISTRY_GROUP, ONE))
    script.write_all(0, 2)
    held = script.hold(source=0, where=lambda one: isinstance(one, Accept) and one.group == ONE)
    script.write(0, 3)
    script.wait(5)
    script.crash(0)  # it has proposed, and answered nobody
    script.until(lambda: script.masters(ONE) in ([1], [2]))
    master = script.masters(ONE)[0]
    script.until_acknowledged(script.write(master, 3))
    script.release(held)
    script.boot(0)
    script.until_acknowledged(script.write(script.masters(ONE)[0], 4, anywhere=True))
    script.same_everywhere(ONE)
    executed = script.agreement.models[ONE].where[FIRST_CLIENT]
    assert len(executed) == 4
    assert executed == sorted(set(executed)), "each once, in order"


def test_E16_the_master_looks_again_before_it_lets_go() -> None:
    """Another steal, another version of the lease, or another token: it keeps the group."""
    script = founded()
    stale, replica = script.node(2), script.replica(2, ONE)
    stale.ask_for(ONE, stale.core.incarnation, replica.lease.ver, 0)  # no token
    stale.ask_for(ONE, stale.core.incarnation, replica.lease.ver, 1_000)  # that nobody has granted
    script.wait(500)
    assert script.masters(ONE) == [0]
    balancing = script.node(1).balancing
    assert balancing is not None
    balancing.propose(PauseBalancer(True, None))
    script.until(lambda: script.registry(0).paused)
    script.place_master(ONE, 2)
    script.wait(2_000)
    assert script.masters(ONE) == [0]
    assert script.steals.count == 0
    balancing.propose(PauseBalancer(False, None))
    script.until(lambda: script.masters(ONE) == [2])


def test_E17_who_produces_to_the_old_master_sees_nothing() -> None:
    """Commands that come during the steal are proposed by the new master, early."""
    script = founded((REGISTRY_GROUP, ONE))
    script.write_all(0, 3)
    script.place_master(ONE, 2)
    tickets = []
    seq = 3
    while not script.acting(2, ONE):
        seq += 1
        tickets.append(script.write(0, seq))
        script.wait(1)
    for _ in range(5):  # the grace period after it
        seq += 1
        tickets.append(script.write(0, seq))
        script.wait(1)
    script.until(lambda: all(ticket.slot for ticket in tickets))
    assert not any(ticket.refused for ticket in tickets)
    assert script.statistics["forwards"] > 0
    slots = [ticket.slot for ticket in tickets]
    assert slots == sorted(slots)


def test_E18_the_current_master_proposes_it_and_executing_it_makes_the_ideal_node_master() -> None:
    script = founded((REGISTRY_GROUP, ONE))
    began_ns = script.loop.now_ns
    script.place_master(ONE, 2)
    script.until(lambda: script.acting(2, ONE))
    authors = {
        sent.source
        for sent in script.sent(Accept, since_ns=began_ns)
        if isinstance(sent.message, Accept) and sent.message.entry.kind == EntryKind.STEAL
    }
    assert authors == {0}
    assert not script.acting(0, ONE), "the old lease is over, whatever time was left on it"
    assert not list(script.sent(Prepare, since_ns=began_ns)), "and the others have held back"


def test_E20_the_final_period_is_one_propose() -> None:
    """The row has two (the steal, and the ideal node's BeMaster). Here the second is not needed:
    the next entry of the new master is a client's, under the ballot it was given."""
    script = founded((REGISTRY_GROUP, ONE))
    script.place_master(ONE, 2)
    script.until(lambda: script.acting(2, ONE))
    lease = script.replica(2, ONE).lease
    assert (lease.holder, lease.ver, lease.since) == (2, lease.since, lease.ver)
    steal_at = lease.ver
    slot = script.until_acknowledged(script.write(2, 1))
    log = script.held(2, ONE).log
    assert log[steal_at - 1].kind == EntryKind.STEAL
    between = log[steal_at : slot - 1]
    assert not any(isinstance(entry.control, BeMaster) for entry in between)
    assert Slot(slot) == steal_at + 1


def test_E21_the_cycle_ends_at_once_when_the_master_has_changed() -> None:
    """Not at its deadline: everything is resumed, and the next look decides again."""
    script = founded((REGISTRY_GROUP, ONE))
    lost = script.drop(StealRequest)
    script.place_master(ONE, 2)
    script.until(lambda: script.registry(0).token is not None)
    began_ns = script.loop.now_ns
    assert script.node(0).act(ONE, "hand over", script.node(1).me) == ""
    script.until(lambda: script.registry(0).token is None)
    assert script.loop.now_ns - began_ns < CONFIG.deadline_ns // 4
    assert script.registry(0).history[0].outcome is Outcome.LOST
    lost.lift()
    script.until(lambda: script.masters(ONE) == [2])


def test_a_policy_that_allows_it_has_steals_side_by_side() -> None:
    """In some world, with faults; the budget's limit holds in all of them. Which world it is
    changes with every additional message, so small worlds are tried in turn."""
    together = 0
    for options in map(draw, range(760, 1_500)):
        several = len(options.groups) > 2 and options.nodes < 7
        if options.balancing and options.steals_max == 2 and several:
            world = make_world(options)
            world.run()
            together = world.steals.together
            if together == 2:
                break
    assert together == 2
