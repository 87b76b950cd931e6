"""How long a plan takes: `make plans`, figures in docs/balancer.md.

Clusters of hundreds of groups, in the situations the balancer meets: a new node, a dead node,
everything on one node, and load that has shifted; by count and by weight; with groups on all nodes,
and on three of them; and which three those should be. Times are CPU times: what other processes do
meanwhile does not count.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Final, TypeVar

import attrs

from balancer.planner.planner import solve
from balancer.planner.problem import Evenness, GroupNeed, NodeOffer, Objectives, Problem, Unfit
from balancer.planner.proof import Proof
from balancer.replicas import Host, HostState, Kept, ReplicaProblem, plan_replicas
from paxos.ids import GroupId, NodeId

ROUNDS: Final = 20
SEED: Final = 1
REPLICAS: Final = 3
Planned = TypeVar("Planned")


def problems(groups: int, nodes: int) -> Iterator[tuple[str, Problem]]:
    """(what has happened, the problem it poses)."""
    dice = Random(SEED)
    offers = [NodeOffer(NodeId(one), "abc"[one % 3]) for one in range(1, nodes + 1)]
    weights = [int(dice.paretovariate(1.5) * 500) for _ in range(groups)]
    needs = tuple(
        GroupNeed(GroupId(at), weights[at], {f"topic-{at % 17}": 2, f"topic-{at % 29}": 1})
        for at in range(groups)
    )
    even = {need.group: NodeId(1 + need.group % nodes) for need in needs}
    crowded = dict.fromkeys(even, NodeId(1))
    without = {group: NodeId(1 + group % (nodes - 1)) for group in even}
    dead = [*offers[:-1], NodeOffer(NodeId(nodes), unfit=Unfit.DEAD)]
    for evenness in Evenness:
        objectives = Objectives(evenness=evenness)
        name = evenness.name.lower()
        for what, current, there in (
            ("a node is new", without, offers),
            ("a node is dead", even, dead),
            ("all on one node", crowded, offers),
            ("even already", even, offers),
        ):
            yield (
                f"by {name}, {what}",
                Problem(nodes=tuple(there), groups=needs, current=current, objectives=objectives),
            )
    zones = Objectives(spread_zones=True)
    yield (
        "by count, zones, all on one node",
        Problem(nodes=tuple(offers), groups=needs, current=crowded, objectives=zones),
    )
    few = tuple(attrs.evolve(need, members=frozenset(_circle(need.group, nodes))) for need in needs)
    first = {need.group: min(need.members or ()) for need in few}
    for evenness in Evenness:
        objectives = Objectives(evenness=evenness)
        for what, current in (("on the lowest member", first), ("even already", even)):
            yield (
                f"by {evenness.name.lower()}, on members, {what}",
                Problem(nodes=tuple(offers), groups=few, current=current, objectives=objectives),
            )


def _circle(group: int, nodes: int) -> list[NodeId]:
    return [NodeId(1 + (group + step) % nodes) for step in range(REPLICAS)]


def replica_problems(groups: int, nodes: int) -> Iterator[tuple[str, ReplicaProblem]]:
    dice = Random(SEED)
    hosts = [Host(NodeId(one), "abc"[one % 3]) for one in range(1, nodes + 1)]
    sizes = [int(dice.paretovariate(1.5) * 2**26) for _ in range(groups)]

    def kept(on: int) -> tuple[Kept, ...]:
        sets = [tuple(sorted(_circle(group, on))) for group in range(groups)]
        return tuple(
            Kept(GroupId(group), one, one, REPLICAS, sizes[group]) for group, one in enumerate(sets)
        )

    settled = plan_replicas(ReplicaProblem(hosts=tuple(hosts), groups=kept(nodes))).sets
    even = tuple(
        attrs.evolve(one, wanted=settled[one.group], members=settled[one.group])
        for one in kept(nodes)
    )
    last = attrs.evolve(hosts[-1], state=HostState.DEAD)
    for what, there, groups_there in (
        ("even already", hosts, even),
        ("a node is new", hosts, kept(nodes - 1)),
        ("a node is dead", [*hosts[:-1], last], even),
        ("two nodes are new", hosts, kept(nodes - 2)),
    ):
        yield f"replicas, {what}", ReplicaProblem(hosts=tuple(there), groups=groups_there)


def measure(groups: int, nodes: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for what, problem in problems(groups, nodes):
        plan, times_ms = _timed(partial(solve, problem))
        certificate = plan.certificate
        assert certificate is not None
        told = (len(plan.moves), certificate.at_least, certificate.proof.value)
        rows.append(_row(what, groups, nodes, told, times_ms))
    for what, replica_problem in replica_problems(groups, nodes):
        sets, times_ms = _timed(partial(plan_replicas, replica_problem))
        proven = len(sets.moves) if sets.proof is Proof.PRICES else 0
        rows.append(_row(what, groups, nodes, (len(sets.moves), proven, sets.proof), times_ms))
    return rows


def _timed(plan: Callable[[], Planned]) -> tuple[Planned, list[float]]:
    times_ms = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        planned = plan()
        times_ms.append((time.thread_time() - started) * 1e3)
    return planned, sorted(times_ms)


def _row(
    what: str, groups: int, nodes: int, told: tuple[int, int, str], times_ms: list[float]
) -> dict[str, object]:
    moves, at_least, proof = told
    return {
        "what": what,
        "groups": groups,
        "nodes": nodes,
        "moves": moves,
        "at_least": at_least,
        "proof": proof,
        "ms_p50": round(times_ms[len(times_ms) // 2], 2),
        "ms_max": round(times_ms[-1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.planner", description=__doc__
    )
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.groups, options.nodes)
    slow = [row for row in rows if float(str(row["ms_p50"])) > PLAN_MS_MAX]
    if options.json:
        print(json.dumps(rows, indent=2))
        sys.exit(1 if slow else 0)
    print("| problem | moves | at least | proof | p50 ms | max ms |\n|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(str(row[key]) for key in list(row) if key not in _SAME)} |")
    if slow:
        sys.exit(f"MISS: {len(slow)} problems took longer than {PLAN_MS_MAX} ms")


_SAME: Final = ("groups", "nodes")
PLAN_MS_MAX: Final = 50
"""The bar for the median: hundreds of groups on ten nodes."""


if __name__ == "__main__":
    main()
