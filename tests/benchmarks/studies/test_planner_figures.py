"""docs/balancer.md's figures on the planner's proofs are right; its speed is for `make plans`."""

import pytest

from benchmarks.studies.planner import measure
from tests.doses import FULL, ONLY_IN_FULL

OPEN = {
    "by weight, on members, on the lowest member",
    "by weight, on members, even already",
    "replicas, two nodes are new",
}
"""Cases in which the fewest moves are not proven (docs/balancer.md)."""


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_hundreds_of_groups_are_planned_with_a_proof() -> None:
    for row in measure(groups=300, nodes=10):
        assert row["moves"] >= row["at_least"], row
        if row["what"] not in OPEN:
            assert row["moves"] == row["at_least"], row
            assert row["proof"] != "open", row
