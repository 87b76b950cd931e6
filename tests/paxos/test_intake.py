"""The way of a command into the log: each command is answered exactly once, and never wrongly."""

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
class Desk:
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
        """Submit and propose; the slot it went to."""
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
    desk = Desk()
    slot = desk.proposed("a")
    desk.one.accepted(slot, 0, 1)
    desk.intake.applied(desk.one.now, Slot(slot), batch((b"a",)), [b"result"])
    assert desk.answers["a"] == [Done(b"result")]


def proposed_chunks(sizes: list[int]) -> tuple[Buffer, ...]:
    """What the commands of these sizes are in the entry they share."""
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
    """The slot was prepared again, the value not found, and another command placed there."""
    desk = Desk()
    slot, one = desk.proposed("a"), desk.one
    old = one.replica.proposer.ballot
    one.give(1, Nack(GROUP, old, ballot(7, 2)))
    one.prepare()
    mine = one.replica.proposer.ballot
    one.give(1, Promise(GROUP, mine, ()))
    one.give(2, Promise(GROUP, mine, ()))  # both faster than our own disk, which holds the vote
    assert desk.proposed("b") == slot
    assert desk.answers == {"a": [NotDone(FailureReason.UNKNOWN, one.replica.me)], "b": []}


def test_another_entry_in_its_slot_answers_a_command_as_unknown() -> None:
    desk = Desk()
    slot = desk.proposed("a")
    desk.intake.applied(desk.one.now, Slot(slot), batch((b"other",)), [b"x"])
    assert desk.answers["a"] == [NotDone(FailureReason.UNKNOWN, desk.one.replica.me)]


def test_applied_after_the_lease_is_lost_is_not_acknowledged() -> None:
    """R14: acknowledge only while acting, though the command is in the log."""
    desk = Desk()
    slot = desk.proposed("a")
    desk.lose_lease()
    desk.intake.applied(desk.one.now, Slot(slot), batch((b"a",)), [b"x"])
    assert desk.answers["a"] == [NotDone(FailureReason.UNKNOWN, None)]


def test_what_was_proposed_is_unknown_and_what_was_queued_is_refused() -> None:
    """G1a: no definite error once the value has been proposed."""
    desk = Desk()
    for index in range(desk.one.replica.timing.window):
        desk.proposed(f"p{index}")
    desk.submit("queued")
    desk.flush()
    desk.lose_lease()
    desk.intake.tick(desk.one.now)
    assert desk.answers["queued"] == [NotDone(FailureReason.NOT_MASTER, None)]
    assert desk.answers["p0"] == [NotDone(FailureReason.UNKNOWN, None)]


def test_several_queued_commands_share_an_entry() -> None:
    desk = Desk()
    for text in ("a", "b", "c"):
        desk.submit(text)
    accepts = messages(desk.flush().before, Accept)
    assert len({m.slot for m in accepts if isinstance(m, Accept)}) == 1


def test_E2_commands_wait_for_company_until_a_time_or_a_size() -> None:
    """While an entry is under way: what comes meanwhile shares the next one."""
    desk = Desk()
    config = IntakeConfig(batch_wait_ns=10 * MS, batch_bytes_min=8)
    desk.intake = Intake(desk.one.replica, config)
    assert len(messages(flushed(desk, "alone").before, Accept)) > 0, "a lone command never waits"
    assert flushed(desk, "ab").before == []
    desk.one.now_ns += 5 * MS
    assert flushed(desk, "cd").before == [], "neither long enough nor large enough"
    desk.one.now_ns += 5 * MS
    waited = desk.flush()
    assert len(desk.intake.proposed[accepted_slot(waited)][1]) == 2, "long enough: both in one"
    assert flushed(desk, "ef").before == []
    large = flushed(desk, "0123456")
    assert len(desk.intake.proposed[accepted_slot(large)][1]) == 2, "large enough"


def flushed(desk: Desk, text: str) -> Step:
    desk.submit(text)
    return desk.flush()


