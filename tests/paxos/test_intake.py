"""A command's way into the log: each one is answered exactly once, and never wrongly."""

import attrs
import pytest

from broker.config import IntakeConfig
from broker.proposals.commands import SMALL_BYTES, CommandKind, fenced, opaque
from broker.proposals.intake import (
    JOINED_BYTES_MAX,
    Done,
    FailureReason,
    Intake,
    NotDone,
    Outcome,
    Pending,
)
from paxos.changes import handover
from paxos.entry import Buffer, batch
from paxos.ids import MS, NodeId, Slot
from paxos.messages import Accept, Nack, Promise, StealRequest
from paxos.step import Step
from tests.paxos.core import GROUP, Member, ballot, messages
from tests.paxos.test_lease import acting_master


@attrs.define(eq=False)
class Harness:
    """An acting master with its intake."""

    one: Member = attrs.Factory(acting_master)
    answers: dict[str, list[Outcome]] = attrs.Factory(dict)
    intake: Intake = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.intake = Intake(self.one.replica, IntakeConfig(queue_bytes_max=64))

    def pending(self, text: str) -> Pending:
        answers = self.answers.setdefault(text, [])
        return Pending((text.encode(),), len(text), answers.append)

    def submit(self, text: str, *, anywhere: bool = False) -> None:
        self.intake.submit(self.one.now, self.pending(text), anywhere=anywhere)

    def forwarded(self, text: str, *, handing: bool) -> None:
        self.intake.submit_forwarded(self.one.now, self.pending(text), handing=handing)

    def flush(self) -> Step:
        step = Step()
        self.intake.flush(self.one.now, step)
        return step

    def proposed(self, text: str) -> int:
        """Submit and propose; returns the slot of the proposal."""
        self.submit(text)
        return accepted_slot(self.flush())

    def lose_lease(self) -> None:
        self.one.now_ns += 2 * self.one.replica.timing.lease_ns
        assert not self.one.replica.acting(self.one.now)


def accepted_slot(step: Step) -> int:
    accepts = messages(step.before, Accept)
    assert accepts
    assert isinstance(accepts[0], Accept)
    return accepts[0].slot


def test_a_command_is_answered_when_its_entry_is_applied() -> None:
    harness = Harness()
    slot = harness.proposed("a")
    harness.one.accepted(slot, 0, 1)
    harness.intake.applied(harness.one.now, Slot(slot), batch((b"a",)), [b"result"])
    assert harness.answers["a"] == [Done(b"result")]


def proposed_chunks(sizes: list[int]) -> tuple[Buffer, ...]:
    """The chunks that commands of these sizes become in the entry they share."""
    one = acting_master()
    intake = Intake(one.replica, IntakeConfig())
    for number, size in enumerate(sizes):
        chunks = (b"%d" % number * size,) if size <= SMALL_BYTES else (b"head", b"x" * size)
        intake.submit(one.now, Pending(chunks, sum(map(len, chunks)), list[Outcome]().append))
    step = Step()
    intake.flush(one.now, step)
    (accept,) = messages(step.before, Accept)[:1]
    assert isinstance(accept, Accept)
    return accept.entry.payload()


def test_small_commands_of_an_entry_are_one_buffer_and_large_ones_are_not_copied() -> None:
    small, large = 100, SMALL_BYTES + 1
    assert proposed_chunks([small] * 3) == (b"0" * small + b"1" * small + b"2" * small,)
    assert [len(one) for one in proposed_chunks([SMALL_BYTES] * 2)] == [SMALL_BYTES] * 2
    assert [len(one) for one in proposed_chunks([small, large])] == [small, 4, large]
    assert [len(one) for one in proposed_chunks([JOINED_BYTES_MAX] * 2)] == [2 * JOINED_BYTES_MAX]
    assert [len(one) for one in proposed_chunks([large])] == [4, large]


