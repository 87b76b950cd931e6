"""Damage in the log of a running node, or found by a restart: never served, repaired, and the node
votes again.

Real logs on memory disks below real engines (engines.py); the tests flip the bits.
"""

import itertools
from collections.abc import Callable
from typing import NoReturn, cast

import pytest

from paxos.entry import batch
from paxos.ids import Ballot, GroupId, NodeId, Slot
from paxos.messages import Accept, Learned, Prepare, Trimmed
from paxos.timing import WINDOW_MAX
from runtime.disk import log_server as serving
from runtime.system.worker import Worker
from storage.errors import StorageFailed
from storage.format import OFFSET_BITS, OFFSET_MASK, RECORD_HEADER_BYTES, segment_name
from tests.runtime.disk.test_serving import Later
from tests.runtime.engines import GROUP, Member, Net

PAYLOAD = RECORD_HEADER_BYTES + 4
HEADER = 20


@pytest.fixture
def net() -> Net:
    return Net()


def produce(net: Net, master: Member, count: int, group: GroupId = GROUP) -> None:
    outcomes = []
    for number in range(count):
        outcomes += [master.submit(f"{group} {number}", group=group)]
        net.advance(20)
    assert all(len(one) == 1 for one in outcomes)


def flip(member: Member, slot: int, at: int, group: GroupId = GROUP) -> None:
    """Flip one bit of a slot's record, `at` bytes after its beginning. In the header a second one
    is flipped, or the node could still tell whose record it was."""
    place = member.wal.find(group, Slot(slot))[0]
    for each in (at, at + 10) if at == HEADER else (at,):
        member.disk.corrupt(segment_name(place >> OFFSET_BITS), (place & OFFSET_MASK) + each, 4)


def suspect(member: Member, slot: int = 1, group: GroupId = GROUP) -> None:
    """A read has met damage."""
    member.scrubber.suspect(member.wal.find(group, Slot(slot))[0])


def votes(member: Member, group: GroupId = GROUP) -> bool:
    return bool(member.multi.replicas[group].acceptor.voting)


def readable(member: Member, group: GroupId = GROUP) -> list[bytes]:
    applied = member.multi.replicas[group].learner.applied
    slots = member.wal.slots(group)
    return [
        b"".join(member.wal.read_entry(group, slot).chunks)
        for slot in map(Slot, range(slots.start, applied + 1))
    ]


def whole(net: Net, group: GroupId = GROUP) -> bool:
    """Every member has the same log, can read all of it, and votes."""
    members = list(net.up())
    return (
        not any(member.engine.repairs.missing for member in members)
        and len({tuple(readable(member, group)) for member in members}) == 1
        and all(votes(member, group) for member in members)
    )


def test_damage_of_a_follower_is_repaired_from_a_peer_and_it_keeps_its_vote(net: Net) -> None:
    master = net.elect(1)
    produce(net, master, 20)
    victim = net[3]
    before = readable(victim)
    old = victim.wal.payload_position(GROUP, Slot(5))
    flip(victim, 5, PAYLOAD)
    suspect(victim)
    net.until(lambda: victim.engine.repairs.repaired == 1)
    assert readable(victim)[: len(before)] == before
    new = victim.wal.payload_position(GROUP, Slot(5))
    assert victim.ledger.relocated == [(old, new)]
    assert victim.replica.can_vote(), "what it has promised is in memory"
    assert victim.recorder.said("log damaged")
    assert victim.engine.repairs.found == 1
    net.until(lambda: whole(net))
    assert [m.ledger.texts() for m in net.up()] == [master.ledger.texts()] * 3


@pytest.mark.parametrize("at", [PAYLOAD, HEADER])
def test_a_damaged_master_goes_on_and_nothing_is_lost(net: Net, at: int) -> None:
    master = net.elect(1)
    produce(net, master, 20)
    flip(master, 7, at)
    suspect(master)
    net.until(lambda: master.engine.repairs.repaired)
    assert master.acting()
    produce(net, master, 3)
    net.until(lambda: whole(net))
    assert master.ledger.texts()[:20] == [f"1 {number}" for number in range(20)]


