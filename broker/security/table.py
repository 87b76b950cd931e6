"""For each API that is served: which operation on which resource Kafka asks for.

Taken from Kafka 4's KafkaApis and ControllerApis. `broker.handlers.security.gate` asks what is
plainly named here; where the answer depends on more (`by_hand`), the code that does it is named in
docs/security.md next to the table. A test fails for an API without a row, and drives every row.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from wire.acls import Operation, ResourceType
from wire.apis import ApiKey

PLAIN: Final = "."
"""The items of a list are themselves the names."""


class Need(NamedTuple):
    """`field` of the request names the resource, or a list of items; "" stands for the cluster.
    `item` is the field of an item that has the name. `when` restricts it, in words."""

    operation: Operation
    resource: ResourceType
    field: str = ""
    item: str = ""
    when: str = ""

    @property
    def each(self) -> bool:
        """Whether items are refused one by one."""
        return bool(self.item)


class Row(NamedTuple):
    """All needs have to be met, each item's on its own. `by_hand`: the gate has code for it."""

    needs: tuple[Need, ...] = ()
    by_hand: bool = False


def _cluster(operation: Operation) -> Row:
    return Row((Need(operation, ResourceType.CLUSTER),))


def _group(operation: Operation, *more: Need) -> Row:
    return Row((Need(operation, ResourceType.GROUP, "group_id"), *more))


def _topics(operation: Operation, item: str = "name") -> Row:
    return Row((Need(operation, ResourceType.TOPIC, "topics", item),))


_TRANSACTION: Final = Need(
    Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id", when="if it has one"
)
_READ_TOPICS: Final = Need(Operation.READ, ResourceType.TOPIC, "topics", "name")
_ALTER_CLUSTER: Final = _cluster(Operation.ALTER)
_DESCRIBE_CLUSTER: Final = _cluster(Operation.DESCRIBE)
_ANYONE: Final = Row()
_CONFIGURED: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)


def _configs(operation: Operation) -> Row:
    whose = ("for topics", "for groups", "for nodes, loggers and client metrics")
    return Row(
        tuple(
            Need(operation, kind, "resources", "resource_name", when)
            for kind, when in zip(_CONFIGURED, whose, strict=True)
        ),
        by_hand=True,
    )


