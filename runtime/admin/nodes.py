"""Administration of the cluster's nodes over HTTP, on any node: list, add and remove them.

Requests only change the registry: then the planner chooses replica sets, masters change the members
of their groups (runtime.balancing.hosting), and a leaving node that has nothing left is removed for
good.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from balancer.machines import machines_of, statement
from balancer.registry.commands import AddNode, Command, RemoveNode, SetReplicaSets
from balancer.registry.records import Address as RegistryAddress
from balancer.registry.registry import Registry
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId, Now
from paxos.quorum import quorum_size
from runtime.admin.versions import VersionAdmin
from runtime.balancing.planning_loop import masters
from runtime.config.fields import parse_address
from runtime.config.sections import NODE_ID_MAX
from runtime.engine.engine import Engine
from runtime.http.server import Answer, BadRequest, Route, json_answer
from runtime.membership.raising import Raising


def machine_rows(
    registry: Registry,
    members: Mapping[GroupId, Collection[NodeId]],
    rows: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The machines (zones) of the cluster, and what the loss of each would cost. `rows`: of its
    nodes, each with its id, whether it is alive, and how many masters are on it."""
    zones = {node: one.zone for node, one in registry.nodes.items()}
    by_id = {row["id"]: row for row in rows}
    machines = machines_of(zones, members)
    replicas = 0 if registry.cluster is None else registry.cluster.replicas
    return [
        {
            "machine": one.machine,
            "nodes": list(one.nodes),
            "alive": [node for node in one.nodes if by_id[node]["alive"]],
            "draining": [node for node in one.nodes if registry.nodes[node].draining],
            "masters": sum(by_id[node]["masters"] for node in one.nodes),
            "groups": one.groups,
            "crowded": list(one.crowded),
            "stopped_without": list(one.stopped),
            "problem": statement(one, len(machines), replicas),
        }
        for one in machines
    ]


