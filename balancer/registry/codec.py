"""The bytes of the registry's commands and results.

What a node may write of them depends on the cluster version (broker.formats): a node that meets a
command of a kind it does not know cannot go on, because the others have applied it.
"""

from collections.abc import Mapping
from typing import Any, Final

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
from balancer.registry.credentials import ALTER_CREDENTIALS, AlterCredentials
from balancer.registry.listeners import SetListeners
from balancer.registry.packing import (
    FLAG,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    Extended,
    Field,
    decode,
    encode,
    enum,
    mapping,
    opening,
    optional,
    record,
    sequence,
    union,
)
from balancer.registry.policy import PLAN_RECORD, POLICY, WEIGHTS
from balancer.registry.quotas import ALTER_QUOTAS, AlterQuotas
from balancer.registry.records import (
    ADDRESS,
    CONFIGS,
    CONFIGS_ENCODED_MAX,
    EPOCHS,
    GROUPS_MAX,
    NODES,
    PLACED_IN,
    PLACEMENT,
    REPLICA_SETS,
    REPLICAS,
    TOKEN,
    TOPIC_4,
    TOPIC_ID,
    Outcome,
)
from balancer.registry.rules import RULES_AT_ONCE, CreateRules, DeleteRules
from balancer.registry.security import LISTENERS
from balancer.registry.versions import (
    READS,
    HoldClusterVersion,
    LaterVersionError,
    NoteReads,
    RaiseClusterVersion,
)

FORMAT_VERSION: Final = 1
"""Of commands and results. It has never changed: new commands are new kinds."""

_VERSION_OR_NONE: Final = optional(I64)
_REFUSAL: Final = enum(Refusal)
_NAMES: Final = sequence(STRING, CONFIGS_ENCODED_MAX)
_REASONS: Final = mapping(U32, STRING, GROUPS_MAX + 1)

_KINDS: Final[Mapping[int, tuple[type[Any], Field[Any]]]] = {
    2: (RegisterNode, record(RegisterNode, I32, I64, ADDRESS, ADDRESS, ADDRESS, STRING)),
    6: (SetPlacement, record(SetPlacement, _VERSION_OR_NONE, PLACEMENT)),
    7: (MergePlacement, record(MergePlacement, _VERSION_OR_NONE, U32, I32)),
    8: (
        AcquireStealToken,
        record(AcquireStealToken, U32, I32, I32, I64, I64, I64, I64, I64, I64),
    ),
    9: (ReleaseStealToken, record(ReleaseStealToken, I64, enum(Outcome), I64)),
    10: (PauseBalancer, record(PauseBalancer, FLAG, optional(U32))),
    11: (DrainNode, record(DrainNode, I32, FLAG)),
    12: (AllocateProducerIds, record(AllocateProducerIds, I32, I32)),
    13: (SetPolicy, record(SetPolicy, _VERSION_OR_NONE, POLICY)),
    15: (AdoptPlan, record(AdoptPlan, I64, PLACEMENT, FLAG, PLAN_RECORD)),
    16: (PublishWeights, record(PublishWeights, WEIGHTS)),
    17: (CancelSteal, record(CancelSteal, I64)),
    20: (ConfigureTopic, record(ConfigureTopic, STRING, TOPIC_ID, CONFIGS, _NAMES, FLAG)),
    21: (FoundCluster, record(FoundCluster, STRING, U32, NODES, U8)),
    22: (AddNode, record(AddNode, I32, ADDRESS, STRING)),
    23: (RemoveNode, record(RemoveNode, I32)),
    24: (FinishRemoval, record(FinishRemoval, I32)),
    25: (
        SetReplicaSets,
        record(SetReplicaSets, _VERSION_OR_NONE, REPLICA_SETS, FLAG, I64, I32, STRING, _REASONS),
    ),
    26: (NoteMembers, record(NoteMembers, U32, I64, NODES)),
    30: (DeleteTopic, record(DeleteTopic, optional(STRING), optional(TOPIC_ID), EPOCHS)),
    31: (CreateTopic, record(CreateTopic, STRING, TOPIC_ID, I32, I32, CONFIGS, PLACED_IN)),
    32: (CreatePartitions, record(CreatePartitions, STRING, I32, PLACED_IN)),
    33: (PinGroup, record(PinGroup, U32, optional(I32), REPLICAS)),
    34: (RaiseClusterVersion, record(RaiseClusterVersion, U16)),
    35: (HoldClusterVersion, record(HoldClusterVersion, FLAG)),
    36: (NoteReads, record(NoteReads, I32, READS)),
    37: (SetListeners, record(SetListeners, I32, LISTENERS)),
    38: (AlterCredentials, ALTER_CREDENTIALS),
    39: (CreateRules, record(CreateRules, RULES_AT_ONCE)),
    40: (DeleteRules, record(DeleteRules, RULES_AT_ONCE)),
    41: (AlterQuotas, ALTER_QUOTAS),
}
_CREATE_3: Final = opening(CreateTopic, STRING, TOPIC_ID, I32, I32, CONFIGS)
_GROW_4: Final = opening(CreatePartitions, STRING, I32)
_DELETE_5: Final = opening(DeleteTopic, optional(STRING), optional(TOPIC_ID))
_FOUND_1: Final = opening(FoundCluster, STRING, U32)
_OLDER: Final[Mapping[type[Any], Extended[Any]]] = {
    CreateTopic: Extended(3, _CREATE_3, lambda one: not one.groups),
    CreatePartitions: Extended(4, _GROW_4, lambda one: not one.groups),
    DeleteTopic: Extended(5, _DELETE_5, lambda one: not one.epochs),
    FoundCluster: Extended(1, _FOUND_1, lambda one: not one.founders and not one.replicas),
    PinGroup: Extended(14, opening(PinGroup, U32, optional(I32)), lambda one: not one.order),
}
DECIDED: Final = 27
KINDS: Final = tuple(sorted({*_KINDS, DECIDED, *(one.kind for one in _OLDER.values())}))
"""All that this version knows, ascending."""
_DECIDED_HEAD: Final = bytes((FORMAT_VERSION, DECIDED))
_DECISION_AT: Final = 2 + 8
"""Behind the head, and the slot of a Decided."""
_DECISION: Final[Field[Command]] = union(FORMAT_VERSION, _KINDS, _OLDER)
_DECIDED: Final = (Decided, record(Decided, I64, _DECISION))
_COMMAND: Final[Field[Command]] = union(FORMAT_VERSION, {**_KINDS, DECIDED: _DECIDED}, _OLDER)

