"""Exam rows R7 and R8: all shapes of networks between nodes, and between nodes and clients.

tests/exam/network/test_partitions.py has clients of all kinds for one of these shapes.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.exam.network.apart import program
from tests.exam.network.shapes import OF_FIVE, OF_THREE, SHAPES

pytestmark = pytest.mark.cluster

LEASE_MS = 2_000
"""As in QUICK."""
GAP_MS_MAX = LEASE_MS + 2_000
PREPARES_PER_S_MAX = 1.0
SECONDS = 20.0 if FULL else 2.5
ROUNDS = 3 if FULL else 1


async def seen(tmp_path: Path, nodes: int, names: list[str]) -> None:
    """The cluster survives each of them; the full dose also has bounds on time and ballots."""
    place = str(tmp_path / "data")
    for found in await program("shapes", place, str(nodes), str(SECONDS), *names * ROUNDS):
        shape = SHAPES[found["shape"]]
        for node in found["lost"]:
            assert node["acting"] == 0, found
        assert found["for_ever"] == [], "whoever is not served may try again"
        if shape.reached:
            assert sum(found["acks"]) > 0, found
        if FULL:
            in_full(found, reached=shape.reached)


def in_full(found: dict[str, Any], *, reached: bool) -> None:
    assert found["prepares_per_s"] < PREPARES_PER_S_MAX, found
    assert all(node["clients"] == "disconnected" for node in found["lost"]), found
    if reached:
        assert min(found["acks"]) > 0, found
        assert found["gap_ms"] <= GAP_MS_MAX, found


async def test_three_nodes_and_clients_that_reach_some(tmp_path: Path) -> None:
    """Cut in one direction; a bridge; clients that reach all but the master's node, or only that
    one."""
    names = list(OF_THREE) if FULL else ["bridge", "clients away"]
    await seen(tmp_path, 3, names)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_five_nodes(tmp_path: Path) -> None:
    """Cut three to two with the masters among the two; each node hears only its neighbours; two
    halves that share one node."""
    await seen(tmp_path, 5, list(OF_FIVE))
