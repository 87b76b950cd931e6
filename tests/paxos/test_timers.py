"""What happens as time passes: elections without storms, joined renewals, retransmission."""

import random

import pytest

from paxos import timers
from paxos.election import Election
from paxos.ids import BALLOT_ZERO, MS, GroupId, Incarnation, NodeId, Now, Slot
from paxos.messages import Accept, Accepted, Learn, Prepare, Progress, Promise
from paxos.multigroup import MultiGroup
from paxos.step import Step
from paxos.timing import Timing
from tests.paxos.core import GROUP, LIFE, Member, ballot, member, messages, some
from tests.paxos.test_lease import acting_master

SECOND = 1_000 * MS


def hear_everybody(one: Member, applied: int = 0) -> None:
    for other in one.replica.others(one.replica.members):
        one.give(other, Progress(GROUP, Slot(applied), Slot(applied), BALLOT_ZERO, LIFE))


def test_a_node_nobody_answers_sends_less_than_one_prepare_a_second() -> None:
    """Its peers are heard and never promise (the reverse half of a one-way partition)."""
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
    """Somebody is ahead: the entries are asked for, and nothing is prepared meanwhile."""
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
    """One frame per peer and one fsync for all: the first that is due takes the others along."""
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
    """One round of the node; its peers accept everything at once. Returns the groups renewed."""
    now, step = Now(now_ns, now_ns), Step()
    multi.tick(now, step)
    accepts = {(m.group, m.slot): m for m in messages(step.before, Accept) if isinstance(m, Accept)}
    for accept in accepts.values():
        for node in (0, 1):
            vote = Accepted(accept.group, accept.ballot, accept.slot)
            multi.on_message(now, NodeId(node), vote, Step())
    return len(accepts)


def test_a_group_that_rests_does_what_one_that_is_looked_at_in_every_tick_does() -> None:
    """A rest is only a tick that would have done nothing: two masters with the same history, one of
    which is never let rest, say the same at the same time, renewals and retransmission included."""
    resting, restless = acting_master(), acting_master()
    rested = 0
    for tick in range(400):
        for one in (resting, restless):
            one.now_ns += 20 * MS
            hear_everybody(one, applied=one.replica.learner.applied)
        restless.replica.wake()
        rested += timers.rests(resting.replica, resting.now)
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
    """A command is sent again and a lease renewed as soon as ever: nothing waits for a rest."""
    one = acting_master()
    one.multi.tick(one.now, Step())
    assert timers.rests(one.replica, one.now)
    one.place(some("x"))
    assert not timers.rests(one.replica, one.now)
    one.accepted(2, 0, 1)
    hear_everybody(one, applied=2)
    one.multi.tick(one.now, Step())
    one.multi.tick(one.now, Step())
    assert timers.rests(one.replica, one.now)
    one.give(1, Progress(GROUP, Slot(9), Slot(9), BALLOT_ZERO, LIFE))  # it knows of more
    assert not timers.rests(one.replica, one.now)
