"""The stealing loop of one node, as stories: what it sees, and what it does then.

In all of them groups 2 and 3 are on node 1 and belong on nodes 2 and 3; "we" are node 2 by default.
"""

from typing import Any

import attrs
import pytest

from balancer.registry.commands import (
    AcquireStealToken,
    Refusal,
    Refused,
    ReleaseStealToken,
    TokenGranted,
    TokenRefused,
    TokenReleased,
)
from balancer.registry.records import Outcome, StealRecord, StealToken
from balancer.stealing.judgement import StealReason
from balancer.stealing.steal import (
    NEXT_STATE,
    Action,
    Balancing,
    BalancingConfig,
    ProposeRegistry,
    RequestSteal,
    State,
    StealFinished,
    Stimulus,
)
from balancer.stealing.view import ClusterView, GroupView
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now, Slot
from tests.balancer.literals import at, group, view

CONFIG = BalancingConfig(hold_down_ns=0)
MASTERS: dict[int, int | None] = {2: 1, 3: 1}
IDEAL = {2: 2, 3: 3}


def cluster(now: Now, *, me: int = 2, **kwargs: Any) -> ClusterView:
    return view(now, kwargs.pop("masters", MASTERS), kwargs.pop("ideal", IDEAL), me=me, **kwargs)


def with_group_2(now: Now, seen: GroupView, **kwargs: Any) -> ClusterView:
    return cluster(now, groups={2: seen}, **kwargs)


def tick(machine: Balancing, ms: float, **kwargs: Any) -> list[Action]:
    return machine.on_tick(at(ms), cluster(at(ms), **kwargs))


def token_for(action: Action, token: int = 1) -> StealToken:
    """The token the registry would grant for this request."""
    assert isinstance(action, ProposeRegistry)
    command = action.command
    assert isinstance(command, AcquireStealToken)
    return StealToken(
        token,
        command.group,
        command.source,
        command.target,
        command.target_incarnation,
        command.attempt,
        command.master_version,
        command.placement_version,
        command.now_wall_ns,
        command.now_wall_ns + command.duration_ns,
    )


def requested(config: BalancingConfig = CONFIG) -> tuple[Balancing, StealToken]:
    """A machine that asked for the token at 0 ms, got it at 2 ms, and has asked the master."""
    machine = Balancing(config)
    (asked,) = tick(machine, 0)
    token = token_for(asked)
    assert machine.on_token_result(at(2), TokenGranted(token)) == [
        RequestSteal(GroupId(2), NodeId(1), Slot(10))
    ]
    return machine, token


def outcome(actions: list[Action]) -> Outcome | None:
    """The outcome of the cycle that these actions end; the token is given back with it."""
    if not actions:
        return None
    finished, release = actions
    assert isinstance(finished, StealFinished)
    assert isinstance(release, ProposeRegistry)
    assert isinstance(release.command, ReleaseStealToken)
    assert release.command.outcome is finished.outcome
    return finished.outcome


# ---- who acts ------------------------------------------------------------------------------------


def test_E10_only_the_lowest_numbered_misplaced_group_is_stolen() -> None:
    """Group 2 is first, so node 2 acts and node 3 waits for it."""
    (action,) = tick(Balancing(CONFIG), 0, me=2)
    assert action == ProposeRegistry(
        AcquireStealToken(
            group=GroupId(2),
            source=NodeId(1),
            target=NodeId(2),
            target_incarnation=Incarnation(1),
            attempt=1,
            master_version=Slot(10),
            placement_version=1,
            now_wall_ns=at(0).wall_ns,
            duration_ns=CONFIG.token_ns,
        )
    )
    assert tick(Balancing(CONFIG), 0, me=3) == []


def test_E11_only_the_ideal_node_starts() -> None:
    """Neither the master itself nor any other node does anything about a misplaced group."""
    for me in (1, 3):
        machine = Balancing(CONFIG)
        assert tick(machine, 0, me=me, masters={2: 1}, ideal={2: 2}) == []
        assert machine.explain(cluster(at(0), me=me, masters={2: 1})) == [
            (2, StealReason.OTHERS_TURN),
            (3, StealReason.NOT_SEEN),
        ]


def test_E9_nothing_to_do_in_a_balanced_cluster() -> None:
    assert tick(Balancing(CONFIG), 0, masters={2: 2, 3: 3}) == []


def test_E10_nothing_new_while_a_steal_runs() -> None:
    """Another node's token stops us until it has safely expired."""
    (asked,) = tick(Balancing(CONFIG), 0, me=3, masters={3: 1}, ideal={3: 3})
    held = token_for(asked)
    machine = Balancing(CONFIG)
    assert tick(machine, 10, token=held) == []
    assert dict(machine.explain(cluster(at(10), token=held))) == {
        2: StealReason.TOKEN_HELD,
        3: StealReason.STEALING,
    }
    assert tick(machine, 10_500, token=held) == []
    assert len(tick(machine, 10_600, token=held)) == 1


