"""The registry: one replicated document on group 0's log, the same on every node (E8).

It holds the nodes, the topics with their partitions' places, the ideal placement, the steal token,
the balancer's pauses and the producer id counter. `apply` is a pure function of the state and the
command, so nodes that applied the same log hold the same document, byte for byte (`snapshot`).
Reading is `document.py`.
"""

from collections.abc import Mapping

import attrs

from balancer.registry import credentials, listeners
from balancer.registry.codec import decode_command, encode_result
from balancer.registry.commands import (
    AcquireStealToken,
    AddNode,
    AdoptPlan,
    AllocateProducerIds,
    CancelSteal,
    Command,
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    Decided,
    DeleteTopic,
    Done,
    DrainNode,
    FinishRemoval,
    FoundCluster,
    MergePlacement,
    NoteMembers,
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
    RemoveNode,
    Result,
    SetPlacement,
    SetPolicy,
    SetReplicaSets,
    TokenGranted,
    TokenRefused,
    TokenReleased,
    TopicCreated,
    TopicDeleted,
)
from balancer.registry.credentials import AlterCredentials
from balancer.registry.document import Document
from balancer.registry.listeners import SetListeners
from balancer.registry.packing import PackingError
from balancer.registry.policy import (
    PLANS_MAX,
    Policy,
    Weights,
    policy_problem,
    record_problem,
    weights_problem,
)
from balancer.registry.quotas import AlterQuotas, altered
from balancer.registry.records import (
    CLUSTER_ID_CHARS_MAX,
    GROUPS_MAX,
    REPLICAS_MAX,
    TOKEN_NS_MAX,
    WALL_NS_MAX,
    Cluster,
)
from balancer.registry.rules import CreateRules, DeleteRules, changed_rules
from balancer.registry.security import Security
from balancer.registry.versions import (
    HoldClusterVersion,
    LaterVersionError,
    NoteReads,
    RaiseClusterVersion,
)
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId, Slot
from wire.software import CLUSTER_VERSION_NEWEST as NEWEST
from wire.software import CLUSTER_VERSION_OLDEST as OLDEST

PRODUCER_IDS_MAX = 1_000_000
"""In one block; brokers ask for a thousand at a time."""
PRODUCER_ID_LAST = 2**63 - 1


