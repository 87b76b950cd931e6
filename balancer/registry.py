"""The registry: one replicated document on group 0's log, the same on every node (E8).

It holds the nodes, the topics with their partitions' places, the ideal placement, the steal token,
the balancer's pauses and the producer id counter. `apply` is a pure function of the state and the
command, so nodes that applied the same log hold the same document, byte for byte (`snapshot`).

Reading: what the properties return are frozen values, or mappings that are replaced and never
changed in place (topics and partitions excepted: they are read only by agreement). The shell
compares `versions` with the ones it saw last to learn what has changed.
"""

from collections.abc import Mapping
from typing import NamedTuple

import attrs

from balancer.catalogue import Catalogue
from balancer.packing import PackingError
from balancer.policy import (
    PLANS_MAX,
    PlanRecord,
    Policy,
    Weights,
    policy_problem,
    record_problem,
    weights_problem,
)
from balancer.records import (
    CLUSTER_ID_CHARS_MAX,
    GROUPS_MAX,
    HOST_CHARS_MAX,
    NODES_MAX,
    TOKEN_NS_MAX,
    WALL_NS_MAX,
    ZONE_CHARS_MAX,
    Address,
    Cluster,
    Node,
    Partition,
    PartitionUid,
    StealRecord,
    StealToken,
    Topic,
)
from balancer.registry_commands import (
    AcquireStealToken,
    AdoptPlan,
    AllocateProducerIds,
    CancelSteal,
    Command,
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Done,
    DrainNode,
    FoundCluster,
    MergePlacement,
    PartitionsCreated,
    PauseBalancer,
    PinGroup,
    PlacementSet,
    ProducerIds,
    PublishWeights,
    Refusal,
    Refused,
    RegisterNode,
    ReleaseStealToken,
    Result,
    SetPlacement,
    SetPolicy,
    TokenGranted,
    TokenRefused,
    TokenReleased,
    TopicCreated,
    TopicDeleted,
    decode_command,
    encode_result,
)
from balancer.registry_image import Image, decode_image, encode_image
from balancer.token_desk import TokenDesk
from paxos.ids import REGISTRY_GROUP, SLOT_ZERO, GroupId, NodeId, Slot

PRODUCER_IDS_MAX = 1_000_000
"""In one block; a broker asks for a thousand at a time."""
PRODUCER_ID_LAST = 2**63 - 1


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