def test_a_command_outbid_in_its_slot_is_answered_as_unknown() -> None:
    """The slot was prepared again without finding the value, and holds another command."""
    harness = Harness()
    slot, one = harness.proposed("a"), harness.one
    old = one.replica.proposer.ballot
    one.give(1, Nack(GROUP, old, ballot(7, 2)))
    one.prepare()
    mine = one.replica.proposer.ballot
    one.give(1, Promise(GROUP, mine, ()))
    one.give(2, Promise(GROUP, mine, ()))  # both faster than our own disk, which holds the vote
    assert harness.proposed("b") == slot
    assert harness.answers == {"a": [NotDone(FailureReason.UNKNOWN, one.replica.me)], "b": []}


def test_another_entry_in_its_slot_answers_a_command_as_unknown() -> None:
    harness = Harness()
    slot = harness.proposed("a")
    harness.intake.applied(harness.one.now, Slot(slot), batch((b"other",)), [b"x"])
    assert harness.answers["a"] == [NotDone(FailureReason.UNKNOWN, harness.one.replica.me)]


def test_applied_after_the_lease_is_lost_is_not_acknowledged() -> None:
    """R14: acknowledge only while acting, though the command is in the log."""
    harness = Harness()
    slot = harness.proposed("a")
    harness.lose_lease()
    harness.intake.applied(harness.one.now, Slot(slot), batch((b"a",)), [b"x"])
    assert harness.answers["a"] == [NotDone(FailureReason.UNKNOWN, None)]


def test_what_was_proposed_is_unknown_and_what_was_queued_is_refused() -> None:
    """G1a: no definite error once the value has been proposed."""
    harness = Harness()
    for index in range(harness.one.replica.timing.window):
        harness.proposed(f"p{index}")
    harness.submit("queued")
    harness.flush()
    harness.lose_lease()
    harness.intake.tick(harness.one.now)
    assert harness.answers["queued"] == [NotDone(FailureReason.NOT_MASTER, None)]
    assert harness.answers["p0"] == [NotDone(FailureReason.UNKNOWN, None)]


def test_several_queued_commands_share_an_entry() -> None:
    harness = Harness()
    for text in ("a", "b", "c"):
        harness.submit(text)
    accepts = messages(harness.flush().before, Accept)
    assert len({m.slot for m in accepts if isinstance(m, Accept)}) == 1


def test_E2_commands_wait_for_company_until_a_time_or_a_size() -> None:
    """While an entry is under way, commands that arrive share the next one."""
    harness = Harness()
    config = IntakeConfig(batch_wait_ns=10 * MS, batch_bytes_min=8)
    harness.intake = Intake(harness.one.replica, config)
    assert len(messages(flushed(harness, "alone").before, Accept)) > 0, "a lone command never waits"
    assert flushed(harness, "ab").before == []
    harness.one.now_ns += 5 * MS
    assert flushed(harness, "cd").before == [], "neither long enough nor large enough"
    harness.one.now_ns += 5 * MS
    waited = harness.flush()
    assert len(harness.intake.proposed[accepted_slot(waited)][1]) == 2, "long enough: both in one"
    assert flushed(harness, "ef").before == []
    large = flushed(harness, "0123456")
    assert len(harness.intake.proposed[accepted_slot(large)][1]) == 2, "large enough"


def flushed(harness: Harness, text: str) -> Step:
    harness.submit(text)
    return harness.flush()


def test_a_full_queue_holds_its_clients_back_and_refuses_nothing() -> None:
    """A refusal in the middle of a pipeline would let later requests overtake. There is room again
    when half of the queue is gone."""
    harness = Harness()
    for index in range(harness.one.replica.timing.window):
        harness.proposed(f"p{index}")
    harness.submit("x" * 60)
    assert not harness.intake.backlogged
    harness.submit("y" * 60)
    assert (harness.intake.backlogged, harness.intake.room) == (True, 0)
    assert (harness.answers["x" * 60], harness.answers["y" * 60]) == ([], [])
    harness.intake.queue_bytes = 33
    assert (harness.intake.backlogged, harness.intake.room) == (False, 0)
    harness.intake.queue_bytes = 32
    assert (harness.intake.backlogged, harness.intake.room) == (False, 32)


