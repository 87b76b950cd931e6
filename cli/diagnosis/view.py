"""`evenkeel status`: the nodes and Paxos groups of a cluster, here or elsewhere."""

import argparse
import json
from typing import Any, Final

import trio

from cli.clusters import reach
from cli.clusters import target as chosen
from cli.clusters.kafka_commands import UNKNOWN
from cluster import health, state, status
from cluster.spec import ClusterSpec

LOOKS_AGAIN: Final = 3
LOOK_AGAIN_S: Final = 0.25


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")
    chosen.timeout_option(parser)
    chosen.add_options(parser, changes=False, http=True)


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    view = seen(options)
    print(json.dumps(status.to_json(view), indent=2) if options.json else status.render(view))
    return UNKNOWN if view.unknown() else 0


def seen(options: Any) -> status.ClusterView:  # noqa: ANN401 (argparse's)
    """The cluster that is meant, as its nodes report it.

    Raises:
        HealthError: if it is on other machines, and no node answers.
    """
    spec, running = reach.nodes_of(reach.of(options))
    return trio.run(_seen, spec, running, options.timeout or health.TIMEOUT_S)


async def _seen(
    spec: ClusterSpec, running: state.State | None, timeout_s: float
) -> status.ClusterView:
    """The present state; if all nodes answer and a group has no master yet, look again."""
    view = await status.collect(spec, running, timeout_s=timeout_s)
    for _ in range(LOOKS_AGAIN):
        if not view.unknown() or any(row.status is None for row in view.nodes):
            break
        await trio.sleep(LOOK_AGAIN_S)
        view = await status.collect(spec, running, timeout_s=timeout_s)
    return view
