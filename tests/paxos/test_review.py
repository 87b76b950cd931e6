"""Bugs that were found by reading `paxos/` against docs/protocol.md before any world found them."""

from paxos.changes import handover
from paxos.ids import BALLOT_ZERO, MS, NodeId, Slot
from paxos.messages import Accept, Commit, Learn, Learned, Prepare, Progress, Promise
from paxos.proposer import Role
from paxos.state.core import Recovered
from paxos.step import AcceptRecord, LearnedRecord, Step
from tests.paxos.core import GROUP, LIFE, accept, ballot, member, messages, some
from tests.paxos.test_lease import acting_master, steal_entry


def test_a_slot_learned_by_value_while_in_flight_does_not_stop_the_counting() -> None:
    """Otherwise every later Commit of this ballot says nothing, and followers lag by timers."""
    one = member()
    one.lead(votes=((Slot(1), ballot(0, 2), some("a")),))
    one.give(1, Learned(GROUP, Slot(1), (some("a"),)))
    one.place(some("b"))
    one.accepted(2, 0, 1)
    commits = messages(one.tick().before, Commit)
    assert {(m.counted_from, m.counted_to) for m in commits if isinstance(m, Commit)} == {(1, 2)}


def test_a_new_leader_re_proposes_what_it_knows_to_be_chosen_beyond_what_it_found() -> None:
    """Otherwise a vote for another entry would be the slot's last record, and a restart would
    replay it."""
    one = member()
    one.give(1, Learned(GROUP, Slot(3), (some("c"),)))  # meant for an earlier incarnation
    step = one.lead(votes=((Slot(1), ballot(0, 2), some("a")),))
    proposed = {m.slot: m.entry for m in messages(step.before, Accept) if isinstance(m, Accept)}
    assert proposed[Slot(3)].same_as(some("c"))
    assert sorted(proposed) == [1, 2, 3]


def test_a_leader_that_learns_a_slot_it_has_not_used_steps_down() -> None:
    """Whoever got it chosen has a higher ballot; our vote there would be a false record."""
    one = member()
    one.lead()
    step = one.give(1, Learned(GROUP, Slot(2), (some("x"),)))
    assert [record.slot for record in step.persist if isinstance(record, LearnedRecord)] == [2]
    assert one.replica.proposer.role is Role.FOLLOWER


def test_a_node_that_has_not_heard_what_it_promised_does_not_take_over() -> None:
    """It may have lost a promise with its disk: it does not vote for itself before a majority
    answered."""
    one = member()
    one.replica.verified.clear()
    one.give(1, Learned(GROUP, Slot(1), (steal_entry(source=1, target=0, round_=5),)))
    assert one.replica.lease.holder == 0
    assert one.replica.proposer.role is Role.FOLLOWER


def test_duplicated_answers_do_not_multiply_the_questions() -> None:
    """A Learned that taught nothing causes no further Learn: duplicates must not multiply."""
    one = member()
    one.give(1, Progress(GROUP, Slot(9), Slot(9), BALLOT_ZERO, LIFE))
    answer = Learned(GROUP, Slot(1), (some("a"),))
    assert len(messages(one.give(1, answer).before, Learn)) == 1
    assert messages(one.give(1, answer).before, Learn) == []


def test_an_election_waits_only_so_long_for_one_that_is_ahead_and_deaf() -> None:
    """A master that others hear but that hears nobody never answers Learn: it must not stop
    elections."""
    one = member()
    prepares, learns = 0, 0
    for _ in range(200):
        ahead = Progress(GROUP, Slot(5), Slot(5), BALLOT_ZERO, LIFE)
        one.give(1, ahead)
        one.give(2, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))
        step = one.tick()
        learns += len(messages(step.before, Learn))
        prepares += len(messages(step.after, Prepare))
    assert learns > 5
    assert 1 <= prepares // 2 <= 4, "neither never nor a storm in four seconds"


def test_a_suspended_master_that_hears_nobody_sends_no_prepare() -> None:
    """An open Steal is no reason for a ballot storm (scenario 20)."""
    one = acting_master()
    assert handover.steal_away(one.replica, one.now, NodeId(1)) == ""
    handover.try_to_send(one.replica, one.now, Step())
    assert one.replica.suspended
    one.now_ns += one.replica.timing.heard_ns
    prepares = sum(len(messages(one.tick().after, Prepare)) for _ in range(250))
    assert prepares == 0
    one.give(1, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))
    assert messages(one.tick().after, Prepare)


def test_the_last_record_of_a_slot_is_the_chosen_entry() -> None:
    """The recovery rule (AcceptRecord.applied) relies on this, for a late Accept and for our
    own."""
    one = member()
    one.give(1, Learned(GROUP, Slot(2), (some("chosen"),)))
    step = one.give(2, accept(3, 2, 2, some("late")))
    assert not [record for record in step.persist if isinstance(record, AcceptRecord)]


def test_promises_of_an_older_ballot_do_not_count() -> None:
    one = member(recovered=Recovered(promised=ballot(4, 1)))
    one.prepare()
    assert one.replica.proposer.ballot == ballot(5, 0)
    one.give(0, Promise(GROUP, ballot(4, 1), ()))
    one.give(1, Promise(GROUP, ballot(4, 0), ()))
    one.give(2, Promise(GROUP, ballot(5, 0), ()))
    assert one.replica.proposer.role is Role.PREPARING
    one.now_ns += 1 * MS
    one.give(1, Promise(GROUP, ballot(5, 0), ()))
    assert one.replica.proposer.role is Role.LEADER