class Registry(Document):
    """The document. Build an empty one and apply group 0's log to it, or `restore` a snapshot."""

    # ---- applying --------------------------------------------------------------------------------

    def apply(self, command: bytes | memoryview, slot: int) -> bytes:
        """Apply one command of the log's entry in `slot`; return its encoded result.

        Several commands of one entry come one by one with the same slot. Bytes that are not a
        command also have a result: every node must reach the same state with them.

        Raises:
            LaterVersionError: it is a command that only a later version of this program can read.
        """
        try:
            decoded = decode_command(command)
        except LaterVersionError:
            raise
        except PackingError as error:
            decoded = None
            result: Result = Refused(Refusal.MALFORMED, str(error)[:200])
        if decoded is not None:
            result = self.apply_command(decoded, slot)
        return encode_result(result)

    def apply_command(self, command: Command, slot: int) -> Result:
        """As `apply`, for a decoded command."""
        assert slot >= self.applied, f"slot {slot} after slot {self.applied}"
        self.applied = Slot(slot)
        if isinstance(command, Decided):
            late = self._fences.problem(command, self.applied)
            if late is not None:
                return late
            command = command.command
        result = self._dispatch(command)
        self._fences.note(command, result, self.applied)
        return result

    def _dispatch(self, command: Command) -> Result:  # noqa: C901  a table
        match command:
            case Decided():
                return Refused(Refusal.MALFORMED, "a decision on a decision")
            case FoundCluster():
                return self._found(command)
            case RegisterNode() | DrainNode() | AddNode() | RemoveNode() | FinishRemoval():
                return self._change_nodes(command)
            case SetReplicaSets() | NoteMembers():
                return self._change_replicas(command)
            case CreateTopic() | CreatePartitions() | DeleteTopic() | ConfigureTopic():
                return self._change_topics(command)
            case AllocateProducerIds():
                return self._allocate(command)
            case SetPlacement() | MergePlacement() | AdoptPlan() | PinGroup():
                return self._change_placement(command)
            case SetPolicy() | PublishWeights():
                return self._change_policy(command)
            case RaiseClusterVersion() | HoldClusterVersion() | NoteReads():
                return self._change_version(command)
            case SetListeners():
                return self._set_listeners(command)
            case AlterCredentials():
                return self._change_credentials(command)
            case CreateRules() | DeleteRules():
                return self._change_rules(command)
            case AcquireStealToken() | ReleaseStealToken() | PauseBalancer() | CancelSteal():
                return self._steer(command)
            case AlterQuotas():
                return self._alter_quotas(command)

    # ---- cluster and nodes -----------------------------------------------------------------------

    def _found(self, command: FoundCluster) -> Result:
        founders = tuple(sorted(command.founders))
        wanted = Cluster(command.cluster_id, command.groups_count, founders, command.replicas)
        known = self.cluster
        if known is not None:
            if known in (wanted, attrs.evolve(wanted, founders=(), replicas=0)):
                return self._complete(known, wanted)
            return Refused(Refusal.ALREADY_FOUNDED, known.cluster_id)
        problem = _cluster_problem(wanted)
        if problem is not None:
            return Refused(Refusal.INVALID_CLUSTER, problem)
        self.cluster = wanted
        self._catalogue.found(command.groups_count)
        return self._done("topics")

    def _complete(self, known: Cluster, wanted: Cluster) -> Result:
        """A cluster older than replica sets learns who founded it: all nodes have all groups.

        So it can grow and shrink like any other.
        """
        if known == wanted:
            return self._done()
        problem = _cluster_problem(wanted)
        if problem is None and len(wanted.founders) > wanted.replicas:
            problem = f"all nodes have all groups: groups.replicas is {len(wanted.founders)} here"
        if problem is not None:
            return Refused(Refusal.INVALID_CLUSTER, problem)
        self.cluster = wanted
        return self._done("nodes")

    def _change_nodes(
        self, command: RegisterNode | DrainNode | AddNode | RemoveNode | FinishRemoval
    ) -> Result:
        match command:
            case RegisterNode():
                after = self._roster.register(command, self.cluster)
            case DrainNode():
                after = self._roster.drain(command)
            case AddNode():
                after = self._without_founders() or self._roster.add(command)
            case RemoveNode():
                after = self._without_founders() or self._roster.remove(command)
            case FinishRemoval(node=node):
                after = self._in_use(node) or self._roster.finish_removal(node)
        if isinstance(after, Refused):
            return after
        if after == self._roster:
            return self._done()
        self._roster = after
        if isinstance(command, FinishRemoval):
            self._forget(command.node)
        return self._done("nodes")

    def _without_founders(self) -> Refused | None:
        if self.cluster is None:
            return Refused(Refusal.NOT_FOUNDED, "the cluster is not founded yet")
        if not self.cluster.founders:
            return Refused(Refusal.INVALID_CLUSTER, "a node with founders in its settings is first")
        return None

    # ---- cluster version -------------------------------------------------------------------------

    def _change_version(
        self, command: RaiseClusterVersion | HoldClusterVersion | NoteReads
    ) -> Result:
        before = self.cluster_version
        match command:
            case RaiseClusterVersion(version=version):
                if version > NEWEST:
                    raise LaterVersionError(
                        f"cluster version {version}; this version of Evenkeel reads {OLDEST} to "
                        f"{NEWEST}"
                    )
                problem = before.too_old(version, self.nodes)
                if version < before.version:
                    problem = f"the cluster version is {before.version}, and never falls"
                if problem:
                    return Refused(Refusal.CLUSTER_VERSION, problem)
                after = attrs.evolve(before, version=version)
            case HoldClusterVersion(held=held):
                after = attrs.evolve(before, held=held)
            case NoteReads(node=node, reads=reads):
                problem = reads.problem()
                if node not in self.nodes or problem:
                    return Refused(Refusal.UNKNOWN_NODE, problem or f"node {node}")
                after = before.noting(node, reads)
        if after == before:
            return self._done()
        self.cluster_version = after
        return self._done("nodes")

    def _set_listeners(self, command: SetListeners) -> Result:
        problem = listeners.problem(command, self.nodes)
        if problem:
            return Refused(Refusal.INVALID_NODE, problem)
        return self._secure(listeners.after(self.security, command), "nodes")

    def _change_credentials(self, command: AlterCredentials) -> Result:
        after = credentials.apply(self.security, command)
        if isinstance(after, credentials.Problem):
            missing = Refusal.NO_SUCH_CREDENTIAL if after.missing else Refusal.INVALID_CREDENTIAL
            return Refused(missing, after.text)
        return self._secure(after)

    def _change_rules(self, command: CreateRules | DeleteRules) -> Result:
        after = changed_rules(self.security.rules, command)
        if isinstance(after, str):
            return Refused(Refusal.INVALID_RULES, after)
        return self._secure(attrs.evolve(self.security, rules=after))

    def _secure(self, after: Security, part: str | None = None) -> Result:
        """`part`: whose version goes up as well, if anything has changed."""
        if after != self.security:
            self.security = after
            self._changed(part)
        return self._done()

    def _in_use(self, node: NodeId) -> Refused | None:
        use = self._replicas.use_of(node, self.groups, self.cluster)
        if not use and node in self.placement.values():
            use = f"node {node} should be master of a Paxos group"
        return Refused(Refusal.NODE_IN_USE, use) if use else None

    def _forget(self, node: NodeId) -> None:
        """Delete what concerned a node that is gone; its id never means another one."""
        self.cluster_version = self.cluster_version.forgetting(node)
        self.security = listeners.forgetting(self.security, node)
        pins = {group: pin for group, pin in self.pins.items() if pin != node}
        capacities = {one: part for one, part in self.policy.capacities.items() if one != node}
        if pins != self.pins:
            self.pins = pins
            self._changed("policy")
        self._order({group: order for group, order in self.orders.items() if node not in order})
        self._set_policy(attrs.evolve(self.policy, capacities=capacities))

    # ---- replica sets ----------------------------------------------------------------------------

    def _change_replicas(self, command: SetReplicaSets | NoteMembers) -> Result:
        cluster = self.cluster
        if cluster is None:
            return Refused(Refusal.NOT_FOUNDED, "the cluster is not founded yet")
        if isinstance(command, NoteMembers):
            part, after = "members", self._replicas.note(command, cluster)
        else:
            part, version = "replicas", self.versions.replicas
            if command.expected_version not in (None, version):
                return Refused(Refusal.REPLICAS_CONFLICT, f"the version is {version}")
            after = self._without_founders() or self._replicas.set(command, cluster, self.nodes)
        if isinstance(after, Refused):
            return after
        if after == self._replicas:
            return self._done()
        self._replicas = after
        return self._done(part)

    # ---- topics and producer ids -----------------------------------------------------------------

    def _change_topics(
        self, command: CreateTopic | CreatePartitions | DeleteTopic | ConfigureTopic
    ) -> Result:
        if isinstance(command, ConfigureTopic):
            return self._configure(command)
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
                if self._steal_tokens.cancel(token):
                    return self._done("steals")
                return Refused(Refusal.NOT_STEALING, f"token {token}")

    def _place_by_hand(self, expected: int | None, placement: Mapping[GroupId, NodeId]) -> Result:
        """An operator's placement stays until a plan is requested; the first placement is
        nobody's."""
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
        group, node, order = command.group, command.node, command.order
        if order and (order[0] != node or len(set(order)) < len(order)):
            return Refused(
                Refusal.INVALID_REPLICAS, "an order of other nodes, or one of them twice"
            )
        if node is not None:
            result = self._place(None, {**self.placement, group: node})
            if isinstance(result, Refused):
                return result
        pins = {one: pin for one, pin in self.pins.items() if one != group}
        if node is not None:
            pins[group] = node
        replicas = self._replicas.released(group) if node is None else self._replicas
        if replicas != self._replicas:
            self._replicas = replicas
            self._changed("replicas")
        if pins != self.pins:
            self.pins = dict(sorted(pins.items()))
            self._changed("policy")
        orders = {one: known for one, known in self.orders.items() if one != group}
        if order:
            orders[group] = order
        self._order(orders)
        return self._done()

    def _order(self, orders: Mapping[GroupId, tuple[NodeId, ...]]) -> None:
        if orders != self.orders:
            self.orders = dict(sorted(orders.items()))
            self._changed("replicas")

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
            if node != self.placement.get(group) and not self.may_have(node, group):
                text = f"node {node} has no replica of Paxos group {group}"
                return Refused(Refusal.NOT_A_MEMBER, text)
        if placement != self.placement:
            self.placement = placement
            self._changed("placement")
        return PlacementSet(self.versions.placement)

    def _acquire(self, command: AcquireStealToken) -> TokenGranted | TokenRefused:
        problem = self._acquire_problem(command)
        if problem is not None:
            return TokenRefused(problem, command.group, command.attempt)
        before = self._steal_tokens.tokens
        result = self._steal_tokens.acquire(command, self.policy.steals_max)
        if self._steal_tokens.tokens is not before:
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
        if target.leaving:
            return Refusal.NODE_LEAVING
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
        result = self._steal_tokens.release(command)
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

    # ---- security --------------------------------------------------------------------------------

    def _alter_quotas(self, command: AlterQuotas) -> Result:
        after = altered(self.security.quotas, command)
        if isinstance(after, str):
            return Refused(Refusal.INVALID_QUOTA, after)
        return self._secure(attrs.evolve(self.security, quotas=after))

    # ---- versions --------------------------------------------------------------------------------

    def _changed(self, part: str | None = None) -> None:
        versions = self.versions._replace(all=self.versions.all + 1)
        if part is not None:
            versions = versions._replace(**{part: getattr(versions, part) + 1})
        self.versions = versions

    def _done(self, part: str | None = None) -> Done:
        """Accepted; `part` names what has changed, None means that nothing has."""
        if part is not None:
            self._changed(part)
        return Done(self.versions.all)


def _cluster_problem(cluster: Cluster) -> str | None:
    founders = cluster.founders
    if not 0 < len(cluster.cluster_id) <= CLUSTER_ID_CHARS_MAX:
        return "the cluster id is empty or too long"
    if cluster.groups_count > GROUPS_MAX:
        return f"at most {GROUPS_MAX} groups"
    if len(set(founders)) < len(founders) or any(node < 0 for node in founders):
        return "a founder is there twice, or has a negative id"
    if not (1 if founders else 0) <= cluster.replicas <= (REPLICAS_MAX if founders else 0):
        return f"1 to {REPLICAS_MAX} replicas, of founders that are named"
    return None
