"""The coordinator of a consumer group moves from node to node, and its members notice nothing.

The members are programs with the libraries that people use (tests/compat/group_member.py and
tests/compat/go/group_*). A library that is not installed here is skipped, and so is Go where it, or
the modules of a program, are missing. `python -m tests.compat.group_moves` measures fifty moves.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cluster.scenery import FULL
from tests.compat.group_moves import CLIENTS, Missing, cluster_of, command_of, measure
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster

LIBRARIES = {"kafka-python": "kafka", "aiokafka": "aiokafka"}
MOVES = 4


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_coordinator_that_moves_ends_no_generation(tmp_path: Path, client: str) -> None:
    """Each node is asked by members whose coordinator has moved on, twice in a row as well. No
    member joins again, no record is read twice, no heartbeat or commit fails."""
    library = LIBRARIES.get(client, "confluent_kafka")
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed (make compat installs it)")
    try:
        command = command_of(client, tmp_path, offline=True)
    except Missing as missing:
        pytest.skip(str(missing))
    async with cluster_of(tmp_path / "data") as cluster:
        seen = await measure(cluster, client, command, MOVES)
        cluster.hurry.set()
    assert (seen.rebalances_told, seen.generations) == (0, 0)
    assert (seen.twice, seen.lost) == (0, 0)
    assert not seen.errors
    assert seen.forwarded > 0
