"""`evenkeel node`: start one node, list nodes, add, remove or replace one.

The launcher starts and stops the nodes of a cluster that runs on this machine. With `--http`
another cluster gets the change, and the new node's configuration is printed.
"""

import argparse
import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from cli.clusters import reach
from cli.clusters import target as chosen
from cli.clusters.reach import Cluster, RefusedError
from cluster import health
from cluster.programs import become
from cluster.spec import ClusterSpec, grown
from cluster.spec import read as spec_of
from runtime.config.config import Address, ConfigError, load
from runtime.config.contradictions import mistaken_machine
from runtime.config.listeners import ALLOWED
from runtime.membership.lost_directory import what_would_be_lost

LOOK_EVERY_S: Final = 0.5
QUIET_S: Final = 2.0
"""How long nothing may be left to do before it counts as done: the planner takes a moment."""
WAIT_S: Final = 600.0
COLUMNS: Final = 80
WRONG_CONFIGURATION: Final = 2
"""The node's own exit code for it."""

Say = Callable[[str], None]


class NodeError(RuntimeError):
    """The request cannot be done, or was not done in time; the message says why."""


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(
        name: str, do: Callable[[Any], int], text: str, *, changes: bool = True
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(do=do, changes=changes)
        chosen.add_options(sub, changes=changes, http=True)
        sub.add_argument("--json", action="store_true", help="for programs")
        return sub

    text = "run one node in the foreground, until SIGTERM or SIGINT"
    starting = actions.add_parser("start", help=text, description=text[0].upper() + text[1:] + ".")
    starting.set_defaults(do=_start)
    starting.add_argument(
        "--config", type=Path, required=True, metavar="TOML", help="the node's configuration file"
    )
    override = "override one setting; may be repeated"
    starting.add_argument(
        "--set", action="append", default=[], metavar="section.key=value", help=override
    )
    listing = action("list", _list, "list the nodes, and what each of them has", changes=False)
    chosen.timeout_option(listing)
    adding = action("add", _add, "add a node, and wait until it has its share")
    adding.add_argument("node", type=int, nargs="?", metavar="N", help="its number (the next one)")
    adding.add_argument("--peer", metavar="HOST:PORT", help="with --http: where its peers connect")
    adding.add_argument("--zone", default="", help="rack or availability zone")
    removing = action(
        "remove", _remove, "move everything from a node to others, and stop it for good"
    )
    removing.add_argument("node", type=int, metavar="N")
    force = "even if too few nodes are left for a majority or for all copies"
    removing.add_argument("--force", action="store_true", help=force)
    replacing = action(
        "replace", _replace, "start a node with an empty directory; it learns everything again"
    )
    replacing.add_argument("node", type=int, metavar="N")
    for sub in (adding, removing, replacing):
        sub.add_argument("--no-wait", action="store_true", help="do not wait until it is done")
        text = f"how long to wait (default {WAIT_S:.0f})"
        sub.add_argument("--timeout", type=chosen.seconds, default=WAIT_S, metavar="S", help=text)


# --- start ---------------------------------------------------------------------------------------


def _start(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """Become the node; it refuses a wrong configuration itself, with the same exit code."""
    with contextlib.suppress(ConfigError):
        loaded = load(options.config, os.environ, options.set)
        mistake = mistaken_machine(loaded.node.id, loaded.peers)
        if mistake:
            print(f"evenkeel: {mistake}", file=sys.stderr)
            return WRONG_CONFIGURATION
    sets = [word for override in options.set for word in ("--set", override)]
    become("node", "--config", str(options.config), *sets)


# --- list ----------------------------------------------------------------------------------------


def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    answer = reach.of(options).ask("GET", "/nodes")
    print(json.dumps(answer, indent=2) if options.json else render(answer))
    return 0


def render(answer: Mapping[str, Any]) -> str:
    """For people: at most 80 columns wide."""
    lines = ["node  life     alive  zone      peer                   copies  masters  moves"]
    for row in answer["nodes"]:
        moves = [f"+{row['to_get']}"] * bool(row["to_get"])
        moves += [f"-{row['to_leave']}"] * bool(row["to_leave"])
        lines.append(
            f"{row['id']:>4}  {row['life']:<7}  {'yes' if row['alive'] else 'no':<5}  "
            f"{(row['zone'] or '-')[:8]:<8}  {row['peer'][:21]:<21}  {row['groups']:>6}  "
            f"{row['masters']:>7}  {' '.join(moves) or '-'}"
        )
    problems = [one["problem"] for one in answer.get("machines", ()) if one["problem"]]
    for problem in problems:
        lines += textwrap.wrap(f"note: {problem}", COLUMNS, subsequent_indent="  ")
    if answer["removed"]:
        lines.append(f"removed: {', '.join(map(str, answer['removed']))}"[:COLUMNS])
    return "\n".join(lines)


# --- add -----------------------------------------------------------------------------------------


def _add(options: Any) -> int:  # noqa: ANN401 (argparse's)
    cluster, say = reach.of(options), _teller(options)
    if cluster.spec is None:
        return _add_elsewhere(cluster, options)
    number: int | None = options.node
    if number is None:
        number = max(node.id for node in grown(cluster.spec).nodes)
    _refuse_known(cluster, number)
    say(cluster.control("add", number))
    after = spec_of(cluster.spec.data_dir)
    body = {"do": "add", "node": number, "peer": str(after.node(number).peer)}
    try:
        cluster.ask("POST", "/admin/node", {**body, "zone": options.zone})
    except (RefusedError, health.HealthError):
        cluster.control("forget", number)
        raise
    say(f"node {number} is one of the cluster's nodes")
    if options.no_wait:
        return _done(options, number, "added")
    watch = Watch(cluster, options.timeout, say)
    watch.until(f"node {number} has its share", lambda view: _has_share(view, number))
    say(f"node {number} has its share: done after {watch.seconds:.1f} s")
    return _done(options, number, "added", watch.seconds)


def _refuse_known(cluster: Cluster, number: int) -> None:
    view = cluster.ask("GET", "/nodes")
    if number in view["removed"]:
        raise NodeError(f"node {number} was removed: a new node needs a new number")
    if any(row["id"] == number for row in view["nodes"]):
        raise NodeError(f"node {number} exists already; for an empty disk: evenkeel node replace")


def _add_elsewhere(cluster: Cluster, options: Any) -> int:  # noqa: ANN401 (argparse's)
    if options.node is None or options.peer is None:
        raise NodeError("with --http name the node: evenkeel node add N --peer HOST:PORT ...")
    _refuse_known(cluster, options.node)
    status = cluster.ask("GET", "/status")
    body = {"do": "add", "node": options.node, "peer": options.peer, "zone": options.zone}
    cluster.ask("POST", "/admin/node", body)
    text = configuration(status, cluster.ask("GET", "/nodes"), options.node, options.zone)
    if options.json:
        return _done(options, options.node, "added", configuration=text)
    print(text)
    return 0


def configuration(
    status: Mapping[str, Any], view: Mapping[str, Any], number: int, zone: str
) -> str:
    """The least a new node needs to join; the rest has defaults, or equals the others' settings."""
    founders = ",".join(map(str, view["founders"]))
    return "\n".join(
        [
            f"# Node {number} was added. Start it with: evenkeel node start --config FILE",
            "[node]",
            f"id = {number}",
            f'cluster_id = "{status["cluster_id"]}"',
            'data_dir = "/var/lib/evenkeel"',
            *([f'zone = "{zone}"'] if zone else []),
            "[listen] # kafka and http: where this node listens",
            'kafka = "0.0.0.0:9092"',
            'advertised_kafka = "THIS-HOST:9092"',
            'peer = "0.0.0.0:7092"',
            *ALLOWED,
            "[groups]",
            f"count = {status['groups_count']}",
            f"replicas = {view['replicas']}",
            f'founders = "{founders}"',
            "[peers]",
            *(f'{row["id"]} = "{row["peer"]}"' for row in view["nodes"]),
        ]
    )


def _row(view: Mapping[str, Any], number: int) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = next(
        (row for row in view["nodes"] if row["id"] == number), None
    )
    return found


def _has_share(view: Mapping[str, Any], number: int) -> bool:
    row = _row(view, number)
    return (
        row is not None
        and row["life"] == "active"
        and row["groups"] > 0
        and not view["moves_left"]
        and not view["misplaced"]
    )


# --- remove --------------------------------------------------------------------------------------


def _remove(options: Any) -> int:  # noqa: ANN401 (argparse's)
    cluster, number, say = reach.of(options), options.node, _teller(options)
    if cluster.spec is not None:
        cluster.spec.node(number)
    cluster.ask("POST", "/admin/node", {"do": "remove", "node": number, "force": options.force})
    say(f"node {number} is leaving")
    if options.no_wait:
        return _done(options, number, "leaving")
    others = [one.http for one in cluster.spec.nodes if one.id != number] if cluster.spec else []
    watch = Watch(
        attrs.evolve(cluster, addresses=others or cluster.addresses), options.timeout, say
    )
    watch.until(f"node {number} has nothing any more", lambda view: number in view["removed"])
    if cluster.spec is not None:
        say(cluster.control("forget", number))
        say(f"its directory can be deleted: {cluster.spec.data_dir / f'node-{number}'}")
    say(f"node {number} is removed: done after {watch.seconds:.1f} s")
    return _done(options, number, "removed", watch.seconds)


# --- replace -------------------------------------------------------------------------------------


def _replace(options: Any) -> int:  # noqa: ANN401 (argparse's)
    cluster, number, say = reach.of(options), options.node, _teller(options)
    if cluster.spec is None:
        raise NodeError(
            "start the node by hand with an empty data directory and the same configuration: "
            "it learns everything from the others (evenkeel node list shows the progress)"
        )
    address = cluster.spec.node(number).http
    others = [node.http for node in cluster.spec.nodes if node.id != number]
    rest = attrs.evolve(cluster, addresses=others)
    if number not in (row["id"] for row in rest.ask("GET", "/nodes")["nodes"]):
        raise NodeError(f"node {number} is not a node of the cluster: evenkeel node add")
    _refuse_loss(number, cluster.spec)
    say(cluster.control("replace", number))
    if options.no_wait:
        return _done(options, number, "started")
    watch = Watch(rest, options.timeout, say)
    watch.until(
        f"node {number} has everything again and votes",
        lambda view: not view["moves_left"] and not view["misplaced"] and _votes(address, view),
    )
    say(f"node {number} has everything again: done after {watch.seconds:.1f} s")
    return _done(options, number, "replaced", watch.seconds)


def _refuse_loss(number: int, spec: ClusterSpec) -> None:
    """Before a directory is removed: check that the other nodes can do without its contents.

    Raises:
        NodeError: if they cannot, or that is unknown.
    """
    views = {}
    for node in spec.nodes:
        with contextlib.suppress(health.HealthError):
            views[node.id] = health.call(node.http, "GET", "/status")
    problem = what_would_be_lost(number, views)
    if problem:
        raise NodeError(problem)


def _votes(address: Address, view: Mapping[str, Any]) -> bool:
    """Whether the node itself reports that it has caught up and votes in all of its groups."""
    try:
        own = health.call(address, "GET", "/status")
    except health.HealthError:
        return False
    row = _row(view, own["node"])
    member_of = [one for one in own["groups"] if own["node"] in one["members"]]
    return (
        row is not None
        and len(member_of) == row["groups"]
        and all(one["voting"] and one["chosen"] - one["applied"] < 64 for one in member_of)
        and health.is_ready(address)
    )


# --- waiting -------------------------------------------------------------------------------------


def _say(line: str) -> None:
    print(line, flush=True)


def _teller(options: Any) -> Say:  # noqa: ANN401 (argparse's)
    """With --json the progress is not told: standard output is one document."""
    return (lambda _line: None) if options.json else _say


def _done(
    options: Any,  # noqa: ANN401 (argparse's)
    node: int,
    done: str,
    seconds: float | None = None,
    **more: object,
) -> int:
    if options.json:
        took = None if seconds is None else round(seconds, 1)
        print(json.dumps({"node": node, "done": done, "seconds": took, **more}, indent=2))
    return 0


class Watch:
    """Watches the cluster until something holds for a moment, and reports the progress."""

    def __init__(self, cluster: Cluster, timeout_s: float, say: Say = _say) -> None:
        self._cluster, self._timeout_s, self._say = cluster, timeout_s, say
        self._began = time.monotonic()
        self._said = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def until(self, what: str, condition: Callable[[Mapping[str, Any]], bool]) -> None:
        """Wait for it.

        Raises:
            NodeError: if it does not happen in time; the change continues.
        """
        since: float | None = None
        while self.seconds < self._timeout_s:
            try:
                view = self._cluster.ask("GET", "/nodes")
            except health.HealthError:
                since = None
            else:
                self._tell(view)
                since = (since or time.monotonic()) if condition(view) else None
            if since is not None and time.monotonic() - since >= QUIET_S:
                return
            time.sleep(LOOK_EVERY_S)
        raise NodeError(
            f"not within {self._timeout_s:.0f} s: {what}. It continues; see: evenkeel node list"
        )

    def _tell(self, view: Mapping[str, Any]) -> None:
        copies = sum(row["to_get"] for row in view["nodes"])
        drops = sum(row["to_leave"] for row in view["nodes"])
        line = f"{copies} copies to make, {drops} to drop, {view['misplaced']} masters to move"
        if line != self._said:
            self._said = line
            self._say(f"{self.seconds:6.1f} s  {line}")
