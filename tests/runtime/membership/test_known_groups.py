"""What a node knows of the other members of its groups."""

from paxos.ids import MS, GroupId, Slot
from runtime.membership.known_groups import ALIVE_NS
from tests.runtime.engines import GROUP, Net


def test_who_has_applied_what_is_known_by_what_the_living_have_told() -> None:
    """They report now and then, and soon if others wait for something."""
    net = Net()
    master = net.elect(1)
    telling_ns = master.replica.timing.progress_every_ns
    others = [net[node] for node in (2, 3)]
    while min(one.replica.progress_at for one in others) < net.system.boot_ns() + 200 * MS:
        net.advance(10)  # until no node has reported for a while
    master.submit("news")
    net.advance(40)
    slot = master.replica.learner.applied
    engine = master.engine
    assert not engine.known_to_have_applied(GROUP, slot)
    for one in others:
        one.engine.spread(GROUP)
    net.advance(40)
    assert engine.known_to_have_applied(GROUP, slot)
    assert not engine.known_to_have_applied(GROUP, Slot(slot + 1))
    net.crash(3)
    net.advance(ALIVE_NS // MS + 100)
    master.submit("more")
    net.advance(40)
    slot = master.replica.learner.applied
    net.advance(telling_ns // MS + 100)
    assert engine.known_to_have_applied(GROUP, slot)
    assert engine.known_to_have_applied(GroupId(99), slot), "nobody tells us"


def test_what_is_spread_others_have_applied_and_said_so_without_a_tick() -> None:
    """A client waits until all nodes have it."""
    net = Net()
    master = net.elect(1)
    net.advance(100)
    master.submit("news")
    net.settle()
    slot = master.replica.learner.applied
    assert master.ledger.texts() == ["news"]
    assert [net[node].ledger.texts() for node in (2, 3)] == [[], []]
    master.engine.spread(GROUP)
    net.settle()
    assert [net[node].ledger.texts() for node in (2, 3)] == [["news"], ["news"]]
    for node in (2, 3):
        net[node].engine.spread(GROUP)
    net.settle()
    assert all(member.engine.known_to_have_applied(GROUP, slot) for member in net.up())


def test_who_was_away_is_current_when_it_has_caught_up() -> None:
    """Just started, it knows nothing of the others' positions; then it hears that it is behind."""
    net = Net()
    master = net.elect(1)
    net.advance(1_000)
    assert net[3].engine.is_current(GROUP)
    net.crash(3)
    for number in range(3):
        master.submit(f"missed {number}")
        net.advance(20)
    net.restart(3)
    engine = net[3].engine
    assert not engine.is_current(GROUP)
    assert not engine.lacks_entries(GROUP), "it has not heard of them"
    net.until(lambda: engine.lacks_entries(GROUP))
    assert not engine.is_current(GROUP)
    net.until(lambda: engine.is_current(GROUP))
    assert net[3].ledger.texts() == master.ledger.texts()


def test_who_hears_of_nobody_is_not_current_for_long() -> None:
    """It was stopped, or its links are lost: the others may have gone on."""
    net = Net()
    net.elect(1)
    net.advance(1_000)
    net.cut(1, 3)
    net.cut(2, 3)
    timing = net[3].replica.timing
    net.advance((timing.heard_ns + timing.progress_every_ns) // MS + 100)
    assert not net[3].engine.is_current(GROUP)
    assert net[2].engine.is_current(GROUP)
    net.heal(1, 3)
    net.heal(2, 3)
    net.advance(timing.progress_every_ns // MS + 100)
    assert net[3].engine.is_current(GROUP)


def test_who_is_cut_off_from_the_master_hears_of_news_by_the_others() -> None:
    """So a node that reaches a majority is not behind for long (docs/topic-identity.md)."""
    net = Net()
    master = net.elect(1)
    net.cut(1, 3)
    master.submit("news")
    net.advance(2 * master.replica.timing.progress_every_ns // MS)
    assert net[3].ledger.texts() == ["news"]
