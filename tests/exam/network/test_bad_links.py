"""Exam row R9: links between nodes that delay, lose or throttle, or are all reset at once."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.exam.network.apart import program
from tests.exam.network.bad_links import FITS, RESET, TOO_MANY, TREATMENTS

pytestmark = pytest.mark.cluster

NAMES = [*TREATMENTS, RESET] if FULL else ["delay and loss 10", RESET]
SECONDS = 60.0 if FULL else 1.0


async def test_bad_links_cost_no_master_and_no_message(tmp_path: Path) -> None:
    """The taste requires that acknowledgements keep coming and that the history is clean. That
    masters stay is required only on a machine that does nothing else."""
    place = str(tmp_path / "data")
    for found in await program("bad_links", place, str(SECONDS), str(FITS), *NAMES):
        assert sum(found["acks"]) > 0, found
        if found["treatment"] == RESET:
            assert min(found["resets"]) >= 6, "every node has a connection to each other one"
        if FULL:
            assert_steady(found)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_slow_links_and_more_than_they_take(tmp_path: Path) -> None:
    place = str(tmp_path / "data")
    (found,) = await program("bad_links", place, str(SECONDS), str(TOO_MANY), "1 Mbit")
    assert_steady(found)


def assert_steady(found: dict[str, Any]) -> None:
    assert min(found["acks"]) > 0, found
    assert found["changes"] <= found["changes_allowed"], found
