"""What it costs to ask whether a client may do something, with few rules and with many.

    make decisions

The bound is 2 us a check on the hot path (docs/security.md). A decision that is not cached is made
from the index; that happens once for each principal, host, operation and resource after a change.
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from balancer.registry.registry import Registry
from balancer.registry.rules import Rule
from balancer.registry.security import Security
from broker.security.authorizer import Authorizer
from broker.security.decisions import Decisions
from broker.security.principal import Principal
from wire.acls import Operation, PatternType, Permission, ResourceType

CHECKS: Final = 200_000
REPEATS: Final = 5
BOUND_NS: Final = 2_000
WHO: Final = Principal("User", "alice")
HOST: Final = "192.0.2.7"


def rules_of(count: int) -> tuple[Rule, ...]:
    """Every tenth is a prefix, every twentieth denies; a few are about everybody."""
    made = {
        Rule(
            ResourceType.TOPIC,
            f"topic-{number % 500:03}",
            PatternType.PREFIXED if number % 10 == 0 else PatternType.LITERAL,
            "User:*" if number % 50 == 0 else f"User:user-{number}",
            "*",
            Operation.READ,
            Permission.DENY if number % 20 == 1 else Permission.ALLOW,
        )
        for number in range(count)
    }
    made.add(
        Rule(
            ResourceType.TOPIC,
            "topic-",
            PatternType.PREFIXED,
            str(WHO),
            "*",
            Operation.WRITE,
            Permission.ALLOW,
        )
    )
    return tuple(sorted(made))


def best_ns(check: Callable[[str], object], names: Sequence[str]) -> float:
    """CPU time of a check, the best of some repetitions: others use this machine, too."""
    best = float("inf")
    for _ in range(REPEATS):
        rounds = CHECKS // len(names)
        begun = time.process_time_ns()
        for _ in range(rounds):
            for name in names:
                check(name)
        best = min(best, (time.process_time_ns() - begun) / (rounds * len(names)))
    return best


def main() -> int:
    names = [f"topic-{number:03}" for number in range(100)]
    worst = 0.0
    print(f"{'rules':>7}  {'cached':>9}  {'from the index':>14}")
    for count in (0, 10, 100, 1_000, 10_000):
        registry = Registry()
        registry.security = Security(rules=rules_of(count))
        authorizer = Authorizer(registry, frozenset())
        decisions = Decisions(registry.security.rules)

        def cached(name: str, authorizer: Authorizer = authorizer) -> bool:
            return authorizer.may(WHO, HOST, Operation.WRITE, ResourceType.TOPIC, name, "Produce")

        def fresh(name: str, decisions: Decisions = decisions) -> object:
            return decisions.decide(str(WHO), HOST, Operation.WRITE, ResourceType.TOPIC, name)

        quick, slow = best_ns(cached, names), best_ns(fresh, names[:10])
        worst = max(worst, quick)
        print(f"{len(registry.security.rules):>7}  {quick:>6.0f} ns  {slow:>11.0f} ns")
    print(f"bound on the hot path: {BOUND_NS} ns")
    return 0 if worst <= BOUND_NS else 1


if __name__ == "__main__":
    sys.exit(main())
