"""`evenkeel doctor`: each problem of a cluster and its cure, as nodes and as a client see it.

A client resolves a bootstrap name, connects, asks for the nodes, and then connects to the addresses
that they advertise; each of these steps is tried from this machine, for each address. Nodes are
asked over HTTP, where their addresses are known. Nothing is changed.
"""

import argparse
import json
import socket
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio

from cli.clusters import logins, reach
from cli.clusters import target as chosen
from cli.clusters.kafka_commands import FAILED
from cluster import health, status
from cluster.spec import ClusterSpec
from cluster.state import NodeState, State
from cluster.status import COLUMNS, ClusterView
from evenkeel import Admin, AuthenticationError, ClientConfig, EvenkeelError, TopicDescription
from runtime.config.fields import Address
from wire.addresses import parse_addresses

TRY_S: Final = 3.0
SHOWN_MAX: Final = 5
PLACES_MAX: Final = 8
"""Addresses of one name that are tried."""


@attrs.frozen
class Finding:
    problem: str
    cure: str


@attrs.define
class Examination:
    """What was tried, and what was wrong."""

    findings: list[Finding] = attrs.Factory(list)
    right: list[str] = attrs.Factory(list)

    def wrong(self, problem: str, cure: str) -> None:
        self.findings.append(Finding(problem, cure))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")
    text = f"seconds to wait for each step ({TRY_S:g})"
    parser.add_argument("--timeout", type=chosen.seconds, default=TRY_S, metavar="S", help=text)
    chosen.add_options(parser, changes=False, http=True, bootstrap=True)


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    found = examine(options)
    if options.json:
        findings = [attrs.asdict(one) for one in found.findings]
        print(json.dumps({"problems": findings, "right": found.right}, indent=2))
        return FAILED if found.findings else 0
    for line in found.right:
        print(textwrap.fill(f"ok       {line}", COLUMNS, subsequent_indent=" " * 9))
    for one in found.findings:
        print(textwrap.fill(f"PROBLEM  {one.problem}", COLUMNS, subsequent_indent=" " * 9))
        print(textwrap.fill(f"  cure:  {one.cure}", COLUMNS, subsequent_indent=" " * 9))
    return FAILED if found.findings else 0


def examine(options: Any) -> Examination:  # noqa: ANN401 (argparse's)
    """Raises:
    StateError: if a local cluster is meant that does not run.
    """
    found = Examination()
    target = chosen.of(options)
    if target.path is not None or target.http:
        cluster = reach.of(options)
        try:
            spec, running = reach.nodes_of(cluster, each_s=options.timeout)
        except health.HealthError as error:
            found.wrong(
                f"no node answers over HTTP: {error}",
                "a node's HTTP side is on its own loopback: open a tunnel to it, and see whether "
                "the node runs",
            )
        else:
            view = trio.run(partial(status.collect, spec, running, timeout_s=options.timeout))
            as_nodes_see_it(found, spec, running, view)
            for row in view.nodes:
                if row.status is not None:
                    _ready_and_room(found, row.spec.id, row.spec.http, options.timeout)
    elif target.bootstrap:
        found.right.append("nodes were not asked over HTTP: their addresses are not known (--http)")
    try:
        bootstrap = reach.bootstrap_of(options)
    except health.HealthError:
        return found
    as_client(found, bootstrap, options.timeout, logins.of(options))
    return found


# --- as a client ---------------------------------------------------------------------------------


