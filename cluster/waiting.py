"""Waiting until nodes are ready, and telling meanwhile what they wait for.

A node knows why it is not ready (/readyz), and it is that which a person wants to read: a restarted
node may have to wait for others, which nobody has started yet. Whoever waits does so here, in the
terminal that asked, and not in the launcher: the launcher is free to start those others meanwhile,
and a wait that was given up can be taken up again (`evenkeel wait`).
"""

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from cluster import health, state
from cluster.process import tail
from cluster.spec import ClusterSpec
from cluster.state import NodeState

READY_S_MAX: Final = 300.0
LOOK_EVERY_S: Final = 0.1
FIRST_WORD_S: Final = 2.0
"""A node that starts soon needs no explanation."""
REMIND_EVERY_S: Final = 15.0
COLUMNS: Final = 80

Say = Callable[[str], None]


class NotReadyError(RuntimeError):
    """A node ended, or was not ready in time; the message says what it waited for."""


@attrs.define
class WaitReporter:
    """What is told of one node's waiting: each reason when it is new, and now and then again."""

    node: int
    say: Say
    began_s: float
    reported: str = ""
    reported_s: float = 0.0

    def waits(self, why: str, hint: str, now_s: float) -> None:
        waited = now_s - self.began_s
        if waited < FIRST_WORD_S:
            return
        if why != self.reported or now_s - self.reported_s >= REMIND_EVERY_S:
            self.reported, self.reported_s = why, now_s
            self.say(wrapped(f"node {self.node}, {waited:.0f} s: {why}{hint}"))


def wrapped(line: str) -> str:
    """For a terminal of 80 columns."""
    return textwrap.fill(line, COLUMNS - 1, subsequent_indent="  ", break_on_hyphens=False)


def until_ready(spec: ClusterSpec, nodes: Sequence[int], timeout_s: float, say: Say) -> None:
    """Wait until all of these are ready; in a terminal of its own, without the launcher.

    Raises:
        NotReadyError: one ended, or was not ready in time.
        StateError: the cluster was stopped.
    """
    began = time.monotonic()
    reporter = {node: WaitReporter(node, say, began) for node in nodes}
    whys: dict[int, str] = {}
    while True:
        now = state.read(spec.data_dir)
        for node in [*reporter]:
            why = _why_not(spec, now, node)
            whys[node] = why
            if why:
                reporter[node].waits(why, missing(spec, now), time.monotonic())
            else:
                del reporter[node]
                say(f"node {node} is ready, after {time.monotonic() - began:.1f} s")
        if not reporter:
            return
        if time.monotonic() - began >= timeout_s:
            raise NotReadyError(
                _given_up(now, spec, {one: whys[one] for one in reporter}, timeout_s)
            )
        time.sleep(LOOK_EVERY_S)


def _why_not(spec: ClusterSpec, now: state.State, node: int) -> str:
    """Why the node is not ready, or ""."""
    found = now.nodes.get(node)
    if found is None or found.state in (NodeState.EXITED, NodeState.KILLED):
        path = spec.log_path(node)
        raise NotReadyError(
            f"node {node} ended before it was ready; its log, {path}, ends with:\n{tail(path)}"
        )
    if found.state == NodeState.PAUSED:
        return f"it is paused: evenkeel resume {node}"
    return health.not_ready(spec.node(node).http)


def missing(spec: ClusterSpec, now: state.State) -> str:
    """Which nodes have to be started for there to be a majority; "" where there is one."""
    down = [
        node.id
        for node in spec.nodes
        if node.id not in now.nodes or now.nodes[node.id].state != NodeState.RUNNING
    ]
    if 2 * len(down) < len(spec.nodes):
        return ""
    paused = [one for one in down if one in now.nodes and now.nodes[one].state == NodeState.PAUSED]
    dead = [one for one in down if one not in paused]
    ways = [f"evenkeel resume {one}" for one in paused]
    if dead:
        ways.append(f"evenkeel restart {' '.join(map(str, dead))}")
    names = " and ".join(map(str, down))
    these = f"node {names} is" if len(down) == 1 else f"nodes {names} are"
    return f"; {these} not running: {', '.join(ways)}"


def _given_up(now: state.State, spec: ClusterSpec, whys: dict[int, str], timeout_s: float) -> str:
    reasons = "; ".join(f"node {node} is not ready: {why}" for node, why in whys.items())
    numbers = " ".join(map(str, whys))
    return wrapped(
        f"after {timeout_s:.0f} s {reasons}{missing(spec, now)}. It is still starting; wait for it "
        f"again with: evenkeel wait {numbers}"
    )
