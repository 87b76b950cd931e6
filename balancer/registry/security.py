"""What the registry keeps for security: one frozen value, replaced as a whole by every change. In
images from version 9 on, and only if there is any."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import attrs

from balancer.registry.packing import (
    I32,
    STRING,
    U8,
    U16,
    Field,
    PackingError,
    mapping,
    record,
    sequence,
)
from balancer.registry.records import NODES_MAX, Address
from balancer.registry.rules import RULES, Rule, rule_problem
from paxos.ids import NodeId

LISTENERS_MAX: Final = 16
"""Of one node."""
LISTENER_NAME_CHARS_MAX: Final = 64


class ListenerAddress(NamedTuple):
    """Where clients that came by a listener of this name reach a node."""

    name: str
    protocol: int
    """Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""
    host: str
    port: int

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@attrs.frozen
class Security:
    """Immutable: a change makes a new one. Mappings are ascending."""

    listeners: Mapping[NodeId, tuple[ListenerAddress, ...]] = attrs.field(factory=dict)
    """All listeners of a node, ascending by name. A node that is not here has one, PLAINTEXT, at
    its address for Kafka clients."""
    rules: tuple[Rule, ...] = ()
    """Sorted, each once."""

    @property
    def is_empty(self) -> bool:
        """Whether it is that of a registry without any of this."""
        return self == NO_SECURITY


NO_SECURITY: Final = Security()
LISTENERS: Final[Field[tuple[ListenerAddress, ...]]] = sequence(
    record(ListenerAddress, STRING, U8, STRING, U16), LISTENERS_MAX
)
SECURITY: Final[Field[Security]] = record(Security, mapping(I32, LISTENERS, NODES_MAX), RULES)
"""In images of the registry."""


def check_security(security: Security) -> None:
    """
    Raises:
        PackingError: no registry holds this.
    """
    rules = security.rules
    if any(before >= after for before, after in pairwise(rules)):
        raise PackingError("rules are there twice or out of order")
    for rule in rules:
        problem = rule_problem(rule)
        if problem:
            raise PackingError(problem)
