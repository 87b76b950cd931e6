"""Real clients that act on no hint, while masters of real nodes move: they notice nothing (ADR 50).

kafkajs loses and doubles acknowledged records when a send to several nodes is refused by one of
them; @platformatic/kafka hangs at the leader that an answer names. Skipped where Node.js is
missing, or its packages cannot be had. `make bench-handoff` has more clients and more moves.
"""

import pytest

from benchmarks.handoff.by_client import watch
from benchmarks.handoff.programs import PROGRAMS, Missing
from tests.cluster.scenery import FULL

pytestmark = pytest.mark.cluster
MOVES = 50 if FULL else 8
RATE = 100


@pytest.mark.parametrize("kind", ["plain", "idempotent"] if FULL else ["plain"])
@pytest.mark.parametrize("client", ["kafkajs", "platformatic"] if FULL else ["kafkajs"])
async def test_a_client_from_javascript_notices_no_move(client: str, kind: str) -> None:
    try:
        program = PROGRAMS[client]()
    except Missing as why:
        pytest.skip(f"{client}: {why}")
    seen = await watch(program, idempotent=kind == "idempotent", rate=RATE, moves=MOVES)
    assert not seen.missed_bars(), seen.summary()
    assert seen.forwarded > MOVES, "its former masters had something to do"


@pytest.mark.skipif(not FULL, reason="with EXAM=full only")
async def test_without_anybody_to_stand_in_the_bars_are_missed() -> None:
    """Or else the test above could not fail."""
    try:
        program = PROGRAMS["kafkajs"]()
    except Missing as why:
        pytest.skip(f"kafkajs: {why}")
    nobody = ("balancer.forward_unaware_ms=0", "balancer.forward_grace_ms=100")
    seen = await watch(program, idempotent=False, rate=200, moves=MOVES, overrides=nobody)
    assert seen.warnings
    assert seen.refusals
