"""A local cluster as a value: its nodes, their ports and directories, the files they start from.

Everything a cluster owns lies in one data directory:

    cluster.json          the spec, written once when the cluster is made
    state.json            what runs now (state.py), control.sock (control.py), launcher.lock
    node-1.toml           the configuration node 1 is started with, written at every start
    node-1.log            what node 1 wrote to stdout and stderr
    node-1/               node 1's own data
    security/             of a secure cluster: certificates, users, clients' settings
    prometheus/           targets.json, what Prometheus is to ask; written at every change of nodes

A cluster keeps its id, the nodes it began with and its number of groups for life, since they are in
its logs; ports are only kept while they are free.
"""

import json
import random
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from cluster import access
from cluster.certificates import CertificateProblem
from cluster.security import clients
from cluster.security.directory import ADMINISTRATOR, MECHANISM, SecurityDirectory
from runtime.config.config import Address, Config, load
from runtime.config.fields import show
from runtime.config.listeners import allowed_for

HOST: Final = "127.0.0.1"
NODES_MAX: Final = 32
GROUPS_DEFAULT: Final = 12
FIRST_PORTS: Final = {"kafka": 9092, "peer": 7092, "http": 8092}
FREE_PORTS: Final = range(20_000, 32_000)
"""Below the kernel's ephemeral ports: no outgoing connection takes one before the node does."""
PORT_TRIES_MAX: Final = 1000
SPEC_BYTES_MAX: Final = 1024 * 1024
LISTENER: Final = "CLIENTS"
"""The only one of a secure cluster's nodes."""


class SpecError(ValueError):
    """The cluster cannot be as asked; the message says why and what to do."""


@attrs.frozen
class NodeSpec:
    """Where one node listens. Status and administration are on loopback, wherever the rest is."""

    id: int
    kafka: Address
    peer: Address
    http: Address


@attrs.frozen(kw_only=True)
class ClusterSpec:
    data_dir: Path
    cluster_id: str
    groups: int
    nodes: tuple[NodeSpec, ...]
    founders: tuple[int, ...]
    """The nodes it began with; they are in its logs, and never change."""
    removed: tuple[int, ...] = ()
    """Numbers that no node may have again."""
    secure: bool = False
    """Clients use TLS and prove who they are; rules say what each may do. It stays so."""

    @property
    def security(self) -> SecurityDirectory:
        return SecurityDirectory(self.data_dir / "security")

    @property
    def bootstrap(self) -> str:
        return ",".join(str(node.kafka) for node in self.nodes)

    def node(self, node_id: int) -> NodeSpec:
        """The node of this number.

        Raises:
            SpecError: if there is none.
        """
        for node in self.nodes:
            if node.id == node_id:
                return node
        known = ", ".join(str(node.id) for node in self.nodes)
        raise SpecError(f"there is no node {node_id}: this cluster has {known}")

    def config_path(self, node_id: int) -> Path:
        return self.data_dir / f"node-{node_id}.toml"

    def log_path(self, node_id: int) -> Path:
        return self.data_dir / f"node-{node_id}.log"

    @property
    def prometheus_dir(self) -> Path:
        return self.data_dir / "prometheus"

    def config_text(self, node: NodeSpec) -> str:
        """The least that node needs: all else has defaults, so an upgrade brings new ones."""
        lines = [
            "# Written by evenkeel at every start. To change a setting, start the cluster with",
            "# evenkeel up --set section.key=value; evenkeel config lists all settings.",
            "[node]",
            f"id = {node.id}",
            f"cluster_id = {show(self.cluster_id)}",
            f"data_dir = {show(self.data_dir / f'node-{node.id}')}",
            "[listen]",
            *([] if self.secure else [f"kafka = {show(node.kafka)}"]),
            f"peer = {show(node.peer)}",
            f"http = {show(node.http)}",
            *(self._secured(node) if self.secure else allowed_for(node.kafka)),
            "[groups]",
            f"count = {self.groups}",
            f"founders = {show(','.join(map(str, self.founders)))}",
            "[peers]",
            *(f"{peer.id} = {show(peer.peer)}" for peer in self.nodes),
        ]
        return "\n".join(lines) + "\n"

    def _secured(self, node: NodeSpec) -> list[str]:
        """Its only listener for clients, who may do what, and links that prove nodes."""
        directory = self.security
        return [
            "[[listeners]]",
            f"name = {show(LISTENER)}",
            f"bind = {show(node.kafka)}",
            'protocol = "sasl_ssl"',
            "[tls]",
            f"certificate = {show(directory.certificate(node.id))}",
            f"key = {show(directory.key(node.id))}",
            f"client_authorities = {show(directory.authority)}",
            "[security]",
            f'sasl_mechanisms = ["{MECHANISM}"]',
            f"bootstrap_users_file = {show(directory.users)}",
            'authorizer = "acl"',
            f'super_users = ["User:{ADMINISTRATOR}"]',
            f"audit_log = {show(directory.audit_log(node.id))}",
            "[http]",
            'authentication = "users"',
            "tls = true",
            "[peer_tls]",
            f"certificate = {show(directory.certificate(node.id))}",
            f"key = {show(directory.key(node.id))}",
            f"authorities = {show(directory.authority)}",
        ]