def as_client(
    found: Examination, bootstrap: str, timeout_s: float, login: Mapping[str, str]
) -> None:
    addresses = [Address(*one) for one in parse_addresses(bootstrap)]
    good = [one for one in addresses if _connects(found, one, "bootstrap", timeout_s)]
    if not good:
        return
    words = ",".join(map(str, good))
    try:
        cluster, topics = trio.run(_asked, words, timeout_s, login)
    except AuthenticationError as error:
        found.wrong(
            f"{words} does not let us in: {error}",
            "give --command-config a file with a user's name and password (docs/security.md)",
        )
        return
    except EvenkeelError as error:
        found.wrong(
            f"{words} takes connections and does not answer as Kafka does: {error}",
            "see whether this is the Kafka port of a node (listen.kafka), the node's log, and "
            "whether it asks who we are: --command-config",
        )
        return
    found.right.append(f"cluster {cluster.cluster_id} has {len(cluster.nodes)} nodes for clients")
    far = any(not one.is_loopback for one in good)
    for node in cluster.nodes:
        told = Address(node.host, node.port)
        what = f"node {node.id}, as it advertises itself,"
        if told.is_loopback and far:
            found.wrong(
                f"node {node.id} sends clients to {told}, which is the client's own machine",
                "set listen.advertised_kafka on that node to an address that clients reach",
            )
        elif told not in good:
            _connects(found, told, what, timeout_s)
    leaderless = sorted(_leaderless(topics))
    if leaderless:
        shown = ", ".join(leaderless[:SHOWN_MAX])
        found.wrong(
            f"{len(leaderless)} partitions have no leader: {shown}",
            "a majority of the nodes of each must run: evenkeel status shows which do",
        )


async def _asked(
    bootstrap: str, timeout_s: float, login: Mapping[str, str]
) -> tuple[Any, Mapping[str, TopicDescription]]:
    limit_ms = max(1, round(timeout_s * 1000))
    config = ClientConfig.from_properties(
        login,
        operation_timeout_ms=limit_ms,
        connect_timeout_ms=limit_ms,
        request_timeout_ms=limit_ms,
    )
    async with Admin(bootstrap, client=config) as admin:
        return await admin.describe_cluster(), await admin.list_topics(internal=True)


def _leaderless(topics: Mapping[str, TopicDescription]) -> Iterator[str]:
    for name, topic in topics.items():
        yield from (f"{name}/{one.partition}" for one in topic.partitions if one.leader < 0)


def _connects(found: Examination, address: Address, what: str, timeout_s: float) -> bool:
    """DNS, then TCP, to every address that the name has."""
    try:
        resolved = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        found.wrong(
            f"{what} {address}: the name cannot be resolved ({health.in_words(error)})",
            f"add {address.host} to DNS or /etc/hosts of this machine, or use an IP address",
        )
        return False
    places: dict[str, str] = {}
    for family, kind, protocol, _, place in resolved[:PLACES_MAX]:
        with socket.socket(family, kind, protocol) as probe:
            probe.settimeout(timeout_s)
            try:
                probe.connect(place)
            except OSError as error:
                places[str(place[0])] = health.in_words(error)
            else:
                places[str(place[0])] = ""
    failures = {place: why for place, why in places.items() if why}
    if len(failures) < len(places):
        _not_everywhere(found, f"{what} {address}", failures)
        return True
    words = ", ".join(dict.fromkeys(failures.values()))
    cure = (
        "start the node, or mend the port: nothing listens there"
        if "refused" in words
        else "look for a firewall or a route between this machine and that one"
    )
    found.wrong(f"{what} {address}: no connection ({words})", cure)
    return False


def _not_everywhere(found: Examination, what: str, failures: Mapping[str, str]) -> None:
    """A name may have several addresses. A client tries them in an order of its own: where one is
    refused it goes on at once, where nobody answers it waits, and some give up."""
    silent = [place for place, why in failures.items() if why == health.NO_ANSWER]
    rest = [f"{place}: {why}" for place, why in failures.items() if place not in silent]
    found.right.append(f"{what} takes connections" + (f" (not {', '.join(rest)})" if rest else ""))
    if silent:
        found.wrong(
            f"{what}: the name also means {', '.join(silent)}, which does not answer",
            "take that address out of DNS, or mend the way to it: clients may try it first",
        )


