"""What is refused while disks are nearly full, step by step."""

import pytest

from paxos.entry import NOOP, batch
from paxos.ids import Ballot, GroupId, NodeId, Slot
from paxos.messages import Accept, Learned, Message, Prepare
from runtime.disk.disk_pressure import DiskPressure
from storage.disk.space import Room

GROUP = GroupId(1)
THREE = tuple(map(NodeId, (1, 2, 3)))
SMALL, LARGE = batch((b"x" * 100,)), batch((b"x" * 1000,))


def accept(entry: object) -> Accept:
    return Accept(GROUP, Ballot(1, NodeId(1)), Slot(1), entry, Slot(1), Slot(0))


@pytest.mark.parametrize(
    ("room", "low", "critical"),
    [
        (None, False, False),
        (Room(100, low=False, reserve=True), False, False),
        (Room(100, low=False, reserve=False), False, False),
        (Room(0, low=True, reserve=True), True, False),
        (Room(0, low=True, reserve=False), True, True),
    ],
)
def test_critical_is_low_without_the_reserve(room: Room | None, low: bool, critical: bool) -> None:
    one = DiskPressure()
    one.seen(0, room)
    assert (one.low, one.critical) == (low, critical)


@pytest.mark.parametrize(
    ("message", "bulk"),
    [
        (accept(SMALL), False),
        (accept(LARGE), True),
        (Learned(GROUP, Slot(1), (NOOP, SMALL, LARGE)), False),
        (Learned(GROUP, Slot(1), (LARGE,) * 70), True),
        (Prepare(GROUP, Ballot(1, NodeId(1)), Slot(1)), False),
    ],
)
def test_only_bulk_is_not_taken_and_only_when_it_is_scarce(message: Message, bulk: bool) -> None:
    one = DiskPressure(low=True)
    assert not one.refuses(message)
    one.critical = True
    assert one.refuses(message) is bulk


@pytest.mark.parametrize(
    ("own", "peers", "refuses"),
    [
        (False, (), False),
        (True, (), True),
        (False, (2,), False),
        (False, (2, 3), True),
        (False, (2, 9), False),  # no member
    ],
)
def test_when_a_master_refuses(own: bool, peers: tuple[int, ...], refuses: bool) -> None:
    one = DiskPressure(low=own)
    for node in peers:
        one.heard(NodeId(node), True)
    assert one.refuses_commands(THREE) is refuses
    for node in peers:
        one.heard(NodeId(node), False)
    assert one.refuses_commands(THREE) is own
