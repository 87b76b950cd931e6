"""Requests to coordinators on the links: only to nodes that know them, in order, and back."""

from typing import Any

import pytest

from broker.groups.forwarded_requests import Verdict
from paxos.codec import PeerError
from paxos.entry import Buffer
from paxos.ids import GroupId, NodeId
from paxos.timing import LARGE_ENTRY_BYTES
from runtime.peers.frames import KNOWS_TERMS, Kind
from tests.runtime.links import World, world

__all__ = ["world"]

ONE, TWO = NodeId(1), NodeId(2)
GROUP = GroupId(3)


class Asking:
    """Records what the coordinators would get."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, ...]] = []
        self.answers: list[tuple[Any, ...]] = []
        self.losses: list[NodeId] = []

    def on_request(
        self,
        sender: NodeId,
        number: int,
        group: GroupId,
        epoch: int,
        until_wall_ns: int,
        body: Buffer,
    ) -> None:
        self.requests.append((sender, number, group, epoch, until_wall_ns, bytes(body)))

    def on_answer(self, sender: NodeId, number: int, verdict: int, body: Buffer) -> None:
        self.answers.append((sender, number, verdict, bytes(body)))

    def lost(self, node: NodeId) -> None:
        self.losses.append(node)


def asking(world: World, node: int) -> Asking:
    found = world[node].peers.group_requests.asking = Asking()
    return found


def introduced(world: World) -> None:
    """Both directions are up, and each node has told what it knows."""
    world.join(1, 2)
    for node in (1, 2):
        world[node].peers.ping(draining=False)
    world.settle()


def test_a_request_goes_over_and_its_answer_comes_back(world: World) -> None:
    here, there = asking(world, 1), asking(world, 2)
    introduced(world)
    one, two = (world[node].peers.group_requests for node in (1, 2))
    assert one.takes(TWO)
    assert one.ask(TWO, 2**40, GROUP, 7, 2**62, b"first")
    assert one.ask(TWO, 2**40 + 1, GROUP, -1, 1, bytes(LARGE_ENTRY_BYTES))
    assert one.ask(TWO, 2**40 + 2, GROUP, 7, 1, b"behind the large one")
    world.settle()
    assert [request[:5] for request in there.requests] == [
        (ONE, 2**40, GROUP, 7, 2**62),
        (ONE, 2**40 + 1, GROUP, -1, 1),
        (ONE, 2**40 + 2, GROUP, 7, 1),
    ]
    assert [len(request[5]) for request in there.requests] == [5, LARGE_ENTRY_BYTES, 20]
    two.answer(ONE, 2**40, Verdict.NOT_HERE, b"")
    two.answer(ONE, 2**40 + 1, Verdict.ANSWERED, b"answer" * 100_000)
    world.settle()
    assert sorted(answer[:3] for answer in here.answers) == [
        (TWO, 2**40, Verdict.NOT_HERE),
        (TWO, 2**40 + 1, Verdict.ANSWERED),
    ]


def test_a_node_of_an_earlier_release_is_never_asked(world: World) -> None:
    """It would close the link, and what Paxos says with it. A node tells what it knows anew on
    every link: it may have been replaced by an earlier release."""
    world.join(1, 2)
    world[2].peers._flags = KNOWS_TERMS
    world[2].peers._ping_one(ONE)
    world.settle()
    assert not world[1].peers.group_requests.takes(TWO)
    world[2].peers.ping(draining=False)
    world.settle()
    assert world[1].peers.group_requests.takes(TWO)
    channel = world[1].link(2).channel
    assert channel is not None
    channel.close("the test ends it")
    world.settle()
    world.connect(1, 2)
    assert not world[1].peers.group_requests.takes(TWO)


def test_nobody_can_be_asked_without_both_directions(world: World) -> None:
    world.connect(1, 2)
    one = world[1].peers.group_requests
    assert not one.takes(TWO)
    assert not one.takes(NodeId(9))
    assert not one.ask(NodeId(9), 1, GROUP, 1, 1, b"x")
    one.answer(NodeId(9), 1, Verdict.REFUSED, b"")


def test_the_loss_of_either_direction_is_told(world: World) -> None:
    here, there = asking(world, 1), asking(world, 2)
    introduced(world)
    channel = world[1].link(2).channel
    assert channel is not None
    channel.close("the test ends it")
    world.settle()
    assert here.losses == [TWO]
    assert there.losses == [ONE]


@pytest.mark.parametrize(("kind", "size"), [(Kind.GROUP_REQUEST, 23), (Kind.GROUP_ANSWER, 8)])
def test_a_frame_that_is_cut_short_costs_the_link(world: World, kind: Kind, size: int) -> None:
    there = asking(world, 2)
    with pytest.raises(PeerError):
        world[2].peers.on_frame(ONE, kind, memoryview(bytes(size)), True)
    world[2].peers.on_frame(ONE, kind, memoryview(bytes(size + 1)), True)
    assert len(there.requests) + len(there.answers) == 1
