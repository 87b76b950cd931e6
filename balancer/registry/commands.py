"""The registry's commands and results; `codec` has their bytes.

A command is proposed on group 0's log as bytes; `Registry.apply` turns it into a result, bytes as
well, the same on every node. A refusal is a result with a reason code, never an exception. Commands
never rely on the clock or chance of the node that applies them: what the decision needs is a field,
chosen by the proposer (the 16-byte topic id, `now_wall_ns`).
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeAlias

import attrs

from balancer.registry.credentials import AlterCredentials
from balancer.registry.listeners import SetListeners
from balancer.registry.policy import PlanRecord, Policy, Weights
from balancer.registry.quotas import AlterQuotas
from balancer.registry.records import (
    Address,
    Outcome,
    StealToken,
    Topic,
)
from balancer.registry.rules import CreateRules, DeleteRules
from balancer.registry.versions import HoldClusterVersion, NoteReads, RaiseClusterVersion
from paxos.ids import GroupId, Incarnation, NodeId, Slot

NOBODY: Final = NodeId(0)
"""No node's id; where no author need be named."""


# ---- commands ------------------------------------------------------------------------------------


@attrs.frozen
class FoundCluster:
    """The first command of a cluster's life: the first one applied wins, for ever.

    The number of groups is part of the replicated state and not of a node's configuration, because
    two nodes that disagreed about it would send the same partition to different logs.
    """

    cluster_id: str
    groups_count: int
    founders: tuple[NodeId, ...] = ()
    replicas: int = 0
    """See records.Cluster; both or neither."""


@attrs.frozen
class RegisterNode:
    """Sent by a founder, or a node that was added, at every boot; refused if its incarnation is
    older than the registered one."""

    node: NodeId
    incarnation: Incarnation
    kafka: Address
    peer: Address
    http: Address
    zone: str = ""


@attrs.frozen
class AddNode:
    """Admit a node to a running cluster: it may register, and its peers talk to it.

    For a node that is leaving: it stays.
    """

    node: NodeId
    peer: Address
    zone: str = ""


@attrs.frozen
class RemoveNode:
    """Let a node leave: its replicas move to others, then it is removed. Its id is never reused."""

    node: NodeId


@attrs.frozen
class FinishRemoval:
    """A leaving node has nothing any more: from now on it is no longer a node of the cluster."""

    node: NodeId


@attrs.frozen
class SetReplicaSets:
    """Set the nodes that should keep some groups, provided the sets are still at that version.

    Groups that are not named keep theirs. `by_hand`: no plan changes these sets again, except for a
    node that is dead or leaving, until the group is given back (`PinGroup` to None).
    """

    expected_version: int | None
    sets: Mapping[GroupId, tuple[NodeId, ...]]
    by_hand: bool = False
    wall_ns: int = 0
    node: NodeId = NOBODY
    """The author and the time: only for the history, like the fields after it."""
    trigger: str = ""
    reasons: Mapping[GroupId, str] = attrs.field(factory=dict)


@attrs.frozen
class NoteMembers:
    """A group's master reports the members that its log has had since `slot`."""

    group: GroupId
    slot: Slot
    members: tuple[NodeId, ...]


@attrs.frozen
class CreateTopic:
    """`topic_id` is drawn by the proposer; the same name and id again is the same request."""

    name: str
    topic_id: bytes
    partitions: int
    replication: int = 3
    configs: Mapping[str, str] = attrs.field(factory=dict)
    groups: tuple[GroupId, ...] = ()
    """One for each partition, if they were chosen by hand; else the emptiest are filled first."""


@attrs.frozen
class CreatePartitions:
    name: str
    total: int
    """The new number of partitions, not how many to add (as in Kafka)."""
    groups: tuple[GroupId, ...] = ()
    """Of the new ones, as for CreateTopic."""


@attrs.frozen
class DeleteTopic:
    """By name, by id, or by both (which must then mean the same topic).

    `epochs`: those of the leases of its groups, as far as the proposer knows. They never decrease.
    """

    name: str | None = None
    topic_id: bytes | None = None
    epochs: Mapping[GroupId, int] = attrs.field(factory=dict)


