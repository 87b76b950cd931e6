"""Only one node has applied a slot, and its log has lost the entry. The others have it as a vote,
and learn from the ballot in the damaged record's header that it was chosen
(paxos/changes/testimony.py, ADR 46).

Real logs on memory disks below real engines (engines.py).
"""

import pytest

from paxos.entry import NOOP
from paxos.ids import NodeId, Slot
from paxos.messages import Accept, Commit
from tests.runtime.disk.test_repair import HEADER, PAYLOAD, flip, produce, readable, suspect, whole
from tests.runtime.engines import GROUP, Member, Net

KNOWN = 10
LOST = "known to one"
AFTER_LEASE_MS = 4_000
SOON_MS = 10_000
AT_LAST_MS = 60_000
"""A node that asks for entries in vain does so for half a minute (paxos.liveness.standstill)."""


def known_to_one(nodes: int) -> tuple[Net, Member, Slot, bytes]:
    """An entry is chosen, and applied by master 1 and by node 2. All nodes but 2 lose power, and no
    longer know that the entry they voted for was chosen."""
    net = Net(nodes=nodes)
    master, alone = net.elect(1), net[2]
    produce(net, master, KNOWN)
    net.advance(200)
    assert whole(net)
    slot = Slot(master.replica.learner.applied + 1)
    outcome = master.submit(LOST)
    net.settle()
    assert outcome, "it was acknowledged"
    ballot = master.replica.proposer.ballot
    alone.engine.on_message(NodeId(1), Commit(GROUP, ballot, slot, slot))
    alone.engine.end_round()
    for other in net.others(2):
        net.crash(other.node)
    assert alone.replica.learner.applied == slot
    assert all(other.replica.learner.applied < slot for other in net.others(2)[1:])
    return net, alone, slot, readable(alone)[-1]


def damage(net: Net, alone: Member, slot: Slot, at: int) -> None:
    """A scrubber finds it while the others are down; the master's lease ends meanwhile."""
    flip(alone, slot, at)
    suspect(alone, slot)
    net.advance(AFTER_LEASE_MS)
    assert alone.engine.repairs.missing == 1


def come_back(net: Net) -> None:
    for other in [member for member in net.members.values() if not member.up]:
        net.restart(other.node)


def is_taught(net: Net, slot: Slot, entry: bytes) -> bool:
    return all(
        member.replica.learner.applied >= slot and readable(member)[slot - 1] == entry
        for member in net.members.values()
    )


def ends_well(net: Net, slot: Slot, entry: bytes, ms_max: int) -> None:
    net.until(lambda: whole(net) and is_taught(net, slot, entry), ms_max)
    net.until(lambda: any(member.acting() for member in net.up()))
    assert all(LOST in member.ledger.texts() for member in net.up())


@pytest.mark.parametrize("nodes", [2, 3, 5, 7])
def test_the_ballot_of_the_damaged_record_is_enough(nodes: int) -> None:
    net, alone, slot, entry = known_to_one(nodes)
    damage(net, alone, slot, PAYLOAD)
    come_back(net)
    ends_well(net, slot, entry, SOON_MS)
    assert alone.replica.acceptor.voting, "no vote was lost"
    assert not alone.replica.lost


@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_where_the_ballot_is_unknown_the_others_choose_it_again(nodes: int) -> None:
    """They find its votes in phase 1, without the node that can only say Behind."""
    net, alone, slot, entry = known_to_one(nodes)
    damage(net, alone, slot, HEADER)
    come_back(net)
    ends_well(net, slot, entry, AT_LAST_MS)


def test_of_two_it_takes_a_restart_of_the_one_that_has_lost_it() -> None:
    """Nothing is chosen without that node. Its next incarnation knows only what its log has."""
    net, alone, slot, entry = known_to_one(2)
    damage(net, alone, slot, HEADER)
    come_back(net)
    net.advance(AT_LAST_MS)
    assert not whole(net)
    net.crash(alone.node)
    net.restart(alone.node)
    ends_well(net, slot, entry, SOON_MS)


@pytest.mark.parametrize("nodes", [2, 3, 5, 7])
@pytest.mark.parametrize("at", [PAYLOAD, HEADER])
def test_a_restart_finds_the_damage(nodes: int, at: int) -> None:
    """It has voted in the next slot, so its log proves that the lost one was chosen."""
    net, alone, slot, entry = known_to_one(nodes)
    later = Accept(GROUP, alone.replica.acceptor.promised, Slot(slot + 1), NOOP, slot, slot)
    alone.engine.on_message(NodeId(1), later)
    net.advance(100)
    net.crash(alone.node)
    flip(alone, slot, at)
    net.restart(alone.node)
    assert (alone.replica.learner.applied < slot) == (alone.replica.proven >= slot)
    assert set(alone.replica.lost) == ({slot} if at == PAYLOAD else set())
    come_back(net)
    ends_well(net, slot, entry, AT_LAST_MS)
    if at == PAYLOAD:
        assert alone.replica.acceptor.voting
