"""What docs/balancer.md says of the planner's proofs holds here; its speed is for `make plans`."""

from benchmarks.planner import measure


def test_hundreds_of_groups_are_planned_with_a_proof() -> None:
    for row in measure(groups=300, nodes=10):
        assert row["moves"] == row["at_least"], row
