"""What happens as time passes: elections without storms, joined renewals, retransmission."""

import random

import pytest

from paxos.changes import handover
from paxos.entry import EntryKind, batch
from paxos.ids import BALLOT_ZERO, MS, Ballot, GroupId, Incarnation, NodeId, Now, Slot
from paxos.liveness import rests, timers
from paxos.liveness.election import Election
from paxos.messages import Accept, Accepted, Behind, Learn, Prepare, Progress, Promise
from paxos.multigroup import MultiGroup
from paxos.proposer import Role
from paxos.step import Step
from paxos.timing import LARGE_ENTRY_BYTES, Strategy, Timing
from tests.paxos.core import GROUP, LIFE, Member, ballot, member, messages, some
from tests.paxos.test_lease import acting_master

SECOND = 1_000 * MS


def hear_everybody(one: Member, applied: int = 0) -> None:
    for other in one.replica.others(one.replica.members):
        one.give(other, Progress(GROUP, Slot(applied), Slot(applied), BALLOT_ZERO, LIFE))


def test_a_node_nobody_answers_sends_less_than_one_prepare_a_second() -> None:
    """It hears its peers, but they never promise (the reverse half of a one-way partition)."""
    for seed in range(10):
        one = member()
        one.replica.election.dice = random.Random(seed)
        prepares = 0
        for tick in range(20 * 50):
            if tick % 25 == 0:
                hear_everybody(one)
            prepares += len(messages(one.tick().after, Prepare)) // 2
        assert 2 < prepares < 20


def test_a_node_that_hears_no_majority_sends_no_prepare() -> None:
    one = member(nodes=5)
    one.multi.heard.clear()
    for _ in range(500):
        one.give(1, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))
        assert not messages(one.tick().after, Prepare)


def test_backoff_doubles_up_to_its_cap_and_starts_afresh_after_success() -> None:
    timing = Timing()
    election = Election(timing=timing, dice=random.Random(1))
    waits = []
    for _ in range(12):
        election.back_off(Now(0, 0))
        waits.append(election.backoff_until)
    assert waits[0] <= timing.backoff_max_ns
    assert max(waits) <= timing.backoff_cap_ns
    assert min(waits[-4:]) >= timing.backoff_cap_ns // 2
    election.succeeded()
    election.back_off(Now(0, 0))
    assert election.backoff_until <= timing.backoff_max_ns


def test_the_ideal_master_of_a_free_group_tries_first() -> None:
    timing = Timing()
    preferred = Election(timing=timing, dice=random.Random(1), preferred=True)
    other = Election(timing=timing, dice=random.Random(1))
    for election in (preferred, other):
        election.lease_is_free(Now(0, 0))
    assert preferred.backoff_until <= timing.backoff_min_ns <= other.backoff_until


def test_a_node_whose_clock_is_not_trusted_does_not_try() -> None:
    election = Election(timing=Timing(), dice=random.Random(1))
    assert election.may_try(Now(0, SECOND))
    assert not election.may_try(Now(0, SECOND, trusted=False))


def test_first_learn_then_prepare() -> None:
    """A peer is ahead: the node asks for the entries and prepares nothing meanwhile."""
    one = member()
    one.give(1, Progress(GROUP, Slot(5), Slot(5), BALLOT_ZERO, LIFE))
    one.now_ns += SECOND
    hear_everybody(one, applied=5)
    step = one.tick()
    assert messages(step.before, Learn)
    assert not messages(step.after, Prepare)


def test_undecided_slots_are_sent_again_to_the_deaf_only() -> None:
    one = member()
    one.lead()
    one.place(some("a"))
    one.accepted(1, 2)
    again = one.tick(ms=1_000).before
    first = [s for s in again if isinstance(s.message, Accept) and s.message.slot == 1]
    assert [send.to for send in first] == [1]


def sent_again(one: Member, ms: int = 100) -> int:
    """The number of Accepts of commands that the next tick sends."""
    accepts = messages(one.tick(ms).before, Accept)
    return len([accept for accept in accepts if accept.entry.kind == EntryKind.BATCH])


def test_a_large_entry_is_not_sent_again_while_it_may_still_be_on_its_way() -> None:
    """10 MB take a while: a copy would delay the entry itself and all leases."""
    small, large = member(), member()
    for one, size in ((small, 100), (large, 10_000_000)):
        one.lead()
        one.place(batch((bytes(size),)))
        again = sum(sent_again(one) for _ in range(14))
        assert again == (0 if one is large else 4), "two peers, after 0.4 s and 0.8 s more"
    assert sent_again(large, 300) == 2


