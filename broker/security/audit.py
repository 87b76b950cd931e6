"""The audit log: who wanted to do what, from where, and why it was refused or allowed.

Each entry is a flat mapping; the runtime writes it as a line of JSON, from a thread of its own.
There are at most so many entries a second: who is denied in a loop must not fill the disk. What is
left out is counted, and the next entry says how much that was (`left_out`).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from broker.security.decisions import Decision
from wire.acls import Operation, PatternType, Permission, ResourceType, titled

if TYPE_CHECKING:
    from balancer.registry.rules import Rule
    from broker.security.principal import Principal
    from paxos.ids import Now

ENTRIES_PER_S: Final = 200
BURST: Final = 1_000
"""Entries that may be written at once after a quiet time."""
NAME_CHARS_MAX: Final = 512
"""Of a client's text in an entry; a longer one is cut."""
_S: Final = 1_000_000_000

Entry = Mapping[str, object]


class AuditLog:
    """`write` takes an entry and must not block. `left_out` counts entries that were not
    written."""

    def __init__(
        self, write: Callable[[Entry], None], now: "Callable[[], Now]", *, grants: bool = False
    ) -> None:
        self._write, self._now, self.grants = write, now, grants
        self._tokens = float(BURST)
        self._filled_boot_ns = now().boot_ns
        self._since_last = 0
        self.written = 0
        self.left_out = 0

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
        """One decision; those about what goes on all the time are written only if wanted."""
        if decision.allowed and not self.grants:
            return
        now = self._now()
        passed_ns = max(0, now.boot_ns - self._filled_boot_ns)
        self._filled_boot_ns = now.boot_ns
        self._tokens = min(BURST, self._tokens + passed_ns * ENTRIES_PER_S / _S)
        if self._tokens < 1:
            self._since_last += 1
            self.left_out += 1
            return
        self._tokens -= 1
        entry: dict[str, object] = {
            "time_ms": now.wall_ns // 1_000_000,
            "event": "allowed" if decision.allowed else "denied",
            "principal": str(principal)[:NAME_CHARS_MAX],
            "host": host,
            "api": api,
            "operation": titled(operation),
            "resource_type": titled(resource_type),
            "resource": name[:NAME_CHARS_MAX],
            "why": decision.why,
        }
        if decision.rule is not None:
            entry["rule"] = rule_text(decision.rule)
        if self._since_last:
            entry["left_out"] = self._since_last
            self._since_last = 0
        self.written += 1
        self._write(entry)


def rule_text(rule: "Rule") -> str:
    """A rule in one line, as `evenkeel acl list` prints it."""
    permission = titled(Permission(rule.permission)).lower()
    operation = titled(Operation(rule.operation))
    kind = titled(ResourceType(rule.resource_type))
    pattern = "" if rule.pattern_type == PatternType.LITERAL else "prefixed "
    where = "" if rule.host == "*" else f" from {rule.host}"
    return f"{permission} {rule.principal} {operation} on {pattern}{kind} {rule.name}{where}"
