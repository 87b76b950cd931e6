"""Which nodes are cut off, since when, and until when."""

from collections.abc import Collection

import pytest

from paxos.ids import MS, NodeId
from runtime.membership.quorum_contact import QuorumContact, QuorumView

LEASE_NS = 3_000 * MS
TICK_MS = 20
ME, B, C, D, E = map(NodeId, (1, 2, 3, 4, 5))


class World:
    """A node, and the nodes that answer it."""

    def __init__(self, *groups: Collection[NodeId], lease_ns: int = LEASE_NS) -> None:
        self.groups = groups
        self.now = 1_000_000 * MS
        self.answered: dict[NodeId, int] = {}
        self.contact = QuorumContact(lambda: QuorumView(ME, self.answered, self.groups), lease_ns)

    def live(self, ms: int, *answering: NodeId) -> None:
        for _ in range(0, ms, TICK_MS):
            self.now += TICK_MS * MS
            self.answered |= dict.fromkeys(answering, self.now)
            self.contact.look(self.now)

    @property
    def state(self) -> str:
        contact = self.contact
        return "closed" if contact.closed else "sends away" if contact.cut_off else "open"


THREE = (ME, B, C)


def test_a_node_alone_is_not_cut_off() -> None:
    world = World((ME,))
    world.live(60_000)
    assert world.state == "open"


def test_one_other_of_three_is_enough() -> None:
    world = World(THREE)
    world.live(60_000, B)
    assert world.state == "open"


def test_without_answers_it_sends_away_and_closes_when_its_leases_are_over() -> None:
    world = World(THREE)
    world.live(10_000, B, C)
    world.live(1_400)
    assert world.state == "open"
    world.live(1_000)
    assert world.state == "sends away"
    world.live(400)
    assert world.state == "sends away", "a lease renewed with the last answers runs on"
    world.live(600)
    assert world.state == "closed"
    assert world.contact.cut_off_total == 1


def test_a_lease_of_a_minute_is_waited_for() -> None:
    world = World(THREE, lease_ns=60_000 * MS)
    world.live(1_000, B, C)
    world.live(59_500)
    assert world.state == "sends away"
    world.live(1_500)
    assert world.state == "closed"


def test_in_touch_again_it_opens_when_that_lasts() -> None:
    world = World(THREE)
    world.live(10_000)
    assert world.state == "closed"
    world.live(600, C)
    assert world.state == "closed"
    world.live(800, C)
    assert world.state == "open"


def test_a_link_that_comes_and_goes_does_not_open_it() -> None:
    """Each answer counts for a second and a half; contact needs whole seconds of them."""
    world = World(THREE)
    world.live(10_000)
    for _ in range(10):
        world.contact._steady_ns = 0
        world.live(400, B)
        world.answered.clear()
        world.live(400)
        assert world.state == "closed"


def test_short_gaps_send_nobody_away() -> None:
    world = World(THREE)
    world.live(400, B)
    for _ in range(20):
        world.live(1_600)
        world.live(400, B)
        assert world.state == "open"


def test_a_node_that_starts_and_hears_nobody_is_cut_off_as_well() -> None:
    world = World(THREE)
    world.live(1_800)
    assert world.state == "open", "the others may need a moment"
    world.live(600)
    assert world.state == "sends away"
    world.live(1_000)
    assert world.state == "closed"
    world.live(1_400, B)
    assert world.state == "open"


def test_a_node_that_was_stopped_has_not_waited() -> None:
    """SIGSTOP for a minute: what arrived meanwhile is in its sockets, unread."""
    world = World(THREE)
    world.live(5_000, B, C)
    world.now += 60_000 * MS
    world.contact.look(world.now)
    assert world.state == "open"
    world.live(1_600)
    assert world.state == "open", "answers take as long to come as at any other time"
    world.live(200, B)
    assert world.state == "open"


def test_a_node_that_was_stopped_and_hears_nobody_is_cut_off() -> None:
    world = World(THREE)
    world.live(5_000, B, C)
    world.now += 60_000 * MS
    world.live(2_400)
    assert world.state == "sends away"


def test_a_node_whose_rounds_are_long_waits_for_longer() -> None:
    """Of a round of 600 ms only a fifth of a second counts, as with any standstill."""
    world = World(THREE)
    world.live(5_000, B, C)
    for _ in range(4):
        world.now += 600 * MS
        world.live(200)
    assert world.state == "open", "3.2 s, and 1.6 s of them waited"
    for _ in range(3):
        world.now += 600 * MS
        world.live(200)
    assert world.state == "sends away"


@pytest.mark.parametrize(
    ("groups", "answering", "state"),
    [
        ([(ME, B, C), (ME, D, E)], [D], "open"),  # a majority of its second group
        ([(ME, B, C), (C, D, E)], [D, E], "open"),  # ... of one that it does not have
        ([(ME, B, C), (ME, D, E), (B, C, D)], [], "closed"),
        ([(ME, B, C, D, E)], [B], "closed"),
        ([(ME, B, C, D, E)], [B, C], "open"),
        ([(ME, B, C, D)], [B], "closed"),  # two of four are no majority
        ([(ME, B)], [], "closed"),
        ([(ME, B)], [B], "open"),
        ([(B, C, D)], [E], "closed"),  # it has none itself
        ([(ME,), (B, C, D)], [], "open"),  # a group of which it is the only member
        ([()], [B], "closed"),
    ],
)
def test_a_majority_of_any_group_is_enough(
    groups: list[tuple[NodeId, ...]], answering: list[NodeId], state: str
) -> None:
    world = World(*groups)
    world.live(10_000, *answering)
    assert world.state == state