@pytest.mark.parametrize("at", [PAYLOAD, HEADER])
def test_an_open_vote_that_is_damaged_is_written_again(net: Net, at: int) -> None:
    """The slot is not decided, so the vote itself is needed, also after a restart."""
    master = net.elect(1)
    produce(net, master, 5)
    victim = net[3]
    net.cut(1, 3)
    net.cut(2, 3)
    vote = open_vote(victim, master)
    flip(victim, vote.slot, at)
    suspect(victim, vote.slot)
    net.until(lambda: victim.engine.repairs.found)
    assert victim.replica.acceptor.voting
    net.advance(200)
    net.crash(3)
    net.restart(3)
    replica = victim.replica
    assert replica.acceptor.voting
    assert replica.acceptor.promised == vote.ballot
    assert replica.acceptor.votes[vote.slot][0] == vote.ballot
    assert victim.engine.repairs.found == 0, "it is known"


@pytest.mark.parametrize("at", [PAYLOAD, HEADER])
def test_an_open_vote_below_the_promise_cannot_be_written_again(net: Net, at: int) -> None:
    """Ballots of a group never go back in its log."""
    master = net.elect(1)
    produce(net, master, 5)
    victim = net[3]
    net.cut(1, 3)
    net.cut(2, 3)
    vote = open_vote(victim, master)
    higher = Ballot(vote.ballot.round + 5, NodeId(2))
    prepare = Prepare(GROUP, higher, Slot(victim.replica.learner.applied + 1))
    victim.engine.on_message(NodeId(2), prepare)
    victim.engine.end_round()
    assert victim.replica.acceptor.promised == higher
    flip(victim, vote.slot, at)
    suspect(victim, vote.slot)
    net.until(lambda: victim.engine.repairs.found)
    assert not victim.replica.acceptor.voting


def open_vote(victim: Member, master: Member) -> Accept:
    """It votes for the next slot, and will not hear whether that is chosen."""
    slot = Slot(victim.replica.learner.applied + 1)
    lo, ballot = master.replica.proposer.lo, master.replica.proposer.ballot
    vote = Accept(GROUP, ballot, slot, batch((b"open",)), lo, lo)
    victim.engine.on_message(NodeId(1), vote)
    victim.engine.end_round()
    assert slot in victim.replica.acceptor.votes
    return vote


@pytest.mark.parametrize("at", [PAYLOAD, HEADER, 0])
def test_what_is_damaged_is_never_copied_on(net: Net, at: int) -> None:
    """A member that was away asks a master whose disk has lost some of what it needs."""
    net.crash(3)
    master = net.elect(1)
    produce(net, master, 20)
    whole_log = readable(master)
    flip(master, 9, at)
    net.cut(2, 3)
    net.restart(3)
    net.until(lambda: master.engine.repairs.found)
    net.heal(2, 3)
    net.until(lambda: net[3].ledger.texts()[:20] == [f"1 {number}" for number in range(20)])
    sent = [one.message for one in net.sent if type(one.message) is Learned]
    assert sent
    for message in sent:
        for offset, entry in enumerate(message.entries):
            slot = message.start + offset
            if slot <= len(whole_log):
                assert b"".join(entry.chunks) == whole_log[slot - 1]
    assert votes(net[3])


def damage_and_restart(net: Net, node: int, harm: Callable[[Member], None]) -> Member:
    net.crash(node)
    harm(net[node])
    net.restart(node)
    return net[node]


@pytest.mark.parametrize("at", [PAYLOAD, HEADER])
def test_damage_found_by_a_restart_leaves_a_gap_that_peers_close(net: Net, at: int) -> None:
    """What follows the gap is on the node's own disk, and is not sent again."""
    master = net.elect(1)
    produce(net, master, 40)
    log = readable(master)
    sent_before = len(net.sent)
    victim = damage_and_restart(net, 3, lambda member: flip(member, 10, at))
    assert victim.ledger.applied in (8, 9), "up to what was open when the damaged part was written"
    assert not victim.replica.can_vote()
    assert votes(victim) == (at == PAYLOAD), "whose record it was, its header tells"
    net.until(lambda: readable(victim)[: len(log)] == log)
    learned = [
        entry
        for one in net.sent[sent_before:]
        if type(one.message) is Learned and one.target == 3
        for entry in one.message.entries
    ]
    assert learned
    produce(net, master, WINDOW_MAX + 2)
    net.until(lambda: whole(net))
    assert victim.ledger.texts() == master.ledger.texts()