_RESULT: Final[Field[Result]] = union(
    FORMAT_VERSION,
    {
        1: (Refused, record(Refused, _REFUSAL, STRING)),
        2: (Done, record(Done, I64)),
        3: (TopicCreated, record(TopicCreated, TOPIC_4)),
        4: (PartitionsCreated, record(PartitionsCreated, TOPIC_4, I32)),
        5: (TopicDeleted, record(TopicDeleted, TOPIC_4)),
        6: (PlacementSet, record(PlacementSet, I64)),
        7: (TokenGranted, record(TokenGranted, TOKEN)),
        8: (TokenRefused, record(TokenRefused, _REFUSAL, U32, I64, optional(TOKEN))),
        9: (TokenReleased, record(TokenReleased, I64, FLAG)),
        10: (ProducerIds, record(ProducerIds, I64, I32)),
    },
)


def encode_command(command: Command) -> bytes:
    """Bytes to propose on group 0.

    Raises:
        PackingError: if a value does not fit its field at all (the registry refuses the rest).
    """
    return encode(_COMMAND, command)


def decode_command(data: bytes | memoryview) -> Command:
    """The command these bytes stand for.

    Raises:
        LaterVersionError: if it is one of a later version of this program.
        PackingError: if the bytes are not exactly one command.
    """
    kind = kind_of(data)
    if kind > KINDS[-1]:
        raise LaterVersionError(
            f"a registry command of kind {kind}; this version of Evenkeel knows {KINDS[-1]} kinds"
        )
    return decode(_COMMAND, data)


def kind_of(data: bytes | memoryview) -> int:
    """The kind of the command, that of the decision in a Decided; 0 if these bytes are no
    command."""
    at = _DECISION_AT if data[:2] == _DECIDED_HEAD else 0
    head = data[at : at + 2]
    return head[1] if len(head) == 2 and head[0] == FORMAT_VERSION else 0


def encode_result(result: Result) -> bytes:
    return encode(_RESULT, result)


def decode_result(data: bytes | memoryview) -> Result:
    """The result these bytes stand for.

    Raises:
        PackingError: if the bytes are not exactly one result.
    """
    return decode(_RESULT, data)