def test_a_crowd_begins_long_before_the_queue_is_full() -> None:
    """A long queue makes nobody faster and everybody late, including a quiet client."""
    harness = Harness()
    harness.intake.config = IntakeConfig(queue_bytes_max=64, backlog_bytes_max=32)
    for index in range(harness.one.replica.timing.window):
        harness.proposed(f"p{index}")
    harness.submit("x" * 32)
    assert not harness.intake.backlogged
    harness.submit("y")
    assert (harness.intake.backlogged, harness.intake.room) == (True, 0)
    harness.intake.queue_bytes = 16
    assert (harness.intake.backlogged, harness.intake.room) == (False, 16)


def test_a_queue_that_grows_without_end_refuses() -> None:
    """A client that sends and disconnects is not slowed down by backpressure."""
    harness = Harness()
    harness.intake.config = IntakeConfig(queue_bytes_max=64, refuse_bytes_max=128)
    for text in ("x", "y", "z"):
        harness.submit(text * 60)
    assert harness.answers["y" * 60] == []
    assert harness.answers["z" * 60] == [NotDone(FailureReason.OVERLOADED, harness.one.replica.me)]


def test_while_handing_over_commands_go_to_the_target() -> None:
    harness = Harness()
    slot = harness.proposed("a")
    assert handover.steal_away(harness.one.replica, harness.one.now, NodeId(1)) == ""
    harness.submit("b")
    assert [(f.to, f.handing) for f in harness.intake.forwards] == [(1, True)]
    assert messages(harness.flush().before, Accept) == [], "the drain waits for what is under way"
    harness.one.accepted(slot, 0, 1)
    assert messages(harness.flush().before, Accept) == [], "and for its answer"
    harness.intake.applied(harness.one.now, Slot(slot), batch((b"a",)), [b"r"])
    assert harness.answers["a"] == [Done(b"r")]
    assert len(messages(harness.flush().before, Accept)) == 2, "the Steal leaves"


def test_what_only_this_mastership_may_do_waits_for_the_handover_to_end() -> None:
    """The target's log would refuse it. So it is answered as certainly not done, or it is done here
    if the group stays."""
    harness = Harness()
    fence = fenced(1, opaque(CommandKind.CONSUMER_GROUP, b"x"))

    def fenced_pending(name: str) -> Pending:
        return Pending(fence, len(fence[0]), harness.answers.setdefault(name, []).append)

    now = harness.one.now
    harness.proposed("under way")
    harness.intake.submit(now, fenced_pending("early"))
    harness.submit("plain")
    assert handover.steal_away(harness.one.replica, now, NodeId(1)) == ""
    harness.intake.submit(now, fenced_pending("late"))
    harness.flush()
    assert [one.pending.chunks for one in harness.intake.forwards] == [(b"plain",)]
    assert harness.intake.waiting == (2, 2 * len(fence[0]))
    assert not harness.answers["early"]
    harness.one.replica.call_off_handover("not today", Step())
    assert accepted_slot(harness.flush())
    assert harness.intake.waiting == (0, 0)


@pytest.mark.parametrize("ends", ["its lease ends", "a steal"])
def test_what_only_this_mastership_may_do_is_refused_when_it_is_over(ends: str) -> None:
    """This node refuses it, so its clients know for certain; the next master must not do it."""
    harness = Harness()
    fence = fenced(1, opaque(CommandKind.CONSUMER_GROUP, b"x"))
    answers: list[Outcome] = []
    if ends == "a steal":
        assert handover.steal_away(harness.one.replica, harness.one.now, NodeId(1)) == ""
        slot = accepted_slot(harness.flush())
        harness.intake.submit(harness.one.now, Pending(fence, len(fence[0]), answers.append))
        harness.one.accepted(Slot(slot), 0, 1)
        harness.intake.handover_seen(harness.one.now)
    else:
        harness.intake.submit(harness.one.now, Pending(fence, len(fence[0]), answers.append))
        harness.lose_lease()
    harness.intake.tick(harness.one.now)
    harness.intake.submit(harness.one.now, Pending(fence, len(fence[0]), answers.append))
    assert [one.why for one in answers if isinstance(one, NotDone)] == [
        FailureReason.NOT_MASTER
    ] * 2
    assert not harness.intake.forwards


