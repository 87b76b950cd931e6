"""The stealing loop of one node: one pure state machine (E9-E11, E16, E20, E21; design.md "steal").

Every node runs it and looks at the same registry, and only the ideal node of the lowest-numbered
misplaced group acts: it takes the cluster's one steal token, asks the master, watches, and gives
the token back. The master's half (forward, drain, one Steal entry) lives in `paxos/`; this half
never touches the log and can be stopped at any point: the token expires, the master resumes by
itself, and the next tick looks at the cluster afresh.

The shell calls `on_tick` every few tens of milliseconds and whenever a lease has changed hands,
passes on results and aborts, and carries out the actions in order. An action may fail silently:
every state ends by a timer on this node's boot clock.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import attrs

from balancer.registry.commands import (
    AcquireStealToken,
    Refusal,
    Refused,
    ReleaseStealToken,
    Result,
    TokenGranted,
    TokenRefused,
    TokenReleased,
)
from balancer.registry.records import TOKEN_NS_MAX, Outcome, StealToken
from balancer.stealing.judgement import Limits, StealReason, judge, token_held
from balancer.stealing.view import ClusterView, GroupView
from paxos.ids import MS, Epoch, GroupId, Incarnation, NodeId, Now, Slot

RENEWALS_MAX: Final = 2
"""This many renewals by the old master within one cycle end the cycle (E21)."""


@attrs.frozen(kw_only=True)
class BalancingConfig:
    """All in nanoseconds. The relations keep one steal at a time: see `__attrs_post_init__`."""

    hold_down_ns: int = 3_000 * MS
    """How long after its start a node does not steal."""
    pause_ns: int = 100 * MS
    """Pause between two steals, whichever node made the first."""
    acquire_timeout_ns: int = 1_000 * MS
    deadline_ns: int = 5_000 * MS
    """For a whole cycle, counted from before the token was requested (E6)."""
    abort_grace_ns: int = 100 * MS
    """After an abort: long enough to see that the lease was only renewed, and ask again."""
    requests_max: int = 3
    """Requests to the master within one cycle."""
    release_timeout_ns: int = 1_000 * MS
    token_ns: int = 10_000 * MS
    retry_ns: int = 250 * MS
    """After the registry refused the token or did not answer."""
    cool_down_ns: int = 5_000 * MS
    """How long a group whose steal failed is muted, on all nodes."""
    patience_ns: int = 2_000 * MS
    """An ideal node that does not use its turn for this long is skipped ..."""
    pass_over_ns: int = 10_000 * MS
    """... for this long."""
    lag_slots_max: int = 128

    def __attrs_post_init__(self) -> None:
        if not 0 < self.acquire_timeout_ns < self.deadline_ns:
            raise ValueError("0 < acquire_timeout < deadline")
        if not self.deadline_ns + self.release_timeout_ns <= self.token_ns <= TOKEN_NS_MAX:
            raise ValueError("deadline + release_timeout <= token: the holder must stop first")
        if self.patience_ns <= self.pause_ns + self.retry_ns:
            raise ValueError("patience must be above pause + retry, or a busy node is passed over")
        if self.requests_max < 1 or min(attrs.astuple(self)) < 0:
            raise ValueError("requests_max is at least 1 and nothing is negative")


class State(StrEnum):
    IDLE = "idle"
    ACQUIRING = "acquiring-token"
    REQUESTED = "requested"
    RELEASING = "releasing"


class Stimulus(StrEnum):
    """What moves the machine from state to state."""

    TURN = "our turn"
    GRANTED = "token granted"
    NOT_GRANTED = "token refused, or no answer"
    ENDED = "done, aborted, timed out, renewed or lost"
    LEFTOVER = "a token of ours we no longer wait for"
    RELEASED = "token released, or expired"


NEXT_STATE: Final[Mapping[tuple[State, Stimulus], State]] = {
    (State.IDLE, Stimulus.TURN): State.ACQUIRING,
    (State.IDLE, Stimulus.LEFTOVER): State.RELEASING,
    (State.ACQUIRING, Stimulus.GRANTED): State.REQUESTED,
    (State.ACQUIRING, Stimulus.NOT_GRANTED): State.IDLE,
    (State.REQUESTED, Stimulus.ENDED): State.RELEASING,
    (State.RELEASING, Stimulus.RELEASED): State.IDLE,
}
"""Any other transition is a bug of ours; docs/balancer.md draws the table."""


# ---- actions -------------------------------------------------------------------------------------


@attrs.frozen
class ProposeRegistry:
    """Propose on group 0 and give the result to `on_token_result`."""

    command: AcquireStealToken | ReleaseStealToken


@attrs.frozen
class RequestSteal:
    """Start accepting forwarded produce requests for `group` and send `master` a StealRequest."""

    group: GroupId
    master: NodeId
    lease_ver: Slot


@attrs.frozen
class StealPhases:
    token_ns: int
    """From requesting the token until it was granted."""
    handover_ns: int
    """From asking the master until the end of the cycle was seen."""


@attrs.frozen
class StealFinished:
    """For logs and metrics; if it failed, also the signal to stop accepting forwarded requests."""

    outcome: Outcome
    group: GroupId
    source: NodeId
    target: NodeId
    duration_ns: int
    phases: StealPhases
    detail: str = ""


Action: TypeAlias = ProposeRegistry | RequestSteal | StealFinished


@attrs.frozen
class BalancingStatistics:
    state: State
    group: GroupId | None
    outcomes: Mapping[Outcome, int]
    refusals: Mapping[Refusal, int]
    passed_over: tuple[NodeId, ...]


@attrs.define(kw_only=True)
class _Cycle:
    """One steal, from requesting the token to giving it back."""

    group: GroupId
    source: NodeId
    target: NodeId
    incarnation: Incarnation
    attempt: int
    started_boot_ns: int
    lease_ver: Slot
    epoch: Epoch
    renewals: int
    token: int = 0
    requested_boot_ns: int = 0
    requests: int = 0
    abort_reason: str = ""
    aborted_boot_ns: int | None = None


@attrs.define
class _Release:
    """The command that gives a token back, and when it was last proposed."""

    command: ReleaseStealToken
    proposed_boot_ns: int


def cycle_outcome(
    cycle: _Cycle, seen: GroupView | None, now: Now, config: BalancingConfig
) -> Outcome | None:
    """The watchdog (E21): how the cycle has ended, or None while it is still going on."""
    if seen is not None and seen.master is not None:
        if seen.master == cycle.target:
            return Outcome.DONE
        if seen.master != cycle.source or seen.epoch != cycle.epoch:
            return Outcome.LOST
        if seen.renewals >= cycle.renewals + RENEWALS_MAX:
            return Outcome.RENEWED
    if now.boot_ns >= cycle.started_boot_ns + config.deadline_ns:
        return Outcome.TIMED_OUT
    if (
        cycle.aborted_boot_ns is not None
        and now.boot_ns >= cycle.aborted_boot_ns + config.abort_grace_ns
    ):
        return Outcome.ABORTED
    return None


class Balancing:
    """See the module. One instance per node and boot."""

    def __init__(self, config: BalancingConfig | None = None) -> None:
        self.config = BalancingConfig() if config is None else config
        self.state = State.IDLE
        self._limits = Limits(self.config.lag_slots_max, self.config.cool_down_ns)
        self._booted_boot_ns: int | None = None
        self._cycle: _Cycle | None = None
        self._release: _Release | None = None
        self._attempts = 0
        self._released = 0
        """The last token that the registry confirmed as released: our view may still show it."""
        self._quiet_until_boot_ns = 0
        self._turn: GroupId | None = None
        self._turn_since_boot_ns = 0
        self._passed_over: dict[NodeId, int] = {}
        """Until when (boot clock) each node is passed over."""
        self._outcomes: Counter[Outcome] = Counter()
        self._refusals: Counter[Refusal] = Counter()

    def configure(self, config: BalancingConfig) -> None:
        """Use these times from now on, for a steal under way as well."""
        self.config = config
        self._limits = Limits(config.lag_slots_max, config.cool_down_ns)

    @property
    def token(self) -> int:
        """Number of the token that the current cycle holds, which the master checks; 0 if none."""
        return 0 if self._cycle is None else self._cycle.token

    # ---- events ----------------------------------------------------------------------------------

    def on_tick(self, now: Now, view: ClusterView) -> list[Action]:
        """Look at the cluster and do the next step."""
        if self._booted_boot_ns is None:
            self._booted_boot_ns = now.boot_ns
        if self._foreign_token_held(view):
            self._settle(now, self.config.pause_ns)
        match self.state:
            case State.IDLE:
                return self._look_for_work(now, view)
            case State.ACQUIRING:
                return self._wait_for_token(now, view)
            case State.REQUESTED:
                return self._watch(now, view)
            case State.RELEASING:
                return self._wait_for_release(now, view)

    def on_token_result(self, now: Now, result: Result) -> list[Action]:
        """The registry's answer to a ProposeRegistry; answers to earlier ones are recognised."""
        match result:
            case TokenGranted(token=token):
                if self.state == State.ACQUIRING and self._is_ours(token):
                    return self._granted(now, token)
            case TokenRefused(reason=reason, group=group, attempt=attempt):
                cycle = self._cycle
                if cycle is not None and (cycle.group, cycle.attempt) == (group, attempt):
                    self._not_granted(now, reason)
            case TokenReleased(token=token_id):
                if self._release is not None and self._release.command.token == token_id:
                    self._freed(now, token_id)
            case Refused(reason=reason):
                # Not an answer about tokens: our command was not understood (an older registry).
                self._not_granted(now, reason)
            case _:
                raise AssertionError(f"not a result of a token command: {result}")
        return []

    def on_abort(self, now: Now, group: GroupId, reason: str) -> list[Action]:
        """The master sent a StealAbort; a moment later a tick decides whether to ask again."""
        cycle = self._cycle
        if self.state == State.REQUESTED and cycle is not None and cycle.group == group:
            cycle.abort_reason = reason
            if cycle.aborted_boot_ns is None:
                cycle.aborted_boot_ns = now.boot_ns
        return []

    def explain(self, view: ClusterView) -> list[tuple[GroupId, StealReason]]:
        """A reason for every group: why this node does not move it now, or that it does."""
        reasons, turn = judge(view, self._limits, self._passed_over_now(view.now))
        if turn is None:
            return reasons
        obstacle = self._own_obstacle(view.now, view, turn)
        return [
            (group, why if obstacle is None or group != turn else obstacle)
            for group, why in reasons
        ]

    def statistics(self) -> BalancingStatistics:
        return BalancingStatistics(
            state=self.state,
            group=None if self._cycle is None else self._cycle.group,
            outcomes=dict(self._outcomes),
            refusals=dict(self._refusals),
            passed_over=tuple(sorted(self._passed_over)),
        )

    # ---- idle ------------------------------------------------------------------------------------

    def _look_for_work(self, now: Now, view: ClusterView) -> list[Action]:
        leftover = view.token
        if (
            leftover is not None
            and (leftover.target, leftover.target_incarnation) == (view.me, view.incarnation)
            and leftover.token > self._released
            and view.registry_reachable
        ):
            held_us = max(0, now.wall_ns - leftover.acquired_wall_ns) // 1_000
            self._move(Stimulus.LEFTOVER)
            return [self._give_back(now, leftover.token, Outcome.ABANDONED, held_us)]
        self._passed_over = self._passed_over_now(now)
        _, turn = judge(view, self._limits, self._passed_over)
        self._watch_turn(now, view, turn)
        if turn is None or self._own_obstacle(now, view, turn) is not None:
            return []
        return [self._start(now, view, turn)]

    def _own_obstacle(self, now: Now, view: ClusterView, turn: GroupId) -> StealReason | None:
        """Why this node does not act although it is the turn of group `turn`; None if it does."""
        booted = now.boot_ns if self._booted_boot_ns is None else self._booted_boot_ns
        checks = (
            (token_held(view), StealReason.TOKEN_HELD),
            (view.placement[turn] != view.me, StealReason.OTHERS_TURN),
            (now.boot_ns < booted + self.config.hold_down_ns, StealReason.HOLD_DOWN),
            (not view.registry_reachable, StealReason.REGISTRY_UNREACHABLE),
            (not now.trusted, StealReason.CLOCK_UNTRUSTED),
            (now.boot_ns < self._quiet_until_boot_ns, StealReason.SETTLING),
        )
        return next((why for blocked, why in checks if blocked), None)

    def _start(self, now: Now, view: ClusterView, group: GroupId) -> Action:
        seen = view.groups[group]
        assert seen.master is not None, f"group {group} has no master to steal from"
        self._attempts += 1
        self._cycle = _Cycle(
            group=group,
            source=seen.master,
            target=view.me,
            incarnation=view.incarnation,
            attempt=self._attempts,
            started_boot_ns=now.boot_ns,
            lease_ver=seen.lease_ver,
            epoch=seen.epoch,
            renewals=seen.renewals,
        )
        self._move(Stimulus.TURN)
        return ProposeRegistry(
            AcquireStealToken(
                group=group,
                source=seen.master,
                target=view.me,
                target_incarnation=view.incarnation,
                attempt=self._attempts,
                master_version=seen.lease_ver,
                placement_version=view.placement_version,
                now_wall_ns=now.wall_ns,
                duration_ns=self.config.token_ns,
            )
        )

    def _watch_turn(self, now: Now, view: ClusterView, turn: GroupId | None) -> None:
        """Pass over a node that leaves its turn unused, so that it cannot block the others."""
        if turn != self._turn or token_held(view) or not view.registry_reachable:
            self._turn, self._turn_since_boot_ns = turn, now.boot_ns
            return
        if turn is None or view.placement[turn] == view.me:
            return
        if now.boot_ns >= self._turn_since_boot_ns + self.config.patience_ns:
            self._passed_over[view.placement[turn]] = now.boot_ns + self.config.pass_over_ns

    # ---- acquiring -------------------------------------------------------------------------------

    def _wait_for_token(self, now: Now, view: ClusterView) -> list[Action]:
        cycle = self._current()
        seen = view.groups.get(cycle.group)
        if seen is not None and (seen.master, seen.epoch) == (cycle.source, cycle.epoch):
            cycle.lease_ver = seen.lease_ver
        if view.token is not None and self._is_ours(view.token):
            return self._granted(now, view.token)  # our copy is faster than the answer
        if now.boot_ns >= cycle.started_boot_ns + self.config.acquire_timeout_ns:
            self._not_granted(now, None)
        return []

    def _granted(self, now: Now, token: StealToken) -> list[Action]:
        cycle = self._current()
        if now.boot_ns >= cycle.started_boot_ns + self.config.acquire_timeout_ns:
            # This node was stopped in between: another one may have got the token meanwhile.
            self._not_granted(now, None)
            return []
        cycle.token = token.token
        cycle.requested_boot_ns = now.boot_ns
        self._move(Stimulus.GRANTED)
        return [self._request(cycle)]

    def _not_granted(self, now: Now, reason: Refusal | None) -> None:
        if self.state != State.ACQUIRING:
            return
        if reason is not None:
            self._refusals[reason] += 1
        self._cycle = None
        self._settle(now, self.config.retry_ns)
        self._move(Stimulus.NOT_GRANTED)

    # ---- requested -------------------------------------------------------------------------------

    def _request(self, cycle: _Cycle) -> Action:
        cycle.requests += 1
        cycle.aborted_boot_ns = None
        return RequestSteal(cycle.group, cycle.source, cycle.lease_ver)

    def _watch(self, now: Now, view: ClusterView) -> list[Action]:
        cycle = self._current()
        seen = view.groups.get(cycle.group)
        outcome = cycle_outcome(cycle, seen, now, self.config)
        if outcome is not None:
            return self._end(now, outcome)
        if (
            cycle.aborted_boot_ns is not None
            and seen is not None
            and seen.lease_ver > cycle.lease_ver
            and cycle.requests < self.config.requests_max
        ):
            # Our request crossed a renewal: the version it named was already outdated.
            cycle.lease_ver = seen.lease_ver
            return [self._request(cycle)]
        return []

    def _end(self, now: Now, outcome: Outcome) -> list[Action]:
        cycle = self._current()
        duration_ns = now.boot_ns - cycle.started_boot_ns
        finished = StealFinished(
            outcome,
            cycle.group,
            cycle.source,
            cycle.target,
            duration_ns,
            StealPhases(
                token_ns=cycle.requested_boot_ns - cycle.started_boot_ns,
                handover_ns=now.boot_ns - cycle.requested_boot_ns,
            ),
            cycle.abort_reason,
        )
        self._outcomes[outcome] += 1
        self._cycle = None
        self._move(Stimulus.ENDED)
        return [finished, self._give_back(now, cycle.token, outcome, duration_ns // 1_000)]

    # ---- releasing -------------------------------------------------------------------------------

    def _give_back(self, now: Now, token: int, outcome: Outcome, duration_us: int) -> Action:
        command = ReleaseStealToken(token, outcome, duration_us)
        self._release = _Release(command, now.boot_ns)
        return ProposeRegistry(command)

    def _wait_for_release(self, now: Now, view: ClusterView) -> list[Action]:
        release = self._release
        assert release is not None, "releasing without a token"
        if now.boot_ns < release.proposed_boot_ns + self.config.release_timeout_ns:
            return []
        held = view.token
        if held is not None and held.token == release.command.token and token_held(view):
            release.proposed_boot_ns = now.boot_ns
            return [ProposeRegistry(release.command)]
        self._freed(now, None)
        return []

    def _freed(self, now: Now, token: int | None) -> None:
        """Back to idle; `token` is the one that the registry has confirmed, None if unknown."""
        if token is not None:
            self._released = max(self._released, token)
        self._release = None
        self._settle(now, self.config.pause_ns)
        self._move(Stimulus.RELEASED)

    # ---- parts -----------------------------------------------------------------------------------

    def _move(self, stimulus: Stimulus) -> None:
        self.state = NEXT_STATE[self.state, stimulus]

    def _current(self) -> _Cycle:
        assert self._cycle is not None, f"no cycle in state {self.state}"
        return self._cycle

    def _is_ours(self, token: StealToken) -> bool:
        """Whether the token was granted to the very request we are waiting for."""
        cycle = self._cycle
        return cycle is not None and (
            token.group == cycle.group
            and token.target == cycle.target
            and token.target_incarnation == cycle.incarnation
            and token.attempt == cycle.attempt
        )

    def _foreign_token_held(self, view: ClusterView) -> bool:
        token = view.token
        return token is not None and token_held(view) and token.target != view.me

    def _settle(self, now: Now, quiet_ns: int) -> None:
        self._quiet_until_boot_ns = max(self._quiet_until_boot_ns, now.boot_ns + quiet_ns)

    def _passed_over_now(self, now: Now) -> dict[NodeId, int]:
        return {node: until for node, until in self._passed_over.items() if now.boot_ns < until}