def test_a_lease_is_renewed_before_a_large_entry_and_not_behind_it() -> None:
    """A renewal takes effect only when all before it is applied, so it would wait for the 10 MB."""
    timing = Timing()
    for size, age_ns, renews in (
        (LARGE_ENTRY_BYTES, timing.renew_every_ns * 3 // 4, True),
        (LARGE_ENTRY_BYTES, timing.renew_every_ns // 4, False),
        (100, timing.renew_every_ns * 3 // 4, False),
    ):
        one = acting_master(timing)
        one.now_ns += age_ns
        step = Step()
        slot, _ = one.replica.propose(one.now, (bytes(size),), step)
        kinds = [message.entry.kind for message in messages(step.before, Accept)]
        renewal = [EntryKind.BE_MASTER] * 2 * renews
        assert kinds == [*renewal, EntryKind.BATCH, EntryKind.BATCH]
        assert slot == 2 + renews
        if renews:
            before = one.replica.lease.expires_wall_ns
            one.accepted(2, 0, 1)
            assert one.replica.lease.expires_wall_ns == before + age_ns, "the other is under way"
            assert not [m for m in messages(one.tick().before, Accept) if m.slot > slot]


@pytest.mark.parametrize("why", ["drained", "handed over"])
def test_a_lease_that_is_given_up_is_not_renewed_before_a_large_entry(why: str) -> None:
    one = acting_master(Timing(strategy=Strategy.WAIT_EXPIRY))
    if why == "drained":
        one.replica.election.abstaining = True
    else:
        handover.begin(one.replica, one.now, NodeId(1), Incarnation(1))
    one.now_ns += one.replica.timing.renew_every_ns * 3 // 4
    step = Step()
    one.replica.propose(one.now, (bytes(LARGE_ENTRY_BYTES),), step)
    kinds = {message.entry.kind for message in messages(step.before, Accept)}
    assert kinds == {EntryKind.BATCH}


def test_promises_that_come_slowly_are_waited_for_longer_each_time() -> None:
    """A new ballot makes links and disks begin again. If they need 0.5 s and each attempt is given
    up after 0.3 s, nobody is ever elected."""
    one = member()
    hear_everybody(one)
    began: dict[Ballot, int] = {}
    for _ in range(50 * 20):
        one.now_ns += 20 * MS
        hear_everybody(one)
        step = Step()
        timers.tick(one.replica, one.now, step)
        for prepare in messages(step.after, Prepare):
            began.setdefault(prepare.ballot, one.now_ns)
        mine = one.replica.proposer.ballot
        if mine in began and one.now_ns - began[mine] >= 500 * MS:
            one.give(0, Promise(GROUP, mine, ()))
            one.give(1, Promise(GROUP, mine, ()))
        if one.replica.proposer.role is Role.LEADER:
            break
    assert one.replica.proposer.role is Role.LEADER
    assert 1 < len(began) < 5


def test_promises_that_bring_a_large_entry_are_waited_for() -> None:
    """The first attempt already waits as long as their size takes."""
    for size, waits in ((100, False), (10_000_000, True)):
        one = member()
        entry = batch((bytes(size),))
        one.give(1, Accept(GROUP, ballot(1, 1), Slot(1), entry, Slot(1), Slot(0)))
        one.prepare()
        one.tick(1_000)
        assert (one.replica.proposer.role is Role.PREPARING) is waits
        one.tick(500)
        assert one.replica.proposer.role is Role.FOLLOWER


def test_a_master_takes_a_new_ballot_once_a_member_is_lost_to_its_own() -> None:
    """That member's Prepare came too late and was refused, but the member has promised its ballot
    to itself. A new ballot now, with nothing under way, costs less than one at the refusal of an
    entry."""
    one = acting_master()
    late = ballot(one.replica.proposer.ballot.round + 1, 1)
    step = one.give(1, Prepare(GROUP, late, Slot(1)))
    assert messages(step.before, Behind)
    prepares: list[Prepare] = []
    for _ in range(20):
        prepares += messages(one.tick().after, Prepare)
    assert {prepare.ballot for prepare in prepares} == {ballot(late.round + 1, 0)}
    assert one.replica.acting(one.now), "the lease is ours all the while"


def test_a_master_with_an_entry_under_way_waits_for_the_refusal() -> None:
    """The entry may be chosen before the refusal comes, and a new ballot would begin it again."""
    one = acting_master()
    mine = one.replica.proposer.ballot
    one.place(batch((b"x",)))
    late = Prepare(GROUP, ballot(mine.round + 1, 1), Slot(1))
    assert messages(one.give(1, late).before, Behind)
    assert one.replica.proposer.ballot == mine
    assert one.replica.proposer.role is Role.LEADER


def test_whose_vote_does_not_count_deposes_nobody_with_a_late_prepare() -> None:
    one = acting_master()
    mine = one.replica.proposer.ballot
    assert messages(one.give(7, Prepare(GROUP, ballot(9, 7), Slot(1))).before, Behind)
    assert one.replica.proposer.ballot == mine


def test_a_drained_node_neither_takes_nor_renews() -> None:
    one = acting_master()
    one.replica.election.abstaining = True
    for _ in range(300):
        assert not messages(one.tick().before, Accept)
    assert not one.replica.acting(one.now)


def test_a_lease_is_renewed_in_time() -> None:
    one = acting_master()
    renewals = 0
    for _ in range(500):
        hear_everybody(one)
        step = one.tick()
        if messages(step.before, Accept):
            renewals += 1
            one.accepted(one.replica.proposer.next - 1, 0, 1)
        assert one.replica.acting(one.now)
    assert 9 <= renewals <= 11, "once a second"


@pytest.mark.parametrize("groups", [48])
def test_many_groups_renew_in_one_step(groups: int) -> None:
    """One frame per peer and one fsync for all: the first group that is due takes the others
    along."""
    multi = MultiGroup(NodeId(0), Incarnation(1), Timing(), random.Random(0))
    now_ns = 100 * SECOND
    for index in range(groups):
        group = GroupId(index)
        replica = multi.add(group, [NodeId(n) for n in range(3)])
        now = Now(now_ns, now_ns)
        replica.replayed(now, Step())
        multi.on_message(
            now, NodeId(1), Progress(group, Slot(0), Slot(0), BALLOT_ZERO, LIFE), Step()
        )
        replica.prepare(now, Step())
        for node in (0, 1):
            promise = Promise(group, ballot(1, 0), ())
            multi.on_message(now, NodeId(node), promise, Step())
        _tick_and_accept(multi, now_ns)
        now_ns += 5 * MS  # each takes its lease a little later than the one before
    bursts = []
    for _ in range(200):
        now_ns += 20 * MS
        for node in (1, 2):
            for group in multi.replicas:
                progress = Progress(group, Slot(0), Slot(0), BALLOT_ZERO, LIFE)
                multi.on_message(Now(now_ns, now_ns), NodeId(node), progress, Step())
        renewed = _tick_and_accept(multi, now_ns)
        if renewed:
            bursts.append(renewed)
    assert bursts
    assert all(burst == groups for burst in bursts[1:]), bursts


def _tick_and_accept(multi: MultiGroup, now_ns: int) -> int:
    """One round of the node whose peers accept everything at once. Returns the renewed groups."""
    now, step = Now(now_ns, now_ns), Step()
    multi.tick(now, step)
    accepts = {(m.group, m.slot): m for m in messages(step.before, Accept) if isinstance(m, Accept)}
    for accept in accepts.values():
        for node in (0, 1):
            vote = Accepted(accept.group, accept.ballot, accept.slot)
            multi.on_message(now, NodeId(node), vote, Step())
    return len(accepts)


def test_a_group_that_rests_does_what_one_that_is_looked_at_in_every_tick_does() -> None:
    """A rest only skips ticks that would have done nothing. Two masters with the same history, one
    of which never rests, send the same at the same time, renewals and retransmissions included."""
    resting, restless = acting_master(), acting_master()
    rested = 0
    for tick in range(400):
        for one in (resting, restless):
            one.now_ns += 20 * MS
            hear_everybody(one, applied=one.replica.learner.applied)
        restless.replica.wake()
        rested += rests.rests(resting.replica, resting.now)
        steps = []
        for one in (resting, restless):
            step = Step()
            one.multi.tick(one.now, step)
            steps.append(step)
            if tick == 200:
                one.place(some("x"))  # nobody answers: it is sent again
        assert [str(send) for send in steps[0].before] == [str(send) for send in steps[1].before]
        for accept in messages(steps[0].before, Accept)[::2]:
            if tick < 200:
                for one in (resting, restless):
                    one.accepted(accept.slot, 0, 1)
    assert 150 < rested < 200
    assert resting.replica.lease.renewals == restless.replica.lease.renewals > 1


def test_whatever_happens_ends_a_rest() -> None:
    """Commands are sent again and leases renewed on time: nothing waits for a rest."""
    one = acting_master()
    one.multi.tick(one.now, Step())
    assert rests.rests(one.replica, one.now)
    one.place(some("x"))
    assert not rests.rests(one.replica, one.now)
    one.accepted(2, 0, 1)
    hear_everybody(one, applied=2)
    one.multi.tick(one.now, Step())
    one.multi.tick(one.now, Step())
    assert rests.rests(one.replica, one.now)
    one.give(1, Progress(GROUP, Slot(9), Slot(9), BALLOT_ZERO, LIFE))  # it knows of more entries
    assert not rests.rests(one.replica, one.now)
