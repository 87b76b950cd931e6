"""Replicas assigned by hand, when topics are created or get more partitions.

A partition lives in a Paxos group, and has that group's members as replicas; groups are placed by
the cluster. So an assignment chooses a group: one that has all nodes it names among its members,
preferably with the node named first as its ideal master (Kafka's preferred leader), and then the
one with the fewest partitions. If there is none the assignment is refused; it never moves a group,
which others share (ADR 52).
"""

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heapreplace
from typing import Final

from broker.handlers.topics.registry_changes import Verdict
from broker.requests.context import Broker
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId
from wire.error_codes import ErrorCode
from wire.messages.topics import CreatableTopic, CreatePartitionsTopic

PARTITIONS_MAX: Final = 1_000
"""Assigned in one request."""
DEFAULT: Final = -1


def _wrong(text: str) -> Verdict:
    return Verdict(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


class Chooser:
    """Chooses for the partitions of one request, counting those chosen before: what looks at all
    groups is done once for it, and not for each of its topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._version = -1
        self._partitions: dict[GroupId, int] = {}
        self._members: dict[GroupId, frozenset[NodeId]] = {}
        self._groups_of: dict[NodeId, set[GroupId]] = {}
        self._found: dict[tuple[int, ...], list[tuple[int, GroupId]]] = {}
        self._sets = ""

    def of_new_topic(self, topic: CreatableTopic) -> tuple[GroupId, ...] | Verdict:
        """The Paxos groups of its partitions; none if they are not assigned by hand."""
        if not topic.assignments:
            return ()
        if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
            return Verdict(
                ErrorCode.INVALID_REQUEST,
                "replicas are assigned by hand: numbers of partitions and of replicas must be -1",
            )
        rows = sorted(topic.assignments, key=lambda one: one.partition_index)
        if [one.partition_index for one in rows] != list(range(len(rows))):
            return _wrong("the partitions of an assignment are numbered 0, 1, 2 ...")
        return self._choose([one.broker_ids for one in rows])

    def of_new_partitions(
        self, asked: CreatePartitionsTopic, there: int
    ) -> tuple[GroupId, ...] | Verdict:
        if asked.assignments is None:
            return ()
        new, given = asked.count - there, len(asked.assignments)
        if new != given:
            return _wrong(
                f"attempted to add {new} additional partition(s), "
                f"but only {given} assignment(s) were specified"
                if given < new
                else f"{given} assignments for {new} new partition(s)"
            )
        return self._choose([one.broker_ids for one in asked.assignments])

    def _look(self) -> None:
        """Take in the groups as they are now."""
        registry = self._broker.registry
        if registry.version == self._version:
            return
        self._version = registry.version
        self._partitions = {
            GroupId(group): len(registry.partitions_of_group(GroupId(group)))
            for group in registry.groups
            if group != REGISTRY_GROUP or len(registry.groups) == 1
        }
        self._members = {
            group: frozenset(registry.replica_set(group) or registry.nodes)
            for group in self._partitions
        }
        self._groups_of = {node: set() for node in registry.nodes}
        for group, members in self._members.items():
            for node in members:
                self._groups_of.setdefault(node, set()).add(group)
        self._found = {}
        self._sets = _listed_sets(self._members.values())

    def _choose(self, wanted: Sequence[Sequence[int]]) -> tuple[GroupId, ...] | Verdict:
        self._look()
        wrong = self._problem(wanted)
        if wrong is not None:
            return wrong
        candidates = []
        for nodes in wanted:
            found = self._candidates(tuple(nodes))
            if not found:
                return _wrong(
                    f"no Paxos group has {_listed(nodes)} among its members: partitions live in "
                    f"groups that share nodes ({self._sets})"
                )
            candidates.append(found)
        return tuple(map(self._smallest, candidates))

    def _smallest(self, candidates: list[tuple[int, GroupId]]) -> GroupId:
        """The one with the fewest partitions, and now with one more. Of others' choices a heap
        learns when the group comes to its top."""
        while True:
            known, group = candidates[0]
            size = self._partitions[group]
            if size == known:
                self._partitions[group] = size + 1
                heapreplace(candidates, (size + 1, group))
                return group
            heapreplace(candidates, (size, group))

    def _problem(self, wanted: Sequence[Sequence[int]]) -> Verdict | None:
        nodes = self._broker.registry.nodes
        for named in wanted:
            if not named:
                return _wrong("an assignment names no node")
            if len(named) > len(nodes):
                return _wrong(f"an assignment names {len(named)} nodes, there are {len(nodes)}")
            if len(set(named)) < len(named):
                return _wrong(f"an assignment names a node twice: {_listed(named)}")
            if len(named) != len(wanted[0]):
                return _wrong(
                    f"the assignments name {len(wanted[0])} and {len(named)} nodes: "
                    "all partitions of a topic have as many replicas"
                )
            for node in named:
                if node not in nodes:
                    return _wrong(f"an assignment names node {node}, but there is no such node")
        return None

    def _candidates(self, nodes: tuple[int, ...]) -> list[tuple[int, GroupId]]:
        """Those that fit, as a heap by their partitions."""
        found = self._found.get(nodes)
        if found is None:
            fits = set.intersection(*(self._groups_of[NodeId(node)] for node in nodes))
            placement = self._broker.registry.placement
            first = {group for group in fits if placement.get(group) == nodes[0]}
            found = [(self._partitions[group], group) for group in first or fits]
            heapify(found)
            self._found[nodes] = found
        return found


def _listed(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))[:100]


def _listed_sets(sets: Collection[frozenset[int]]) -> str:
    return "; ".join(sorted({_listed(sorted(one)) for one in sets})[:10])