def plan(
    data_dir: Path,
    *,
    node_count: int | None = None,
    groups: int | None = None,
    fixed_ports: bool = True,
    hosts: Sequence[str] = (),
    secure: bool = False,
) -> tuple[ClusterSpec, str]:
    """The cluster of this directory, or a new one; and a note for the user if ports changed.

    With `secure`, it is so from now on. With `hosts`, a new one with a node on each of these:
    network namespaces where nobody else listens, so that ports need not be looked for.

    Raises:
        SpecError: if the directory holds another cluster than the one asked for.
    """
    data_dir = data_dir.absolute()
    if (data_dir / "cluster.json").exists():
        spec = _as_asked(read(data_dir), data_dir, node_count, groups)
        spec = attrs.evolve(spec, secure=spec.secure or secure)
        if all(is_free(address) for node in spec.nodes for address in _addresses(node)):
            return spec, ""
        moved = attrs.evolve(spec, nodes=_nodes_on_free_ports([node.id for node in spec.nodes]))
        return moved, "some of its ports are in use by others, so the cluster has new ones"
    count = (len(hosts) or 3) if node_count is None else node_count
    if not 1 <= count <= NODES_MAX:
        raise SpecError(f"{count} nodes: a local cluster has 1 to {NODES_MAX}")
    ids = range(1, count + 1)
    assert len(hosts) in (0, count), "a host each"
    nodes, note = _nodes_on_hosts(hosts) or _nodes_on_free_ports(ids), ""
    if fixed_ports and not hosts:
        usual = _nodes_on_usual_ports(count)
        if all(is_free(address) for node in usual for address in _addresses(node)):
            nodes = usual
        else:
            first = FIRST_PORTS["kafka"]
            note = f"the usual ports ({first} and up) are in use, so the cluster has others"
    spec = ClusterSpec(
        data_dir=data_dir,
        cluster_id=f"local-{secrets.token_hex(4)}",
        groups=GROUPS_DEFAULT if groups is None else groups,
        nodes=nodes,
        founders=tuple(ids),
        secure=secure,
    )
    return spec, note


def _as_asked(
    spec: ClusterSpec, data_dir: Path, node_count: int | None, groups: int | None
) -> ClusterSpec:
    wrong = []
    if node_count is not None and node_count != len(spec.nodes):
        wrong.append(f"{len(spec.nodes)} nodes, not {node_count}")
    if groups is not None and groups != spec.groups:
        wrong.append(f"{spec.groups} Paxos groups, not {groups}")
    if wrong:
        raise SpecError(
            f"{data_dir} holds a cluster of {' and '.join(wrong)}; "
            "omit the option, or choose another --data directory"
        )
    return spec


def save(spec: ClusterSpec, overrides: Sequence[str], env: Mapping[str, str]) -> dict[int, Config]:
    """Write the spec and every node's file, and read each back as the node will.

    Raises:
        ConfigError: if a node would refuse its configuration, before any process is started.
        SpecError: if what makes it secure is damaged, or cannot be made.
    """
    spec.data_dir.mkdir(parents=True, exist_ok=True)
    if spec.secure:
        _save_security(spec)
    configs = {}
    for node in spec.nodes:
        path = spec.config_path(node.id)
        path.write_text(spec.config_text(node), encoding="utf-8")
        configs[node.id] = load(path, env, overrides)
    (spec.data_dir / "cluster.json").write_text(_to_json(spec), encoding="utf-8")
    _reachable(spec)
    _save_targets(spec)
    return configs


def _reachable(spec: ClusterSpec) -> None:
    """From now on its nodes' HTTP ports are asked as this machine's administrator."""
    for node in spec.nodes:
        access.local_node(node.http, spec.data_dir / f"node-{node.id}")


def _save_security(spec: ClusterSpec) -> None:
    hosts = [(node.id, node.kafka.host) for node in spec.nodes]
    try:
        spec.security.make(spec.cluster_id, hosts)
        clients.write(spec.security, spec.bootstrap)
    except CertificateProblem as error:
        raise SpecError(f"the cluster cannot be secured: {error}") from error


def _save_targets(spec: ClusterSpec) -> None:
    """The nodes as Prometheus discovers them (file_sd_config): it looks again when this changes."""
    value = [
        {
            "targets": [str(node.http)],
            "labels": {"cluster": spec.cluster_id, "node": str(node.id)},
        }
        for node in spec.nodes
    ]
    spec.prometheus_dir.mkdir(exist_ok=True)
    draft = spec.prometheus_dir / "targets.json.tmp"
    draft.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    draft.replace(spec.prometheus_dir / "targets.json")


