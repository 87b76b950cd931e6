"""Nodes whose leases run on other terms are reported, with the difference."""

import pytest

from paxos.codec import PeerError
from paxos.ids import NodeId
from paxos.timing import Timing
from runtime.membership import versions
from runtime.membership.lease_terms import LeaseTerms, PeerLeaseTerms
from tests.runtime.doubles import Recorder
from tests.runtime.links import World
from tests.runtime.links import world as world  # a fixture

OURS = LeaseTerms(3_000, 1_000, 200)
LONGER = LeaseTerms(10_000, 1_000, 200)
WIDER = LeaseTerms(3_000, 1_000, 400)
A, B = NodeId(2), NodeId(3)


def test_what_differs_is_said_once_and_named_as_long_as_it_does() -> None:
    recorder = Recorder()
    heard = PeerLeaseTerms(OURS, recorder.journal)
    heard.hear(A, OURS)
    assert recorder.lines == []
    for _ in range(3):
        heard.hear(A, LONGER)
        heard.hear(B, WIDER)
    assert heard.differing == {A: "lease.duration_ms=10000", B: "lease.clock_margin_ms=400"}
    told = recorder.said("lease settings differ: give all nodes the same")
    assert [(one["peer"], one["theirs"], one["ours"]) for one in told] == [
        (A, "lease.duration_ms=10000", "lease.duration_ms=3000"),
        (B, "lease.clock_margin_ms=400", "lease.clock_margin_ms=200"),
    ]
    heard.hear(A, OURS)
    heard.drop(B)
    assert heard.differing == {}
    assert [one["peer"] for one in recorder.said("lease settings are the same again")] == [A]


@pytest.mark.parametrize("at", range(3))
def test_no_peer_says_what_no_configuration_can(at: int) -> None:
    most = 24 * 3600 * 1000
    assert LeaseTerms.decode(memoryview(LeaseTerms(most, most, most).encode()))
    numbers = [most] * 3
    numbers[at] = most + 1
    with pytest.raises(PeerError, match="lease settings"):
        LeaseTerms.decode(memoryview(LeaseTerms(*numbers).encode()))


def test_terms_travel() -> None:
    assert LeaseTerms.decode(memoryview(WIDER.encode())) == WIDER
    assert LeaseTerms.decode(memoryview(WIDER.encode() + b"of a later version")) == WIDER
    assert LeaseTerms.of(Timing()) == LeaseTerms(3_000, 1_000, 200)
    with pytest.raises(PeerError):
        LeaseTerms.decode(memoryview(WIDER.encode()[:-1]))


# -- on the links ----------------------------------------------------------------------------------


def test_lease_settings_are_told_once_on_every_link(world: World) -> None:
    theirs = LeaseTerms(3_000, 1_000, 200)
    world[1].peers.terms = theirs
    world.join(1, 2)
    world.settle()
    for _ in range(3):
        world[2].peers.ping(draining=False)
        world.settle()
    assert world[2].handler.terms == [(1, theirs)]
    assert world[1].handler.terms == [], "it has none to tell"


def test_lease_settings_and_versions_are_told_before_anything_else(world: World) -> None:
    """So that a node that cannot read what is in the logs is refused at once."""
    world[1].peers.terms = LeaseTerms(3_000, 1_000, 200)
    world[2].peers._flags = 0
    world.connect(1, 2)
    world.settle()
    assert world[2].handler.terms == [(1, LeaseTerms(3_000, 1_000, 200))]
    assert world[2].peers.versions.of(NodeId(1)) == versions.OURS
