"""Authorized operations (KIP-430): there are no ACLs yet, so every client may do everything; all
that Kafka has for a resource is listed, as by a Kafka without an authorizer."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """Kafka's AclOperation; an operation's code is its bit number in the answer."""

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


def _bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED: Final = -(2**31)

CLUSTER_OPERATIONS: Final = _bits(
    (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    )
)
TOPIC_OPERATIONS: Final = _bits(
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
)
GROUP_OPERATIONS: Final = _bits(
    (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)


def if_asked(operations: int, *, asked: bool) -> int:
    return operations if asked else NOT_ASKED
