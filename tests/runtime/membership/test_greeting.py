"""The first frame of a link, byte for byte, and how an older or newer node reads it."""

from pathlib import Path

import pytest

from paxos import codec
from paxos.codec import PeerError
from paxos.ids import Epoch, GroupId, Incarnation, NodeId, Slot
from runtime.membership.admission import Judgement, Life, Verdict
from runtime.membership.handshake import FORMAT, Hello, Refusal, RefusalReason, Refused
from runtime.membership.masters import MasterClaim, encode_claims
from tests.runtime.links import World
from tests.runtime.links import world as world  # a fixture

GOLDEN = Path(__file__).parent / "golden" / f"link-frames-{FORMAT}.{codec.FORMAT}.hex"
HELLO = Hello(
    cluster_id="prod",
    node=NodeId(4),
    incarnation=Incarnation(1_800_000_007),
    to=NodeId(2),
    founding='count = 12, replicas = 3, founders = "1,2,3"',
)
REFUSAL = Refusal(RefusalReason.UNKNOWN, "node 4 is none of this cluster's nodes")
WORD = MasterClaim(GroupId(7), Epoch(9), Slot(1234), 1_800_000_000_000_000_000)


def frames() -> list[str]:
    return [one.hex() for one in (HELLO.encode(), REFUSAL.encode(), encode_claims([WORD]))]


def test_the_bytes_are_those_of_this_format() -> None:
    """Another layout is another format: raise FORMAT, and keep this file beside the new one."""
    assert GOLDEN.read_text(encoding="ascii").split() == frames()
    assert Hello.decode(memoryview(HELLO.encode())) == HELLO
    assert Refusal.decode(memoryview(REFUSAL.encode())) == REFUSAL


def test_a_node_of_another_format_is_told_what_to_do() -> None:
    """Format 1 is from before there was a membership; its greeting begins with the number."""
    old = bytes.fromhex("000100000002000000000000000500047465" + "7374")
    with pytest.raises(Refused, match="run the same version of Evenkeel on all nodes") as caught:
        Hello.decode(memoryview(old))
    assert caught.value.refusal.why is RefusalReason.FORMAT


@pytest.mark.parametrize(
    "body", [b"", b"\0why", b"\x63why", bytes([RefusalReason.UNKNOWN]) + b"x" * 2000]
)
def test_a_refusal_that_is_none(body: bytes) -> None:
    with pytest.raises(PeerError):
        Refusal.decode(memoryview(body))


def test_a_refusal_cannot_write_into_our_log_what_it_likes() -> None:
    body = bytes([RefusalReason.UNKNOWN]) + "no\n\x1b[2Jpé".encode() + b"\xff"
    assert Refusal.decode(memoryview(body)).text == "no??[2Jpé\N{REPLACEMENT CHARACTER}"


def test_a_life_is_told_first_and_with_every_ping_and_answered(world: World) -> None:
    mine = Life(Incarnation(7), Incarnation(6), 1 << 33, settled=False, asks=True)
    world[1].handler.own_life = mine
    world.connect(1, 2)
    world.plane.run_until(lambda: world[2].handler.lives == [(1, mine)])
    world[1].peers.ping(draining=False)
    world.settle()
    assert world[2].handler.lives == [(1, mine), (1, mine)]
    world.connect(2, 1)
    answer = Verdict(Incarnation(7), Judgement.FORGETFUL, Incarnation(50))
    world[2].peers.answer_life(NodeId(1), answer)
    world.settle()
    assert world[1].handler.verdicts == [(2, answer)]
