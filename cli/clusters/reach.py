"""Asking the nodes of a cluster over HTTP, whether it runs on this machine or elsewhere."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import attrs

from cli.clusters import credentials
from cli.clusters import target as chosen
from cli.clusters.contexts import ContextError
from cli.clusters.target import Target
from cluster import access, control, health, state
from cluster.spec import HOST, ClusterSpec, NodeSpec
from runtime.config.fields import Address, parse_address

NOT_NOW: Final = 503
NOT_OURS: Final = (
    "what answers there is no Evenkeel node: is this the HTTP port of another service?"
)
TOLD: Final[Mapping[str, type]] = {
    "node": int,
    "cluster_id": str,
    "kafka": str,
    "nodes": list,
    "groups_count": int,
}
"""What every node says of itself in its status."""
LEAST_S: Final = 0.01
NOBODY_LISTENS: Final = Address(HOST, 1)
"""Stands for an address that is not known."""


class RefusedError(RuntimeError):
    """A node has refused; the message is its reason."""


@attrs.define
class Cluster:
    """How to reach it. `spec` None: it was not started by this machine's launcher."""

    addresses: list[Address]
    spec: ClusterSpec | None = None
    running: state.State | None = None
    timeout_s: float | None = None
    """For all nodes together; None: each has `health.OPERATOR_S`."""
    target: Target | None = None
    _checked: set[Address] = attrs.Factory(set)

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 (JSON)
        """The answer of the first node that gives one: a JSON object.

        Raises:
            HealthError: if no node answers; each reason once.
            RefusedError: if one refuses.
        """
        failures: dict[str, None] = {}
        until = None if self.timeout_s is None else time.monotonic() + self.timeout_s
        for tried, address in enumerate(self.addresses):
            left_s = health.OPERATOR_S
            if until is not None:  # a hung node leaves time for the others
                left_s = max(LEAST_S, until - time.monotonic()) / (len(self.addresses) - tried)
            try:
                until_this = time.monotonic() + left_s
                self._check(address, left_s)
                left_s = max(LEAST_S, until_this - time.monotonic())
                status, data = health.request(address, method, path, body, timeout_s=left_s)
            except health.HealthError as error:
                failures[str(error)] = None
                continue
            answer = _decoded(data)
            if status == 200 and isinstance(answer, dict):
                return answer
            if status == 200:
                failures[f"{access.url(address)}{path}: {NOT_OURS}"] = None
                continue
            why = str(answer.get("error", answer)) if isinstance(answer, dict) else str(answer)
            if status != NOT_NOW:
                raise RefusedError(why)
            failures[why] = None
        raise health.HealthError("; ".join(failures) or "no node is running")

    def control(self, what: str, node: int) -> str:
        """Ask the launcher of a cluster on this machine."""
        assert self.running is not None
        return control.ask(self.running.control, what, node)

    def _check(self, address: Address, timeout_s: float) -> None:
        """Whether a node answers there, and of the cluster that is meant."""
        if address in self._checked:
            return
        answer = status_of(address, timeout_s)
        if self.spec is not None and answer["cluster_id"] != self.spec.cluster_id:
            raise health.HealthError(f"{access.url(address)}: another cluster answers there")
        if self.target is not None:
            chosen.check_identity(self.target, answer["cluster_id"])
        self._checked.add(address)


def status_of(address: Address, timeout_s: float) -> dict[str, Any]:
    """A node's `/status`.

    Raises:
        HealthError: if no node answers there; another service may have that port.
    """
    answer = health.call(address, "GET", "/status", timeout_s=timeout_s)
    if (
        not isinstance(answer, dict)
        or any(not isinstance(answer.get(name), kind) for name, kind in TOLD.items())
        or any(not isinstance(row, dict) or "id" not in row for row in answer["nodes"])
    ):
        raise health.HealthError(f"{access.url(address)}: {NOT_OURS}")
    return answer


def _decoded(data: bytes) -> Any:  # noqa: ANN401 (JSON)
    try:
        return json.loads(data)
    except ValueError:
        return data[:500].decode(errors="replace").strip()


def of(options: Any) -> Cluster:  # noqa: ANN401 (argparse's)
    """The cluster that is meant.

    Raises:
        StateError: if it is a local one that does not run.
        ContextError: if its HTTP addresses are unknown.
    """
    target = chosen.of(options)
    timeout_s = getattr(options, "timeout", None)
    if target.path is None:
        if not target.http:
            raise ContextError(
                f"{target.where}: this command asks the nodes over HTTP; name their addresses: "
                f"--http HOST:PORT, or evenkeel context add "
                f"{target.context or 'NAME'} --replace --http HOST:PORT,HOST:PORT"
            )
        credentials.use(target.http, options, target.command_config)
        return Cluster([*target.http], timeout_s=timeout_s, target=target)
    spec, running = chosen.running(options)
    up = [node for node in spec.nodes if running.nodes[node.id].state == "running"]
    return Cluster([node.http for node in up], spec, running, timeout_s, target)


def nodes_of(
    cluster: Cluster, *, each_s: float | None = None
) -> tuple[ClusterSpec, state.State | None]:
    """All nodes, so that each can be asked: a local cluster's, or what the others' answers name.
    With `each_s` that is the time for each address; else all share the cluster's.

    A node's HTTP side is on its own loopback, so only the addresses that were given can be asked.

    Raises:
        HealthError: if no address answers.
    """
    if cluster.spec is not None:
        return cluster.spec, cluster.running
    until = None if cluster.timeout_s is None else time.monotonic() + cluster.timeout_s
    found: dict[int, NodeSpec] = {}
    named: dict[int, str] = {}
    answers: list[dict[str, Any]] = []
    failures: dict[str, None] = {}
    for tried, address in enumerate(cluster.addresses):
        left_s = health.TIMEOUT_S if each_s is None else each_s
        if each_s is None and until is not None:  # a share of it is for the questions that follow
            left = len(cluster.addresses) - tried + 1
            left_s = min(left_s, max(LEAST_S, until - time.monotonic()) / left)
        try:
            answer = status_of(address, left_s)
        except health.HealthError as error:
            failures[str(error)] = None
            continue
        if cluster.target is not None:
            chosen.check_identity(cluster.target, answer["cluster_id"])
        number = answer["node"]
        clients = parse_address(answer["kafka"])
        answers.append(answer)
        found[number] = NodeSpec(number, clients, NOBODY_LISTENS, address)
        named |= {int(row["id"]): row.get("kafka") or "" for row in answer["nodes"]}
    if not answers:
        raise health.HealthError("; ".join(failures))
    for number, kafka in named.items():
        at = parse_address(kafka) if kafka else NOBODY_LISTENS
        found.setdefault(number, NodeSpec(number, at, NOBODY_LISTENS, NOBODY_LISTENS))
    spec = ClusterSpec(
        data_dir=state.DEFAULT_DATA_DIR,
        cluster_id=str(answers[0]["cluster_id"]),
        groups=int(answers[0]["groups_count"]),
        nodes=tuple(found[number] for number in sorted(found)),
        founders=tuple(sorted(found)),
    )
    return spec, None


def bootstrap_of(options: Any) -> str:  # noqa: ANN401 (argparse's)
    """The addresses a Kafka client begins with.

    Raises:
        StateError: if none were given and no cluster runs here.
    """
    target = chosen.of(options)
    if target.bootstrap:
        return target.bootstrap
    if target.path is not None:
        return chosen.running(options)[0].bootstrap
    spec, _ = nodes_of(of(options))
    return ",".join(str(one.kafka) for one in spec.nodes if one.kafka != NOBODY_LISTENS)
