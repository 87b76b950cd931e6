"""Commands of clients that do not know that a group has moved: forwarded to wherever it is."""

import attrs

from broker.proposals.intake import (
    FORWARD_AGAIN_NS,
    FORWARD_PATIENCE_NS,
    FailureReason,
    NotDone,
)
from paxos.ids import NOBODY, NodeId
from tests.paxos.test_intake_order import ORIGIN, TARGET, Harness, Ordered, steal

NEXT = ORIGIN


class Unaware(Ordered):
    """Of a client that was told where the group is at `told_ns`, or never."""

    told_ns = 0

    def misses_move(self, moved_ns: int, now_ns: int) -> bool:
        return self.told_ns < moved_ns


def moved() -> Harness:
    """The group is TARGET's, and the grace after the handover is over."""
    harness = Harness()
    steal(harness)
    harness.intake.handover_seen(harness.one.now)
    harness.one.now_ns += harness.intake.config.forward_grace_ns + 1
    return harness


def submit(harness: Harness, text: str, *, told_ns: int = 0) -> None:
    pending = Unaware(harness, text, "lane", anywhere=False)
    pending.told_ns = told_ns
    harness.intake.submit(harness.one.now, pending)


def master_is(harness: Harness, node: NodeId) -> None:
    """What the log says here is not this test's business."""
    harness.one.replica.lease.holder = node


def test_it_is_forwarded_after_the_grace() -> None:
    harness = moved()
    submit(harness, "a")
    (forward,) = harness.intake.forwards
    assert (forward.to, forward.ordered, forward.unaware) == (TARGET, True, True)


def test_within_the_grace_nobody_is_counted() -> None:
    harness = Harness()
    steal(harness)
    submit(harness, "a")
    assert [one.unaware for one in harness.intake.forwards] == [False]


def test_it_follows_the_group_along_its_moves() -> None:
    harness = moved()
    master_is(harness, NEXT)
    submit(harness, "a")
    assert [one.to for one in harness.intake.forwards] == [NEXT]


def test_what_is_under_way_to_one_master_is_not_overtaken_on_the_way_to_the_next() -> None:
    harness = moved()
    submit(harness, "a")
    master_is(harness, NEXT)
    submit(harness, "b")
    harness.flush()
    assert harness.forwarded == ["a"]
    harness.answer(0, NotDone(FailureReason.NOT_MASTER, NEXT))  # it has just handed it on
    harness.intake.forwards.clear()
    harness.flush()
    harness.one.now_ns += FORWARD_AGAIN_NS
    harness.flush()
    assert [(one.to, one.first) for one in harness.intake.forwards] == [(NEXT, True), (NEXT, False)]
    assert harness.forwarded == ["a", "b"]


def test_who_has_been_told_is_redirected() -> None:
    harness = moved()
    submit(harness, "a", told_ns=harness.one.now_ns)
    assert harness.said() == [("a", "not master")]


def test_nobody_is_forwarded_for_longer_than_it_takes_every_client_to_ask() -> None:
    harness = moved()
    harness.intake.successor._config = attrs.evolve(
        harness.intake.config, forward_unaware_ns=harness.intake.config.forward_grace_ns
    )
    submit(harness, "a")
    assert harness.said() == [("a", "not master")]


def test_between_two_masters_it_waits_in_its_place() -> None:
    """The new master dies. The next one is found in time, or this node becomes it."""
    harness = moved()
    master_is(harness, NOBODY)
    submit(harness, "a")
    submit(harness, "b")
    harness.intake.tick(harness.one.now)
    harness.flush()
    assert (harness.forwarded, harness.outcomes) == ([], [])
    master_is(harness, NEXT)
    harness.intake.tick(harness.one.now)
    harness.flush()
    assert harness.forwarded == ["a", "b"]


def test_it_does_not_wait_for_ever() -> None:
    harness = moved()
    master_is(harness, NOBODY)
    submit(harness, "a")
    harness.one.now_ns += FORWARD_PATIENCE_NS
    harness.intake.tick(harness.one.now)
    assert harness.outcomes == []
    harness.one.now_ns += 1
    harness.intake.tick(harness.one.now)
    assert harness.said() == [("a", "not master")]