@pytest.mark.parametrize(
    ("now", "change", "why"),
    [
        (at(0), {"registry_reachable": False}, StealReason.REGISTRY_UNREACHABLE),
        (at(0, trusted=False), {}, StealReason.CLOCK_UNTRUSTED),
    ],
)
def test_a_node_that_cannot_act_safely_does_not(
    now: Now, change: dict[str, Any], why: StealReason
) -> None:
    machine = Balancing(CONFIG)
    seen = cluster(now, **change)
    assert machine.on_tick(now, seen) == []
    assert dict(machine.explain(seen))[GroupId(2)] is why


def test_a_node_that_just_booted_holds_down() -> None:
    """Its first tick starts the hold-down; the node steals only after it."""
    machine = Balancing(BalancingConfig(hold_down_ns=3_000 * MS))
    assert tick(machine, 500) == []
    assert dict(machine.explain(cluster(at(3_499))))[GroupId(2)] is StealReason.HOLD_DOWN
    assert tick(machine, 3_499) == []
    assert len(tick(machine, 3_500)) == 1


def test_a_node_behind_looks_past_the_group_but_not_past_all() -> None:
    """We lag in group 2 and are up to date in group 4: so we steal group 4."""
    behind = group(2, 1, applied=10, chosen_to=10 + CONFIG.lag_slots_max + 1)
    seen = with_group_2(at(0), behind, masters={2: 1, 4: 1}, ideal={2: 2, 4: 2})
    (action,) = Balancing(CONFIG).on_tick(at(0), seen)
    assert token_for(action).group == 4


# ---- a steal that goes well ----------------------------------------------------------------------


def test_a_whole_steal() -> None:
    """Token, request, change of master, return of the token; then the next one right after the
    pause."""
    machine, token = requested()
    assert tick(machine, 4, token=token) == []
    done = machine.on_tick(at(9), with_group_2(at(9), group(2, 2, lease_ver=51, epoch=51)))
    assert outcome(done) is Outcome.DONE
    finished = done[0]
    assert isinstance(finished, StealFinished)
    assert (finished.group, finished.source, finished.target) == (2, 1, 2)
    assert finished.duration_ns == 9 * MS
    assert finished.phases.token_ns == 2 * MS
    assert finished.phases.handover_ns == 7 * MS
    assert done[1] == ProposeRegistry(ReleaseStealToken(token.token, Outcome.DONE, 9_000))

    more = {"masters": {2: 2, 4: 1}, "ideal": {2: 2, 4: 2}}
    assert tick(machine, 10, **more) == [], "the token is not given back yet"
    assert machine.on_token_result(at(11), TokenReleased(token.token, True)) == []
    assert machine.state is State.IDLE
    assert tick(machine, 110, **more) == [], "the pause between two steals"
    (again,) = tick(machine, 111, **more)
    assert token_for(again).group == 4
    assert token_for(again).attempt == 2


def test_the_pause_also_follows_other_nodes_steals() -> None:
    """The token of another node was seen until 50 ms: nothing happens before 150 ms."""
    (asked,) = tick(Balancing(CONFIG), 0, me=3, masters={3: 1}, ideal={3: 3})
    machine = Balancing(CONFIG)
    tick(machine, 50, token=token_for(asked))
    assert tick(machine, 149) == []
    assert len(tick(machine, 150)) == 1


# ---- the watchdog --------------------------------------------------------------------------------


def test_E21_two_renewals_of_the_old_master_end_the_cycle() -> None:
    """One renewal may cross our request; two mean that the master does not let go."""
    machine, token = requested()
    once = group(2, 1, lease_ver=60, renewals=1)
    twice = group(2, 1, lease_ver=70, renewals=2)
    assert machine.on_tick(at(500), with_group_2(at(500), once, token=token)) == []
    assert outcome(machine.on_tick(at(900), with_group_2(at(900), twice))) is Outcome.RENEWED


def test_E21_another_master_than_the_ideal_one_ends_the_cycle() -> None:
    machine, _ = requested()
    taken = group(2, 3, lease_ver=60, epoch=60)
    assert outcome(machine.on_tick(at(20), with_group_2(at(20), taken))) is Outcome.LOST


def test_E21_the_old_master_in_a_new_incarnation_ends_the_cycle() -> None:
    """It restarted: whatever it was going to do for us is forgotten."""
    machine, _ = requested()
    reborn = group(2, 1, lease_ver=60, epoch=60)
    assert outcome(machine.on_tick(at(20), with_group_2(at(20), reborn))) is Outcome.LOST