def test_what_was_there_is_compared_by_a_thread(net: Net) -> None:
    """Its disk may hang at this moment, and the outcome does not change meanwhile."""
    master = net.elect(1)
    produce(net, master, 20)
    victim, thread = net[3], Later()
    victim.engine.repairs.reader = cast("Worker", thread)
    flip(victim, 5, PAYLOAD)
    suspect(victim)
    net.until(lambda: thread.jobs)
    net.advance(3_000)  # it asks and hears again
    assert (victim.engine.repairs.repaired, victim.engine.repairs.missing) == (0, 1)
    assert len(thread.jobs) == 1, "answers do not pile up while a disk hangs"
    thread.do()
    assert victim.engine.repairs.repaired == 1
    victim.engine.repairs.reader = None
    net.until(lambda: whole(net))


@pytest.fixture
def closed_gap(net: Net, monkeypatch: pytest.MonkeyPatch) -> tuple[Member, Later]:
    """Node 3 has come back with a gap of one slot: its peers teach it only that slot."""
    serve, served = serving.LogServer._serve, itertools.count()
    monkeypatch.setattr(serving, "SERVE_BYTES_MAX", 1)
    monkeypatch.setattr(
        serving.LogServer, "_serve", lambda self, one: next(served) or serve(self, one)
    )
    master = net.elect(1)
    produce(net, master, 40)
    victim = damage_and_restart(net, 3, lambda member: flip(member, 10, PAYLOAD))
    thread = Later()
    victim.engine.repairs.reader = cast("Worker", thread)
    net.until(lambda: thread.jobs)
    return victim, thread


def test_what_lies_behind_a_gap_is_read_by_a_thread(
    net: Net, closed_gap: tuple[Member, Later]
) -> None:
    victim, thread = closed_gap
    net.advance(1_000)
    assert len(thread.jobs) == 1
    assert victim.ledger.applied == 10
    thread.do()
    net.advance(40)
    assert victim.ledger.applied >= 40, "all that is proven to be chosen was read at once"
    assert not thread.jobs


def test_a_group_that_is_dropped_while_its_log_is_read(
    net: Net, closed_gap: tuple[Member, Later]
) -> None:
    victim, thread = closed_gap
    victim.engine.remove_group(GROUP)
    thread.do()
    net.advance(100)
    assert victim.engine.repairs.idle


def test_segments_that_are_retired_meanwhile_are_no_failed_disk(
    net: Net, closed_gap: tuple[Member, Later]
) -> None:
    """A state came from a peer while the thread read: those parts of the log are gone and not
    needed."""
    victim, _ = closed_gap
    repairs, replica = victim.engine.repairs, victim.replica
    failed = StorageFailed("open", "wal-1", OSError("gone"))
    read = serving.ReadEntries((), 0, failed)
    repairs._has_recalled(GROUP, replica.learner.applied, read)
    with pytest.raises(StorageFailed):
        repairs._has_recalled(GROUP, Slot(replica.learner.applied + 1), read)


