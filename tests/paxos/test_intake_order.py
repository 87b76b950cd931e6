"""Ordered commands (protocol.md F4): whatever way they go none overtakes another, or goes round one
that was refused."""

import attrs

from broker.config import IntakeConfig
from broker.proposals.intake import (
    FORWARD_AGAIN_NS,
    FORWARD_PATIENCE_NS,
    Done,
    FailureReason,
    Intake,
    NotDone,
    Outcome,
    Pending,
)
from paxos.changes import handover
from paxos.entry import batch
from paxos.ids import MS, NodeId, Slot
from paxos.messages import Accept, Nack, Promise
from paxos.step import Step
from tests.paxos.core import GROUP, Member, ballot, messages
from tests.paxos.test_lease import acting_master

TARGET, ORIGIN = NodeId(1), NodeId(2)


class Ordered(Pending):
    """A produced batch: `lane` is the partition for its connection."""

    ordered = True

    def __init__(self, desk: "Desk", text: str, lane: str, anywhere: bool) -> None:
        self.chunks, self.size = (text.encode(),), len(text)
        self.text, self.desk, self.lane, self.anywhere = text, desk, lane, anywhere
        self.since = desk.refusals.get(lane, 0)

    def overtakes(self) -> bool:
        return self.desk.refusals.get(self.lane, 0) > self.since

    def done(self, outcome: Outcome) -> None:
        self.desk.outcomes.append((self.text, outcome))
        if isinstance(outcome, NotDone):
            self.desk.refusals[self.lane] = self.desk.refusals.get(self.lane, 0) + 1


@attrs.define(eq=False)
class Desk:
    one: Member = attrs.Factory(acting_master)
    refusals: dict[str, int] = attrs.Factory(dict)
    outcomes: list[tuple[str, Outcome]] = attrs.Factory(list)
    sent: list[str] = attrs.Factory(list)
    intake: Intake = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.intake = Intake(self.one.replica, IntakeConfig())

    def submit(self, text: str, lane: str = "lane", *, anywhere: bool = False) -> None:
        self.intake.submit(self.one.now, Ordered(self, text, lane, anywhere))

    def flush(self) -> Step:
        step = Step()
        self.intake.flush(self.one.now, step)
        return step

    @property
    def forwarded(self) -> list[str]:
        return [bytes(one.pending.chunks[0]).decode() for one in self.intake.forwards]

    def hand_over(self) -> None:
        assert handover.steal_away(self.one.replica, self.one.now, TARGET) == ""

    def keep(self) -> None:
        self.one.replica.call_off_handover("not today", Step())
        self.intake.handover_seen(self.one.now)

    def answer(self, index: int, outcome: Outcome) -> None:
        self.intake.forwards[index].pending.done(outcome)

    def proposed(self) -> list[str]:
        """What is proposed, in order."""
        return [
            bytes(one.chunks[0]).decode()
            for _, batch in self.intake.proposed.values()
            for one in batch
        ]

    def said(self) -> list[tuple[str, str]]:
        return [
            (text, "done" if isinstance(outcome, Done) else outcome.why.value)
            for text, outcome in self.outcomes
        ]


def test_what_was_queued_is_forwarded_before_what_comes_in_the_same_round() -> None:
    desk = Desk()
    desk.submit("a")
    desk.hand_over()
    desk.submit("b")
    desk.flush()
    assert desk.forwarded == ["a", "b"]


def test_a_group_that_is_kept_does_what_came_back_first() -> None:
    """The handover is called off: what is abroad is waited for, and takes its old place."""
    desk = Desk()
    desk.hand_over()
    desk.submit("a")
    desk.submit("b")
    desk.keep()
    desk.submit("c")
    desk.flush()
    assert not desk.proposed(), "a and b may be done over there"
    desk.answer(0, NotDone(FailureReason.NOT_MASTER))
    desk.flush()
    assert not desk.proposed()
    desk.answer(1, NotDone(FailureReason.NOT_MASTER))
    desk.flush()
    assert desk.proposed() == ["a", "b", "c"]
    assert not desk.outcomes