def test_a_full_queue_holds_its_clients_back_and_refuses_nothing() -> None:
    """A refusal in the middle of a pipeline lets later requests overtake. There is room again when
    half of it is gone."""
    desk = Desk()
    for index in range(desk.one.replica.timing.window):
        desk.proposed(f"p{index}")
    desk.submit("x" * 60)
    assert not desk.intake.backlogged
    desk.submit("y" * 60)
    assert (desk.intake.backlogged, desk.intake.room) == (True, 0)
    assert (desk.answers["x" * 60], desk.answers["y" * 60]) == ([], [])
    desk.intake.queue_bytes = 33
    assert (desk.intake.backlogged, desk.intake.room) == (False, 0)
    desk.intake.queue_bytes = 32
    assert (desk.intake.backlogged, desk.intake.room) == (False, 32)


def test_a_crowd_begins_long_before_the_queue_is_full() -> None:
    """A long queue makes nobody faster and everybody late, the quiet client as well."""
    desk = Desk()
    desk.intake.config = IntakeConfig(queue_bytes_max=64, backlog_bytes_max=32)
    for index in range(desk.one.replica.timing.window):
        desk.proposed(f"p{index}")
    desk.submit("x" * 32)
    assert not desk.intake.backlogged
    desk.submit("y")
    assert (desk.intake.backlogged, desk.intake.room) == (True, 0)
    desk.intake.queue_bytes = 16
    assert (desk.intake.backlogged, desk.intake.room) == (False, 16)


def test_a_queue_that_grows_without_end_refuses() -> None:
    """Whoever sends and goes away is not held back by anything."""
    desk = Desk()
    desk.intake.config = IntakeConfig(queue_bytes_max=64, refuse_bytes_max=128)
    for text in ("x", "y", "z"):
        desk.submit(text * 60)
    assert desk.answers["y" * 60] == []
    assert desk.answers["z" * 60] == [NotDone(FailureReason.OVERLOADED, desk.one.replica.me)]


def test_while_handing_over_commands_go_to_the_target() -> None:
    desk = Desk()
    slot = desk.proposed("a")
    assert handover.steal_away(desk.one.replica, desk.one.now, NodeId(1)) == ""
    desk.submit("b")
    assert [(f.to, f.handing) for f in desk.intake.forwards] == [(1, True)]
    assert messages(desk.flush().before, Accept) == [], "the drain waits for what is under way"
    desk.one.accepted(slot, 0, 1)
    assert messages(desk.flush().before, Accept) == [], "and for its answer"
    desk.intake.applied(desk.one.now, Slot(slot), batch((b"a",)), [b"r"])
    assert desk.answers["a"] == [Done(b"r")]
    assert len(messages(desk.flush().before, Accept)) == 2, "the Steal leaves"


def test_what_only_this_mastership_may_do_waits_for_the_handover_to_end() -> None:
    """It is of no use to the target, whose log refuses it: so it is told for sure that it was not
    done, or it is done here if the group stays."""
    desk = Desk()
    fence = fenced(1, opaque(CommandKind.CONSUMER_GROUP, b"x"))

    def fenced_pending(name: str) -> Pending:
        return Pending(fence, len(fence[0]), desk.answers.setdefault(name, []).append)

    now = desk.one.now
    desk.proposed("under way")
    desk.intake.submit(now, fenced_pending("early"))
    desk.submit("plain")
    assert handover.steal_away(desk.one.replica, now, NodeId(1)) == ""
    desk.intake.submit(now, fenced_pending("late"))
    desk.flush()
    assert [one.pending.chunks for one in desk.intake.forwards] == [(b"plain",)]
    assert desk.intake.waiting == (2, 2 * len(fence[0]))
    assert not desk.answers["early"]
    desk.one.replica.call_off_handover("not today", Step())
    assert accepted_slot(desk.flush())
    assert desk.intake.waiting == (0, 0)


