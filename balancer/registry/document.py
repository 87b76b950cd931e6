"""The contents of the registry, for reading and encoding; `registry.py` changes them.

The properties return frozen values, or mappings that are replaced and never changed in place
(topics and partitions excepted: they are read only by agreement). The shell compares `versions`
with the last ones it saw to learn what has changed.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from balancer.registry.catalogue import Catalogue
from balancer.registry.fences import Fences
from balancer.registry.image import Image, decode_image, encode_image
from balancer.registry.nodes import NodeRecords
from balancer.registry.policy import PlanRecord, Policy, Weights
from balancer.registry.records import (
    Address,
    Admitted,
    Cluster,
    Node,
    Partition,
    PartitionUid,
    ReplicaRecord,
    StealRecord,
    StealToken,
    Topic,
)
from balancer.registry.replica_sets import ReplicaSets
from balancer.registry.security import Security
from balancer.registry.steal_tokens import StealTokens
from balancer.registry.versions import ClusterVersion
from paxos.ids import SLOT_ZERO, GroupId, NodeId, Slot


class Versions(NamedTuple):
    """`all` goes up with every change, each other one when its part changes."""

    all: int = 0
    nodes: int = 0
    topics: int = 0
    placement: int = 0
    steals: int = 0
    """Tokens, history and pauses."""
    policy: int = 0
    """Policy, pins and published weights."""
    replicas: int = 0
    """Replica sets, as they should be."""
    members: int = 0
    """Members of groups, as noted by their masters."""


class Document:
    """See the module."""

    def __init__(self) -> None:
        self.versions = Versions()
        self.applied = SLOT_ZERO
        self.cluster: Cluster | None = None
        self.placement: Mapping[GroupId, NodeId] = {}
        self.paused = False
        self.paused_groups: frozenset[GroupId] = frozenset()
        self.policy = Policy()
        self.pins: Mapping[GroupId, NodeId] = {}
        self.orders: Mapping[GroupId, tuple[NodeId, ...]] = {}
        """Of pinned groups: the order of replicas that an operator asked for, the pin first."""
        self.weights = Weights()
        self.plans: tuple[PlanRecord, ...] = ()
        """The latest adopted plans, oldest first."""
        self.cluster_version = ClusterVersion()
        self.security = Security()
        self._roster = NodeRecords()
        self._replicas = ReplicaSets()
        self._catalogue = Catalogue()
        self._steal_tokens = StealTokens()
        self._next_producer_id = 0
        self._fences = Fences()

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.versions.all

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        """All nodes that have registered and are not removed, ascending."""
        return self._roster.nodes

    @property
    def admitted(self) -> Mapping[NodeId, Admitted]:
        """Added and not registered yet."""
        return self._roster.admitted

    @property
    def removed(self) -> frozenset[NodeId]:
        return self._roster.removed

    @property
    def peers(self) -> Mapping[NodeId, Address]:
        """Where each node of the cluster, admitted ones included, listens for its peers."""
        return self._roster.peers

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        """The nodes that have the group, as its master last noted; () means all nodes."""
        return self._replicas.members(group, self.cluster)

    def members_since(self, group: GroupId) -> Slot | None:
        """The slot that its members were noted for; None if they are the first ones."""
        noted = self._replicas.noted.get(group)
        return None if noted is None else noted.slot

    def replica_set(self, group: GroupId) -> tuple[NodeId, ...]:
        """The nodes that should have the group, ascending; () means all nodes."""
        return self._replicas.wanted(group, self.cluster)

    def may_have(self, node: NodeId, group: GroupId) -> bool:
        """Whether a node has a group or is to have it."""
        has, wanted = self.members(group), self.replica_set(group)
        return not has or node in has or node in wanted

    @property
    def sets_by_hand(self) -> frozenset[GroupId]:
        """Groups whose replica set an operator has chosen."""
        return self._replicas.by_hand

    @property
    def replica_history(self) -> tuple[ReplicaRecord, ...]:
        """The last changes of replica sets, oldest first."""
        return self._replicas.history

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._catalogue.topics

    @property
    def partitions(self) -> Mapping[PartitionUid, Partition]:
        return self._catalogue.partitions

    @property
    def token(self) -> StealToken | None:
        return self._steal_tokens.token

    @property
    def tokens(self) -> tuple[StealToken, ...]:
        """All steals in progress, or whose token has not been taken over yet."""
        return self._steal_tokens.tokens

    def token_numbered(self, number: int) -> StealToken | None:
        """The token of this number, if it is still valid."""
        return None if number in self._steal_tokens.cancelled else self._steal_tokens.find(number)

    @property
    def last_token(self) -> int:
        """The number of the last token ever granted."""
        return self._steal_tokens.next_token - 1

    @property
    def history(self) -> tuple[StealRecord, ...]:
        """The last steals, oldest first."""
        return self._steal_tokens.history

    @property
    def groups(self) -> range:
        """All group numbers, the registry's own included."""
        return range((0 if self.cluster is None else self.cluster.groups_count) + 1)

    def topic(self, name: str) -> Topic | None:
        return self._catalogue.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._catalogue.topic_by_id(topic_id)

    def partition(self, uid: int) -> Partition | None:
        return self._catalogue.partitions.get(PartitionUid(uid))

    def epoch_base(self, uid: int) -> int:
        """The difference between a partition's leader epoch and the epoch of its group's lease."""
        partition = self.partition(uid)
        if partition is None:
            return 0
        return self._catalogue.topics[partition.topic].epoch_base(partition.index)

    @property
    def next_uid(self) -> PartitionUid:
        """All uids below this have been assigned."""
        return self._catalogue.next_uid

    def is_gone(self, uid: int) -> bool:
        """Whether a partition of this uid existed, and its topic was deleted."""
        return uid < self._catalogue.next_uid and uid not in self._catalogue.partitions

    def partitions_of_group(self, group: GroupId) -> Mapping[PartitionUid, Partition]:
        return self._catalogue.of_group(group)

    # ---- snapshot --------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole document; two nodes that applied the same log get the same bytes."""
        return encode_image(self.image())

    def image(self) -> Image:
        """The present contents of the document: frozen values, to be encoded later."""
        catalogue, tokens, replicas = self._catalogue, self._steal_tokens, self._replicas
        return Image(
            applied=self.applied,
            versions=tuple(self.versions),
            cluster=self.cluster,
            nodes=tuple(self.nodes.values()),
            topics=tuple(catalogue.topics.values()),
            next_uid=catalogue.next_uid,
            next_producer_id=self._next_producer_id,
            placement=self.placement,
            tokens=tokens.tokens,
            next_token=tokens.next_token,
            history=tokens.history,
            stolen_versions=tokens.stolen_versions,
            cancelled=tuple(sorted(tokens.cancelled)),
            paused=self.paused,
            paused_groups=tuple(sorted(self.paused_groups)),
            policy=self.policy,
            pins=self.pins,
            weights=self.weights,
            plans=self.plans,
            admitted=tuple(self.admitted.values()),
            removed=tuple(sorted(self.removed)),
            replica_sets=replicas.sets,
            by_hand=tuple(sorted(replicas.by_hand)),
            members=replicas.noted,
            replica_history=replicas.history,
            fenced_since=self._fences.since,
            decided=dict(self._fences.decided),
            epochs=dict(sorted(catalogue.epochs.items())),
            epoch_floor=catalogue.epoch_floor,
            orders=self.orders,
            cluster_version=self.cluster_version,
            security=self.security,
        )

    @classmethod
    def restore(cls, data: bytes | memoryview) -> Self:
        """The document that a snapshot was made from.

        Raises:
            PackingError: if the bytes are no snapshot.
        """
        document = cls()
        document.install(decode_image(data))
        return document

    def install(self, image: Image) -> None:
        """Become the document that the image was made from; references to this object see that one.

        Raises:
            PackingError: if the parts of the image contradict each other; nothing has changed then.
        """
        catalogue = Catalogue.from_topics(image.cluster, image.topics, image.next_uid)
        catalogue.epochs, catalogue.epoch_floor = dict(image.epochs), image.epoch_floor
        self._catalogue = catalogue
        self.applied = image.applied
        self.versions = Versions(*image.versions)
        self.cluster = image.cluster
        self._roster = NodeRecords(
            {node.node: node for node in image.nodes},
            {node.node: node for node in image.admitted},
            frozenset(image.removed),
        )
        self._replicas = ReplicaSets(
            image.replica_sets, frozenset(image.by_hand), image.members, image.replica_history
        )
        self.placement = image.placement
        self.paused = image.paused
        self.paused_groups = frozenset(image.paused_groups)
        self.policy, self.pins, self.orders = image.policy, image.pins, image.orders
        self.weights, self.plans = image.weights, image.plans
        self.cluster_version = image.cluster_version
        self.security = image.security
        self._next_producer_id = image.next_producer_id
        self._fences = Fences(image.fenced_since, dict(image.decided))
        self._steal_tokens = StealTokens(
            image.tokens,
            image.history,
            image.next_token,
            image.stolen_versions,
            frozenset(image.cancelled),
        )
