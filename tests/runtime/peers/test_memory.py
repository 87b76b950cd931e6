"""A peer's frame is counted as long as its messages are not all handled."""

import pytest

from paxos.ids import NodeId
from runtime.peers import incoming
from tests.runtime.links import World
from tests.runtime.links import world as world  # a fixture
from tests.runtime.peers.test_peers import accept

MESSAGES, SIZE = 100, 5_000


def send_one_frame(world: World) -> None:
    for slot in range(1, MESSAGES + 1):
        world[1].peers.send(NodeId(2), accept(slot, SIZE))
    world[1].peers.flush()


def test_a_frame_whose_messages_take_several_rounds_is_counted_in_all_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join(1, 2)
    monkeypatch.setattr(incoming, "PEER_ROUND_NS", -1)  # time for a few messages a round
    taker, memory = world[2].handler, world[2].peers._memory
    send_one_frame(world)
    world.plane.run_until(lambda: len(taker.messages) > 0, world.flush)
    rounds = 0
    while len(taker.messages) < MESSAGES:
        assert MESSAGES * SIZE < memory.peers < MESSAGES * (SIZE + 100)
        world.flush()
        rounds += 1
    assert rounds > 3
    assert memory.peers == 0


def test_a_link_that_ends_in_between_frees_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.join(1, 2)
    monkeypatch.setattr(incoming, "PEER_ROUND_NS", -1)
    send_one_frame(world)
    world.plane.run_until(lambda: len(world[2].handler.messages) > 0, world.flush)
    assert world[2].peers._memory.peers > 0
    world[2].peers._incoming[NodeId(1)].close("it ends")
    assert world[2].peers._memory.peers == 0
