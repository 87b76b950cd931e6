"""The shell of the planning loop: it makes the view, and proposes the plans of balancer.planning.

It runs on every node, but only the master of the registry decides. The plans that the HTTP server
shows (dry runs, previews) also come from here, on any node.
"""

from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from balancer.planner.problem import Evenness
from balancer.planning import Planning, PlanningView
from balancer.registry.commands import AdoptPlan, Done, PlacementSet, Result, SetReplicaSets
from balancer.registry.load import ClusterLoad
from balancer.registry.registry import Registry
from balancer.solving import Answer, Question, Solver, at_once
from balancer.stealing.view import GroupView
from broker.ports import BackgroundWorker
from paxos.ids import REGISTRY_GROUP, SLOT_ZERO, GroupId, NodeId, Now, Slot
from runtime.engine.engine import Engine
from runtime.membership.registry_client import RegistryClient
from runtime.system.journal import Journal

Views: TypeAlias = Mapping[GroupId, GroupView]


def masters(engine: Engine, now: Now) -> Mapping[GroupId, NodeId | None]:
    """The holder of each group's lease, as far as this node knows."""
    return _masters(views(engine, now))


def _masters(groups: Views) -> Mapping[GroupId, NodeId | None]:
    return {group: view.master for group, view in groups.items()}


def views(engine: Engine, now: Now) -> Views:
    """A view of every group that this node has or has heard of."""
    known = {*engine.multi.replicas, *engine.elsewhere.groups(now)}
    return {group: _view(engine, group, now) for group in sorted(known)}


def _view(engine: Engine, group: GroupId, now: Now) -> GroupView:
    replica = engine.multi.replicas.get(group)
    heard = engine.elsewhere.of(group, now)
    if replica is None or (heard is not None and heard.lease_ver > replica.lease.ver):
        assert heard is not None
        return GroupView(
            group=group,
            master=heard.node,
            lease_ver=heard.lease_ver,
            epoch=heard.epoch,
            renewals=0,
            applied=SLOT_ZERO,
            chosen_to=heard.lease_ver,
            voting=False,
        )
    lease, learner = replica.lease, replica.learner
    return GroupView(
        group=group,
        master=None if lease.free(now, replica.timing.margin_ns) else lease.holder,
        lease_ver=lease.ver,
        epoch=lease.epoch,
        renewals=lease.renewals,
        applied=learner.applied,
        chosen_to=Slot(max(learner.chosen_to, learner.applied)),
        voting=replica.speaks_for_the_chosen() and replica.me in replica.members,
    )


class BackgroundSolver:
    """Plans are made in another thread: with hundreds of groups each takes tens of milliseconds.
    One question at a time; the answer to one that nobody asks any more is dropped."""

    def __init__(self, worker: BackgroundWorker) -> None:
        self._worker = worker
        self._question: Question | None = None
        self._answer: Answer | None = None
        self._busy = False

    def __call__(self, question: Question) -> Answer | None:
        if question is not self._question:
            if self._busy:
                return None
            self._question, self._answer, self._busy = question, None, True
            self._worker.submit(partial(at_once, question), self._on_answer)
        return self._answer

    def _on_answer(self, answer: Answer) -> None:
        self._answer, self._busy = answer, False


class PlanningLoop:
    """With `planning` None this node makes no plans by itself (balancer.enabled = false)."""

    def __init__(
        self,
        engine: Engine,
        client: RegistryClient,
        planning: Planning | None,
        book: ClusterLoad,
        *,
        hold_down_ms: int,
        lag_slots_max: int,
        journal: Journal,
        solver: Solver = at_once,
    ) -> None:
        self._engine, self._client, self._journal = engine, client, journal
        self._registry: Registry = client.registry
        self._planning = planning
        if planning is not None:
            planning.solver = solver
        self.asked = planning or Planning()
        """Makes plans for dry runs, on any node."""
        self.cluster_load = book
        self._hold_down_ms, self._lag_slots_max = hold_down_ms, lag_slots_max
        self.adopted = 0
        self.lost = 0
        """Plans that were outdated, or whose outcome is unknown."""

    @property
    def state(self) -> str:
        return "off" if self._planning is None else self._planning.state.value

    def tick(self, now: Now, groups: Views | None = None) -> None:
        """Plan if this node should; every node keeps track of dead nodes, and since when. `groups`
        is the result of `views`, if the caller has it."""
        if self._planning is None:
            return
        command = self._planning.on_tick(self.view(now, groups))
        if command is not None:
            self.propose(command)

    def propose(self, command: AdoptPlan | SetReplicaSets) -> None:
        def on_result(result: Result | None) -> None:
            done = isinstance(result, PlacementSet | Done)
            self.adopted += done
            self.lost += not done
            what = _words(command)
            self._journal.info("plan adopted" if done else "plan not adopted", **what)

        self._client.propose(command, on_result)

    def slow(self, now: Now) -> frozenset[NodeId]:
        return self.cluster_load.slow(now, self._registry.policy.produce_p99_ms_max)

    def view(self, now: Now, groups: Views | None = None) -> PlanningView:
        engine, registry = self._engine, self._registry
        return PlanningView(
            now=now,
            me=engine.multi.me,
            ours=engine.acting(REGISTRY_GROUP),
            registry=registry,
            masters=_masters(views(engine, now) if groups is None else groups),
            alive=engine.alive(),
            unfit=self.cluster_load.unfit(
                now, lag_slots_max=self._lag_slots_max, hold_down_ms=self._hold_down_ms
            ),
            weights=self.cluster_load.weights(now, map(GroupId, registry.groups))
            if registry.policy.evenness is Evenness.WEIGHT
            else None,
            bytes=self.cluster_load.bytes_kept(now),
        )


def _words(command: AdoptPlan | SetReplicaSets) -> dict[str, object]:
    """A plan as fields for the journal."""
    if isinstance(command, AdoptPlan):
        record = command.record
        return {
            "trigger": record.trigger,
            "moves": record.moves_count,
            "at_least": record.at_least,
            "by": record.weights,
        }
    return {"trigger": command.trigger, "replica_sets": dict(command.sets)}