@attrs.frozen
class ConfigureTopic:
    """Change settings of one topic; with `replace` all others return to their defaults.

    The id says which topic is meant, in case another of its name has been created meanwhile.
    """

    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    removed: tuple[str, ...] = ()
    replace: bool = False

    def applied_to(self, configs: Mapping[str, str]) -> dict[str, str]:
        """The topic's settings after this change."""
        left = {} if self.replace else dict(configs)
        for name in self.removed:
            left.pop(name, None)
        return left | dict(self.configs)


@attrs.frozen
class SetPlacement:
    """Replace the ideal placement, provided it is still at `expected_version` (None: whatever)."""

    expected_version: int | None
    placement: Mapping[GroupId, NodeId]


@attrs.frozen
class MergePlacement:
    """Set one group's ideal node and leave the others."""

    expected_version: int | None
    group: GroupId
    node: NodeId


@attrs.frozen
class AcquireStealToken:
    """Ask for the right to run the one steal of the cluster (E10).

    `master_version` is the lease version of `source` that the requester saw; `attempt` counts its
    requests since its boot (see StealToken).
    """

    group: GroupId
    source: NodeId
    target: NodeId
    target_incarnation: Incarnation
    attempt: int
    master_version: Slot
    placement_version: int
    now_wall_ns: int
    duration_ns: int


@attrs.frozen
class ReleaseStealToken:
    """Give the token back. Giving back a token no longer held changes nothing, and is no error."""

    token: int
    outcome: Outcome
    duration_us: int


@attrs.frozen
class PauseBalancer:
    """Stop or resume stealing: of one group, or of all (`group` None; the two are independent)."""

    paused: bool
    group: GroupId | None = None


@attrs.frozen
class DrainNode:
    """Mark a node as nobody's ideal node; the mark survives restarts until it is cleared."""

    node: NodeId
    draining: bool


@attrs.frozen
class SetPolicy:
    """Replace the policy, provided it is still at `expected_version` (None: whatever)."""

    expected_version: int | None
    policy: Policy


@attrs.frozen
class PinGroup:
    """Move one group by hand: `node` becomes its ideal node, and no plan moves it; None unpins
    it."""

    group: GroupId
    node: NodeId | None
    order: tuple[NodeId, ...] = ()
    """In which clients are to be told its replicas, `node` first; empty: nobody asked for one."""


@attrs.frozen
class AdoptPlan:
    """A plan replaces the placement it was made for, and is remembered with its reasons.

    `automatic` becomes the policy's value: when an operator requests a plan, automatic planning is
    turned on again.
    """

    expected_version: int
    placement: Mapping[GroupId, NodeId]
    automatic: bool
    record: PlanRecord


@attrs.frozen
class PublishWeights:
    """The groups' weights, computed by a job; an older computation is refused."""

    weights: Weights


@attrs.frozen
class CancelSteal:
    """Tell the master not to hand over for this token; the token itself ends as usual."""

    token: int


@attrs.frozen
class AllocateProducerIds:
    """A block of producer ids for one broker to hand out (Kafka's AllocateProducerIds, KIP-730)."""

    node: NodeId
    count: int


@attrs.frozen
class Decided:
    """A requested change, decided when its author's copy of the registry was at slot `seen`:
    refused if the same thing was decided on since (`balancer.registry.fences`)."""

    seen: Slot
    command: "Command"


Command: TypeAlias = (
    FoundCluster
    | RegisterNode
    | CreateTopic
    | CreatePartitions
    | DeleteTopic
    | ConfigureTopic
    | SetPlacement
    | MergePlacement
    | AcquireStealToken
    | ReleaseStealToken
    | PauseBalancer
    | DrainNode
    | AllocateProducerIds
    | SetPolicy
    | PinGroup
    | AdoptPlan
    | PublishWeights
    | CancelSteal
    | AddNode
    | RemoveNode
    | FinishRemoval
    | SetReplicaSets
    | NoteMembers
    | RaiseClusterVersion
    | HoldClusterVersion
    | NoteReads
    | SetListeners
    | AlterCredentials
    | CreateRules
    | DeleteRules
    | AlterQuotas
    | Decided
)


