"""Draining and upgrading a machine: all its nodes together.

No Paxos group has two replicas on a machine while there are machines enough, so its nodes may be
down together: each group keeps a majority. That is checked first, by group. Then the machine is
drained, so that no client notices the end of its nodes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from cli.clusters.reach import Cluster, RefusedError
from cluster import health
from cluster.machine.supervisor import MachineError
from paxos.quorum import quorum_size
from runtime.config.fields import Address

STEP_S: Final = 120.0
LOOK_EVERY_S: Final = 0.2
SAY_EVERY_S: Final = 5.0


@attrs.define
class Machine:
    """A machine of a cluster, and how to ask for it. `step_s`: how long a step may take."""

    cluster: Cluster
    name: str
    say: Callable[[str], None]
    step_s: float = STEP_S

    def row(self, view: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """What the cluster reports about this machine.

        Raises:
            MachineError: if it knows none of this name.
        """
        machines = (view or self.cluster.ask("GET", "/nodes"))["machines"]
        for one in machines:
            if one["machine"] == self.name:
                found: Mapping[str, Any] = one
                return found
        known = ", ".join(one["machine"] for one in machines) or "none: no node has a zone"
        raise MachineError(f"the cluster has no machine {self.name}; it knows {known}")

    def until(self, what: str, why_not: Callable[[], str]) -> float:
        """Wait until nothing is in the way; returns the seconds.

        Raises:
            MachineError: if something is for too long.
        """
        began, said = time.monotonic(), time.monotonic()
        while why := why_not():
            now = time.monotonic()
            if now > began + self.step_s:
                raise MachineError(f"not within {self.step_s:.0f} s: {what} ({why})")
            if now > said + SAY_EVERY_S:
                self.say(f"waiting: {why}")
                said = now
            time.sleep(LOOK_EVERY_S)
        return time.monotonic() - began


def drain(machine: Machine) -> float:
    """Move all masters away, and wait until none is there; returns the seconds.

    Raises:
        MachineError: if there is nowhere to move them, or it takes too long; the drain goes on.
    """
    view = machine.cluster.ask("GET", "/nodes")
    row = machine.row(view)
    if not any(one["alive"] for one in view["machines"] if one["machine"] != machine.name):
        raise MachineError(f"no other machine runs that could take the masters of {machine.name}")
    if machine.cluster.ask("GET", "/balancer")["paused"]:
        raise MachineError("the balancer is paused, so no master moves: evenkeel balance resume")
    for node in row["nodes"]:
        _drain(machine, node, True)
    return machine.until(
        f"machine {machine.name} is master of nothing", lambda: _masters_left(machine)
    )


def undrain(machine: Machine) -> None:
    for node in machine.row()["nodes"]:
        _drain(machine, node, False)


def upgrade(
    machine: Machine, own: Sequence[Address], again: Callable[[], None], *, force: bool
) -> dict[str, float]:
    """Drain the machine, end and start its nodes (`again`), and wait until masters are back.

    Raises:
        MachineError: if groups would lose their majority, or a step takes too long.
    """
    view, before = machine.cluster.ask("GET", "/nodes"), machine.cluster.ask("GET", "/balancer")
    problem = "" if force else what_would_stop(machine.name, view, before)
    if problem:
        raise MachineError(f"{problem}; wait until the others are back, or use --force")
    began = time.monotonic()
    machine.say(f"machine {machine.name}: draining ...")
    steps = {}
    try:
        steps["drain"] = drain(machine)
        machine.say(f"machine {machine.name}: restarting its {len(own)} nodes ...")
        restarted = time.monotonic()
        again()
        machine.until(f"machine {machine.name} serves", lambda: _not_ready(own))
        steps["restart"] = time.monotonic() - restarted
    finally:
        _try_to_undrain(machine)
    if not before["policy"]["automatic"]:  # the planner leaves such a placement alone
        ideal = {str(one["group"]): one["ideal"] for one in before["groups"]}
        machine.cluster.ask("POST", "/admin/placement", {"placement": ideal})
    steps["give back"] = machine.until(
        f"machine {machine.name} has its masters back",
        lambda: _not_back(machine, had=bool(machine_masters(view, machine.name))),
    )
    steps = {name: round(seconds, 2) for name, seconds in steps.items()}
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in steps.items())
    machine.say(f"machine {machine.name}: back after {time.monotonic() - began:.1f} s ({parts})")
    return steps


def machine_masters(view: Mapping[str, Any], name: str) -> int:
    return sum(one["masters"] for one in view["machines"] if one["machine"] == name)


def what_would_stop(name: str, view: Mapping[str, Any], balancer: Mapping[str, Any]) -> str:
    """Why the machine must not go now: groups that would have no majority; "" if all have one."""
    mine = {node for one in view["machines"] if one["machine"] == name for node in one["nodes"]}
    up = {row["id"] for row in view["nodes"] if row["alive"]} - mine
    stopped = [
        str(one["group"])
        for one in balancer["groups"]
        if set(one["members"]) & mine
        and len(set(one["members"]) & up) < quorum_size(one["members"])
    ]
    if not stopped:
        return ""
    groups = ", ".join(stopped)
    return f"without machine {name} these Paxos groups would have no majority: {groups}"


def _drain(machine: Machine, node: int, draining: bool) -> None:
    machine.cluster.ask("POST", "/admin/drain", {"node": node, "draining": draining})


def _try_to_undrain(machine: Machine) -> None:
    """Whatever happened: a machine that stays drained by accident is not noticed."""
    deadline = time.monotonic() + machine.step_s
    while True:
        try:
            return undrain(machine)
        except (health.HealthError, RefusedError) as error:
            if time.monotonic() > deadline:
                machine.say(
                    f"machine {machine.name} is still draining ({error}); once it runs: evenkeel "
                    f"machine undrain {machine.name}"
                )
                return None
        time.sleep(LOOK_EVERY_S)


def _masters_left(machine: Machine) -> str:
    try:
        row = machine.row()
        groups = machine.cluster.ask("GET", "/balancer")["groups"]
    except (health.HealthError, RefusedError) as error:
        return str(error)
    mine = set(row["nodes"])
    left = [one for one in groups if one["master"] in mine or one["ideal"] in mine]
    return f"{len(left)} Paxos groups have their master there" if left else ""


def _not_ready(own: Sequence[Address]) -> str:
    waits = {str(address): why for address in own if (why := health.not_ready(address))}
    return "; ".join(f"{address}: {why}" for address, why in waits.items())


def _not_back(machine: Machine, *, had: bool) -> str:
    try:
        view = machine.cluster.ask("GET", "/nodes")
    except (health.HealthError, RefusedError) as error:
        return str(error)
    if view["misplaced"]:
        return f"{view['misplaced']} masters are on their way"
    return "it has no masters yet" if had and not machine_masters(view, machine.name) else ""
