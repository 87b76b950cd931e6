"""What the rules say about one client, one operation and one resource: Kafka's StandardAuthorizer.

Of all rules that apply to the principal, the host and the resource, a denial decides before any
permission, and no rule at all means no. A permission for some operations implies others
(`wire.acls.IMPLIED_BY`), a denial does not. Super users are not asked about.

`Decisions` is an index of one state of the rules: it never changes, so another thread may use it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from balancer.registry.rules import Rule
from wire.acls import ANYBODY, IMPLIED_BY, WILDCARD, Operation, PatternType, Permission

_ALLOWING: Final[Mapping[int, frozenset[int]]] = {
    int(one): frozenset(map(int, (one, Operation.ALL, *IMPLIED_BY.get(one, ()))))
    for one in Operation
}
"""For each operation: what a permission says that allows it."""


class Decision(NamedTuple):
    """`rule` is the one that decided; None: a super user, or no rule allows it."""

    allowed: bool
    rule: Rule | None = None
    why: str = ""


SUPER_USER: Final = Decision(True, None, "a super user")
NO_RULE: Final = Decision(False, None, "no rule allows it")


class _OfType:
    """The rules for resources of one type, by where a name finds them."""

    __slots__ = ("denials", "everywhere", "exact", "prefixed", "sizes")

    def __init__(self, rules: Iterable[Rule]) -> None:
        exact: dict[str, list[Rule]] = {}
        prefixed: dict[str, list[Rule]] = {}
        self.denials: list[Rule] = []
        for rule in rules:
            if rule.permission == Permission.DENY:
                self.denials.append(rule)
            by_name = prefixed if rule.pattern_type == PatternType.PREFIXED else exact
            by_name.setdefault(rule.name, []).append(rule)
        self.everywhere = tuple(exact.get(WILDCARD, ()))
        self.exact = exact
        self.prefixed = prefixed
        self.sizes = sorted({len(prefix) for prefix in prefixed})

    def about(self, name: str) -> list[Rule]:
        """All rules whose pattern applies to a resource."""
        found = list(self.everywhere)
        if name != WILDCARD:
            found += self.exact.get(name, ())
        for size in self.sizes:
            if size > len(name):
                break
            found += self.prefixed.get(name[:size], ())
        return found


class Decisions:
    """See the module. `super_users` are written as `User:name`."""

    def __init__(self, rules: Iterable[Rule], super_users: Iterable[str] = ()) -> None:
        by_type: dict[int, list[Rule]] = {}
        for rule in rules:
            by_type.setdefault(rule.resource_type, []).append(rule)
        self._types = {kind: _OfType(some) for kind, some in by_type.items()}
        self._super_users = frozenset(super_users)

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> Decision:
        """Whether `principal` ("User:alice"), connected from `host`, may do that."""
        if principal in self._super_users:
            return SUPER_USER
        of_type = self._types.get(resource_type)
        if of_type is None:
            return NO_RULE
        allowing, allowed = _ALLOWING[operation], NO_RULE
        for rule in of_type.about(name):
            if not _concerns(rule, principal, host):
                continue
            if rule.permission == Permission.DENY:
                if rule.operation in (operation, Operation.ALL):
                    return Decision(False, rule, "a rule denies it")
            elif not allowed.allowed and rule.operation in allowing:
                allowed = Decision(True, rule, "a rule allows it")
        return allowed

    def somewhere(self, principal: str, host: str, operation: int, resource_type: int) -> Decision:
        """Whether there can be a resource of the type to which that may be done (KIP-679): a
        permission that no denial covers completely. Implied operations do not count, as in
        Kafka."""
        if principal in self._super_users:
            return SUPER_USER
        of_type = self._types.get(resource_type)
        if of_type is None:
            return NO_RULE
        rules = [
            rule
            for some in (*of_type.exact.values(), *of_type.prefixed.values())
            for rule in some
            if rule.operation in (operation, Operation.ALL) and _concerns(rule, principal, host)
        ]
        denials = [rule for rule in rules if rule.permission == Permission.DENY]
        covered = _Covered(denials)
        for rule in rules:
            if rule.permission == Permission.ALLOW and rule not in covered:
                return Decision(True, rule, "a rule allows it")
        return Decision(False, denials[0], "a rule denies it") if denials else NO_RULE

    def everywhere(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether that may be done to every resource of the type: nobody has to ask for each."""
        if principal in self._super_users:
            return True
        of_type = self._types.get(resource_type)
        if of_type is None:
            return False
        for rule in of_type.denials:
            if rule.operation in (operation, Operation.ALL) and _concerns(rule, principal, host):
                return False
        allowing = _ALLOWING[operation]
        return any(
            rule.operation in allowing and _concerns(rule, principal, host)
            for rule in of_type.everywhere
            if rule.permission == Permission.ALLOW
        )


def _concerns(rule: Rule, principal: str, host: str) -> bool:
    return rule.principal in (principal, ANYBODY) and rule.host in (host, WILDCARD)


class _Covered:
    """The rules all of whose resources are denied: looked up, for there may be thousands of
    both."""

    def __init__(self, denials: Iterable[Rule]) -> None:
        self._prefixes, self._names = set[str](), set[str]()
        for denial in denials:
            prefixed = denial.pattern_type == PatternType.PREFIXED
            (self._prefixes if prefixed else self._names).add(denial.name)
        self._sizes = sorted(set(map(len, self._prefixes)))

    def __contains__(self, rule: Rule) -> bool:
        name, names = rule.name, self._names
        if WILDCARD in names:
            return True
        prefixed = rule.pattern_type == PatternType.PREFIXED
        if not prefixed and name in names:
            return True
        if not prefixed and name == WILDCARD:
            return False  # no prefix is that of every name
        return any(name[:size] in self._prefixes for size in self._sizes if size <= len(name))