# ---- results -------------------------------------------------------------------------------------


class Refusal(IntEnum):
    """Why a command changed nothing."""

    MALFORMED = 1
    NOT_FOUNDED = 2
    ALREADY_FOUNDED = 3
    INVALID_CLUSTER = 4
    INVALID_NODE = 10
    UNKNOWN_NODE = 11
    TOO_MANY_NODES = 12
    STALE_INCARNATION = 13
    NODE_NOT_ADMITTED = 14
    """It is not a founder, and has not been added."""
    NODE_REMOVED = 15
    """It was removed; its id is never used again."""
    NODE_EXISTS = 16
    NODE_LEAVING = 17
    NODE_IN_USE = 18
    """It still has replicas, or should be master of a group."""
    LAST_NODE = 19
    TOPIC_EXISTS = 20
    UNKNOWN_TOPIC = 21
    INVALID_NAME = 22
    INVALID_TOPIC_ID = 23
    INVALID_PARTITIONS = 24
    TOO_MANY_PARTITIONS = 25
    TOO_MANY_TOPICS = 26
    INVALID_REPLICATION = 27
    INVALID_CONFIGS = 28
    PLACEMENT_CONFLICT = 40
    UNKNOWN_GROUP = 41
    NOT_A_MEMBER = 42
    """A group's master has to be one of its members."""
    INVALID_REPLICAS = 43
    REPLICAS_CONFLICT = 44
    """The sets have changed since the command was made."""
    TOKEN_HELD = 50
    STALE_PLAN = 51
    """The requester's placement version is not the current one."""
    PAUSED = 52
    NOT_MISPLACED = 53
    """By the ideal placement the group does not belong to the requester, or it is already there."""
    STALE_MASTER = 54
    """A steal from that very lease version has already succeeded."""
    NODE_DRAINING = 55
    INVALID_DURATION = 56
    INVALID_POLICY = 57
    INVALID_PLAN = 58
    INVALID_WEIGHTS = 59
    INVALID_COUNT = 60
    PRODUCER_IDS_EXHAUSTED = 61
    POLICY_CONFLICT = 62
    NOT_STEALING = 63
    """There is no such steal to cancel."""
    STALE_WEIGHTS = 64
    """Newer ones are known already."""
    OVERTAKEN = 65
    """The same thing has been decided on since the command was made."""
    CLUSTER_VERSION = 66
    """Not every node can read it, or the cluster version would fall."""
    INVALID_RULES = 70
    """No rule can say this, or there would be too many."""
    INVALID_CREDENTIAL = 71
    NO_SUCH_CREDENTIAL = 72
    INVALID_QUOTA = 80


@attrs.frozen
class Refused:
    reason: Refusal
    detail: str = ""


@attrs.frozen
class Done:
    """Accepted; the registry's version after it (the same as before if nothing changed)."""

    version: int


@attrs.frozen
class TopicCreated:
    topic: Topic


@attrs.frozen
class PartitionsCreated:
    """`topic` has all partitions; those from `first_new` on are new."""

    topic: Topic
    first_new: int


@attrs.frozen
class TopicDeleted:
    """The topic as it was at the end, so that the shell knows which partitions to drop."""

    topic: Topic


@attrs.frozen
class PlacementSet:
    version: int


@attrs.frozen
class TokenGranted:
    token: StealToken


@attrs.frozen
class TokenRefused:
    """Answers the request (`group`, `attempt`); `held` is the token in its way, if any."""

    reason: Refusal
    group: GroupId
    attempt: int
    held: StealToken | None = None


@attrs.frozen
class TokenReleased:
    """`was_held` is False for a token that was no longer held (a repeated release, or expired)."""

    token: int
    was_held: bool


@attrs.frozen
class ProducerIds:
    """The ids first .. first + count - 1."""

    first: int
    count: int


Result: TypeAlias = (
    Refused
    | Done
    | TopicCreated
    | PartitionsCreated
    | TopicDeleted
    | PlacementSet
    | TokenGranted
    | TokenRefused
    | TokenReleased
    | ProducerIds
)
