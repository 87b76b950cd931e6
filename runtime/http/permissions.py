"""Which role a user has: by the settings' lists of names, or by rules on the resource Cluster."""

from collections.abc import Mapping
from typing import Final, Protocol

from broker.security.authorizer import Authorizer
from broker.security.decisions import Decision
from broker.security.principal import Principal
from runtime.http.roles import OPERATIONS, Role
from wire.acls import CLUSTER_NAME, ResourceType

LOCAL: Final = Principal("Local", "administrator")
"""Who can read the node's own file, `http.json`. No user can have this name."""
_SELF: Final = Decision(True, None, "about itself")
_LOCAL: Final = Decision(True, None, "the administrator of this machine")
_LISTED: Final = Decision(True, None, "a name in the settings")
_NOT_LISTED: Final = Decision(False, None, "the settings do not give it this role")


class Permissions(Protocol):
    def decide(self, principal: Principal, host: str, role: Role) -> Decision:
        """Whether a user has a role, or a higher one."""
        ...


class ByNames:
    def __init__(self, names: Mapping[Role, frozenset[str]]) -> None:
        self._names = names

    def decide(self, principal: Principal, host: str, role: Role) -> Decision:
        if principal == LOCAL:
            return _LOCAL
        if role <= Role.KNOWN:
            return _SELF
        who = str(principal)
        listed = any(who in names for one, names in self._names.items() if one >= role)
        return _LISTED if listed else _NOT_LISTED


class ByRules:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def decide(self, principal: Principal, host: str, role: Role) -> Decision:
        """A denial of the role decides, or of one that would include it, before a higher one is
        looked at."""
        if principal == LOCAL:
            return _LOCAL
        if role <= Role.KNOWN:
            return _SELF
        first = None
        for one in Role:
            if one < role:
                continue
            decision = self._authorizer.decide(
                principal, host, OPERATIONS[one], ResourceType.CLUSTER, CLUSTER_NAME
            )
            first = first or decision
            if decision.allowed or decision.rule is not None:
                return decision
        assert first is not None
        return first


def role_of(permissions: Permissions, principal: Principal, host: str) -> Role:
    """The highest role of a user."""
    roles = [one for one in Role if permissions.decide(principal, host, one).allowed]
    return max(roles)
