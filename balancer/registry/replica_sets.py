"""Which nodes keep which group: the intended and the actual members; part of the registry.

A group's *replica set* is the intended one; its *members* are those in its own log (Config
entries), noted here by its master. Until then they are the first members, which follow from how the
cluster was founded. The group's master changes the members to the set, one at a time
(`paxos.changes.membership`).
"""

from collections.abc import Collection, Mapping
from functools import lru_cache

import attrs

from balancer.registry.commands import NoteMembers, Refusal, Refused, SetReplicaSets
from balancer.registry.policy import CODE_CHARS_MAX, TEXT_CHARS_MAX
from balancer.registry.records import (
    GROUPS_MAX,
    NODES_MAX,
    REPLICA_CHANGES_MAX,
    REPLICA_RECORDS_MAX,
    REPLICAS_MAX,
    WALL_NS_MAX,
    Cluster,
    Node,
    Noted,
    ReplicaChange,
    ReplicaRecord,
)
from paxos.changes.membership import first_members
from paxos.ids import SLOT_ZERO, GroupId, NodeId


@attrs.frozen
class ReplicaSets:
    """Immutable: a change makes a new one. Mappings are ascending."""

    sets: Mapping[GroupId, tuple[NodeId, ...]] = attrs.field(factory=dict)
    """Only those that differ from the first members."""
    by_hand: frozenset[GroupId] = frozenset()
    noted: Mapping[GroupId, Noted] = attrs.field(factory=dict)
    history: tuple[ReplicaRecord, ...] = ()
    """Oldest first."""

    def members(self, group: GroupId, cluster: Cluster | None) -> tuple[NodeId, ...]:
        """As last noted; () if none are known, which means all nodes."""
        noted = self.noted.get(group)
        if noted is not None:
            return noted.members
        if cluster is None or not cluster.founders:
            return ()
        return _first_members(group, cluster.founders, cluster.replicas)

    def wanted(self, group: GroupId, cluster: Cluster | None) -> tuple[NodeId, ...]:
        """The replica set; () as for `members`."""
        found = self.sets.get(group)
        return self.members(group, cluster) if found is None else found

    # ---- commands: the replica sets afterwards, or a refusal -------------------------------------

    def set(
        self, command: SetReplicaSets, cluster: Cluster, nodes: Mapping[NodeId, Node]
    ) -> "ReplicaSets | Refused":
        sets = {group: tuple(sorted(wanted)) for group, wanted in sorted(command.sets.items())}
        for group, wanted in sets.items():
            refused = _set_problem(group, wanted, cluster, nodes)
            if refused is not None:
                return refused
        problem = _words_problem(command)
        if problem is not None:
            return Refused(Refusal.INVALID_REPLICAS, problem)
        changes = tuple(
            ReplicaChange(group, before, wanted, command.reasons.get(group, ""))
            for group, wanted in sets.items()
            if (before := self.wanted(group, cluster)) != wanted
        )
        kept = self.by_hand - sets.keys()
        changed = attrs.evolve(self, by_hand=kept | sets.keys() if command.by_hand else kept)
        if not changes:
            return changed
        record = ReplicaRecord(
            command.wall_ns,
            command.node,
            command.trigger,
            # A first set may have more members than a set may have: it is only counted.
            tuple(one for one in changes if len(one.before) <= REPLICAS_MAX)[:REPLICA_CHANGES_MAX],
            len(changes),
        )
        return attrs.evolve(
            changed,
            sets=dict(sorted({**self.sets, **sets}.items())),
            history=(*self.history, record)[-REPLICA_RECORDS_MAX:],
        )

    def note(self, command: NoteMembers, cluster: Cluster) -> "ReplicaSets | Refused":
        group, members = command.group, tuple(sorted(command.members))
        if not 0 <= group <= cluster.groups_count:
            return Refused(Refusal.UNKNOWN_GROUP, f"group {group}")
        if not 0 < len(set(members)) == len(members) <= NODES_MAX or command.slot < SLOT_ZERO:
            return Refused(Refusal.INVALID_REPLICAS, "no members, or one of them twice")
        known = self.noted.get(group)
        if known is not None and command.slot <= known.slot:
            return self  # of several masters, the one that has seen most of the log is right
        noted = {**self.noted, group: Noted(command.slot, members)}
        return attrs.evolve(self, noted=dict(sorted(noted.items())))

    def released(self, group: GroupId) -> "ReplicaSets":
        """The group's set is under the planner's control again."""
        return attrs.evolve(self, by_hand=self.by_hand - {group})

    # ---- reading ---------------------------------------------------------------------------------

    def use_of(self, node: NodeId, groups: range, cluster: Cluster | None) -> str:
        """What a node still has or is to have; "" if nothing."""
        for group in map(GroupId, groups):
            if node in self.members(group, cluster):
                return f"node {node} is a member of Paxos group {group}"
            if node in self.wanted(group, cluster):
                return f"node {node} is in the replica set of Paxos group {group}"
        return ""


_first_members = lru_cache(maxsize=GROUPS_MAX + 1)(first_members)
"""They are requested frequently, and never change."""


def _set_problem(
    group: GroupId, wanted: Collection[NodeId], cluster: Cluster, nodes: Mapping[NodeId, Node]
) -> Refused | None:
    if not 0 <= group <= min(cluster.groups_count, GROUPS_MAX):
        return Refused(Refusal.UNKNOWN_GROUP, f"group {group}")
    if not 0 < len(set(wanted)) == len(wanted) <= REPLICAS_MAX:
        return Refused(Refusal.INVALID_REPLICAS, f"1 to {REPLICAS_MAX} nodes, each of them once")
    for node in wanted:
        if node not in nodes:
            return Refused(Refusal.UNKNOWN_NODE, f"node {node} for group {group}")
        if nodes[node].leaving:
            return Refused(Refusal.NODE_LEAVING, f"node {node} for group {group}")
    return None


def _words_problem(command: SetReplicaSets) -> str | None:
    if not 0 <= command.wall_ns <= WALL_NS_MAX:
        return "the time is out of range"
    if len(command.trigger) > TEXT_CHARS_MAX:
        return "a text is too long"
    if any(len(reason) > CODE_CHARS_MAX for reason in command.reasons.values()):
        return "a text is too long"
    return None
