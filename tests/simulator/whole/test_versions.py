"""Worlds in which some nodes run a program of before: the cluster version waits for them."""

import attrs
import pytest

from runtime.membership.raising import Raising
from simulator.whole.options import Fault
from simulator.whole.swarm import run_world
from tests.simulator.whole.standins import small
from wire.software import CLUSTER_VERSION_NEWEST as NEWEST

FAULTS = frozenset({Fault.KILL, Fault.CUT, Fault.STOP})


def test_with_all_nodes_of_one_version_it_rises() -> None:
    verdict = run_world(attrs.evolve(small(7, faults=FAULTS), older=0))
    assert not verdict.failure, verdict.report
    assert verdict.statistics[f"nodes at cluster version {NEWEST}"] > 0


@pytest.mark.parametrize("older", [1, 3])
def test_with_an_older_node_it_never_rises(older: int) -> None:
    verdict = run_world(attrs.evolve(small(7, faults=FAULTS), older=older))
    assert not verdict.failure, verdict.report
    assert verdict.statistics["nodes at cluster version 1"] > 0
    assert not verdict.statistics[f"nodes at cluster version {NEWEST}"]


def test_a_raise_that_asks_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older nodes of these worlds can read it, so that it is the checker that notices."""
    monkeypatch.setattr(Raising, "lacking", lambda _self, _version: [])
    verdict = run_world(attrs.evolve(small(7), older=1))
    assert f"version: {NEWEST} at node" in verdict.failure
