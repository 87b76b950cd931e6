"""How long a plan takes: `make plans`, figures in docs/balancer.md.

Clusters of hundreds of groups, as the balancer meets them: a new node, a dead node, everything on
one node, and load that has shifted; by count and by weight. The times are of the CPU: what other
processes do meanwhile is not the planner's.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Final

from balancer.planner import solve
from balancer.problem import Evenness, GroupNeed, NodeOffer, Problem, Unfit, Wishes
from paxos.ids import GroupId, NodeId

ROUNDS: Final = 20
SEED: Final = 1


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
        wishes = Wishes(evenness=evenness)
        name = evenness.name.lower()
        for what, current, there in (
            ("a node is new", without, offers),
            ("a node is dead", even, dead),
            ("all on one node", crowded, offers),
            ("even already", even, offers),
        ):
            yield (
                f"by {name}, {what}",
                Problem(nodes=tuple(there), groups=needs, current=current, wishes=wishes),
            )
    zones = Wishes(spread_zones=True)
    yield (
        "by count, zones, all on one node",
        Problem(nodes=tuple(offers), groups=needs, current=crowded, wishes=zones),
    )


def measure(groups: int, nodes: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for what, problem in problems(groups, nodes):
        times_ms = []
        for _ in range(ROUNDS):
            started = time.thread_time()
            plan = solve(problem)
            times_ms.append((time.thread_time() - started) * 1e3)
        times_ms.sort()
        assert plan.certificate is not None
        rows.append(
            {
                "what": what,
                "groups": groups,
                "nodes": nodes,
                "moves": len(plan.moves),
                "at_least": plan.certificate.at_least,
                "proof": plan.certificate.proof.value,
                "ms_p50": round(times_ms[len(times_ms) // 2], 2),
                "ms_max": round(times_ms[-1], 2),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
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
