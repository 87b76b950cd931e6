"""A peer's state is installed in the middle of a round, whatever else that round has brought."""

from typing import Any

import pytest

from broker.state_machine.checkpoint_chunks import Chunk, ChunkKind
from broker.transfer.driver import take_over
from paxos import base as bases
from paxos.ids import NodeId, Slot
from paxos.messages import Learned
from tests.runtime.engines import GROUP, Member, Net

ENTRIES = 20


class Late:
    """Node 3 has lost its log's end; the others have gone on."""

    def __init__(self) -> None:
        self.net = Net()
        self.master = self.net.elect(1)
        self.net.crash(3)
        for number in range(ENTRIES):
            self.master.submit(f"c{number}")
            self.net.advance(20)
        self.net.cut(1, 3)
        self.net.cut(2, 3)
        self.net.restart(3)
        base = bases.encode(self.master.replica.base())
        self.slot = Slot(self.master.replica.learner.applied)
        self.chunks = [Chunk(ChunkKind.REPLICA, 0, self.slot, base)]

    @property
    def late(self) -> Member:
        return self.net[3]

    def tell(self, count: int) -> None:
        """One of the master's frames with the next entries; the round does not end."""
        at = self.late.replica.learner.applied
        slots = range(at + 1, at + 1 + count)
        entries = tuple(self.master.wal.read_entry(GROUP, Slot(slot)) for slot in slots)
        self.late.replica.peer(NodeId(1)).asked = True
        self.late.engine.on_messages(NodeId(1), [Learned(GROUP, Slot(at + 1), entries)])

    def take_over(self) -> Slot | None:
        machines: Any = self.late.engine.machines  # ledgers here
        return take_over(self.late.engine, machines, GROUP, self.chunks)


@pytest.mark.parametrize("told", [0, 1, 5])
def test_what_the_same_round_has_brought_is_applied_first(told: int) -> None:
    """The replica knew of entries that its machine had not been given: this used to crash the
    node."""
    one = Late()
    before = one.late.ledger.applied
    if told:
        one.tell(told)
        assert one.late.replica.learner.applied == before + told
        assert one.late.ledger.applied == before
    assert one.take_over() == one.slot
    assert one.late.ledger.applied == one.late.replica.learner.applied == one.slot


def test_a_state_that_the_round_has_overtaken_is_not_taken() -> None:
    one = Late()
    one.tell(one.slot - one.late.replica.learner.applied)
    assert one.take_over() is None
    assert one.late.ledger.applied == one.late.replica.learner.applied == one.slot
