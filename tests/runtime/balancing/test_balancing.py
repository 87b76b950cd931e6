"""Joining, balancing and draining as a node does them: three engines and the real registry."""

from itertools import pairwise

import pytest

from balancer.registry.commands import (
    AcquireStealToken,
    Done,
    MergePlacement,
    PauseBalancer,
    Refusal,
    Refused,
    TokenGranted,
)
from broker.proposals.intake import FailureReason, NotDone, Outcome
from paxos.ids import MS, REGISTRY_GROUP, GroupId, Incarnation, NodeId, Slot
from paxos.messages import StealAbort, StealRequest
from runtime.balancing.balancing_loop import STEALS_KEPT
from runtime.membership.known_groups import ALIVE_NS
from runtime.membership.registry_client import RETRY_NS, RegistryClient
from tests.runtime.engines import TICK_MS, command, why
from tests.runtime.offices import GROUPS, Cluster, everything_on

ALL = GROUPS + 1


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def placed(cluster: Cluster) -> Cluster:
    """A cluster after its start: founded, everybody registered, masters on their ideal nodes."""
    cluster.until(cluster.is_placed)
    cluster.advance(500)
    for office in cluster.offices.values():
        office.loop.finished.clear()
        office.loop.outcomes.clear()
    return cluster


# -- joining --------------------------------------------------------------------------------------


def test_nodes_found_their_cluster_register_and_place(cluster: Cluster) -> None:
    """They need no orders, and every node learns the same."""
    cluster.until(cluster.is_placed)
    for registry in cluster.registries.values():
        assert registry.cluster is not None
        assert (registry.cluster.cluster_id, registry.cluster.groups_count) == ("test", GROUPS)
        assert set(registry.nodes) == {1, 2, 3}
        assert registry.placement == cluster[1].registry.placement
    masters = list(cluster.masters().values())
    assert sorted(masters.count(node) for node in (1, 2, 3)) == [2, 2, 3]
    assert all(office.joining.registered for office in cluster.offices.values())


def test_the_first_placement_waits_for_all_nodes(cluster: Cluster) -> None:
    """Otherwise the node that starts last would have nothing, and cause steals."""
    cluster.net.crash(3)
    cluster.advance(8_000)
    assert set(cluster[1].registry.nodes) == {1, 2}
    assert not cluster[1].registry.placement
    cluster.restart(3)
    cluster.until(cluster.is_placed)
    assert 3 in cluster.masters().values()


def test_a_restarted_node_registers_its_new_incarnation(placed: Cluster) -> None:
    placed.net.crash(2)
    placed.advance(1_000)
    placed.restart(2)
    assert not placed[2].joining.registered
    placed.until(lambda: placed[1].registry.nodes[NodeId(2)].incarnation == 2)
    placed.until(lambda: placed[2].joining.registered)
    placed.until(placed.is_placed)


