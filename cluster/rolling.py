"""`evenkeel rolling-restart`: restarts every node in turn, without disturbing clients.

For each node: drain it (the planner gives its groups to the others, one steal at a time), wait
until it is master of nothing, restart it, wait until it is ready, has caught up and has stayed so
for a moment, end the drain, and wait until the masters are even again. Only then the next one.
If a step does not finish in time, the drain is cancelled and the command stops there.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from cluster import control, health, state
from cluster.spec import ClusterSpec
from cluster.waiting import NotReadyError, WaitReporter, until_ready

STEP_S_MAX: Final = 60.0
LOOK_EVERY_S: Final = 0.1
TIMES_IN_TIME: Final = 3
"""How often in a row a restarted node must catch up with the masters ..."""
KEEPS_UP_S: Final = 2.0
"""... each time within this time, before it gets masters itself."""

Say = Callable[[str], None]


class RollingError(RuntimeError):
    """A step did not finish; the message says which, and what has been undone."""


@attrs.define
class Steps:
    """How long each step of one node's turn took, in seconds."""

    node: int
    seconds: dict[str, float] = attrs.Factory(dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 2)

    @property
    def total_s(self) -> float:
        return round(sum(self.seconds.values()), 2)


def rolling_restart(
    spec: ClusterSpec,
    running: state.State,
    say: Say,
    *,
    first: int | None = None,
    step_s: float = STEP_S_MAX,
) -> list[Steps]:
    """Restart all running nodes in the order of their numbers, or those from `first` on.

    Raises:
        RollingError: if a node is missing, or a step is not done in time.
        ControlError: if the launcher refuses a restart.
        HealthError: if no node answers.
    """
    for node in spec.nodes:
        now = running.nodes[node.id].state
        if now != state.NodeState.RUNNING:
            paused = now == state.NodeState.PAUSED
            what, help_ = ("is paused", "resume") if paused else ("is not running", "restart")
            raise RollingError(
                f"node {node.id} {what}: evenkeel {help_} {node.id}; all nodes must run "
                "before one at a time can be stopped"
            )
    if len(spec.nodes) < 2:
        raise RollingError("a single node has no other node to give its masters to")
    done = []
    nodes = [node for node in spec.nodes if first is None or node.id >= spec.node(first).id]
    for node in nodes:
        turn = _Turn(spec, running, node.id, say, step_s)
        say(f"node {node.id}: draining ...")
        try:
            steps = turn.run()
        except (RollingError, NotReadyError) as error:
            again = f"continue with: evenkeel rolling-restart --from {node.id}"
            raise RollingError(f"{error}; {again}") from error
        done.append(steps)
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in steps.seconds.items())
        say(f"node {node.id}: back after {steps.total_s:.1f} s ({parts})")
    return done


class _Turn:
    def __init__(
        self, spec: ClusterSpec, running: state.State, node: int, say: Say, step_s: float
    ) -> None:
        self._spec, self._running, self._node = spec, running, node
        self._say, self._step_s = say, step_s
        self._others = [one for one in spec.nodes if one.id != node]
        self._steps = Steps(node)

    def run(self) -> Steps:
        steps, node = self._steps, self._node
        before = self._balancer()
        by_hand = not before["policy"]["automatic"]
        ideal = {str(one["group"]): one["ideal"] for one in before["groups"]}
        self._drain(True)
        try:
            with steps.timed("drain"):
                self._until(self._is_empty, f"node {node} is master of nothing")
            with steps.timed("restart"):
                control.ask(self._running.control, "begin", node)
                until_ready(self._spec, [node], self._step_s, self._say)
            with steps.timed("catch-up"):
                self._until_stable()
        except BaseException:
            self._drain(False)
            raise
        self._drain(False)
        if by_hand:  # the planner leaves such a placement alone: put it back as it was
            self._ask("POST", "/admin/placement", {"placement": ideal})
        with steps.timed("give back"):
            self._until(self._is_back, f"node {node} has its masters back")
        return steps

    def _drain(self, draining: bool) -> None:
        self._ask("POST", "/admin/drain", {"node": self._node, "draining": draining})

    # -- conditions ---------------------------------------------------------------------------

    def _is_empty(self) -> bool:
        """Ideal node of nothing and master of nothing, as the others and the node itself see it."""
        view = self._balancer()
        if any(self._node in (one["ideal"], one["master"]) for one in view["groups"]):
            return False
        own = self._status(self._node)
        return own is not None and not any(one["acting"] for one in own["groups"])

    def _goal(self) -> dict[int, int] | None:
        """How far the masters have applied each Paxos group; None while one has no master."""
        goal: dict[int, int] = {}
        groups: set[int] = set()
        for other in self._others:
            status = self._status(other.id)
            if status is None:
                return None
            groups |= {one["group"] for one in status["groups"]}
            goal |= {one["group"]: one["applied"] for one in status["groups"] if one["acting"]}
        return goal if goal.keys() == groups else None

    def _has_reached(self, goal: Mapping[int, int]) -> bool:
        own = self._status(self._node)
        if own is None or not own["clock_trusted"]:
            return False
        here = {one["group"]: one["applied"] for one in own["groups"]}
        return all(applied >= goal.get(group, 0) for group, applied in here.items())

    def _is_back(self) -> bool:
        """Every master is where it belongs, and the node has some."""
        view = self._balancer()
        ideals = Counter(one["ideal"] for one in view["groups"])
        placed = all(one["master"] == one["ideal"] for one in view["groups"])
        wanted = len(view["groups"]) >= len(self._spec.nodes) and view["policy"]["automatic"]
        return placed and (bool(ideals[self._node]) or not wanted)

    # -- asking and waiting -------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        reporter = WaitReporter(self._node, self._say, began)
        while not condition():
            why = health.not_ready(self._spec.node(self._node).http)
            waits = f"not yet: {what}" + (f" ({why})" if why else "")
            if time.monotonic() > began + self._step_s:
                raise RollingError(
                    f"after {self._step_s:.0f} s {waits}; the drain was ended, see: "
                    "evenkeel balance show"
                )
            reporter.waits(waits, "", time.monotonic())
            time.sleep(LOOK_EVERY_S)

    def _until_stable(self) -> None:
        """It reaches where the masters are; and again and again, soon: then it keeps up with them.

        Under load a follower is always a little behind, so "behind by nothing" is no condition.
        """
        in_time = 0
        goal: dict[int, int] | None = None
        since = time.monotonic()

        def stable() -> bool:
            nonlocal in_time, goal, since
            if goal is None:
                goal, since = self._goal(), time.monotonic()
            elif self._has_reached(goal):
                in_time = in_time + 1 if time.monotonic() <= since + KEEPS_UP_S else 0
                goal = None
            return in_time >= TIMES_IN_TIME

        self._until(stable, f"node {self._node} has caught up")

    def _balancer(self) -> Mapping[str, Any]:
        view: Mapping[str, Any] = self._ask("GET", "/balancer")
        return view

    def _ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 (JSON)
        """Of another node than the one whose turn it is."""
        rest = attrs.evolve(self._spec, nodes=tuple(self._others))
        return health.ask_any(rest, self._running, method, path, body)

    def _status(self, node: int) -> Mapping[str, Any] | None:
        try:
            status: Mapping[str, Any] = health.call(self._spec.node(node).http, "GET", "/status")
        except health.HealthError:
            return None
        return status
