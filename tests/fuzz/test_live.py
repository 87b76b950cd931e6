"""live.py with two thousand mutated frames over real sockets, and a hundred thousand in the full
dose (exam, row X2)."""

from pathlib import Path

import pytest

from tests.cluster.scenery import FULL
from tests.fuzz.live import run

pytestmark = pytest.mark.cluster
FRAMES = 100_000 if FULL else 2_000


async def test_a_node_under_fire_serves_a_healthy_client(tmp_path: Path) -> None:
    """The node lives, none of its handlers fails, its memory is bounded, and the client notices
    nothing."""
    tally = await run(tmp_path, frames=FRAMES, seed=1)
    assert not tally.problems, tally.problems
    assert tally.frames >= FRAMES
    assert tally.acknowledged > 0