def test_E21_the_deadline_ends_the_cycle_and_counts_from_before_the_token() -> None:
    """The master is gone and no answer ever comes: the cycle ends by our own clock."""
    machine, token = requested()
    nobody = group(2, None)
    edge = CONFIG.deadline_ns / MS
    assert machine.on_tick(at(edge - 1), with_group_2(at(edge - 1), nobody, token=token)) == []
    assert outcome(machine.on_tick(at(edge), with_group_2(at(edge), nobody))) is Outcome.TIMED_OUT


def test_an_abort_ends_the_cycle_after_a_moment() -> None:
    """Not at once: the abort may answer a duplicate of a request that is being carried out."""
    machine, token = requested()
    machine.on_abort(at(5), GroupId(2), "target behind")
    assert tick(machine, 50, token=token) == []
    ended = tick(machine, 105, token=token)
    assert outcome(ended) is Outcome.ABORTED
    assert isinstance(ended[0], StealFinished)
    assert ended[0].detail == "target behind"


def test_an_abort_because_of_a_renewal_is_answered_with_a_new_request() -> None:
    """Our request named lease version 10 and crossed a renewal to 60: ask again, with 60."""
    machine, token = requested()
    machine.on_abort(at(5), GroupId(2), "stale version")
    renewed = group(2, 1, lease_ver=60, renewals=1)
    assert machine.on_tick(at(8), with_group_2(at(8), renewed, token=token)) == [
        RequestSteal(GroupId(2), NodeId(1), Slot(60))
    ]
    assert machine.on_tick(at(200), with_group_2(at(200), renewed, token=token)) == []


def test_a_success_overrules_an_abort() -> None:
    machine, _ = requested()
    machine.on_abort(at(5), GroupId(2), "busy")
    mine = group(2, 2, lease_ver=51, epoch=51)
    assert outcome(machine.on_tick(at(500), with_group_2(at(500), mine))) is Outcome.DONE


def test_an_abort_of_another_group_means_nothing() -> None:
    machine, token = requested()
    machine.on_abort(at(5), GroupId(3), "busy")
    assert tick(machine, 1_000, token=token) == []


def test_a_failed_group_is_muted_and_the_next_one_goes_on() -> None:
    """The registry's history tells every node; after the cool-down group 2 is first again."""
    failed = StealRecord(
        1,
        GroupId(2),
        NodeId(1),
        NodeId(2),
        Slot(10),
        1,
        Outcome.TIMED_OUT,
        at(0).wall_ns,
        5_000_000,
    )
    assert len(tick(Balancing(CONFIG), 100, me=3, history=(failed,))) == 1
    assert tick(Balancing(CONFIG), 100, me=2, history=(failed,)) == []
    assert len(tick(Balancing(CONFIG), 5_000, me=2, history=(failed,))) == 1


# ---- unwanted answers of the registry ------------------------------------------------------------


def test_a_refused_token_is_asked_for_again_later() -> None:
    machine = Balancing(CONFIG)
    (asked,) = tick(machine, 0)
    wanted = token_for(asked)
    machine.on_token_result(at(2), TokenRefused(Refusal.STALE_PLAN, wanted.group, wanted.attempt))
    assert machine.state is State.IDLE
    assert tick(machine, 251) == []
    assert len(tick(machine, 252)) == 1
    assert machine.statistics().refusals == {Refusal.STALE_PLAN: 1}


def test_an_answer_to_an_earlier_request_means_nothing() -> None:
    """The refusal of attempt 1 arrives while attempt 2 is under way."""
    machine = Balancing(CONFIG)
    tick(machine, 0)
    tick(machine, 1_000)
    (second,) = tick(machine, 1_250)
    machine.on_token_result(at(1_251), TokenRefused(Refusal.TOKEN_HELD, GroupId(2), 1))
    assert machine.state is State.ACQUIRING
    late = attrs.evolve(token_for(second), attempt=1)
    assert machine.on_token_result(at(1_252), TokenGranted(late)) == []


def test_a_lost_grant_is_found_in_our_own_copy_of_the_registry() -> None:
    machine = Balancing(CONFIG)
    (asked,) = tick(machine, 0)
    assert tick(machine, 100, token=token_for(asked)) == [
        RequestSteal(GroupId(2), NodeId(1), Slot(10))
    ]


def test_a_token_granted_after_we_stopped_waiting_is_given_back() -> None:
    """Otherwise it would stop the whole cluster until it expires."""
    machine = Balancing(CONFIG)
    (asked,) = tick(machine, 0)
    assert tick(machine, 1_000) == []
    assert machine.state is State.IDLE
    token = token_for(asked)
    assert machine.on_token_result(at(1_001), TokenGranted(token)) == []
    assert tick(machine, 1_100, token=token) == [
        ProposeRegistry(ReleaseStealToken(token.token, Outcome.ABANDONED, 1_100_000))
    ]