def test_a_fate_that_stays_unknown_refuses_what_waits_behind_it() -> None:
    desk = Desk()
    desk.hand_over()
    desk.submit("a")
    desk.submit("other", "another lane")
    desk.keep()
    desk.submit("b")
    desk.submit("more", "another lane")
    desk.answer(0, NotDone(FailureReason.UNKNOWN))
    desk.answer(1, NotDone(FailureReason.NOT_MASTER))
    desk.flush()
    assert desk.said() == [("a", "unknown"), ("b", "overloaded")]
    assert desk.proposed() == ["other", "more"]


def test_what_cannot_be_forwarded_all_at_once_waits_in_order() -> None:
    desk = Desk()
    desk.intake.config = IntakeConfig(undecided_bytes_max=2)
    desk.hand_over()
    for text in "abcd":
        desk.submit(text)
    desk.flush()
    assert desk.forwarded == ["a", "b"]
    assert desk.intake.waiting == (2, 2)
    desk.answer(0, Done(b""))
    desk.intake.forwards.clear()
    desk.flush()
    assert desk.forwarded == ["c"]
    assert [(one.ordered, one.first) for one in desk.intake.forwards] == [(True, False)]


def test_one_that_nobody_takes_looks_for_its_master_in_steps_and_not_for_ever() -> None:
    """acks=0: refused here and there, until its patience is over."""
    desk = Desk()
    desk.hand_over()
    began_ns, tries = desk.one.now_ns, 0
    desk.submit("a", anywhere=True)
    desk.flush()
    for _ in range(10_000):
        if desk.outcomes:
            break
        while desk.intake.forwards:
            tries += 1
            desk.answer(0, NotDone(FailureReason.NOT_MASTER))
            del desk.intake.forwards[0]
        desk.one.now_ns += MS
        desk.flush()
    assert desk.said() == [("a", "not master")]
    took_ns = desk.one.now_ns - began_ns
    assert FORWARD_PATIENCE_NS < took_ns <= FORWARD_PATIENCE_NS + FORWARD_AGAIN_NS
    assert took_ns // (2 * FORWARD_AGAIN_NS) <= tries <= took_ns // FORWARD_AGAIN_NS + 1


def guest(desk: Desk, text: str, *, first: bool, handing: bool = True) -> None:
    pending = Ordered(desk, text, text, anywhere=False)
    desk.intake.submit_forwarded(
        desk.one.now, pending, handing=handing, origin=ORIGIN, ordered=True, first=first
    )


def test_who_refuses_one_of_a_node_refuses_those_behind_it() -> None:
    """Until that node says that it has heard of all before."""
    desk = Desk()
    now_ns = desk.one.now_ns
    desk.one.now_ns += 2 * desk.one.replica.timing.lease_ns
    guest(desk, "a", first=True, handing=False)
    desk.one.now_ns = now_ns  # master again
    guest(desk, "b", first=False)
    guest(desk, "c", first=True)
    guest(desk, "d", first=False)
    desk.flush()
    assert desk.said() == [("a", "not master"), ("b", "not master")]
    assert desk.proposed() == ["c", "d"]


def test_those_who_waited_for_a_group_go_back_together() -> None:
    """The first has waited too long, the second not yet: it must not be done without the first."""
    desk = Desk()
    now_ns = desk.one.now_ns
    desk.one.now_ns += 2 * desk.one.replica.timing.lease_ns
    guest(desk, "a", first=True)
    desk.one.now_ns += 600 * MS
    guest(desk, "b", first=False)
    desk.one.now_ns += 600 * MS
    desk.intake.tick(desk.one.now)
    desk.one.now_ns = now_ns
    desk.flush()
    assert desk.said() == [("a", "not master"), ("b", "not master")]
    assert not desk.proposed()


