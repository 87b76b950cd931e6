"""What a peer's answer to a question says about the contact with it."""

import pytest

from paxos.ids import MS, NodeId
from tests.runtime.engines import Net


@pytest.fixture
def net() -> Net:
    return Net()


def test_an_answer_that_a_link_has_held_is_no_contact(net: Net) -> None:
    """Otherwise a node that is cut off would accept its clients again whenever an old answer
    arrives."""
    engine = net[1].engine
    engine.on_clock(NodeId(2), 0, MS)
    answered = engine.answered[NodeId(2)]
    net.advance(3_000)
    engine.on_clock(NodeId(2), 0, 1_400 * MS)
    assert engine.answered[NodeId(2)] == answered
    assert engine.multi.heard[NodeId(2)] > answered
    engine.on_clock(NodeId(2), 0, 2 * MS)
    assert engine.answered[NodeId(2)] > answered
