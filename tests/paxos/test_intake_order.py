"""Ordered commands (docs/protocol.md F4): on every way, none overtakes another or passes a refused
one."""

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

    def __init__(self, harness: "Harness", text: str, lane: str, anywhere: bool) -> None:
        self.chunks, self.size = (text.encode(),), len(text)
        self.text, self.harness, self.lane, self.anywhere = text, harness, lane, anywhere
        self.since = harness.refusals.get(lane, 0)

    def overtakes(self) -> bool:
        return self.harness.refusals.get(self.lane, 0) > self.since

    def done(self, outcome: Outcome) -> None:
        self.harness.outcomes.append((self.text, outcome))
        if isinstance(outcome, NotDone):
            self.harness.refusals[self.lane] = self.harness.refusals.get(self.lane, 0) + 1


@attrs.define(eq=False)
class Harness:
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
        """The proposed commands, in order."""
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
    harness = Harness()
    harness.submit("a")
    harness.hand_over()
    harness.submit("b")
    harness.flush()
    assert harness.forwarded == ["a", "b"]


def test_a_group_that_is_kept_does_what_came_back_first() -> None:
    """The handover is cancelled: forwarded commands are waited for and take their old places."""
    harness = Harness()
    harness.hand_over()
    harness.submit("a")
    harness.submit("b")
    harness.keep()
    harness.submit("c")
    harness.flush()
    assert not harness.proposed(), "a and b may be done over there"
    harness.answer(0, NotDone(FailureReason.NOT_MASTER))
    harness.flush()
    assert not harness.proposed()
    harness.answer(1, NotDone(FailureReason.NOT_MASTER))
    harness.flush()
    assert harness.proposed() == ["a", "b", "c"]
    assert not harness.outcomes


def test_a_fate_that_stays_unknown_refuses_what_waits_behind_it() -> None:
    harness = Harness()
    harness.hand_over()
    harness.submit("a")
    harness.submit("other", "another lane")
    harness.keep()
    harness.submit("b")
    harness.submit("more", "another lane")
    harness.answer(0, NotDone(FailureReason.UNKNOWN))
    harness.answer(1, NotDone(FailureReason.NOT_MASTER))
    harness.flush()
    assert harness.said() == [("a", "unknown"), ("b", "overloaded")]
    assert harness.proposed() == ["other", "more"]


def test_what_cannot_be_forwarded_all_at_once_waits_in_order() -> None:
    harness = Harness()
    harness.intake.config = IntakeConfig(undecided_bytes_max=2)
    harness.hand_over()
    for text in "abcd":
        harness.submit(text)
    harness.flush()
    assert harness.forwarded == ["a", "b"]
    assert harness.intake.waiting == (2, 2)
    harness.answer(0, Done(b""))
    harness.intake.forwards.clear()
    harness.flush()
    assert harness.forwarded == ["c"]
    assert [(one.ordered, one.first) for one in harness.intake.forwards] == [(True, False)]


def test_one_that_nobody_takes_looks_for_its_master_in_steps_and_not_for_ever() -> None:
    """acks=0: nodes refuse it until its time is over."""
    harness = Harness()
    harness.hand_over()
    began_ns, tries = harness.one.now_ns, 0
    harness.submit("a", anywhere=True)
    harness.flush()
    for _ in range(10_000):
        if harness.outcomes:
            break
        while harness.intake.forwards:
            tries += 1
            harness.answer(0, NotDone(FailureReason.NOT_MASTER))
            del harness.intake.forwards[0]
        harness.one.now_ns += MS
        harness.flush()
    assert harness.said() == [("a", "not master")]
    took_ns = harness.one.now_ns - began_ns
    assert FORWARD_PATIENCE_NS < took_ns <= FORWARD_PATIENCE_NS + FORWARD_AGAIN_NS
    assert took_ns // (2 * FORWARD_AGAIN_NS) <= tries <= took_ns // FORWARD_AGAIN_NS + 1


def guest(harness: Harness, text: str, *, first: bool, handing: bool = True) -> None:
    pending = Ordered(harness, text, text, anywhere=False)
    harness.intake.submit_forwarded(
        harness.one.now, pending, handing=handing, origin=ORIGIN, ordered=True, first=first
    )


def test_who_refuses_one_of_a_node_refuses_those_behind_it() -> None:
    """It does so until that node confirms that it has seen all earlier refusals."""
    harness = Harness()
    now_ns = harness.one.now_ns
    harness.one.now_ns += 2 * harness.one.replica.timing.lease_ns
    guest(harness, "a", first=True, handing=False)
    harness.one.now_ns = now_ns  # master again
    guest(harness, "b", first=False)
    guest(harness, "c", first=True)
    guest(harness, "d", first=False)
    harness.flush()
    assert harness.said() == [("a", "not master"), ("b", "not master")]
    assert harness.proposed() == ["c", "d"]


