"""Planted bugs: what clients may do.

Each has the test that has to notice it, and the edit; `tests/test_planted_bugs.py` plants them.
"""

from typing import Final

from balancer.registry import fences
from broker.handlers.cluster import metadata
from broker.handlers.records import produce_fast_path
from broker.handlers.security import by_hand, gate
from broker.security.authorizer import Authorizer
from broker.security.decisions import Decisions
from simulator.mutants.planting import Where

GATE: Final = "tests/broker/security/test_gate.py::"

ACCESS: Final[dict[str, tuple[str, Where]]] = {
    "28: a permission goes before a denial": (
        "tests/broker/security/test_decisions.py::test_the_rule_that_decided_is_told",
        (Decisions.decide, "if rule.operation in (operation, Operation.ALL):", "if False:"),
    ),
    "28: decisions outlive the rules": (
        f"{GATE}test_the_fast_path_ends_with_the_permission",
        (Authorizer.decide, "if self._registry.security.rules is not self._rules:", "if False:"),
    ),
    "28: the fast path of a connection is decided on once": (
        f"{GATE}test_the_fast_path_ends_with_the_permission",
        (produce_fast_path._take, "if authorizer is not None and not", "if False and not"),
    ),
    "28: metadata of all topics is what the last client was told": (
        f"{GATE}test_all_topics_are_those_that_may_be_described",
        (metadata._answer, "personal = sees is not EVERYTHING or", "personal = False and"),
    ),
    "28: an id tells that there is such a topic": (
        f"{GATE}test_by_id_nothing_is_told_of_what_may_not_be_described",
        (
            by_hand._by_id,
            "return ErrorCode.UNKNOWN_TOPIC_ID",
            "return ErrorCode.TOPIC_AUTHORIZATION_FAILED",
        ),
    ),
    "28: what is denied is served beside what is allowed": (
        f"{GATE}test_a_produce_is_partly_appended",
        (gate.sort_out, "{row.asked: allowed}", "{row.asked: items}"),
    ),
    "28: a rule that was deleted comes back with a late creation": (
        "tests/balancer/registry/test_rules.py::test_a_late_decision_on_rules_is_refused",
        (fences._things, "return [_SECURITY[type(command)]]", "return []"),
    ),
}
