"""What the registry knows of security: one frozen value, replaced as a whole by every change."""

from itertools import pairwise
from typing import Final

import attrs

from balancer.registry.packing import Field, PackingError, record
from balancer.registry.rules import RULES, Rule, rule_problem


@attrs.frozen
class Security:
    """`rules` are sorted, each once."""

    rules: tuple[Rule, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it is that of a registry without any of this."""
        return self == NO_SECURITY


NO_SECURITY: Final = Security()
SECURITY: Final[Field[Security]] = record(Security, RULES)
"""In images of the registry, from version 9 on."""


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