def test_a_node_that_was_paused_does_not_use_an_old_grant() -> None:
    """The answer was in our inbox while the process was stopped; another node may have the token
    now."""
    machine = Balancing(CONFIG)
    (asked,) = tick(machine, 0)
    assert machine.on_token_result(at(12_000), TokenGranted(token_for(asked))) == []
    assert machine.state is State.IDLE


def test_a_token_of_our_former_life_is_left_to_expire() -> None:
    """The master may still be carrying out the steal it was for, and nobody watches it."""
    (asked,) = tick(Balancing(CONFIG), 0)
    old = attrs.evolve(token_for(asked), target_incarnation=Incarnation(0))
    assert tick(Balancing(CONFIG), 100, token=old) == []


def test_a_lost_release_is_sent_again_while_the_token_is_held() -> None:
    machine, token = requested()
    mine = group(2, 2, lease_ver=51, epoch=51)
    first = machine.on_tick(at(10), with_group_2(at(10), mine, token=token))
    assert machine.on_tick(at(1_009), with_group_2(at(1_009), mine, token=token)) == []
    assert machine.on_tick(at(1_010), with_group_2(at(1_010), mine, token=token)) == first[1:]
    assert machine.on_tick(at(2_010), with_group_2(at(2_010), mine)) == []
    assert machine.state is State.IDLE, "our copy says that it is gone"


def test_our_copy_of_the_registry_may_lag_behind_the_answer() -> None:
    """The release is confirmed but the local copy still shows the token: it is not released
    twice."""
    machine, token = requested()
    mine = group(2, 2, lease_ver=51, epoch=51)
    machine.on_tick(at(10), with_group_2(at(10), mine, token=token))
    machine.on_token_result(at(12), TokenReleased(token.token, True))
    assert machine.on_tick(at(13), with_group_2(at(13), mine, token=token)) == []


def test_a_registry_that_does_not_understand_us_is_a_refusal() -> None:
    """An older version of it: we become idle and show it in the statistics."""
    machine = Balancing(CONFIG)
    tick(machine, 0)
    machine.on_token_result(at(1), Refused(Refusal.MALFORMED))
    assert machine.state is State.IDLE
    assert machine.statistics().refusals == {Refusal.MALFORMED: 1}


# ---- nodes that do not use their turn ------------------------------------------------------------


def test_an_idle_ideal_node_is_passed_over() -> None:
    """Node 2 is alive and does nothing on its turn (it lags, say): node 3 goes on after a while."""
    machine = Balancing(CONFIG)
    assert tick(machine, 0, me=3) == []
    assert tick(machine, 1_999, me=3) == []
    assert tick(machine, 2_000, me=3) == []
    (action,) = tick(machine, 2_001, me=3)
    assert token_for(action).group == 3
    assert dict(machine.explain(cluster(at(2_001), me=3)))[GroupId(2)] is StealReason.PASSED_OVER
    assert machine.statistics().passed_over == (2,)


def test_being_passed_over_ends() -> None:
    """After that time the order is as before."""
    machine = Balancing(CONFIG)
    for ms in (0, 2_000, 2_001):
        tick(machine, ms, me=3)
    machine.on_token_result(at(2_002), TokenRefused(Refusal.TOKEN_HELD, GroupId(3), 1))
    assert tick(machine, 2_000 + CONFIG.pass_over_ns / MS, me=3) == []


def test_a_running_steal_is_not_idleness() -> None:
    """The waiting time counts only while nobody holds the token."""
    (asked,) = tick(Balancing(CONFIG), 0)
    running = token_for(asked)
    machine = Balancing(CONFIG)
    for ms in (0, 1_500, 3_000):
        assert tick(machine, ms, me=3, token=running) == []
    assert tick(machine, 4_900, me=3) == []
    assert machine.statistics().passed_over == ()


# ---- the table and the configuration -------------------------------------------------------------


def test_every_state_can_be_left_and_all_ways_lead_home() -> None:
    """Every state has an exit, and idle can be reached from each of them."""
    for state in State:
        seen, front = {state}, [state]
        while front:
            here = front.pop()
            following = {after for (before, _), after in NEXT_STATE.items() if before is here}
            front.extend(following - seen)
            seen |= following
        assert State.IDLE in seen
    assert {stimulus for _, stimulus in NEXT_STATE} == set(Stimulus)


@pytest.mark.parametrize(
    "wrong",
    [
        {"acquire_timeout_ns": 0},
        {"acquire_timeout_ns": 5_000 * MS},
        {"token_ns": 5_000 * MS},
        {"token_ns": 61_000 * MS},
        {"patience_ns": 300 * MS},
        {"requests_max": 0},
        {"pause_ns": -1},
    ],
    ids=str,
)
def test_a_configuration_that_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"acquire|token|patience|requests"):
        BalancingConfig(**wrong)
