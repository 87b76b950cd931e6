"""Planted bugs: groups with members of both protocols (ADR 56), the order of replicas (ADR 57).

Each has the test that has to notice it, and the edit; `tests/test_planted_bugs.py` plants them.
"""

from typing import Final

from balancer.registry.registry import Registry
from coordinator.live import migration
from coordinator.live.assigning import Assigning
from coordinator.live.classic_members import ClassicMembers
from simulator.mutants.planting import Where

MIXED: Final = "tests/coordinator/test_mixed_groups.py"

CONSUMERS_AND_REPLICAS: Final[dict[str, tuple[str, Where]]] = {
    "KIP-848: a classic member is not told to join again": (
        f"{MIXED}::test_a_classic_member_goes_on_while_the_group_changes_its_kind",
        (ClassicMembers.heartbeat, "if _must_rejoin(group, member):", "if False:"),
    ),
    "KIP-848: an upgrade forgets what classic members hold": (
        f"{MIXED}::test_a_classic_member_goes_on_while_the_group_changes_its_kind",
        (migration.upgraded, "assigned=free, target=free", "target=free"),
    ),
    "KIP-848: who joins in the middle of a rebalance holds what it was given once": (
        f"{MIXED}::test_an_upgrade_in_the_middle_of_a_classic_rebalance",
        (
            migration._held,
            "if member.join is not None or completing or not member.established:",
            "if False:",
        ),
    ),
    "KIP-848: who is to join again may take for ever": (
        f"{MIXED}::test_a_classic_member_that_does_not_do_the_next_thing_is_removed",
        (
            ClassicMembers._expect,
            "self._tenure.wait(key, member.subscription.rebalance_timeout_ms)",
            "pass",
        ),
    ),
    "KIP-848: classic members that are left alone stay as they are": (
        f"{MIXED}::test_the_last_of_the_new_kind_falls_silent",
        (Assigning._settle, "group.only_classic() and not group.snapshot_under_way", "False"),
    ),
    "ADR 57: the order of replicas that was asked for is forgotten": (
        "tests/broker/handlers/test_reassignments.py"
        "::test_the_order_that_was_asked_for_is_the_one_that_is_told",
        (Registry._pin, "orders[group] = order", "pass"),
    ),
}