def _to_json(spec: ClusterSpec) -> str:
    value = {
        "cluster_id": spec.cluster_id,
        "groups": spec.groups,
        "founders": list(spec.founders),
        "removed": list(spec.removed),
        "secure": spec.secure,
        "nodes": [
            {
                "id": node.id,
                "host": node.kafka.host,
                **{key: getattr(node, key).port for key in FIRST_PORTS},
            }
            for node in spec.nodes
        ],
    }
    return json.dumps(value, indent=2) + "\n"


def read(data_dir: Path) -> ClusterSpec:
    """The cluster of this directory, as it was last started.

    Raises:
        SpecError: if there is none, or it cannot be read.
    """
    path = data_dir / "cluster.json"
    try:
        with path.open("rb") as file:
            value: Any = json.loads(file.read(SPEC_BYTES_MAX))
        nodes = tuple(
            _node_at(
                int(node["id"]),
                str(node.get("host", HOST)),
                *(int(node[key]) for key in FIRST_PORTS),
            )
            for node in value["nodes"]
        )
        spec = ClusterSpec(
            data_dir=data_dir,
            cluster_id=str(value["cluster_id"]),
            groups=int(value["groups"]),
            nodes=nodes,
            founders=tuple(map(int, value.get("founders", [node.id for node in nodes]))),
            removed=tuple(map(int, value.get("removed", ()))),
            secure=bool(value.get("secure", False)),
        )
        _reachable(spec)
        return spec
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"{path} cannot be read as a cluster ({error}); choose another --data directory"
        ) from error


def grown(spec: ClusterSpec, node_id: int | None = None) -> ClusterSpec:
    """The cluster with one more node, on ports that are free.

    Raises:
        SpecError: if there can be none of that number.
    """
    taken = {*spec.founders, *spec.removed, *(node.id for node in spec.nodes)}
    number = max(taken) + 1 if node_id is None else node_id
    if number in taken:
        why = "exists already" if any(one.id == number for one in spec.nodes) else "was removed"
        raise SpecError(f"node {number} {why}: a new node gets a number that no node ever had")
    if len(spec.nodes) >= NODES_MAX:
        raise SpecError(f"a local cluster has at most {NODES_MAX} nodes")
    (node,) = _nodes_on_free_ports([number])
    nodes = sorted((*spec.nodes, node), key=lambda one: one.id)
    return attrs.evolve(spec, nodes=tuple(nodes))


def shrunk(spec: ClusterSpec, node_id: int) -> ClusterSpec:
    """The cluster without a node, whose number is not used again."""
    rest = tuple(node for node in spec.nodes if node.id != node_id)
    return attrs.evolve(spec, nodes=rest, removed=(*spec.removed, node_id))


def _node_at(node_id: int, host: str, kafka: int, peer: int, http: int) -> NodeSpec:
    return NodeSpec(node_id, Address(host, kafka), Address(host, peer), Address(HOST, http))


def _addresses(node: NodeSpec) -> tuple[Address, ...]:
    return node.kafka, node.peer, node.http


def is_free(address: Address) -> bool:
    """Whether a node could listen there now; SO_REUSEADDR as the node has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError:
            return False
    return True


def some_address(usual: int | None) -> Address:
    """A free one: of the usual port, or else of any.

    Raises:
        SpecError: none is free.
    """
    if usual is not None and is_free(Address(HOST, usual)):
        return Address(HOST, usual)
    (node,) = _nodes_on_free_ports([0])
    return node.http


def _nodes_on_usual_ports(count: int) -> tuple[NodeSpec, ...]:
    return _nodes_on_hosts([HOST] * count)


def _nodes_on_hosts(hosts: Sequence[str]) -> tuple[NodeSpec, ...]:
    """One on each; all ports differ, even where the hosts do."""
    return tuple(
        _node_at(index + 1, host, *(first + index for first in FIRST_PORTS.values()))
        for index, host in enumerate(hosts)
    )


def _nodes_on_free_ports(ids: Sequence[int]) -> tuple[NodeSpec, ...]:
    found: list[Address] = []
    dice = random.Random()
    for port in dice.sample(FREE_PORTS, PORT_TRIES_MAX):
        if is_free(Address(HOST, port)):
            found.append(Address(HOST, port))
        if len(found) == len(ids) * len(FIRST_PORTS):
            return tuple(
                NodeSpec(node, *found[index * 3 : index * 3 + 3]) for index, node in enumerate(ids)
            )
    raise SpecError(f"no free ports between {FREE_PORTS.start} and {FREE_PORTS.stop} on {HOST}")
