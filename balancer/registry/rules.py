"""Kafka's ACL rules, replicated in the registry: the record, the commands, and what they change.

The registry keeps the rules sorted, each once. It refuses what no rule can say, and more rules than
RULES_MAX, but it does not read host addresses: nodes with different libraries would have to agree
on them, so who proposes a rule writes them in one way (`broker.handlers.security.acls`).
"""

from typing import Final, NamedTuple

import attrs

from balancer.registry.packing import STRING, U8, Field, record, sequence
from wire.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    USER,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

RULES_MAX: Final = 10_000
"""In a cluster: at a few hundred bytes each, a snapshot grows by a few megabytes at most."""
RULES_AT_ONCE_MAX: Final = 1_000
"""In one command."""
NAME_CHARS_MAX: Final = 512
PRINCIPAL_CHARS_MAX: Final = 512
HOST_CHARS_MAX: Final = 64


class Rule(NamedTuple):
    """One ACL. The numbers are those of `wire.acls`; rules compare field by field."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    """`User:alice`, or `User:*` for everybody."""
    host: str
    """The client's address as text, or `*`."""
    operation: int
    permission: int


@attrs.frozen
class CreateRules:
    """Add rules; those that exist already stay. All or none."""

    rules: tuple[Rule, ...]


@attrs.frozen
class DeleteRules:
    """Remove rules; those that do not exist are no error."""

    rules: tuple[Rule, ...]


RULE: Final[Field[Rule]] = record(Rule, U8, STRING, U8, STRING, STRING, U8, U8)
RULES: Final[Field[tuple[Rule, ...]]] = sequence(RULE, RULES_MAX)
RULES_AT_ONCE: Final[Field[tuple[Rule, ...]]] = sequence(RULE, RULES_AT_ONCE_MAX)


def rule_problem(rule: Rule) -> str:
    """Why no rule can say this; "" if one can."""
    of_type = {int(kind): operations for kind, operations in OPERATIONS.items()}
    operations = of_type.get(rule.resource_type)
    if operations is None:
        return f"there are no resources of type {rule.resource_type}"
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"a pattern is literal or prefixed, not of type {rule.pattern_type}"
    if rule.operation != Operation.ALL and rule.operation not in operations:
        kind = ResourceType(rule.resource_type).name
        return f"operation {rule.operation} does not exist for resources of type {kind}"
    if rule.permission not in (Permission.ALLOW, Permission.DENY):
        return f"a rule allows or denies; permission {rule.permission} is neither"
    if not 0 < len(rule.name) <= NAME_CHARS_MAX:
        return f"the name of a resource has 1 to {NAME_CHARS_MAX} characters"
    if rule.resource_type == ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        return f"the only resource of type CLUSTER is {CLUSTER_NAME!r}"
    kind_of, colon, name = rule.principal.partition(":")
    if not colon or kind_of != USER or not name or len(rule.principal) > PRINCIPAL_CHARS_MAX:
        return "a principal is 'User:' and a name; there are no other types of principals"
    if not 0 < len(rule.host) <= HOST_CHARS_MAX:
        return f"a host is an IP address, or {WILDCARD!r}"
    return ""


def changed_rules(
    rules: tuple[Rule, ...], command: CreateRules | DeleteRules
) -> tuple[Rule, ...] | str:
    """The rules after a command; or why it is refused."""
    if isinstance(command, DeleteRules):
        gone = frozenset(command.rules)
        return tuple(rule for rule in rules if rule not in gone)
    for rule in command.rules:
        problem = rule_problem(rule)
        if problem:
            return problem
    every = {*rules, *command.rules}
    if len(every) > RULES_MAX:
        return f"{len(every)} rules: a cluster has at most {RULES_MAX}"
    return tuple(sorted(every))