def test_joining_asks_twice_a_second_and_no_more(cluster: Cluster) -> None:
    """While there is no answer; and not at all while there is nobody to ask."""
    asked: list[object] = []
    office = cluster[1]
    office.joining.client = office.client
    office.client.propose = lambda what, _done: asked.append(what)
    cluster.advance(100)
    assert asked == [], "group 0 has no master yet"
    cluster.until(lambda: cluster.net[1].engine.master(REGISTRY_GROUP) is not None)
    asked.clear()
    cluster.advance(5 * RETRY_NS // MS)
    assert 4 <= len(asked) <= 6


def test_the_result_of_a_proposal_comes_back_from_any_node(placed: Cluster) -> None:
    for office in placed.offices.values():
        office.propose(PauseBalancer(paused=True))
        placed.net.settle()
        assert office.results == [Done(placed[1].registry.versions.all)]


def test_a_proposal_whose_fate_is_unknown_has_no_result(placed: Cluster) -> None:
    results: list[object] = []

    class Nowhere:
        def submit(self, *args: object, **_kwargs: object) -> None:
            done = args[2]
            assert callable(done)
            done(NotDone(FailureReason.UNKNOWN))

        def master(self, _group: GroupId) -> NodeId | None:
            return None

    client = RegistryClient(Nowhere(), placed[1].registry)
    client.propose(PauseBalancer(paused=True), results.append)
    assert results == [None]
    assert not client.reachable


# -- balancing ------------------------------------------------------------------------------------


def test_masters_follow_the_placement_one_at_a_time(placed: Cluster) -> None:
    """All on one node, and back; every step is one finished steal, and no group has two masters."""
    before = placed.masters()
    placed.set_placement(everything_on(2))
    moved = [group for group, node in before.items() if node != 2]
    left = [len(moved)]

    def arrived() -> bool:
        left.append(sum(1 for node in placed.masters().values() if node != 2))
        return not left[-1]

    placed.until(arrived)
    assert left == sorted(left, reverse=True)
    assert {before - after for before, after in pairwise(left)} == {0, 1}, "one at a time"
    placed.advance(1_000)
    assert placed.finished() == ["done"] * len(moved)
    assert placed[2].loop.outcomes == {"done": len(moved)}
    assert len(placed[2].loop.durations_s) >= len(moved)
    assert {phase for phase, _ in placed[2].loop.phases_s} == {"token", "handover"}
    assert {steal.group for _, steal in placed[2].loop.finished} == set(moved)
    assert not placed[2].loop.busy


def test_nobody_who_writes_during_a_steal_gets_an_error(placed: Cluster) -> None:
    """Whichever node a client sends to, as long as it follows the redirects."""
    group = GroupId(1)
    placed.set_placement(everything_on(3))
    target = 1
    answers: list[str] = []
    for _ in range(1_000):
        outcomes: list[Outcome] = []
        engine = placed.net[target].engine
        engine.submit(group, command("x"), outcomes.append)
        placed.advance(TICK_MS)
        (outcome,) = outcomes
        if isinstance(outcome, NotDone):
            assert outcome.why is FailureReason.NOT_MASTER
            assert outcome.master is not None
            target = outcome.master
        else:
            answers.append(why(outcomes))
        if placed.is_placed():
            break
    assert placed.is_placed()
    assert "done" in answers
    placed.advance(600)
    assert len(placed.net[1].ledgers[group].lines) == len(answers)


def test_a_paused_balancer_moves_nothing(placed: Cluster) -> None:
    placed[1].propose(PauseBalancer(paused=True))
    placed.advance(100)
    before = placed.masters()
    placed.set_placement(everything_on(2))
    placed.advance(5_000)
    assert placed.masters() == before
    placed[3].propose(PauseBalancer(paused=False))
    placed.until(placed.is_placed)


def test_a_dead_nodes_groups_come_back_to_it(placed: Cluster) -> None:
    """Others take them when their leases have expired; the node comes back and steals its own."""
    placed.net.crash(2)
    placed.until(lambda: all(node in (1, 3) for node in placed.masters().values()))
    placed.restart(2)
    placed.until(placed.is_placed)


def test_the_last_steals_are_remembered_and_no_more(placed: Cluster) -> None:
    for _ in range(2 + STEALS_KEPT // ALL):
        for node in (1, 2):
            placed.set_placement(everything_on(node))
            placed.until(placed.is_placed)
    assert len(placed[2].loop.finished) == STEALS_KEPT
    walls = [wall_ns for wall_ns, _ in placed[2].loop.finished]
    assert walls == sorted(walls)


# -- the master's own check -----------------------------------------------------------------------


class Token:
    """A token for group 1; node 1 is its master, and node 2 wants it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.master = cluster, cluster[1]
        cluster.set_placement(everything_on(1))
        cluster.until(lambda: cluster.masters() == everything_on(1))
        cluster.set_placement(everything_on(2))
        for office in cluster.offices.values():
            office.loop.machine = None
        cluster.advance(40)
        member = cluster.net[2]
        self.replica = member.multi.replicas[GroupId(1)]
        now = member.engine.now()
        registry = cluster[2].registry
        cluster[2].propose(
            AcquireStealToken(
                group=GroupId(1),
                source=NodeId(1),
                target=NodeId(2),
                target_incarnation=member.multi.incarnation,
                attempt=99,
                master_version=self.replica.lease.ver,
                placement_version=registry.versions.placement,
                now_wall_ns=now.wall_ns,
                duration_ns=2_000 * MS,
            )
        )
        cluster.advance(40)
        (granted,) = cluster[2].results
        assert isinstance(granted, TokenGranted)
        self.token = granted.token

    def request(self, *, group: int = 1, token: int | None = None) -> StealRequest:
        number = self.token.token if token is None else token
        incarnation = self.cluster.net[2].multi.incarnation
        return StealRequest(GroupId(group), incarnation, self.replica.lease.ver, Slot(1), number)

    def asked_by(self, node: int, request: StealRequest) -> bool | None:
        now = self.cluster.net[1].engine.now()
        return self.master.loop.may_hand_over(now, NodeId(node), request)

    def refusal(self, node: int, request: StealRequest) -> str:
        net = self.cluster.net
        net.sent.clear()
        assert self.asked_by(node, request) is False
        (sent,) = net.sent
        assert sent.target == node
        assert isinstance(sent.message, StealAbort)
        return sent.message.reason


@pytest.fixture
def token(placed: Cluster) -> Token:
    return Token(placed)


def test_the_holder_of_the_token_may_steal(token: Token) -> None:
    assert token.asked_by(2, token.request()) is True


def test_a_token_that_is_ahead_of_our_registry_is_asked_about_again(token: Token) -> None:
    assert token.asked_by(2, token.request(token=token.token.token + 1)) is None


def test_all_others_are_told_why_not(token: Token) -> None:
    assert token.refusal(3, token.request()) == "token of another"
    assert token.refusal(2, token.request(group=2)) == "no token"
    assert token.refusal(2, token.request(token=token.token.token - 1)) == "no token"


def test_a_token_that_has_run_out_is_none(token: Token) -> None:
    token.cluster.advance(2_100)
    assert token.refusal(2, token.request()) == "token of another"


@pytest.mark.parametrize("group", [None, GroupId(1)])
def test_a_pause_that_came_after_the_token_counts(token: Token, group: GroupId | None) -> None:
    token.cluster[3].propose(PauseBalancer(paused=True, group=group))
    token.cluster.advance(40)
    assert token.refusal(2, token.request()) == "paused"


def test_E16_a_plan_that_has_changed_since_the_token_is_not_carried_out(token: Token) -> None:
    """The group's ideal node has changed: the steal would only have to be undone."""
    assert token.asked_by(2, token.request()) is True
    token.cluster[3].propose(MergePlacement(None, GroupId(1), NodeId(3)))
    token.cluster.advance(40)
    assert token.refusal(2, token.request()) == "stale plan"


# -- draining -------------------------------------------------------------------------------------


def drain(cluster: Cluster, node: int, ms_max: int = 5_000) -> int:
    """What node.py does on SIGTERM; returns how long it took, in ms."""
    office, member = cluster[node], cluster.net[node]
    office.loop.start_draining()
    for other in cluster.net.others(node):
        if other.up:
            other.engine.on_draining(NodeId(node), True)
    for ms in range(0, ms_max, TICK_MS):
        if not office.loop.drain_next(member.engine.now()):
            return ms
        member.engine.end_round()
        cluster.advance(TICK_MS)
    return ms_max


def test_a_draining_node_gives_everything_away(placed: Cluster) -> None:
    """To those that have least; and it takes nothing back, whatever its ideal share was."""
    assert 2 in placed.masters().values()
    took = drain(placed, 2)
    assert took < 2_000
    assert all(node in (1, 3) for node in placed.masters().values())
    counts = [list(placed.masters().values()).count(node) for node in (1, 3)]
    assert sorted(counts) == [3, 4]
    placed.advance(3_000)
    assert 2 not in placed.masters().values()
    placed.net.crash(1)
    placed.until(lambda: placed.masters() == everything_on(3))


def test_a_group_goes_to_its_ideal_node_if_that_can_take_it(placed: Cluster) -> None:
    placed.set_placement(everything_on(2))
    placed.until(placed.is_placed)
    for office in placed.offices.values():
        office.loop.machine = None
    placed.set_placement(everything_on(3))
    placed.advance(100)
    drain(placed, 2)
    assert placed.masters() == everything_on(3)


def test_a_whole_cluster_that_stops_does_not_wait(placed: Cluster) -> None:
    """All nodes are draining: there is nobody to give anything to."""
    for node in (1, 2, 3):
        placed[node].loop.start_draining()
        for other in placed.net.others(node):
            other.engine.on_draining(NodeId(node), True)
    assert [drain(placed, node) for node in (1, 2, 3)] == [0, 0, 0]


def test_the_last_node_does_not_wait_for_the_dead(placed: Cluster) -> None:
    """It heard from them a moment ago, but their links are down, so they are gone."""
    placed.net.crash(1)
    placed.net.crash(3)
    member = placed.net[2]
    heard = member.multi.heard
    assert all(member.engine.now().boot_ns - heard[NodeId(node)] < ALIVE_NS for node in (1, 3))
    assert placed[2].loop.masters(member.engine.now())
    assert drain(placed, 2) == 0


def test_a_handover_to_a_node_that_dies_is_not_waited_for(placed: Cluster) -> None:
    """Its Steal may or may not be chosen: others will find out, and this node cannot help."""
    placed.net[1].writer.held = placed.net[3].writer.held = True
    office, member = placed[2], placed.net[2]
    office.loop.start_draining()
    assert office.loop.drain_next(member.engine.now())
    member.engine.end_round()
    placed.net.settle()
    assert any(one.handing_to is not None for one in member.multi.replicas.values())
    assert office.loop.drain_next(member.engine.now()), "one is on its way"
    placed.net.crash(1)
    placed.net.crash(3)
    assert office.loop.drain_next(member.engine.now()) == 0


def test_a_node_that_is_behind_is_waited_for(placed: Cluster) -> None:
    """It is up, and will have caught up in a moment."""
    office, member = placed[2], placed.net[2]
    placed.net.crash(1)
    for replica in member.multi.replicas.values():
        replica.peer(NodeId(3)).applied = Slot(-10_000)
    office.loop.start_draining()
    assert office.loop.drain_next(member.engine.now()) > 0


def test_a_node_without_masters_is_drained_at_once(placed: Cluster) -> None:
    placed.set_placement(everything_on(1))
    placed.until(placed.is_placed)
    assert drain(placed, 2) == 0


def test_a_draining_node_steals_nothing(placed: Cluster) -> None:
    placed[2].loop.start_draining()
    placed.set_placement(everything_on(2))
    before = placed.masters()
    placed.advance(2_000)
    now = [group for group, node in placed.masters().items() if node == 2]
    assert set(now) <= {group for group, node in before.items() if node == 2}
    assert not placed[2].loop.busy


def test_a_refused_steal_gives_forwards_back(placed: Cluster) -> None:
    """The old master aborted the steal: its forwarded commands are answered with whom to ask."""
    engine = placed.net[2].engine
    intake = engine.intakes[GroupId(1)]
    placed.set_placement(everything_on(1))
    placed.until(placed.is_placed)
    outcomes: list[tuple[NodeId, int, Outcome]] = []
    links = engine.links
    assert links is not None
    links.answer_forward = lambda to, number, outcome: outcomes.append((to, number, outcome))
    data = memoryview(b"".join(command("x")))
    engine.on_forward(NodeId(1), 5, GroupId(1), True, data)
    assert len(intake.adopted) == 1
    engine.on_message(NodeId(1), StealAbort(GroupId(1), Slot(1), "drain timed out"))
    placed.net.settle()
    assert outcomes == [(1, 5, NotDone(FailureReason.NOT_MASTER, NodeId(1)))]


def test_an_incarnation_that_is_gone_is_no_target(placed: Cluster) -> None:
    """A steal names the incarnation of its target: a restarted node gets nothing."""
    request = StealRequest(GroupId(1), Incarnation(0), Slot(1), Slot(1), 0)
    master = placed.masters()[1]
    assert master is not None
    placed.net.sent.clear()
    other = 1 + master % 3
    placed.net[master].engine.on_message(NodeId(other), request)
    placed.net.settle()
    assert placed.masters()[1] == master
    assert any(isinstance(sent.message, StealAbort) for sent in placed.net.sent)


def test_results_are_what_the_registry_said(placed: Cluster) -> None:
    placed[1].propose(PauseBalancer(paused=False, group=GroupId(99)))
    placed.net.settle()
    assert placed[1].results == [Refused(Refusal.UNKNOWN_GROUP, "group 99")]