class Registry:
    """The document. Build an empty one and apply group 0's log to it, or `restore` a snapshot."""

    def __init__(self) -> None:
        self.versions = Versions()
        self.applied = SLOT_ZERO
        self.cluster: Cluster | None = None
        self.nodes: Mapping[NodeId, Node] = {}
        self.placement: Mapping[GroupId, NodeId] = {}
        self.paused = False
        self.paused_groups: frozenset[GroupId] = frozenset()
        self.policy = Policy()
        self.pins: Mapping[GroupId, NodeId] = {}
        self.weights = Weights()
        self.plans: tuple[PlanRecord, ...] = ()
        """The last adopted plans, oldest first."""
        self._catalogue = Catalogue()
        self._desk = TokenDesk()
        self._next_producer_id = 0

    # ---- applying --------------------------------------------------------------------------------

    def apply(self, command: bytes | memoryview, slot: int) -> bytes:
        """Apply one command of the log's entry in `slot`; returns its encoded result.

        Several commands of one entry come one by one with the same slot. Bytes that are no command
        are a result as well: every node must come to the same end with them.
        """
        try:
            decoded = decode_command(command)
        except PackingError as error:
            decoded = None
            result: Result = Refused(Refusal.MALFORMED, str(error)[:200])
        if decoded is not None:
            result = self.apply_command(decoded, slot)
        return encode_result(result)

    def apply_command(self, command: Command, slot: int) -> Result:
        """As `apply`, for a command that is decoded already."""
        assert slot >= self.applied, f"slot {slot} after slot {self.applied}"
        self.applied = Slot(slot)
        return self._dispatch(command)

    def _dispatch(self, command: Command) -> Result:
        match command:
            case FoundCluster():
                return self._found(command)
            case RegisterNode():
                return self._register(command)
            case DrainNode():
                return self._drain(command)
            case CreateTopic() | CreatePartitions() | DeleteTopic():
                return self._change_topics(command)
            case ConfigureTopic():
                return self._configure(command)
            case AllocateProducerIds():
                return self._allocate(command)
            case SetPlacement() | MergePlacement() | AdoptPlan() | PinGroup():
                return self._change_placement(command)
            case SetPolicy() | PublishWeights():
                return self._change_policy(command)
            case AcquireStealToken() | ReleaseStealToken() | PauseBalancer() | CancelSteal():
                return self._steer(command)

    # ---- cluster and nodes -----------------------------------------------------------------------

    def _found(self, command: FoundCluster) -> Result:
        wanted = Cluster(command.cluster_id, command.groups_count)
        if self.cluster is not None:
            if self.cluster == wanted:
                return self._done()
            return Refused(Refusal.ALREADY_FOUNDED, self.cluster.cluster_id)
        if not 0 < len(command.cluster_id) <= CLUSTER_ID_CHARS_MAX:
            return Refused(Refusal.INVALID_CLUSTER, "the cluster id is empty or too long")
        if command.groups_count > GROUPS_MAX:
            return Refused(Refusal.INVALID_CLUSTER, f"at most {GROUPS_MAX} groups")
        self.cluster = wanted
        self._catalogue.found(command.groups_count)
        return self._done("topics")

    def _register(self, command: RegisterNode) -> Result:
        known = self.nodes.get(command.node)
        problem = _node_problem(command)
        if problem is not None:
            return Refused(Refusal.INVALID_NODE, problem)
        if known is None and len(self.nodes) >= NODES_MAX:
            return Refused(Refusal.TOO_MANY_NODES, f"at most {NODES_MAX}")
        if known is not None and command.incarnation < known.incarnation:
            return Refused(Refusal.STALE_INCARNATION, f"registered: {known.incarnation}")
        node = Node(
            command.node,
            command.incarnation,
            command.kafka,
            command.peer,
            command.http,
            command.zone,
            draining=known is not None and known.draining,
        )
        return self._set_node(node)

    def _drain(self, command: DrainNode) -> Result:
        known = self.nodes.get(command.node)
        if known is None:
            return Refused(Refusal.UNKNOWN_NODE, f"node {command.node}")
        return self._set_node(attrs.evolve(known, draining=command.draining))

    def _set_node(self, node: Node) -> Result:
        if self.nodes.get(node.node) == node:
            return self._done()
        self.nodes = dict(sorted({**self.nodes, node.node: node}.items()))
        return self._done("nodes")

    # ---- topics and producer ids -----------------------------------------------------------------

    def _change_topics(self, command: CreateTopic | CreatePartitions | DeleteTopic) -> Result:
        if self.cluster is None:
            return Refused(Refusal.NOT_FOUNDED, "the cluster is not founded yet")
        before = self._catalogue.topics.get(command.name) if command.name is not None else None
        result: TopicCreated | PartitionsCreated | TopicDeleted | Refused
        match command:
            case CreateTopic():
                result = self._catalogue.create(command)
            case CreatePartitions():
                result = self._catalogue.grow(command)
            case DeleteTopic():
                result = self._catalogue.delete(command)
        repeated = isinstance(result, TopicCreated) and result.topic is before
        if not isinstance(result, Refused) and not repeated:
            self._changed("topics")
        return result

    def _configure(self, command: ConfigureTopic) -> Result:
        before = self._catalogue.topics.get(command.name)
        after = self._catalogue.configure(command)
        if isinstance(after, Refused):
            return after
        return self._done() if after == before else self._done("topics")

    def _allocate(self, command: AllocateProducerIds) -> Result:
        if not 0 < command.count <= PRODUCER_IDS_MAX:
            return Refused(Refusal.INVALID_COUNT, f"1 to {PRODUCER_IDS_MAX} ids at a time")
        first = self._next_producer_id
        if first > PRODUCER_ID_LAST - command.count:
            return Refused(Refusal.PRODUCER_IDS_EXHAUSTED)
        self._next_producer_id += command.count
        self._changed()
        return ProducerIds(first, command.count)

    # ---- placement and steals --------------------------------------------------------------------

    def _change_placement(
        self, command: SetPlacement | MergePlacement | AdoptPlan | PinGroup
    ) -> Result:
        match command:
            case SetPlacement(expected_version=expected, placement=placement):
                return self._place_by_hand(expected, placement)
            case MergePlacement(expected_version=expected, group=group, node=node):
                return self._place_by_hand(expected, {**self.placement, group: node})
            case AdoptPlan():
                return self._adopt(command)
            case PinGroup():
                return self._pin(command)

    def _steer(
        self, command: AcquireStealToken | ReleaseStealToken | PauseBalancer | CancelSteal
    ) -> Result:
        match command:
            case AcquireStealToken():
                return self._acquire(command)
            case ReleaseStealToken():
                return self._release(command)
            case PauseBalancer():
                return self._pause(command)
            case CancelSteal(token=token):
                if self._desk.cancel(token):
                    return self._done("steals")
                return Refused(Refusal.NOT_STEALING, f"token {token}")

    def _place_by_hand(self, expected: int | None, placement: Mapping[GroupId, NodeId]) -> Result:
        """What an operator says stays until he asks for a plan; the first placement is nobody's."""
        first = not self.placement
        result = self._place(expected, placement)
        if isinstance(result, PlacementSet) and not first:
            self._set_policy(attrs.evolve(self.policy, automatic=False))
        return result

    def _adopt(self, command: AdoptPlan) -> Result:
        problem = record_problem(command.record)
        if problem is not None:
            return Refused(Refusal.INVALID_PLAN, problem)
        result = self._place(command.expected_version, command.placement)
        if isinstance(result, PlacementSet):
            self.plans = (*self.plans, command.record)[-PLANS_MAX:]
            self._changed()
            self._set_policy(attrs.evolve(self.policy, automatic=command.automatic))
        return result

    def _change_policy(self, command: SetPolicy | PublishWeights) -> Result:
        match command:
            case SetPolicy(expected_version=expected, policy=policy):
                if expected is not None and expected != self.versions.policy:
                    return Refused(
                        Refusal.POLICY_CONFLICT, f"the version is {self.versions.policy}"
                    )
                problem = policy_problem(policy)
                if problem is not None:
                    return Refused(Refusal.INVALID_POLICY, problem)
                capacities = dict(sorted(policy.capacities.items()))
                self._set_policy(attrs.evolve(policy, capacities=capacities))
                return self._done()
            case PublishWeights(weights=weights):
                return self._publish(weights)

    def _set_policy(self, policy: Policy) -> None:
        if policy != self.policy:
            self.policy = policy
            self._changed("policy")

    def _pin(self, command: PinGroup) -> Result:
        group, node = command.group, command.node
        if node is not None:
            result = self._place(None, {**self.placement, group: node})
            if isinstance(result, Refused):
                return result
        pins = {one: pin for one, pin in self.pins.items() if one != group}
        if node is not None:
            pins[group] = node
        if pins != self.pins:
            self.pins = dict(sorted(pins.items()))
            self._changed("policy")
        return self._done()

    def _publish(self, weights: Weights) -> Result:
        problem = weights_problem(weights)
        if problem is not None:
            return Refused(Refusal.INVALID_WEIGHTS, problem)
        unknown = weights.weights.keys() - set(self.groups)
        if unknown:
            return Refused(Refusal.UNKNOWN_GROUP, f"group {min(unknown)}")
        if weights.computed_wall_ns < self.weights.computed_wall_ns:
            return Refused(Refusal.STALE_WEIGHTS, f"older than those of {self.weights.source}")
        if weights != self.weights:
            self.weights = attrs.evolve(weights, weights=dict(sorted(weights.weights.items())))
            self._changed("policy")
        return self._done()

    def _place(self, expected: int | None, wanted: Mapping[GroupId, NodeId]) -> Result:
        placement = dict(sorted(wanted.items()))
        current = self.versions.placement
        if self.cluster is None:
            return Refused(Refusal.NOT_FOUNDED, "the cluster is not founded yet")
        if expected is not None and expected != current:
            return Refused(Refusal.PLACEMENT_CONFLICT, f"the version is {current}")
        for group, node in placement.items():
            if not REGISTRY_GROUP <= group <= self.cluster.groups_count:
                return Refused(Refusal.UNKNOWN_GROUP, f"group {group}")
            if node not in self.nodes:
                return Refused(Refusal.UNKNOWN_NODE, f"node {node} for group {group}")
        if placement != self.placement:
            self.placement = placement
            self._changed("placement")
        return PlacementSet(self.versions.placement)

    def _acquire(self, command: AcquireStealToken) -> TokenGranted | TokenRefused:
        problem = self._acquire_problem(command)
        if problem is not None:
            return TokenRefused(problem, command.group, command.attempt)
        before = self._desk.tokens
        result = self._desk.acquire(command, self.policy.steals_max)
        if self._desk.tokens is not before:
            self._changed("steals")
        return result

    def _acquire_problem(self, command: AcquireStealToken) -> Refusal | None:
        target = self.nodes.get(command.target)
        if target is None:
            return Refusal.UNKNOWN_NODE
        if command.target_incarnation != target.incarnation:
            return Refusal.STALE_INCARNATION
        if target.draining:
            return Refusal.NODE_DRAINING
        if self.paused or command.group in self.paused_groups:
            return Refusal.PAUSED
        if command.placement_version != self.versions.placement:
            return Refusal.STALE_PLAN
        if self.placement.get(command.group) != command.target or command.source == command.target:
            return Refusal.NOT_MISPLACED
        if not 0 < command.duration_ns <= TOKEN_NS_MAX:
            return Refusal.INVALID_DURATION
        if not 0 <= command.now_wall_ns <= WALL_NS_MAX:
            return Refusal.INVALID_DURATION
        return None

    def _release(self, command: ReleaseStealToken) -> TokenReleased:
        result = self._desk.release(command)
        if result.was_held:
            self._changed("steals")
        return result

    def _pause(self, command: PauseBalancer) -> Result:
        if command.group is None:
            if self.paused == command.paused:
                return self._done()
            self.paused = command.paused
            return self._done("steals")
        if self.cluster is None or not 0 <= command.group <= self.cluster.groups_count:
            return Refused(Refusal.UNKNOWN_GROUP, f"group {command.group}")
        one = {command.group}
        groups = self.paused_groups | one if command.paused else self.paused_groups - one
        if groups == self.paused_groups:
            return self._done()
        self.paused_groups = groups
        return self._done("steals")

    # ---- versions --------------------------------------------------------------------------------

    def _changed(self, part: str | None = None) -> None:
        versions = self.versions._replace(all=self.versions.all + 1)
        if part is not None:
            versions = versions._replace(**{part: getattr(versions, part) + 1})
        self.versions = versions

    def _done(self, part: str | None = None) -> Done:
        """Accepted; `part` names what has changed, None says that nothing has."""
        if part is not None:
            self._changed(part)
        return Done(self.versions.all)

    # ---- reading ---------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.versions.all

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._catalogue.topics

    @property
    def partitions(self) -> Mapping[PartitionUid, Partition]:
        return self._catalogue.partitions

    @property
    def token(self) -> StealToken | None:
        return self._desk.token

    @property
    def tokens(self) -> tuple[StealToken, ...]:
        """All steals that run, or whose token nobody has taken over yet."""
        return self._desk.tokens

    def token_numbered(self, number: int) -> StealToken | None:
        """The token of this number if it is still to be honoured."""
        return None if number in self._desk.cancelled else self._desk.find(number)

    @property
    def last_token(self) -> int:
        """The number of the last token ever granted."""
        return self._desk.next_token - 1

    @property
    def history(self) -> tuple[StealRecord, ...]:
        """The last steals, oldest first."""
        return self._desk.history

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

    def is_gone(self, uid: int) -> bool:
        """Whether there was a partition of this uid, and its topic was deleted."""
        return uid < self._catalogue.next_uid and uid not in self._catalogue.partitions

    def partitions_of_group(self, group: GroupId) -> Mapping[PartitionUid, Partition]:
        return self._catalogue.of_group(group)

    # ---- snapshot --------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole document; two nodes that applied the same log get the same bytes."""
        return encode_image(self.image())

    def image(self) -> Image:
        """What the document is made of now: frozen values, to be encoded at leisure."""
        catalogue, desk = self._catalogue, self._desk
        return Image(
            applied=self.applied,
            versions=tuple(self.versions),
            cluster=self.cluster,
            nodes=tuple(self.nodes.values()),
            topics=tuple(catalogue.topics.values()),
            next_uid=catalogue.next_uid,
            next_producer_id=self._next_producer_id,
            placement=self.placement,
            tokens=desk.tokens,
            next_token=desk.next_token,
            history=desk.history,
            stolen_versions=desk.stolen_versions,
            cancelled=tuple(sorted(desk.cancelled)),
            paused=self.paused,
            paused_groups=tuple(sorted(self.paused_groups)),
            policy=self.policy,
            pins=self.pins,
            weights=self.weights,
            plans=self.plans,
        )

    @classmethod
    def restore(cls, data: bytes | memoryview) -> "Registry":
        """The document a snapshot was made of.

        Raises:
            PackingError: if the bytes are no snapshot.
        """
        registry = cls()
        registry.install(decode_image(data))
        return registry

    def install(self, image: Image) -> None:
        """Become the document that the image was made of; whoever holds this one sees that one.

        Raises:
            PackingError: if the parts of the image contradict each other; nothing has changed then.
        """
        catalogue = Catalogue.from_topics(image.cluster, image.topics, image.next_uid)
        self._catalogue = catalogue
        self.applied = image.applied
        self.versions = Versions(*image.versions)
        self.cluster = image.cluster
        self.nodes = {node.node: node for node in image.nodes}
        self.placement = image.placement
        self.paused = image.paused
        self.paused_groups = frozenset(image.paused_groups)
        self.policy, self.pins = image.policy, image.pins
        self.weights, self.plans = image.weights, image.plans
        self._next_producer_id = image.next_producer_id
        self._desk = TokenDesk(
            image.tokens,
            image.history,
            image.next_token,
            dict(image.stolen_versions),
            frozenset(image.cancelled),
        )


def _node_problem(command: RegisterNode) -> str | None:
    if command.node < 0 or command.incarnation < 0:
        return "node and incarnation are not negative"
    addresses: tuple[Address, ...] = (command.kafka, command.peer, command.http)
    if any(not 0 < len(address.host) <= HOST_CHARS_MAX for address in addresses):
        return f"a host has 1 to {HOST_CHARS_MAX} characters"
    if len(command.zone) > ZONE_CHARS_MAX:
        return f"a zone has at most {ZONE_CHARS_MAX} characters"
    return None
