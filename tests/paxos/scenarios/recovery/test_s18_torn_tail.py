"""Scenario 18: a torn tail holds an Accept that was never acknowledged; another that was."""

import random

from paxos.entry import EntryKind, batch
from paxos.ids import Ballot, GroupId, NodeId, Slot
from paxos.messages import Accept, Accepted, Commit
from paxos.step import AcceptRecord, Record
from simulator.node.wal_disk import WalDisk
from simulator.script import Script


def test_an_accept_that_was_never_acknowledged_may_be_lost() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.same_everywhere()
    script.stall_disk(2)
    ticket = script.write(0, 3)
    script.until_acknowledged(ticket)
    script.wait(5)
    assert not [s for s in script.sent(Accepted) if s.source == 2 and s.message.slot == ticket.slot]
    script.crash(2, keep=0)
    script.heal_disk(2)
    script.boot(2)
    assert ticket.slot not in script.replica(2).acceptor.votes
    script.same_everywhere()


def test_an_accept_that_was_acknowledged_is_there_after_the_power_cut() -> None:
    """It is one of the two votes that made the entry chosen; the other voter never returns."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.same_everywhere()
    script.isolate(1)
    script.drop(Commit, target=2)
    ticket = script.write(0, 3)
    script.until_acknowledged(ticket)
    script.crash(0, keep=0)
    script.crash(2, keep=0)
    script.boot(2)
    script.mend()
    script.until(lambda: script.masters() != [])
    assert script.machine(script.masters()[0]).where[100][2] == ticket.slot
    script.until_acknowledged(script.write(script.masters()[0], 4))


def test_the_masters_own_vote_counts_when_it_is_durable() -> None:
    """R18: with one durable vote and its own still in the cache the master has no quorum. The power
    cut takes its own vote, the other voter is away, and the slot gets another value."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    script.same_everywhere()
    away = script.drop(Accept, target=2)
    script.stall_disk(0)
    ticket = script.write(0, 3)
    script.until(lambda: any(s.source == 1 and s.message.slot == 4 for s in script.sent(Accepted)))
    script.wait(20)
    assert not ticket.answers, "one vote of three is durable"
    assert script.replica(0).learner.applied == 3
    script.crash(0, keep=0)
    script.heal_disk(0)
    away.lift()
    script.isolate(1)
    script.boot(0)
    script.until(lambda: script.acting(0))
    assert script.held(0).log[3].kind == EntryKind.BE_MASTER
    script.mend()
    script.same_everywhere()


def test_the_real_log_keeps_what_was_synced_and_cuts_what_was_torn() -> None:
    """The production log and its recovery: a power cut in the middle of the second write."""
    for seed in range(30):
        disk = WalDisk(NodeId(0))
        disk.boot(())
        first, second = _votes(1, 20), _votes(21, 60)
        disk.append(first)
        assert disk.begin()
        disk.end()
        disk.append(second)
        assert disk.begin()
        disk.cut_power(random.Random(seed))
        found = disk.boot(()).groups
        votes = found[GroupId(1)].recovered.votes
        assert set(range(1, 21)) <= set(votes), "acknowledged"
        assert set(votes) == set(range(1, len(votes) + 1)), "a prefix"


def _votes(first: int, last: int) -> list[Record]:
    return [
        AcceptRecord(
            GroupId(1), Slot(slot), Ballot(1, NodeId(0)), batch((bytes([slot]) * 90,)), Slot(0)
        )
        for slot in range(first, last + 1)
    ]
