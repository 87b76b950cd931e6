"""Large messages on a link: they go one by one, and small ones pass them."""

from paxos import entry as entries
from paxos.ids import Ballot, GroupId, NodeId, Slot
from paxos.messages import Accept, Accepted, Commit, Prepare
from tests.runtime.links import Node, World
from tests.runtime.links import world as world  # a fixture

GROUP = GroupId(1)
OTHER = GroupId(2)
BALLOT = Ballot(1, NodeId(1))


def accept(group: int, slot: int, size: int = 2_000_000) -> Accept:
    entry = entries.batch((bytes([slot]) * size,))
    return Accept(GroupId(group), BALLOT, Slot(slot), entry, Slot(1), Slot(0))


def told(node: Node) -> list[tuple[str, int, int]]:
    """Kind, group and slot of the messages that arrived, in order."""
    return [
        (type(one).__name__, one.group, one.slot if isinstance(one, Accept | Accepted) else 0)
        for _, one in node.handler.messages
    ]


def test_what_is_small_waits_for_one_large_message_at_most(world: World) -> None:
    """A vote, a prepare, a clock reading and another group's renewal do not wait behind three
    entries of other groups; their order is kept, and nothing is lost."""
    world.join(1, 2)
    before = len(world[1].handler.clocks)
    peers = world[1].peers
    world[1].link(2).large.bytes_max = 70_000_000
    for group in (11, 12, 13):
        peers.send(NodeId(2), accept(group, 1, 16_000_000))  # more than the kernel takes at once
    peers.flush()  # the first one is on its way
    peers.ping(draining=True)
    small = [
        Accepted(OTHER, BALLOT, Slot(7)),
        Prepare(OTHER, BALLOT, Slot(1)),
        accept(GROUP, 8, 10),
        Accepted(GroupId(12), BALLOT, Slot(3)),
    ]
    for message in small:
        peers.send(NodeId(2), message)
    world.plane.run_until(lambda: world[2].handler.draining, world.flush)
    assert len(world[2].handler.messages) <= 2 + len(small), "not behind what waits"
    world.settle()
    assert told(world[2]) == [
        ("Accept", 11, 1),
        ("Accepted", OTHER, 7),
        ("Prepare", OTHER, 0),
        ("Accept", GROUP, 8),
        ("Accepted", 12, 3),
        ("Accept", 12, 1),
        ("Accept", 13, 1),
    ]
    assert len(world[1].handler.clocks) > before
    assert world[1].link(2).dropped == 0


def test_what_tells_of_a_log_does_not_pass_its_large_entries(world: World) -> None:
    """A Commit before its Accept would cause the entry to be sent again by value."""
    world.join(1, 2)
    peers = world[1].peers
    world[1].link(2).large.bytes_max = 20_000_000
    order: list[str] = []
    world[2].handler.on_message = lambda _, one: order.append(f"{type(one).__name__} {one.group}")
    world[2].handler.on_forward = lambda _, number, group, *__: order.append(f"{number} {group}")
    for group in (11, 12):
        peers.send(NodeId(2), accept(group, 1))
    peers.send(NodeId(2), Commit(GroupId(12), BALLOT, Slot(1), Slot(1)))
    peers.send(NodeId(2), Commit(OTHER, BALLOT, Slot(1), Slot(1)))
    peers.forward(NodeId(2), 1, GroupId(12), 0, (b"x",), 1)
    peers.forward(NodeId(2), 2, OTHER, 0, (b"x",), 1)
    peers.forward(NodeId(2), 3, OTHER, 0, (bytes(1_000_000),), 1_000_000)
    peers.forward(NodeId(2), 4, OTHER, 0, (b"x",), 1)
    peers.send(NodeId(2), accept(12, 2))
    world.settle()
    assert order == [
        "Commit 2",
        "2 2",
        "Accept 11",
        "Accept 12",
        "Commit 12",
        "1 12",
        "3 2",
        "4 2",
        "Accept 12",
    ]


def test_what_still_waits_is_not_taken_a_second_time(world: World) -> None:
    """It is sent again if no answer comes in time; a copy would only be in the way. What was lost
    with its link is sent again."""
    world.join(1, 2)
    world[1].link(2).large.bytes_max = 20_000_000
    for _ in range(3):
        for slot in (1, 2, 3):
            world[1].peers.send(NodeId(2), accept(11, slot))
        world[1].peers.flush()
    channel = world[1].link(2).channel
    assert channel is not None
    assert 2_000_000 < world[1].link(2).unsent_bytes < 3 * 2_100_000
    channel.close("cut")
    world.connect(1, 2)
    world[1].peers.send(NodeId(2), accept(11, 2))
    world.settle()
    world[1].peers.send(NodeId(2), accept(11, 2))
    world.settle()
    assert told(world[2]) == [("Accept", 11, 2)] * 2


def test_what_is_small_is_not_lost_for_the_sake_of_what_is_not(world: World) -> None:
    world.join(1, 2)
    link = world[1].link(2)
    link.large.bytes_max = 7_000_000  # the large ones take 5.25 of it
    for group in range(11, 21):
        world[1].peers.send(NodeId(2), accept(group, 1))
    assert link.dropped == 8
    for slot in range(1, 200):
        world[1].peers.send(NodeId(2), accept(GROUP, slot, 10))
        world[1].peers.send(NodeId(2), accept(11, slot + 1, 100))
    world.settle()
    assert link.dropped == 8
    assert len(world[2].handler.messages) == 2 + 2 * 199
    assert link.large.bytes == link.unsent_bytes == 0
    assert link.large.idle


def test_what_waits_for_a_peer_is_bounded_and_known(world: World) -> None:
    """In any size; small messages find room, however much large data waits."""
    world.join(1, 2)
    link = world[1].link(2)
    link.large.bytes_max = most = 10_000_000
    writing = 9_000_000  # more than the kernel takes at once
    for number in range(300):
        world[1].peers.send(NodeId(2), accept(100 + number, 1, writing if not number else 900_000))
        world[1].peers.send(NodeId(2), accept(GROUP, 1, 100_000))
        world[1].peers.flush()
        assert link.unsent_bytes <= most + writing + 1_100_000
    assert link.channel is not None
    assert link.large.bytes > most // 2
    assert link.channel.unsent_bytes > writing
    assert link.unsent_bytes == link.large.bytes + link.channel.unsent_bytes
    assert link.dropped > 0
    world.settle()
    assert link.unsent_bytes == 0
    sizes = [m.entry.size for _, m in world[2].handler.messages if isinstance(m, Accept)]
    assert sizes.count(100_001) >= most // 4 // 100_100
    assert link.channel.unsent_bytes_max == most