@pytest.mark.parametrize("ends", ["its lease ends", "a steal"])
def test_what_only_this_mastership_may_do_is_refused_when_it_is_over(ends: str) -> None:
    """By this node, whose clients are told for sure; it is not for whoever comes next."""
    desk = Desk()
    fence = fenced(1, opaque(CommandKind.CONSUMER_GROUP, b"x"))
    answers: list[Outcome] = []
    if ends == "a steal":
        assert handover.steal_away(desk.one.replica, desk.one.now, NodeId(1)) == ""
        slot = accepted_slot(desk.flush())
        desk.intake.submit(desk.one.now, Pending(fence, len(fence[0]), answers.append))
        desk.one.accepted(Slot(slot), 0, 1)
        desk.intake.handover_seen(desk.one.now)
    else:
        desk.intake.submit(desk.one.now, Pending(fence, len(fence[0]), answers.append))
        desk.lose_lease()
    desk.intake.tick(desk.one.now)
    desk.intake.submit(desk.one.now, Pending(fence, len(fence[0]), answers.append))
    assert [one.why for one in answers if isinstance(one, NotDone)] == [
        FailureReason.NOT_MASTER
    ] * 2
    assert not desk.intake.forwards


def test_between_a_steal_and_the_end_of_its_round_commands_go_to_the_target() -> None:
    """Requests read in the round in which the Steal was chosen: they used to be sent away, and
    every one of those clients paid its back-off of 100 ms for nothing."""
    desk = Desk()
    assert handover.steal_away(desk.one.replica, desk.one.now, NodeId(1)) == ""
    slot = accepted_slot(desk.flush())
    desk.one.accepted(slot, 0, 1)
    assert desk.one.replica.lease.holder == 1
    desk.submit("b")
    assert [(f.to, f.handing) for f in desk.intake.forwards] == [(1, True)]
    assert desk.answers["b"] == []
    desk.one.now_ns += desk.intake.config.forward_grace_ns
    desk.submit("late")
    assert desk.answers["late"] == [NotDone(FailureReason.NOT_MASTER, NodeId(1))]


@pytest.mark.parametrize("handing", [True, False])
def test_a_forwarded_command_waits_only_for_a_group_that_is_on_its_way(handing: bool) -> None:
    desk = Desk()
    desk.lose_lease()
    desk.forwarded("f", handing=handing)
    assert bool(desk.answers["f"]) is not handing
    desk.one.now_ns += 1_001 * MS
    desk.intake.tick(desk.one.now)
    assert len(desk.answers["f"]) == 1


def test_a_refused_steal_sends_the_adopted_back() -> None:
    desk = Desk()
    desk.lose_lease()
    desk.forwarded("f", handing=True)
    desk.intake.steal_refused(desk.one.now)
    assert desk.answers["f"] == [NotDone(FailureReason.NOT_MASTER, None)]
    assert not desk.intake.adopted_bytes


@pytest.mark.parametrize("ordered", [False, True])
def test_a_forwarded_command_that_comes_late_is_refused(ordered: bool) -> None:
    """Its client has sent it again; and what its connection sent after it must not overtake it."""
    desk = Desk()
    flags = {"handing": True, "origin": NodeId(2), "ordered": ordered}
    for text, late in (("late", True), ("next", False)):
        desk.intake.submit_forwarded(
            desk.one.now, desk.pending(text), first=late, late=late, **flags
        )
    (told,) = desk.answers["late"]
    assert isinstance(told, NotDone)
    assert told.why is FailureReason.NOT_MASTER
    assert len(desk.answers["next"]) == ordered


def test_a_forwarded_command_is_never_forwarded_again() -> None:
    desk = Desk()
    desk.one.give(1, StealRequest(GROUP, desk.one.replica.incarnation, Slot(1), Slot(1), 0))
    assert desk.one.replica.handing_to == 1
    desk.forwarded("f", handing=False)
    assert not desk.intake.forwards
    assert desk.answers["f"] == [NotDone(FailureReason.NOT_MASTER, desk.one.replica.me)]