def test_what_a_retired_segment_held_nobody_can_tell(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = net.elect(1)
    produce(net, master, 5)
    wal = net[3].wal
    place, size = wal.find(GROUP, Slot(3))
    entry = wal.read_entry(GROUP, Slot(3))

    def gone(_number: int) -> NoReturn:
        raise StorageFailed("open", "wal-1", OSError("gone"))

    monkeypatch.setattr(wal._files, "file", gone)
    with pytest.raises(StorageFailed):
        wal.agrees(place, size, entry)
    monkeypatch.setattr(wal._kept, "seeds", {})
    assert wal.agrees(place, size, entry) is None
    assert wal.agrees(place, size + 1, entry) is False


def test_damage_is_known_after_a_restart_and_repaired_only_once(net: Net) -> None:
    master = net.elect(1)
    produce(net, master, 10)
    victim = net[3]
    flip(victim, 5, PAYLOAD)
    suspect(victim)
    net.until(lambda: victim.engine.repairs.repaired == 1)
    net.until(lambda: whole(net))
    net.advance(200)  # and has written that down
    net.crash(3)
    net.restart(3)
    assert votes(net[3])
    assert net[3].engine.repairs.found == 0
    net.until(lambda: whole(net))
    suspect(net[3])
    net.advance(100)
    assert net[3].engine.repairs.found == 0


def test_a_crash_before_the_repair_loses_nothing_either(net: Net) -> None:
    master = net.elect(1)
    produce(net, master, 10)
    victim = net[3]
    flip(victim, 5, PAYLOAD)
    net.cut(1, 3)
    net.cut(2, 3)
    suspect(victim)
    net.until(lambda: victim.engine.repairs.missing == 1)
    net.crash(3)
    net.heal(1, 3)
    net.heal(2, 3)
    net.restart(3)
    assert votes(net[3])
    assert not net[3].replica.can_vote(), "a Promise would leave out what is lost"
    net.until(lambda: net[3].replica.can_vote() and whole(net))
    assert net[3].ledger.texts() == master.ledger.texts()


def test_damage_of_unknown_group_is_written_again_for_all_groups() -> None:
    net = Net(groups=(1, 2))
    master = net.elect(1)
    assert net.elect(1, GroupId(2)) is master
    produce(net, master, 10)
    produce(net, master, 10, GroupId(2))
    victim = net[3]
    flip(victim, 4, HEADER)
    suspect(victim, 4)
    net.until(lambda: victim.engine.repairs.repaired == 1)
    assert votes(victim)
    assert votes(victim, GroupId(2))
    bound = [victim.wal.acceptor(group) for group in net.groups]
    net.advance(200)
    net.crash(3)
    net.restart(3)
    assert [victim.wal.acceptor(group) for group in net.groups] == bound
    assert all(votes(victim, group) for group in net.groups)
    for group in net.groups:
        net.until(lambda group=group: whole(net, group))


def test_damage_of_unknown_group_found_by_a_restart_silences_all_groups() -> None:
    """The log does not show what bound the groups, and after a restart memory does not either."""
    net = Net(groups=(1, 2))
    master = net.elect(1)
    assert net.elect(1, GroupId(2)) is master
    produce(net, master, 10)
    produce(net, master, 10, GroupId(2))
    victim = damage_and_restart(net, 3, lambda member: flip(member, 4, HEADER))
    assert not any(votes(victim, group) for group in net.groups)
    for group in net.groups:
        produce(net, master, WINDOW_MAX + 2, group)
        net.until(lambda group=group: whole(net, group))


# -- two members ----------------------------------------------------------------------------------


def test_two_members_with_a_flipped_bit_each_learn_from_each_other() -> None:
    net = Net(nodes=2)
    master = net.elect(1)
    produce(net, master, 20)
    for node, slot in ((1, 5), (2, 9)):
        net.crash(node)
        flip(net[node], slot, PAYLOAD)
    for node in (1, 2):
        net.restart(node)
    assert not any(net[node].replica.can_vote() for node in (1, 2))
    net.until(lambda: any(net[node].acting() for node in (1, 2)))
    net.until(lambda: whole(net))
    assert net[1].ledger.texts()[:20] == [f"1 {number}" for number in range(20)]
    assert not any(net[node].replica.rejoin for node in (1, 2))


def test_another_entry_than_the_lost_one_is_refused(net: Net) -> None:
    """The damaged record's checksum, or the next record's reference to it, tells them apart."""
    master = net.elect(1)
    produce(net, master, 10)
    victim = net[3]
    flip(victim, 5, PAYLOAD)
    net.cut(1, 3)
    net.cut(2, 3)
    suspect(victim)
    net.until(lambda: victim.engine.repairs.missing == 1)
    other = master.wal.read_entry(GROUP, Slot(6))
    right = master.wal.read_entry(GROUP, Slot(5))
    assert other.size == right.size
    victim.engine.on_message(NodeId(1), Learned(GROUP, Slot(5), (other,)))
    assert victim.engine.repairs.missing == 1
    (refused,) = victim.recorder.said("repair refused")
    assert (refused["peer"], refused["slot"]) == (1, 5)
    victim.engine.on_message(NodeId(1), Learned(GROUP, Slot(5), (right,)))
    assert victim.engine.repairs.missing == 0


def test_what_no_log_has_any_more_is_given_up_for_a_checkpoint_and_data(net: Net) -> None:
    """All peers have trimmed what is damaged here: waiting for it would never end."""
    master = net.elect(1)
    produce(net, master, 20)
    victim = net[3]
    told: list[tuple[int, int]] = []
    victim.engine.repairs.given_up = lambda group, below: told.append((group, below))
    places = [victim.wal.find(GROUP, Slot(slot))[0] for slot in (5, 6)]
    net.cut(1, 3)
    net.cut(2, 3)
    for slot in (5, 15):
        flip(victim, slot, PAYLOAD)
        suspect(victim, slot)
    net.until(lambda: victim.engine.repairs.missing == 2)
    victim.engine.on_message(NodeId(1), Trimmed(GROUP, Slot(11), Slot(20)))
    assert not told, "the other one may have it"
    victim.engine.on_message(NodeId(2), Trimmed(GROUP, Slot(9), Slot(20)))
    ((group, below),) = told
    assert group == GROUP
    assert places[0] < below <= places[1]
    assert victim.engine.repairs.missing == 1, "slot 15 is still to be had"


def test_who_is_alone_is_not_told_by_others_that_all_is_lost() -> None:
    """The only member of a group: a former member still answers its last question, or a peer says
    what nobody has asked."""
    net = Net(nodes=1)
    produce(net, net.elect(1), 3)
    victim = net[1]
    flip(victim, 1, PAYLOAD)
    suspect(victim, 1)
    net.advance(40)
    assert victim.engine.repairs.missing == 1
    victim.engine.on_message(NodeId(2), Trimmed(GROUP, Slot(3), Slot(3)))
    assert victim.engine.repairs.missing == 1


def test_a_group_that_is_dropped_is_not_repaired(net: Net) -> None:
    """Its replica is gone: looking it up would fail, and crash the node."""
    net.elect(1)
    produce(net, net[1], 3)
    net.cut(1, 3)
    net.cut(2, 3)
    flip(net[3], 1, PAYLOAD)
    suspect(net[3])
    net.advance(40)
    assert net[3].engine.repairs.missing == 1
    net[3].engine.repairs.recall_to(GROUP, Slot(100))
    net[3].engine.remove_group(GROUP)
    net.advance(2_000)
    assert net[3].engine.repairs.idle


def test_a_vote_for_an_applied_slot_that_no_record_proves_is_not_forgotten(net: Net) -> None:
    """The vote is damaged and is not written again, because the slot is chosen. Only memory knows
    that, and the power fails before a peer has sent the entry. The next incarnation took the slot
    for one it had never voted in and promised without it, and acknowledged data was lost."""
    master = net.elect(1)
    produce(net, master, 5)
    net.advance(200)
    net.cut(1, 3)
    net.cut(2, 3)
    outcome = master.submit("the last one")
    net.settle()
    assert outcome
    slot = master.replica.learner.applied
    assert master.replica.acceptor.recorded < slot
    net.cut(1, 2)
    flip(master, slot, PAYLOAD)
    suspect(master, slot)
    net.until(lambda: master.engine.repairs.missing == 1)
    net.crash(2)
    net.crash(1)
    for pair in ((1, 2), (1, 3), (2, 3)):
        net.heal(*pair)
    net.restart(1)
    assert master.replica.proven == slot
    net.advance(10_000)
    assert not any(one.acting() for one in net.up()), "they lack what node 2 has voted for"
    net.restart(2)
    net.until(lambda: any(one.acting() for one in net.up()) and whole(net))
    assert "the last one" in net[3].ledger.texts()