class NodeAdmin:
    def __init__(
        self,
        engine: Engine,
        raising: Raising,
        members: Callable[[GroupId], tuple[NodeId, ...]],
        propose: Callable[[Command], Awaitable[Answer]],
    ) -> None:
        """`members` returns the nodes that have a group, as far as this node knows."""
        self._engine, self._registry = engine, raising.registry
        self._raising, self._versions = raising, VersionAdmin(raising, propose)
        self._members, self._propose = members, propose

    def routes(self) -> dict[tuple[str, str], Route]:
        return {
            ("GET", "/nodes"): self.show,
            ("POST", "/admin/node"): self.change,
            ("POST", "/admin/replicas"): self.replicas,
            **self._versions.routes(),
        }

    async def show(self, _body: Any) -> Answer:  # noqa: ANN401 # JSON
        now = self._engine.now()
        rows = [self._row(node, now) for node in self._ids()]
        cluster = self._registry.cluster
        return json_answer(
            {
                "nodes": rows,
                "machines": machine_rows(
                    self._registry, {group: self._members(group) for group in self._groups()}, rows
                ),
                "removed": sorted(self._registry.removed),
                "replicas": 0 if cluster is None else cluster.replicas,
                "founders": [] if cluster is None else list(cluster.founders),
                "moves_left": sum(row["to_get"] + row["to_leave"] for row in rows),
                "misplaced": self._misplaced(now),
            }
        )

    async def change(self, body: dict[str, Any]) -> Answer:
        """{"do": "add", "node": N, "peer": "host:port", "zone": ""}, or {"do": "remove", "node": N,
        "force": false}."""
        what, node = body.get("do"), body.get("node")
        if what not in ("add", "remove") or not _is_id(node):
            raise BadRequest('expected {"do": "add"|"remove", "node": a number, ...}')
        ident = NodeId(int(str(node)))
        if what == "add":
            return await self._propose(self._adding(ident, body))
        force = body.get("force", False)
        if not isinstance(force, bool):
            raise BadRequest("force must be true or false")
        problem = "" if force else self.removal_problem(ident)
        if problem:
            return json_answer({"error": problem}, 409)
        return await self._propose(RemoveNode(ident))

    async def replicas(self, body: dict[str, Any]) -> Answer:
        """{"group": group, "nodes": [N, ...]}: set the replica set of a group by hand."""
        group, nodes = body.get("group"), body.get("nodes")
        known = self._groups()
        if not isinstance(group, int) or isinstance(group, bool) or group not in known:
            raise BadRequest(f"expected a Paxos group from 0 to {len(known) - 1}: {group!r:.20}")
        if not isinstance(nodes, list) or not all(map(_is_id, nodes)):
            raise BadRequest('expected {"group": a number, "nodes": [a number, ...]}')
        sets = {GroupId(group): tuple(map(NodeId, nodes))}
        return await self._propose(SetReplicaSets(None, sets, by_hand=True))

    def _adding(self, node: NodeId, body: dict[str, Any]) -> AddNode:
        zone = body.get("zone", "")
        if not isinstance(zone, str):
            raise BadRequest("zone must be a text")
        try:
            peer = parse_address(body.get("peer"))
        except ValueError as error:
            raise BadRequest(f"peer: {error}") from error
        return AddNode(node, RegistryAddress(peer.host, peer.port), zone)

    # -- the nodes ----------------------------------------------------------------------------

    def _ids(self) -> list[NodeId]:
        return sorted({*self._registry.nodes, *self._registry.admitted})

    def _groups(self) -> list[GroupId]:
        return [GroupId(group) for group in self._registry.groups]

    def _row(self, node: NodeId, now: Now) -> dict[str, Any]:
        registry = self._registry
        known = registry.nodes.get(node)
        has = [group for group in self._groups() if node in self._members(group)]
        wanted = [group for group in self._groups() if node in self._wanted(group)]
        on = masters(self._engine, now)
        zone = known.zone if known is not None else registry.admitted[node].zone
        address = known.peer if known is not None else registry.admitted[node].peer
        return {
            "id": node,
            "life": self._life(node),
            "alive": node in self._engine.alive(),
            "software": self._software(node),
            "zone": zone,
            "peer": f"{address.host}:{address.port}",
            "http": None if known is None else f"{known.http.host}:{known.http.port}",
            "masters": sum(master == node for master in on.values()),
            "groups": len(has),
            "to_get": len(set(wanted) - set(has)),
            "to_leave": len(set(has) - set(wanted)),
        }

    def _wanted(self, group: GroupId) -> tuple[NodeId, ...]:
        return self._registry.replica_set(group) or self._members(group)

    def _life(self, node: NodeId) -> str:
        known = self._registry.nodes.get(node)
        if known is None:
            return "added"
        return "leaving" if known.leaving else "active"

    def _software(self, node: NodeId) -> str | None:
        """The version of its program; None if it has told none."""
        reads = self._raising.reads(node)
        return None if reads is None else reads.software or None

    def _misplaced(self, now: Now) -> int:
        """How many groups have a master that is not the ideal one, or is unknown."""
        on, placement = masters(self._engine, now), self._registry.placement
        return sum(on.get(group) != placement.get(group) for group in self._groups())

    def removal_problem(self, node: NodeId) -> str:
        """Why the node should not be removed now; "" if it can be."""
        registry = self._registry
        if node not in registry.nodes:
            return ""  # it has no groups; the registry checks the rest
        cluster = registry.cluster
        staying = [one.node for one in registry.nodes.values() if not one.leaving]
        left = len([one for one in staying if one != node])
        replicas = 1 if cluster is None else min(cluster.replicas, len(staying))
        if left < replicas:
            return (
                f"{left} nodes would be left, and every Paxos group has {replicas} copies: add a "
                f"node first, or remove it with --force"
            )
        there = self._engine.alive() - {node}
        for group in self._groups():
            members = self._members(group)
            up = sum(one in there for one in members)
            if node in members and up < quorum_size(members):
                name = "the registry" if group == REGISTRY_GROUP else f"Paxos group {group}"
                return (
                    f"{name} would have no majority: only {up} of its other members run; start "
                    "them first, or remove it with --force"
                )
        return ""


def _is_id(node: object) -> bool:
    return isinstance(node, int) and not isinstance(node, bool) and 1 <= node <= NODE_ID_MAX
