"""When to make a new plan: the loop around the planner, on the master of the registry.

Pure, like the stealing machine beside it: it gets the time and a view, and returns the plan to
propose. It only plans after a change, waits until things have settled, and lets the registry's
compare-and-set decide (a plan for an old placement changes nothing).

A plan is triggered by: a group whose ideal node drains, has been dead for long, or is unknown; a
usable node that has nothing while another has two groups (it is new, or back); by count, any
unevenness; by weight, a node that has been above its share by the policy's trigger for a while
(hysteresis: the plan then aims at the tolerance, which is lower, and the next one waits). With
automatic planning off, only a drain triggers one. A node that is lagging, muted or just restarted
is left alone: it gives and gets nothing until that is over.

A master is placed on a member of its group that will stay one. The members are planned here, too
(`replica_planning.py`), and first: while groups move to their replica sets, masters move only if
they must.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from balancer.planner.levels import weights_on
from balancer.planner.planner import Plan
from balancer.planner.problem import (
    WEIGHT_NORMAL,
    Evenness,
    GroupNeed,
    NodeOffer,
    Problem,
    Unfit,
    frame,
    may_be_on,
)
from balancer.registry.commands import AdoptPlan, SetReplicaSets
from balancer.registry.policy import (
    CODE_CHARS_MAX,
    PLAN_MOVES_MAX,
    TEXT_CHARS_MAX,
    PlanMove,
    PlanRecord,
    Weights,
)
from balancer.registry.registry import Registry
from balancer.replica_planning import ReplicaPlanning, ReplicaState, ReplicaView
from balancer.solving import Decision, Solver, Thinking, at_once
from balancer.stealing.judgement import muted_nodes
from paxos.ids import MS, GroupId, NodeId, Now

BY_COUNTS: Final = "counts"
BUILT_IN: Final = "built-in"


@attrs.frozen(kw_only=True)
class PlanningConfig:
    settle_ns: int = 500 * MS
    """Delay between a change and planning for it: changes come in company."""
    dead_after_ns: int = 15_000 * MS
    """A node away for longer loses its masters; after a shorter absence it gets them back."""
    replace_after_ns: int = 600_000 * MS
    """A node away for longer loses its replicas: they are copied to others."""
    moves_max: int = 4
    """Most groups whose members change at the same time."""
    sustain_ns: int = 20_000 * MS
    """By weight, how long a node must be above the trigger."""
    weight_pause_ns: int = 60_000 * MS
    """Between two plans for evenness of weight."""
    weights_age_ns: int = 300_000 * MS
    """Published weights older than this are ignored."""
    retry_ns: int = 1_000 * MS
    look_every_ns: int = 2_000 * MS
    """By weight there is no event to wait for: this is how often it is checked."""


class PlanningState(StrEnum):
    """What the loop does, or waits for."""

    NOT_OURS = "not-ours"
    """Another node is master of the registry: it plans."""
    NO_PLACEMENT = "no-placement"
    """The cluster is not founded, or not all of its nodes have arrived yet."""
    MANUAL = "manual"
    """An operator has set the placement; only a drain starts a plan."""
    PAUSED = "paused"
    SETTLING = "settling"
    MOVING = "moving"
    """Groups are on their way to their replica sets: masters are levelled afterwards."""
    EVEN = "even"
    """Nothing to do."""
    TOLERATED = "tolerated"
    """Uneven by weight, but not by enough, or not for long enough, to start a plan."""
    PROPOSED = "proposed"


@attrs.frozen(kw_only=True)
class PlanningView:
    """What the planning node knows at one moment."""

    now: Now
    me: NodeId
    ours: bool
    """Whether this node acts as master of the registry."""
    registry: Registry
    masters: Mapping[GroupId, NodeId | None]
    alive: frozenset[NodeId]
    unfit: Mapping[NodeId, Unfit] = attrs.field(factory=dict)
    """What nodes report about themselves (ClusterLoad.unfit)."""
    weights: Mapping[GroupId, int] | None = None
    """The built-in estimate, if there is one."""
    bytes: Mapping[GroupId, int] = attrs.field(factory=dict)
    """What groups keep, according to their masters."""


@attrs.frozen
class Weighing:
    """What a plan is based on, and the source of that data."""

    evenness: Evenness
    source: str
    weights: Mapping[GroupId, int]


def fresh(published: Weights, now: Now, config: PlanningConfig) -> bool:
    """Whether published weights are used: neither outdated, nor from the future.

    Weights from a clock that is years ahead would otherwise be used for years.
    """
    age_ns = now.wall_ns - published.computed_wall_ns
    return bool(published.weights) and abs(age_ns) <= config.weights_age_ns


def weighing(view: PlanningView, config: PlanningConfig) -> Weighing:
    """Published weights while they are fresh, else the built-in ones, else counts."""
    if view.registry.policy.evenness is Evenness.WEIGHT:
        published = view.registry.weights
        if fresh(published, view.now, config):
            return Weighing(Evenness.WEIGHT, published.source, published.weights)
        if view.weights is not None:
            return Weighing(Evenness.WEIGHT, BUILT_IN, view.weights)
    return Weighing(Evenness.COUNT, BY_COUNTS, {})


class Topics:
    """Partitions of each topic by group, recounted only when topics have changed."""

    def __init__(self) -> None:
        self._version = -1
        self._by_group: dict[GroupId, Mapping[str, int]] = {}

    def of(self, registry: Registry) -> Mapping[GroupId, Mapping[str, int]]:
        if registry.versions.topics != self._version:
            self._version = registry.versions.topics
            self._by_group = {}
            for number in registry.groups:
                group = GroupId(number)
                partitions = registry.partitions_of_group(group).values()
                self._by_group[group] = dict(Counter(one.topic for one in partitions))
        return self._by_group


class Planning:
    """See the module. One instance per node and boot."""

    def __init__(self, config: PlanningConfig | None = None) -> None:
        self.config = PlanningConfig() if config is None else config
        self.state = PlanningState.NOT_OURS
        self.replicas = ReplicaPlanning(self.config.moves_max)
        self._topics = Topics()
        self._gone_since: dict[NodeId, int] = {}
        self._situation: object = None
        self._since_boot_ns = 0
        self._settled: object = None
        """The situation that was found to be even."""
        self.solver: Solver = at_once
        self._thinking: Thinking[AdoptPlan | SetReplicaSets | None] | None = None
        """The decision under way about the present situation."""
        self._proposed_boot_ns: int | None = None
        self._over_since_boot_ns: int | None = None
        self._weighed_boot_ns: int | None = None
        self._looked_boot_ns = 0
        self._welcomed: frozenset[NodeId] = frozenset()
        """The nodes that could be planned for at the last look."""
        self._seen = self._welcomed
        """The same, of the decision under way."""

    # ---- the loop --------------------------------------------------------------------------------

    def on_tick(self, view: PlanningView) -> AdoptPlan | SetReplicaSets | None:
        """The plan to propose now, if any: replica sets first."""
        self._watch(view)
        waits_for = self._waits_for(view)
        if waits_for is not None:
            self.state, self._thinking = waits_for, None
            return None
        if self._thinking is None:
            self._thinking = Thinking(self._decide(view))
        command = self._thinking.go_on(self.solver)
        if self._thinking.decided:
            self._thinking, self._welcomed = None, self._seen
        return command

    def _decide(self, view: PlanningView) -> Decision[AdoptPlan | SetReplicaSets | None]:
        now, self._seen = view.now.boot_ns, self._welcomed
        sets = yield from self.replicas.decide(self.replica_view(view))
        if sets is not None:
            self.state, self._proposed_boot_ns = PlanningState.PROPOSED, now
            return sets
        weighed = weighing(view, self.config)
        by_weight = weighed.evenness is Evenness.WEIGHT
        if self._situation == self._settled and not (by_weight and self._look_again(now)):
            return None
        problem = self.problem(view, weighed)
        hard = _hard_trigger(view, problem)
        if not hard and self.replicas.state is ReplicaState.MOVING:
            self.state, self._settled = PlanningState.MOVING, self._situation
            return None
        hard = hard or self._newcomer(view, problem)
        if not hard and not view.registry.policy.automatic:
            self.state, self._settled = PlanningState.MANUAL, self._situation
            return None
        # By counts in spite of the policy, because weights are outdated: keep what they made even.
        wants_weight = view.registry.policy.evenness is Evenness.WEIGHT
        if not hard and wants_weight:
            overweight = by_weight and (yield from self._overweight(view, problem))
            if not overweight:
                self.state, self._settled = PlanningState.TOLERATED, self._situation
                return None
        plan = yield problem
        if plan.placement == view.registry.placement:
            self.state, self._settled = PlanningState.EVEN, self._situation
            return None
        self.state = PlanningState.PROPOSED
        self._proposed_boot_ns = now
        if by_weight:
            self._weighed_boot_ns, self._over_since_boot_ns = now, None
        trigger = hard or f"uneven by {weighed.evenness.name.lower()}"
        automatic = view.registry.policy.automatic
        return adopt(view, plan, trigger, weighed, automatic=automatic)

    def _watch(self, view: PlanningView) -> None:
        """Note since when nodes have been gone, and since when the situation is what it is."""
        now = view.now.boot_ns
        gone = view.registry.nodes.keys() - view.alive
        self._gone_since = {node: self._gone_since.get(node, now) for node in sorted(gone)}
        versions = view.registry.versions
        situation = (
            view.ours,
            versions.placement,
            versions.policy,
            versions.nodes,
            versions.replicas,
            versions.members,
            self._unfit(view),
            view.registry.paused_groups,
        )
        if situation != self._situation:
            self._situation, self._since_boot_ns = situation, now
            self._settled = self._proposed_boot_ns = self._thinking = None

    def _waits_for(self, view: PlanningView) -> PlanningState | None:
        now = view.now.boot_ns
        if not view.ours:
            return PlanningState.NOT_OURS
        if not view.registry.placement:
            return PlanningState.NO_PLACEMENT
        if view.registry.paused:
            return PlanningState.PAUSED
        if now < self._since_boot_ns + self.config.settle_ns:
            return PlanningState.SETTLING
        proposed = self._proposed_boot_ns
        if proposed is not None and now < proposed + self.config.retry_ns:
            return PlanningState.PROPOSED
        return None

    def _newcomer(self, view: PlanningView, problem: Problem) -> str:
        """A node that has come since the last look and has nothing, while another has two groups.

        Once for each node: by weight there may be nothing for it, and trying again and again would
        be planning without hysteresis.
        """
        placement, framed = view.registry.placement, frame(problem)
        new = sorted(framed.allowed.keys() - self._welcomed)
        self._seen = frozenset(framed.allowed)
        on = Counter(node for group, node in placement.items() if group in framed.free)
        used = set(placement.values())
        if view.registry.policy.automatic and max(on.values(), default=0) > 1:
            for node in new:
                if node not in used:
                    return f"node {node} has no groups"
        return ""

    def _look_again(self, now: int) -> bool:
        if now < self._looked_boot_ns + self.config.look_every_ns:
            return False
        self._looked_boot_ns = now
        return True

    def _overweight(self, view: PlanningView, problem: Problem) -> Decision[bool]:
        """Whether a node has been above its share by more than the trigger for long enough."""
        now = view.now.boot_ns
        trigger = view.registry.policy.trigger_percent
        objectives = attrs.evolve(problem.objectives, tolerance_percent=trigger)
        at_trigger = attrs.evolve(problem, objectives=objectives)
        plan = yield at_trigger
        if not plan.moves:
            self._over_since_boot_ns = None
            return False
        if self._over_since_boot_ns is None:
            self._over_since_boot_ns = now
        last = self._weighed_boot_ns
        rested = last is None or now >= last + self.config.weight_pause_ns
        return rested and now >= self._over_since_boot_ns + self.config.sustain_ns

    # ---- problems --------------------------------------------------------------------------------

    def problem(
        self,
        view: PlanningView,
        weighed: Weighing | None = None,
        without: frozenset[NodeId] = frozenset(),
    ) -> Problem:
        """The problem to plan; `without` assumes that these nodes are dead."""
        registry = view.registry
        weighed = weighing(view, self.config) if weighed is None else weighed
        unfit = dict(self._unfit(view)) | dict.fromkeys(without, Unfit.DEAD)
        policy, topics = registry.policy, self._topics.of(registry)
        nodes = tuple(
            NodeOffer(node, one.zone, policy.capacity(node), unfit.get(node))
            for node, one in registry.nodes.items()
        )
        usable = {one.node for one in nodes if one.why_unfit is None or one.why_unfit.soft}
        groups = tuple(
            GroupNeed(
                group,
                weighed.weights.get(group, WEIGHT_NORMAL),
                topics.get(group, {}),
                _able(registry, group, usable),
            )
            for group in map(GroupId, registry.groups)
        )
        gone = {
            one.node for one in nodes if one.unfit in (Unfit.DEAD, Unfit.DRAINING, Unfit.LEAVING)
        }
        return Problem(
            nodes=nodes,
            groups=groups,
            current=_current(view, gone),
            pinned=registry.pins,
            paused=registry.paused_groups,
            objectives=attrs.evolve(policy.objectives, evenness=weighed.evenness),
        )

    def _unfit(self, view: PlanningView) -> tuple[tuple[NodeId, Unfit], ...]:
        """Why each node that gets no masters gets none, ascending; the gravest reason."""
        found = dict(view.unfit)
        for node in muted_nodes(view.registry.history, view.now.wall_ns):
            found[node] = Unfit.MUTED
        for node, since in self._gone_since.items():
            if view.now.boot_ns >= since + self.config.dead_after_ns:
                found[node] = Unfit.DEAD
        for node, one in view.registry.nodes.items():
            if one.draining:
                found[node] = Unfit.DRAINING
            if one.leaving:
                found[node] = Unfit.LEAVING
        return tuple(sorted(found.items()))

    def replica_view(self, view: PlanningView) -> ReplicaView:
        """The same moment from the viewpoint of replica planning."""

        def gone(for_ns: int) -> frozenset[NodeId]:
            now = view.now.boot_ns
            return frozenset(node for node, at in self._gone_since.items() if now >= at + for_ns)

        return ReplicaView(
            now=view.now,
            me=view.me,
            registry=view.registry,
            away=gone(self.config.dead_after_ns),
            dead=gone(self.config.replace_after_ns),
            bytes=view.bytes,
        )


def _able(registry: Registry, group: GroupId, usable: set[NodeId]) -> frozenset[NodeId] | None:
    """The nodes a group's master may be on: members that are to stay, if one of them is usable."""
    members = frozenset(registry.members(group))
    if not members:
        return None
    staying = members & frozenset(registry.replica_set(group))
    return staying if staying & usable else members


