"""The nodes of the cluster and their life cycle; part of the registry's state.

A node is *admitted* (a founder from the beginning, others by being added), *active* once it has
registered, *leaving* when an operator removes it, and *removed* once it has nothing any more. A
removed node's id is never used again: the data on its disk must not return as a vote.
"""

from collections.abc import Mapping

import attrs

from balancer.registry.commands import (
    AddNode,
    DrainNode,
    Refusal,
    Refused,
    RegisterNode,
    RemoveNode,
)
from balancer.registry.records import (
    HOST_CHARS_MAX,
    NODES_MAX,
    REMOVED_MAX,
    ZONE_CHARS_MAX,
    Address,
    Admitted,
    Cluster,
    Node,
)
from paxos.ids import NodeId


@attrs.frozen
class NodeRecords:
    """Immutable: a change makes a new one. Mappings and tuples are ascending."""

    nodes: Mapping[NodeId, Node] = attrs.field(factory=dict)
    """All that have registered and are not removed."""
    admitted: Mapping[NodeId, Admitted] = attrs.field(factory=dict)
    removed: frozenset[NodeId] = frozenset()

    @property
    def peers(self) -> dict[NodeId, Address]:
        """Where every node that belongs to the cluster listens for its peers."""
        known = {node: one.peer for node, one in self.admitted.items()}
        return dict(sorted((known | {node: one.peer for node, one in self.nodes.items()}).items()))

    # ---- commands: the records afterwards, or a refusal ------------------------------------------

    def register(self, command: RegisterNode, cluster: Cluster | None) -> "NodeRecords | Refused":
        node, known = command.node, self.nodes.get(command.node)
        problem = _problem(node, command.zone, command.kafka, command.peer, command.http)
        if problem is not None or command.incarnation < 0:
            return Refused(Refusal.INVALID_NODE, problem or "an incarnation is not negative")
        refused = self._entry_problem(node, cluster)
        if refused is not None:
            return refused
        if known is not None and command.incarnation < known.incarnation:
            return Refused(Refusal.STALE_INCARNATION, f"registered: {known.incarnation}")
        registered = Node(
            node,
            command.incarnation,
            command.kafka,
            command.peer,
            command.http,
            command.zone,
            draining=known is not None and known.draining,
            leaving=known is not None and known.leaving,
        )
        waiting = {one: self.admitted[one] for one in self.admitted if one != node}
        return attrs.evolve(self._with(registered), admitted=waiting)

    def drain(self, command: DrainNode) -> "NodeRecords | Refused":
        known = self.nodes.get(command.node)
        if known is None:
            return Refused(Refusal.UNKNOWN_NODE, f"node {command.node}")
        return self._with(attrs.evolve(known, draining=command.draining))

    def add(self, command: AddNode) -> "NodeRecords | Refused":
        node, known = command.node, self.nodes.get(command.node)
        problem = _problem(node, command.zone, command.peer)
        if problem is not None:
            return Refused(Refusal.INVALID_NODE, problem)
        if node in self.removed:
            return _removed(node)
        if known is not None:
            if known.peer != command.peer:
                where = f"{known.peer.host}:{known.peer.port}"
                return Refused(Refusal.NODE_EXISTS, f"node {node} is at {where}")
            return self._with(attrs.evolve(known, leaving=False))
        if node not in self.admitted and self._full:
            return Refused(Refusal.TOO_MANY_NODES, f"at most {NODES_MAX}")
        admitted = {**self.admitted, node: Admitted(node, command.peer, command.zone)}
        return attrs.evolve(self, admitted=dict(sorted(admitted.items())))

    def remove(self, command: RemoveNode) -> "NodeRecords | Refused":
        node, known = command.node, self.nodes.get(command.node)
        if node in self.removed:
            return self
        if node in self.admitted:  # it was never here: its id can be used again
            waiting = {one: self.admitted[one] for one in self.admitted if one != node}
            return attrs.evolve(self, admitted=waiting)
        if known is None:
            return Refused(Refusal.UNKNOWN_NODE, f"node {node}")
        if not any(one.node != node and not one.leaving for one in self.nodes.values()):
            return Refused(Refusal.LAST_NODE, "the last node cannot be removed")
        if len(self.removed) >= REMOVED_MAX:
            return Refused(Refusal.TOO_MANY_NODES, f"{REMOVED_MAX} have been removed already")
        return self._with(attrs.evolve(known, leaving=True))

    def finish_removal(self, node: NodeId) -> "NodeRecords | Refused":
        known = self.nodes.get(node)
        if node in self.removed:
            return self
        if known is None or not known.leaving:
            return Refused(Refusal.UNKNOWN_NODE, f"node {node} is not leaving")
        rest = {one: self.nodes[one] for one in self.nodes if one != node}
        return attrs.evolve(self, nodes=rest, removed=self.removed | {node})

    # ---- parts -----------------------------------------------------------------------------------

    @property
    def _full(self) -> bool:
        return len(self.nodes) + len(self.admitted) >= NODES_MAX

    def _entry_problem(self, node: NodeId, cluster: Cluster | None) -> Refused | None:
        """Why a node may not register, whatever it reports about itself."""
        if node in self.removed:
            return _removed(node)
        if node in self.nodes or node in self.admitted:
            return None
        if cluster is not None and cluster.founders and node not in cluster.founders:
            text = f"node {node} is not a node of this cluster: `evenkeel node add` admits it"
            return Refused(Refusal.NODE_NOT_ADMITTED, text)
        return Refused(Refusal.TOO_MANY_NODES, f"at most {NODES_MAX}") if self._full else None

    def _with(self, node: Node) -> "NodeRecords":
        nodes = {**self.nodes, node.node: node}
        return attrs.evolve(self, nodes=dict(sorted(nodes.items())))


def _removed(node: NodeId) -> Refused:
    text = f"node {node} was removed; its id is never used again: give the node a new one"
    return Refused(Refusal.NODE_REMOVED, text)


def _problem(node: NodeId, zone: str, *addresses: Address) -> str | None:
    """What is wrong with the reported properties of a node; None if nothing is."""
    if node < 0:
        return "a node's id is not negative"
    if any(not 0 < len(address.host) <= HOST_CHARS_MAX for address in addresses):
        return f"a host has 1 to {HOST_CHARS_MAX} characters"
    if len(zone) > ZONE_CHARS_MAX:
        return f"a zone has at most {ZONE_CHARS_MAX} characters"
    return None
