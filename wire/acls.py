"""Kafka's vocabulary of ACLs (KIP-11, KIP-290): what a rule is about, and what it allows.

The numbers are those of the protocol, the names those of Kafka's tools.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of type CLUSTER."""
WILDCARD: Final = "*"
"""Of a literal pattern: every resource of the type. Of a host: every host."""
USER: Final = "User"
ANYBODY: Final = "User:*"


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    """In a filter: patterns of any type with this very name."""
    MATCH = 2
    """In a filter: all patterns that apply to the resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation's number is also its bit in `authorized_operations` (KIP-430)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        (
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    ),
    ResourceType.GROUP: frozenset(
        (
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        )
    ),
    ResourceType.CLUSTER: frozenset(
        (
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        )
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset(
        (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT)
    ),
    ResourceType.DELEGATION_TOKEN: frozenset((Operation.DESCRIBE,)),
    ResourceType.USER: frozenset((Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS)),
}
"""What can be done to a resource of each type, as in Kafka's AclEntry. A rule may also say ALL."""

IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""Who is allowed one of these is allowed the key as well. A denial implies nothing."""


def titled(one: IntEnum) -> str:
    """As Kafka's tools write it: DESCRIBE_CONFIGS is DescribeConfigs."""
    return "".join(word.capitalize() for word in one.name.split("_"))