def _current(view: PlanningView, gone: set[NodeId]) -> dict[GroupId, NodeId]:
    """Where plans consider the groups to be: on their ideal nodes, whatever the present master.

    A group of a node that is gone counts as being on its new master's node: staying there is no
    move.
    """
    registry = view.registry
    current = dict(registry.placement)
    for group, node in registry.placement.items():
        if node in gone or node not in registry.nodes:
            master = view.masters.get(group)
            if master is not None and master in registry.nodes and master not in gone:
                current[group] = master
    return current


def _hard_trigger(view: PlanningView, problem: Problem) -> str:
    """What requires a plan whatever the evenness; "" if there is nothing."""
    registry, offers = view.registry, {one.node: one for one in problem.nodes}
    used = Counter(registry.placement.values())
    for node in sorted(used):
        why = offers[node].why_unfit if node in offers else Unfit.DEAD
        if why is None or why.soft or _stuck(view, node):
            continue
        if why in (Unfit.DRAINING, Unfit.LEAVING):
            return f"node {node} is {why.value}"
        if registry.policy.automatic:
            return f"node {node} is {why.value}"
    for need in problem.groups:
        ideal = registry.placement.get(need.group)
        paused = need.group in registry.paused_groups
        if (
            not paused
            and ideal is not None
            and not may_be_on(need, ideal)
            and _can_move(need, offers)
        ):
            return f"node {ideal} has no replica of group {need.group}"
    if not registry.policy.automatic:
        return ""
    if any(GroupId(group) not in registry.placement for group in registry.groups):
        return "a group has no ideal node"
    return ""