ROWS: Final[Mapping[int, Row]] = {
    ApiKey.PRODUCE: Row(
        (_TRANSACTION, Need(Operation.WRITE, ResourceType.TOPIC, "topic_data", "name"))
    ),
    ApiKey.FETCH: Row(
        (Need(Operation.READ, ResourceType.TOPIC, "topics", "topic", "by name or id"),),
        by_hand=True,
    ),
    ApiKey.LIST_OFFSETS: _topics(Operation.DESCRIBE),
    ApiKey.METADATA: Row(
        (
            Need(Operation.DESCRIBE, ResourceType.TOPIC, "topics", "name", "the others hidden"),
            Need(Operation.CREATE, ResourceType.CLUSTER, when="to create it, or Create Topic"),
        ),
        by_hand=True,
    ),
    ApiKey.OFFSET_COMMIT: _group(Operation.READ, _READ_TOPICS),
    ApiKey.OFFSET_FETCH: Row(
        (
            Need(Operation.DESCRIBE, ResourceType.GROUP, "groups", "group_id"),
            Need(Operation.DESCRIBE, ResourceType.TOPIC, "groups", "topics", "the others hidden"),
        ),
        by_hand=True,
    ),
    ApiKey.FIND_COORDINATOR: Row(
        (
            Need(Operation.DESCRIBE, ResourceType.GROUP, "coordinator_keys", PLAIN, "of type 0"),
            Need(
                Operation.DESCRIBE,
                ResourceType.TRANSACTIONAL_ID,
                "coordinator_keys",
                PLAIN,
                "of type 1",
            ),
        ),
        by_hand=True,
    ),
    ApiKey.JOIN_GROUP: _group(Operation.READ),
    ApiKey.HEARTBEAT: _group(Operation.READ),
    ApiKey.LEAVE_GROUP: _group(Operation.READ),
    ApiKey.SYNC_GROUP: _group(Operation.READ),
    ApiKey.DESCRIBE_GROUPS: Row((Need(Operation.DESCRIBE, ResourceType.GROUP, "groups", PLAIN),)),
    ApiKey.LIST_GROUPS: Row(
        (Need(Operation.DESCRIBE, ResourceType.CLUSTER, when="or Describe Group for each"),),
        by_hand=True,
    ),
    ApiKey.SASL_HANDSHAKE: _ANYONE,
    ApiKey.API_VERSIONS: _ANYONE,
    ApiKey.CREATE_TOPICS: Row(
        (
            Need(Operation.CREATE, ResourceType.CLUSTER, when="or Create Topic for each"),
            Need(
                Operation.DESCRIBE_CONFIGS,
                ResourceType.TOPIC,
                "topics",
                "name",
                "to be told its settings",
            ),
        ),
        by_hand=True,
    ),
    ApiKey.DELETE_TOPICS: Row(
        (Need(Operation.DELETE, ResourceType.TOPIC, "topics", "name", "by name or id"),),
        by_hand=True,
    ),
    ApiKey.DELETE_RECORDS: _topics(Operation.DELETE),
    ApiKey.INIT_PRODUCER_ID: Row(
        (
            _TRANSACTION,
            Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, when="or Write on any topic"),
        ),
        by_hand=True,
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _topics(Operation.DESCRIBE, "topic"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Row(
        (
            Need(
                Operation.WRITE,
                ResourceType.TRANSACTIONAL_ID,
                "v3_and_below_transactional_id",
                when="up to version 3",
            ),
            Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, when="from version 4 on"),
        ),
        by_hand=True,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Row(
        (_TRANSACTION, Need(Operation.READ, ResourceType.GROUP, "group_id"))
    ),
    ApiKey.END_TXN: Row((_TRANSACTION,)),
    ApiKey.TXN_OFFSET_COMMIT: Row(
        (_TRANSACTION, Need(Operation.READ, ResourceType.GROUP, "group_id"), _READ_TOPICS)
    ),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
    ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
    ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS: _configs(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
    ApiKey.SASL_AUTHENTICATE: _ANYONE,
    ApiKey.CREATE_PARTITIONS: _topics(Operation.ALTER),
    ApiKey.CREATE_DELEGATION_TOKEN: _ANYONE,
    ApiKey.RENEW_DELEGATION_TOKEN: _ANYONE,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _ANYONE,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _ANYONE,
    ApiKey.DELETE_GROUPS: Row((Need(Operation.DELETE, ResourceType.GROUP, "groups_names", PLAIN),)),
    ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
    ApiKey.OFFSET_DELETE: _group(Operation.DELETE, _READ_TOPICS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(Operation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE_CLUSTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_CLUSTER: _ANYONE,
    ApiKey.DESCRIBE_PRODUCERS: _topics(Operation.READ),
    ApiKey.UNREGISTER_BROKER: _ALTER_CLUSTER,
    ApiKey.DESCRIBE_TRANSACTIONS: Row(
        (Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional_ids", PLAIN),)
    ),
    ApiKey.LIST_TRANSACTIONS: _ANYONE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Row(
        (
            Need(Operation.READ, ResourceType.GROUP, "group_id"),
            Need(
                Operation.DESCRIBE,
                ResourceType.TOPIC,
                "subscribed_topic_names",
                PLAIN,
                "else all of it is refused",
            ),
        ),
        by_hand=True,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Row(
        (
            Need(Operation.DESCRIBE, ResourceType.GROUP, "group_ids", PLAIN),
            Need(
                Operation.DESCRIBE,
                ResourceType.TOPIC,
                when="of all its members, else the group is refused",
            ),
        ),
        by_hand=True,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Row(
        (Need(Operation.DESCRIBE, ResourceType.TOPIC, "topics", "name", "the others hidden"),),
        by_hand=True,
    ),
}
"""Delegation tokens and transactions are refused to everybody, with or without rules."""