def test_it_is_known_when_the_commands_of_all_clients_are_passed_on() -> None:
    """From the beginning of the handover to the end of the grace period."""
    harness = Harness()
    intake = harness.intake

    def passed_on() -> bool:
        holder = harness.one.replica.lease.holder
        return intake.successor.gets_all(harness.one.now, harness.one.replica, holder)

    assert not passed_on()
    assert handover.steal_away(harness.one.replica, harness.one.now, NodeId(1)) == ""
    assert passed_on()
    slot = accepted_slot(harness.flush())
    harness.one.accepted(slot, 0, 1)
    intake.handover_seen(harness.one.now)
    assert passed_on()
    harness.one.now_ns += intake.config.forward_grace_ns
    assert not passed_on()


def test_between_a_steal_and_the_end_of_its_round_commands_go_to_the_target() -> None:
    """Requests read in the round in which the Steal was chosen used to be refused, and each of
    those clients paid its back-off of 100 ms for nothing."""
    harness = Harness()
    assert handover.steal_away(harness.one.replica, harness.one.now, NodeId(1)) == ""
    slot = accepted_slot(harness.flush())
    harness.one.accepted(slot, 0, 1)
    assert harness.one.replica.lease.holder == 1
    harness.submit("b")
    assert [(f.to, f.handing) for f in harness.intake.forwards] == [(1, True)]
    assert harness.answers["b"] == []
    harness.one.now_ns += harness.intake.config.forward_grace_ns
    harness.submit("late")
    assert harness.answers["late"] == [NotDone(FailureReason.NOT_MASTER, NodeId(1))]


@pytest.mark.parametrize("handing", [True, False])
def test_a_forwarded_command_waits_only_for_a_group_that_is_on_its_way(handing: bool) -> None:
    harness = Harness()
    harness.lose_lease()
    harness.forwarded("f", handing=handing)
    assert bool(harness.answers["f"]) is not handing
    harness.one.now_ns += 1_001 * MS
    harness.intake.tick(harness.one.now)
    assert len(harness.answers["f"]) == 1


def test_a_refused_steal_sends_the_adopted_back() -> None:
    harness = Harness()
    harness.lose_lease()
    harness.forwarded("f", handing=True)
    harness.intake.steal_refused(harness.one.now)
    assert harness.answers["f"] == [NotDone(FailureReason.NOT_MASTER, None)]
    assert not harness.intake.adopted_bytes


@pytest.mark.parametrize("ordered", [False, True])
def test_a_forwarded_command_that_comes_late_is_refused(ordered: bool) -> None:
    """Its client has sent it again, and later commands of the connection must not be overtaken."""
    harness = Harness()
    flags = {"handing": True, "origin": NodeId(2), "ordered": ordered}
    for text, late in (("late", True), ("next", False)):
        harness.intake.submit_forwarded(
            harness.one.now, harness.pending(text), first=late, late=late, **flags
        )
    (told,) = harness.answers["late"]
    assert isinstance(told, NotDone)
    assert told.why is FailureReason.NOT_MASTER
    assert len(harness.answers["next"]) == ordered


def test_a_forwarded_command_is_never_forwarded_again() -> None:
    harness = Harness()
    harness.one.give(1, StealRequest(GROUP, harness.one.replica.incarnation, Slot(1), Slot(1), 0))
    assert harness.one.replica.handing_to == 1
    harness.forwarded("f", handing=False)
    assert not harness.intake.forwards
    assert harness.answers["f"] == [NotDone(FailureReason.NOT_MASTER, harness.one.replica.me)]