# --- as the nodes see it -------------------------------------------------------------------------


def as_nodes_see_it(
    found: Examination, spec: ClusterSpec, running: State | None, view: ClusterView
) -> None:
    for row in view.nodes:
        now = None if running is None else running.nodes.get(row.spec.id)
        if now is not None and now.state is NodeState.PAUSED:
            found.wrong(f"node {row.spec.id} is paused", f"evenkeel resume {row.spec.id}")
        elif now is not None and now.state is not NodeState.RUNNING:
            cure = f"see why in {spec.log_path(row.spec.id)}, then: evenkeel restart {row.spec.id}"
            found.wrong(f"node {row.spec.id} has ended ({now.state})", cure)
        elif row.status is None and row.spec.http == reach.NOBODY_LISTENS:
            found.right.append(f"node {row.spec.id} was not asked: its HTTP address is not known")
        elif row.status is None:
            cure = "see whether it runs (systemctl status evenkeel), and its log"
            found.wrong(f"node {row.spec.id} is silent: {row.silence}", cure)
    unasked = any(row.spec.http == reach.NOBODY_LISTENS for row in view.nodes)
    if view.unknown() and not unasked:
        cure = "start the nodes above: a majority of each Paxos group's members must run"
        for line in view.unknown():
            found.wrong(line, cure)
    _settings(found, view)


def _settings(found: Examination, view: ClusterView) -> None:
    """What answers reveal: clocks, leases, versions, durability, a paused balancer."""
    answers = {row.spec.id: row.status for row in view.nodes if row.status is not None}
    if not answers:
        return
    found.right.append(f"{len(answers)} of {len(view.nodes)} nodes answer over HTTP")
    for node, answer in answers.items():
        if not answer.get("clock_trusted", True):
            why = answer.get("clock_complaint") or "it differs from the others'"
            found.wrong(
                f"node {node} does not trust its clock: {why}", "run NTP or PTP on every machine"
            )
        differing: Mapping[str, Any] = answer.get("lease_settings", {}).get("differing") or {}
        for other, what in differing.items():
            cure = "give all nodes the same [lease] section, and restart them one by one"
            found.wrong(f"nodes {node} and {other} have different [lease] settings: {what}", cure)
        if answer.get("durability") != "fsync":
            cure = "set storage.durability to fsync, and restart the node"
            found.wrong(f"node {node}: {status.UNSAFE_BANNER}", cure)
    versions = sorted({str(answer.get("version")) for answer in answers.values()})
    if len(versions) > 1:
        cure = "finish the upgrade: the same version on every node"
        found.wrong(f"nodes run different versions: {', '.join(versions)}", cure)
    for one in view.machines():
        if one["problem"]:
            cure = "docs/machines.md: add a machine, or start the one that is gone"
            found.wrong(str(one["problem"]), cure)
    if view.balancer is not None and view.balancer.get("paused"):
        found.wrong("the balancer is paused: no master moves", "evenkeel balance resume")


def _ready_and_room(found: Examination, node: int, http: Address, timeout_s: float) -> None:
    why = health.not_ready(http, timeout_s=timeout_s)
    if why:
        cure = "it says itself what it waits for; evenkeel wait reports the progress"
        found.wrong(f"node {node} is not ready: {why}", cure)
    try:
        use = health.call(http, "GET", "/usage", timeout_s=timeout_s)
    except health.HealthError as error:
        found.wrong(f"node {node} does not tell its disk use: {error}", "see its log")
        return
    if use.get("fits") is False:
        cure = "lower retention.ms or retention.bytes, add a node, or a disk: evenkeel data usage"
        found.wrong(f"the disk of node {node} will not hold what is kept there", cure)


def lines(found: Sequence[Finding]) -> str:
    """For a file: one problem and its cure after the other."""
    return "".join(f"PROBLEM {one.problem}\n   cure {one.cure}\n" for one in found)