def test_those_who_waited_for_a_group_go_back_together() -> None:
    """The first has waited too long, the second not yet: it must not be done without the first."""
    harness = Harness()
    now_ns = harness.one.now_ns
    harness.one.now_ns += 2 * harness.one.replica.timing.lease_ns
    guest(harness, "a", first=True)
    harness.one.now_ns += 600 * MS
    guest(harness, "b", first=False)
    harness.one.now_ns += 600 * MS
    harness.intake.tick(harness.one.now)
    harness.one.now_ns = now_ns
    harness.flush()
    assert harness.said() == [("a", "not master"), ("b", "not master")]
    assert not harness.proposed()


def test_what_waits_behind_one_that_was_outbid_is_refused_with_it() -> None:
    """The first was proposed at an older ballot and not found: others may still choose it."""
    harness = Harness()
    harness.submit("a")
    assert messages(harness.flush().before, Accept)
    one = harness.one
    one.give(1, Nack(GROUP, one.replica.proposer.ballot, ballot(7, 2)))
    harness.submit("b")
    harness.submit("x", "another lane")
    one.prepare()
    mine = one.replica.proposer.ballot
    one.give(1, Promise(GROUP, mine, ()))
    one.give(2, Promise(GROUP, mine, ()))
    harness.flush()
    assert harness.said() == [("a", "unknown"), ("b", "overloaded")]
    assert harness.proposed() == ["x"]


def test_what_was_proposed_behind_a_lost_one_is_not_told_as_done() -> None:
    harness = Harness()
    slots = []
    for text, lane in (("a", "lane"), ("b", "lane"), ("x", "another lane")):
        harness.submit(text, lane)
        step = harness.flush()
        accept = messages(step.before, Accept)[0]
        assert isinstance(accept, Accept)
        slots.append(accept.slot)
    now = harness.one.now
    harness.intake.applied(now, Slot(slots[0]), batch((b"other",)), [b""])
    harness.intake.applied(now, Slot(slots[1]), batch((b"b",)), [b""])
    harness.intake.applied(now, Slot(slots[2]), batch((b"x",)), [b""])
    assert harness.said() == [("a", "unknown"), ("b", "unknown"), ("x", "done")]


def test_what_came_from_another_node_goes_back_there_and_not_on() -> None:
    """The group moves on before the command is proposed here. Forwarding it would let it meet later
    commands, which its node still sends here. (They met at its own node: seed 11 of the
    pipeliners.)"""
    harness = Harness()
    guest(harness, "a", first=True)
    harness.hand_over()
    harness.flush()
    guest(harness, "b", first=False)
    assert harness.said() == [("a", "not master"), ("b", "not master")]
    assert not harness.forwarded


def test_what_came_back_is_refused_if_its_client_was_told_so_meanwhile() -> None:
    harness = Harness()
    harness.hand_over()
    harness.submit("a")
    harness.submit("b")
    harness.keep()
    harness.answer(0, NotDone(FailureReason.UNKNOWN))
    harness.flush()
    harness.answer(1, NotDone(FailureReason.NOT_MASTER))
    harness.flush()
    assert harness.said() == [("a", "unknown"), ("b", "overloaded")]
    assert not harness.proposed()


def steal(harness: Harness) -> None:
    harness.hand_over()
    accept = messages(harness.flush().before, Accept)[0]
    assert isinstance(accept, Accept)
    harness.one.accepted(accept.slot, 0, 1)
    assert harness.one.replica.lease.holder == TARGET


def test_who_handed_a_group_over_forwards_what_wants_no_answer_for_ever() -> None:
    """A client that wants no answer never learns of another master; all others do when the grace
    period is over."""
    harness = Harness()
    steal(harness)
    harness.intake.handover_seen(harness.one.now)
    harness.one.now_ns += harness.intake.config.forward_grace_ns + 1
    harness.submit("a", anywhere=True)
    harness.submit("b", "another lane")
    assert harness.forwarded == ["a"]
    assert harness.said() == [("b", "not master")]


def test_who_never_had_a_group_does_not_forward_what_is_sent_to_it_by_mistake() -> None:
    """The connection is closed, as in Kafka, and the client looks for the leader."""
    harness = Harness()
    steal(harness)
    stranger = Intake(harness.one.replica, IntakeConfig())
    stranger.submit(harness.one.now, Ordered(harness, "a", "lane", anywhere=True))
    assert harness.said() == [("a", "not master")]
    assert not stranger.forwards


def test_what_is_about_to_be_sent_knows_what_was_refused_meanwhile() -> None:
    """The link breaks, and everything forwarded is lost, before the rest of the round is sent."""
    harness = Harness()
    harness.hand_over()
    harness.submit("a")
    harness.flush()
    harness.submit("b")
    first, second = (one.pending for one in harness.intake.forwards)
    assert not second.overtakes()
    first.done(NotDone(FailureReason.UNKNOWN))
    assert second.overtakes()