def test_what_waits_behind_one_that_was_outbid_is_refused_with_it() -> None:
    """Proposed at an older ballot, and not found: others may yet choose it."""
    desk = Desk()
    desk.submit("a")
    assert messages(desk.flush().before, Accept)
    one = desk.one
    one.give(1, Nack(GROUP, one.replica.proposer.ballot, ballot(7, 2)))
    desk.submit("b")
    desk.submit("x", "another lane")
    one.prepare()
    mine = one.replica.proposer.ballot
    one.give(1, Promise(GROUP, mine, ()))
    one.give(2, Promise(GROUP, mine, ()))
    desk.flush()
    assert desk.said() == [("a", "unknown"), ("b", "overloaded")]
    assert desk.proposed() == ["x"]


def test_what_was_proposed_behind_a_lost_one_is_not_told_as_done() -> None:
    desk = Desk()
    slots = []
    for text, lane in (("a", "lane"), ("b", "lane"), ("x", "another lane")):
        desk.submit(text, lane)
        step = desk.flush()
        accept = messages(step.before, Accept)[0]
        assert isinstance(accept, Accept)
        slots.append(accept.slot)
    now = desk.one.now
    desk.intake.applied(now, Slot(slots[0]), batch((b"other",)), [b""])
    desk.intake.applied(now, Slot(slots[1]), batch((b"b",)), [b""])
    desk.intake.applied(now, Slot(slots[2]), batch((b"x",)), [b""])
    assert desk.said() == [("a", "unknown"), ("b", "unknown"), ("x", "done")]


def test_what_came_from_another_node_goes_back_there_and_not_on() -> None:
    """The group moves on before it is proposed here: sent on, it would meet those behind it, which
    its node still sends here. (It met them at its own node: seed 11 of the pipeliners.)"""
    desk = Desk()
    guest(desk, "a", first=True)
    desk.hand_over()
    desk.flush()
    guest(desk, "b", first=False)
    assert desk.said() == [("a", "not master"), ("b", "not master")]
    assert not desk.forwarded


def test_what_came_back_is_refused_if_its_client_was_told_so_meanwhile() -> None:
    desk = Desk()
    desk.hand_over()
    desk.submit("a")
    desk.submit("b")
    desk.keep()
    desk.answer(0, NotDone(FailureReason.UNKNOWN))
    desk.flush()
    desk.answer(1, NotDone(FailureReason.NOT_MASTER))
    desk.flush()
    assert desk.said() == [("a", "unknown"), ("b", "overloaded")]
    assert not desk.proposed()


def steal(desk: Desk) -> None:
    desk.hand_over()
    accept = messages(desk.flush().before, Accept)[0]
    assert isinstance(accept, Accept)
    desk.one.accepted(accept.slot, 0, 1)
    assert desk.one.replica.lease.holder == TARGET


def test_who_handed_a_group_over_forwards_what_wants_no_answer_for_ever() -> None:
    """Such a client never hears of another master; all others do, once the grace is over."""
    desk = Desk()
    steal(desk)
    desk.intake.handover_seen(desk.one.now)
    desk.one.now_ns += desk.intake.config.forward_grace_ns + 1
    desk.submit("a", anywhere=True)
    desk.submit("b", "another lane")
    assert desk.forwarded == ["a"]
    assert desk.said() == [("b", "not master")]


def test_who_never_had_a_group_does_not_forward_what_is_sent_to_it_by_mistake() -> None:
    """The connection is closed, as Kafka does, and the client looks for the leader."""
    desk = Desk()
    steal(desk)
    stranger = Intake(desk.one.replica, IntakeConfig())
    stranger.submit(desk.one.now, Ordered(desk, "a", "lane", anywhere=True))
    assert desk.said() == [("a", "not master")]
    assert not stranger.forwards


def test_what_is_about_to_be_sent_knows_what_was_refused_meanwhile() -> None:
    """The link is lost, and with it what was abroad, before the rest of the round is sent."""
    desk = Desk()
    desk.hand_over()
    desk.submit("a")
    desk.flush()
    desk.submit("b")
    first, second = (one.pending for one in desk.intake.forwards)
    assert not second.overtakes()
    first.done(NotDone(FailureReason.UNKNOWN))
    assert second.overtakes()
