"""What nodes tell each other of their versions, and who is kept out."""

import attrs
import pytest

from balancer.registry.versions import Reads
from paxos.codec import PeerError
from paxos.ids import MS, Incarnation, NodeId
from runtime.membership.handshake import RefusalReason
from runtime.membership.lease_terms import LeaseTerms
from runtime.membership.versions import (
    LINK_NEWEST,
    LINK_OLDEST,
    OURS,
    UNTOLD,
    Versions,
    common_link,
    problem,
)
from runtime.peers import peers as module
from runtime.peers.frames import Kind, framed
from tests.runtime.links import World
from tests.runtime.links import world as world  # a fixture

TERMS = LeaseTerms(3_000, 1_000, 200)
ONE, TWO = NodeId(1), NodeId(2)
LATER = Versions(LINK_OLDEST, LINK_NEWEST + 1, Reads(2, 9, "0.9.0"))


def begun(world: World, *, older: int = 0) -> World:
    """Nodes 1 and 2, each with something to tell; `older` is one of before, which tells nothing."""
    for node in (1, 2):
        world[node].peers.terms = None if node == older else TERMS
    return world


@pytest.mark.parametrize("versions", [OURS, UNTOLD, LATER])
def test_versions_come_back_as_they_went(versions: Versions) -> None:
    data = versions.encode()
    assert Versions.decode(memoryview(data)) == versions
    assert Versions.decode(memoryview(data + b"of a later version")) == versions


def test_a_node_that_tells_nothing_is_one_of_before() -> None:
    assert Versions.decode(memoryview(b"")) == UNTOLD


@pytest.mark.parametrize(
    "wrong",
    [
        OURS.encode()[:-1],
        OURS.encode()[:3],
        Versions(6, 5, Reads(1, 1, "x")).encode(),
        Versions(5, 6, Reads(2, 1, "x")).encode(),
        Versions(5, 6, Reads(1, 2, "x" * 65)).encode(),
        Versions(5, 6, Reads(1, 2, "\x07")).encode(),
    ],
)
def test_what_no_node_tells_ends_the_link(wrong: bytes) -> None:
    with pytest.raises(PeerError):
        Versions.decode(memoryview(wrong))


def test_the_newest_common_version_of_the_link_is_written() -> None:
    def of(oldest: int, newest: int) -> Versions:
        return Versions(oldest, newest, Reads(1, 1, ""))

    assert common_link(of(5, 8), of(4, 7)) == 7
    assert common_link(of(5, 8), of(6, 6)) == 6
    assert common_link(of(5, 6), of(7, 8)) is None
    assert "speaks versions 7 to 8 of the link" in problem(TWO, of(5, 6), of(7, 8), 1)


def test_both_sides_know_each_others_versions_and_write_the_newest(world: World) -> None:
    begun(world).join(1, 2)
    world.settle()
    for me, other in ((1, TWO), (2, ONE)):
        assert world[me].peers.versions.of(other) == OURS
        assert world[me].link(other).version == LINK_NEWEST


def test_to_a_node_of_before_the_oldest_version_is_written(world: World) -> None:
    """It reads TERMS as far as it knows it."""
    begun(world, older=2).join(1, 2)
    world.settle()
    assert world[1].link(2).version == LINK_OLDEST
    assert world[1].peers.versions.of(TWO) is None
    assert world[2].handler.terms == [(1, TERMS)]
    assert world[1].peers.connected(TWO)
    assert world[2].peers.connected(ONE)


def test_a_kind_of_a_later_link_is_not_sent_to_who_cannot_read_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.LINK_SINCE, Kind.CONSOLE, LINK_NEWEST)
    begun(world, older=2).join(1, 2)
    world.settle()
    seen: list[bytes] = []
    world[2].peers.on_console = lambda _node, body: seen.append(bytes(body))
    world[1].peers.console(TWO, b"news")
    assert not world[1].peers.send_frame(TWO, Kind.CONSOLE, (b"news",), None)
    world.settle()
    assert seen == []


# -- the cluster version --------------------------------------------------------------------------


def test_a_node_of_before_is_refused_once_the_cluster_version_has_risen(world: World) -> None:
    """It gets the reason, and nothing of what is in the logs."""
    begun(world, older=2)
    world[1].peers.cluster_version_is(2)
    world.call(1, 2)
    world.call(2, 1)
    world.settle()
    assert not world[1].peers.connected(TWO)
    assert world[1].link(2).channel is None, "nothing may be sent to it"
    (said,) = world[2].reasons("refused by peer")
    assert "the cluster is at cluster version 2, which never falls" in said
    assert "start it with the version of Evenkeel that the other nodes run" in said
    assert world[2].handler.refusals[-1] == (ONE, RefusalReason.FORMAT)


def test_the_links_of_a_node_that_cannot_read_the_new_version_end(world: World) -> None:
    begun(world, older=2).join(1, 2)
    world.settle()
    assert world[1].peers.connected(TWO)
    world[1].peers.cluster_version_is(2)
    world.settle()
    assert not world[1].peers.connected(TWO)
    assert world[2].reasons("refused by peer")


def test_nodes_that_can_read_it_stay_and_new_ones_come(world: World) -> None:
    begun(world).join(1, 2)
    world.settle()
    for node in (1, 2):
        world[node].peers.cluster_version_is(2)
    assert world[1].peers.connected(TWO)
    world[1].link(2).channel.close("cut")  # type: ignore[union-attr]
    world.settle()
    world[2].clock.advance(5_000 * MS)
    world.call(1, 2)
    world.settle()
    assert world[2].peers.connected(ONE)


def test_before_a_peer_has_told_what_it_reads_nothing_is_sent_to_it(world: World) -> None:
    begun(world)
    world[1].peers.cluster_version_is(2)
    world.call(1, 2)
    world.settle()
    assert world[1].link(2).channel is None
    assert world[1].link(2).opened is not None
    world.call(2, 1)
    world.settle()
    assert world[1].link(2).channel is not None
    assert world[1].peers.connected(TWO)


def test_a_program_that_is_too_new_for_the_cluster_is_refused(world: World) -> None:
    begun(world)
    world[2].peers.versions.ours = LATER
    world.call(2, 1)
    world.settle()
    (said,) = world[2].reasons("refused by peer")
    assert "raise the cluster version first" in said
    assert "Evenkeel 0.9.0, which reads cluster versions 2 to 9" in said


def test_nothing_more_is_sent_to_an_older_program_started_anew(world: World) -> None:
    """Our link was opened before it greeted, on what its last process had told."""
    begun(world, older=2)
    world[1].peers.cluster_version_is(2)
    world[1].peers.versions.told(TWO, OURS)
    world[1].peers.versions._lives[TWO] = Incarnation(0)
    world.call(1, 2)
    world.settle()
    assert world[1].link(2).channel is not None
    world.call(2, 1)
    world.settle()
    assert world[1].link(2).channel is None
    assert world[2].reasons("refused by peer")


def test_what_a_process_told_does_not_count_for_the_next_one(world: World) -> None:
    """An operator may have started an older program."""
    begun(world).join(1, 2)
    world.settle()
    versions = world[1].peers.versions
    assert versions.of(TWO) == OURS
    hello = attrs.evolve(world[2].peers._hello, incarnation=9, to=ONE)
    versions.greeted(hello.node, hello.incarnation)
    assert versions.of(TWO) is None
    assert framed(Kind.TERMS, b"x") == b"\0\0\0\2\x0dx"
