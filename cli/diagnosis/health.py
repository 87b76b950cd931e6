"""`evenkeel health`: one word and an exit code for scripts, probes and load balancers.

healthy (0): every Paxos group has a master, and every node serves. degraded (4): clients are
served, but a node is missing. failing (1): some Paxos group has no master, so some partitions can
be neither written nor read. unknown (3): too few nodes answer to tell.
"""

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from cli.clusters import target as chosen
from cli.clusters.kafka_commands import DEGRADED, FAILED, UNKNOWN
from cli.diagnosis import view as cluster_view
from cluster import health
from cluster.status import COLUMNS, ClusterView, NodeRow, insecure_listeners

CODES: Final[Mapping[str, int]] = {
    "healthy": 0,
    "failing": FAILED,
    "unknown": UNKNOWN,
    "degraded": DEGRADED,
}
SURELY_DOWN: Final = ("killed", "exited", "paused")


class Verdict(NamedTuple):
    word: str
    problems: Sequence[str]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the exit code")
    text = "exit with 0 if clients are served, though a node is missing"
    parser.add_argument("--degraded-ok", action="store_true", help=text)
    chosen.timeout_option(parser)
    chosen.add_options(parser, changes=False, http=True)


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    found = _verdict(options)
    code = CODES[found.word]
    if options.degraded_ok and found.word == "degraded":
        code = 0
    if options.quiet:
        return code
    if options.json:
        print(json.dumps({"health": found.word, "problems": [*found.problems]}, indent=2))
        return code
    print(found.word)
    for problem in found.problems:
        print(textwrap.fill(problem, COLUMNS, initial_indent="- ", subsequent_indent="  "))
    return code


def _verdict(options: Any) -> Verdict:  # noqa: ANN401 (argparse's)
    try:
        view = cluster_view.seen(options)
    except health.HealthError as error:
        return Verdict("unknown", [str(error)])
    waiting = {
        row.spec.id: why
        for row in view.nodes
        if row.status is not None
        and (why := health.not_ready(row.spec.http, timeout_s=options.timeout or health.TIMEOUT_S))
    }
    return judge(view, waiting)


def judge(view: ClusterView, waiting: Mapping[int, str]) -> Verdict:
    """`waiting`: nodes that answer and are not ready, and why."""
    silent = [row for row in view.nodes if row.status is None]
    missing = [f"node {row.spec.id} {_silence(row)}" for row in silent]
    late = [f"node {node} is not ready: {why}" for node, why in sorted(waiting.items())]
    if 2 * len(silent) >= len(view.nodes):
        known = all(row.state in SURELY_DOWN for row in silent)
        return Verdict("failing" if known else "unknown", [*view.unknown(), *missing, *late])
    if view.unknown():
        return Verdict("failing", [*view.unknown(), *missing, *late])
    problems = [*missing, *late, *_clocks(view)]
    return Verdict("degraded" if problems else "healthy", [*problems, *_insecure(view)])


def _insecure(view: ClusterView) -> list[str]:
    """Said, but no reason to send clients elsewhere: an operator has allowed it."""
    return [
        f"node {row.spec.id} has insecure listeners: everyone who reaches {', '.join(found)} may "
        "do everything (security.insecure_listeners)"
        for row in view.nodes
        if (found := insecure_listeners(row))
    ]


def _silence(row: NodeRow) -> str:
    return f"is {row.silence}" if row.silence in SURELY_DOWN else f"is silent: {row.silence}"


def _clocks(view: ClusterView) -> list[str]:
    return [
        f"node {row.spec.id} does not trust its clock: {row.status.get('clock_complaint') or ''}"
        for row in view.nodes
        if row.status is not None and not row.status.get("clock_trusted", True)
    ]