def _can_move(need: GroupNeed, offers: Mapping[NodeId, NodeOffer]) -> bool:
    """Whether some member of a group can be planned for."""
    members = need.members or frozenset()
    return any(node in members and one.why_unfit is None for node, one in offers.items())


def _stuck(view: PlanningView, node: NodeId) -> bool:
    """Whether everything on the node is paused, so that no plan may move it."""
    registry = view.registry
    return all(
        group in registry.paused_groups
        for group, ideal in registry.placement.items()
        if ideal == node
    )


def adopt(
    view: PlanningView, plan: Plan, trigger: str, weighed: Weighing, *, automatic: bool
) -> AdoptPlan:
    """The command that makes a plan the placement, with the record that will be kept of it."""
    registry, certificate = view.registry, plan.certificate
    moves = tuple(
        PlanMove(
            one.group,
            registry.placement.get(one.group),
            one.target,
            f"{one.reason}:{one.detail}"[:CODE_CHARS_MAX] if one.detail else one.reason.value,
        )
        for one in plan.decisions
        if one.target is not None and one.target != registry.placement.get(one.group)
    )
    record = PlanRecord(
        wall_ns=view.now.wall_ns,
        node=view.me,
        trigger=trigger[:TEXT_CHARS_MAX],
        evenness=weighed.evenness,
        weights=weighed.source[:CODE_CHARS_MAX],
        moves=moves[:PLAN_MOVES_MAX],
        moves_count=len(moves),
        at_least=0 if certificate is None else certificate.at_least,
        proof="" if certificate is None else certificate.proof.value,
    )
    return AdoptPlan(registry.versions.placement, plan.placement, automatic, record)


def loads(problem: Problem, placement: Mapping[GroupId, NodeId]) -> dict[NodeId, tuple[int, int]]:
    """(groups, weight) of each usable node under a placement, as shown to an operator."""
    framed = frame(problem)
    counts = Counter(placement.values())
    weights = weights_on(framed, placement)
    return {node: (counts[node], weights.get(node, 0)) for node in framed.usable}
