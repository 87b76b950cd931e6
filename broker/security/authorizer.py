"""May this client do that? Asked by every handler, answered from memory, and told to the audit log.

A decision is looked up in a dictionary, which is dropped when the rules have changed or when it is
full. The registry replaces its rules as a whole, so comparing one object is enough to notice: a
rule counts from the moment that this node has applied it, also on open connections.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.security.audit import AuditLog
from broker.security.decisions import Decision, Decisions
from wire.acls import Operation, ResourceType, titled

if TYPE_CHECKING:
    from balancer.registry.registry import Registry
    from broker.security.principal import Principal

CACHED_MAX: Final = 20_000
"""Decisions kept, some 5 MB: of clients that name everything there is, the last ones win."""
CACHED_NAME_CHARS_MAX: Final = 256
"""No topic's name is longer. A request may name what it likes: that is decided each time."""

_Cache = dict[tuple[str, str, str, str], Decision]
"""Of one operation on resources of one type: by principal, host and name. Enumerations are no part
of the key, because to hash one takes longer than all the rest."""
_KIND_BITS: Final = 3
_CACHES: Final = max(Operation) + 1 << _KIND_BITS
assert max(ResourceType) < 1 << _KIND_BITS


class Authorizer:
    """`denied` and `allowed` count decisions by operation (grants only where they are audited)."""

    def __init__(
        self, registry: "Registry", super_users: frozenset[str], audit: AuditLog | None = None
    ) -> None:
        self._registry = registry
        self.super_users = super_users
        self.audit = audit
        self._audits_grants = audit is not None and audit.grants
        self._caches: list[_Cache] = []
        self._cached = 0
        self._rules = registry.security.rules
        self._decisions = Decisions(self._rules, super_users)
        self._forget()
        self.denied: Counter[str] = Counter()

    @property
    def decisions(self) -> Decisions:
        """The index of the present rules. It never changes: another thread may use it."""
        if self._registry.security.rules is not self._rules:
            self._renew()
        return self._decisions

    def _renew(self) -> None:
        self._rules = self._registry.security.rules
        self._decisions = Decisions(self._rules, self.super_users)
        self._forget()

    def _forget(self) -> None:
        self._caches = [{} for _ in range(_CACHES)]
        self._cached = 0

    def decide(
        self,
        principal: "Principal",
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision:
        """The decision alone: nothing is counted or written down."""
        if self._registry.security.rules is not self._rules:
            self._renew()
        key = (principal.kind, principal.name, host, name)
        cache = self._caches[operation << _KIND_BITS | resource_type]
        decision = cache.get(key)
        if decision is None:
            decision = self._decisions.decide(str(principal), host, operation, resource_type, name)
            if len(name) > CACHED_NAME_CHARS_MAX:
                return decision
            if self._cached >= CACHED_MAX:
                self._forget()
                cache = self._caches[operation << _KIND_BITS | resource_type]
            self._cached += 1
            cache[key] = decision
        return decision

    def may(
        self,
        principal: "Principal",
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        api: str,
    ) -> bool:
        """Whether it is allowed. A denial is counted and written down, a grant where that is
        wanted."""
        decision = self.decide(principal, host, operation, resource_type, name)
        if not decision.allowed or self._audits_grants:
            self.note(principal, host, operation, resource_type, name, api, decision)
        return decision.allowed

    def note(
        self,
        principal: "Principal",
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        api: str,
        decision: Decision,
    ) -> None:
        if not decision.allowed:
            self.denied[titled(operation)] += 1
        if self.audit is not None:
            self.audit.note(principal, host, operation, resource_type, name, api, decision)

    def may_quickly(
        self,
        principal: "Principal",
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """For fast paths: False also where it has to be written down."""
        return (
            not self._audits_grants
            and self.decide(principal, host, operation, resource_type, name).allowed
        )

    def sees(
        self,
        principal: "Principal",
        host: str,
        operation: Operation,
        resource_type: ResourceType,
    ) -> Callable[[str], bool]:
        """A filter for listings, as of now: what is left out is nobody's attempt, so it is not
        written down. Another thread may use it."""
        decisions, who = self.decisions, str(principal)
        if decisions.everywhere(who, host, operation, resource_type):
            return _everything
        return lambda name: decisions.decide(who, host, operation, resource_type, name).allowed


def _everything(_: str) -> bool:
    return True


EVERYTHING: Final = _everything
"""What `Authorizer.sees` returns to those who may see all there is."""
