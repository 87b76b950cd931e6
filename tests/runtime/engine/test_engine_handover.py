"""Three engines: what they forward to each other, and how a group changes hands."""

from collections.abc import Iterable

import pytest

from broker.proposals.commands import CommandKind, opaque, records
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from paxos.entry import ENTRY_BYTES_MAX
from paxos.ids import MS, GroupId, Incarnation, NodeId, Slot
from paxos.messages import Message, StealRequest
from runtime.engine.engine import PARKED_STEAL_NS, PARKED_STEALS_MAX
from runtime.engine.forwarding import FORWARD_TIMEOUT_NS
from tests.broker.batches import batch
from tests.runtime.engines import GROUP, Member, Net, command, why

NOWHERE = GroupId(99)


@pytest.fixture
def net() -> Net:
    return Net()


# -- forwarding -----------------------------------------------------------------------------------


def test_what_may_go_anywhere_is_forwarded_to_the_master(net: Net) -> None:
    """A change of the registry, sent to any node."""
    net.elect(2)
    outcomes = net[1].submit("x", anywhere=True)
    net.settle()
    assert outcomes == [Done(b"1")]
    assert net[2].ledger.texts() == ["x"]
    assert net[1].engine.statistics.forwarded_out == 1
    assert net[2].engine.statistics.forwarded_in == 1


def test_a_forward_that_is_never_answered_ends_as_unknown(net: Net) -> None:
    """It may have been carried out, so nothing else can be said; a late answer changes nothing."""
    net.elect(2)
    net.lose_answers = True
    outcomes = net[1].submit("x", anywhere=True)
    net.advance(FORWARD_TIMEOUT_NS // MS - 100)
    assert outcomes == []
    net.advance(200)
    assert outcomes == [NotDone(FailureReason.UNKNOWN)]
    assert net[1].engine.forwards.timeouts == 1
    (_, _, number) = net.forwards[0]
    net[1].engine.on_forwarded(NodeId(2), number, Done(b"late"))
    assert len(outcomes) == 1


def test_forwards_end_as_unknown_when_the_link_is_lost(net: Net) -> None:
    net.elect(2)
    net.lose_answers = True
    outcomes = net[1].submit("x", anywhere=True)
    net.settle()
    net.cut(1, 3)
    assert outcomes == [], "another link is none of its business"
    net.cut(1, 2)
    assert outcomes == [NotDone(FailureReason.UNKNOWN)]


def test_what_cannot_be_forwarded_was_certainly_not_carried_out(net: Net) -> None:
    """A full queue, or no link: the client may try again elsewhere at once."""
    net.elect(2)
    net.queue_full = True
    outcomes = net[1].submit("x", anywhere=True)
    net.settle()
    assert why(outcomes) == "not master"


def test_an_answer_counts_only_from_whom_it_was_asked(net: Net) -> None:
    net.elect(2)
    net.lose_answers = True
    outcomes = net[1].submit("x", anywhere=True)
    net.settle()
    (_, _, number) = net.forwards[0]
    net[1].engine.on_forwarded(NodeId(3), number, Done(b"a lie"))
    assert outcomes == []
    net[1].engine.on_forwarded(NodeId(2), number, Done(b"1"))
    assert outcomes == [Done(b"1")]


def test_an_answer_for_an_earlier_life_acknowledges_nothing(net: Net) -> None:
    """A node forwards, is killed, restarts at once and forwards again: the answer to the first
    command must not pass for the answer to the second."""
    net.elect(2)
    net.lose_answers = True
    net[1].submit("first life", anywhere=True)
    net.settle()
    (_, _, old) = net.forwards[-1]
    net.crash(1)
    net.restart(1)
    net.until(lambda: net[1].engine.master(GROUP) == 2)
    outcomes = net[1].submit("second life", anywhere=True)
    net.settle()
    assert len(net.forwards) == 2
    net[1].engine.on_forwarded(NodeId(2), old, Done(b"1"))
    assert outcomes == []


def test_an_outcome_nobody_can_read_costs_its_client_only(net: Net) -> None:
    """A peer sends nonsense as an outcome; the waiting client's code fails on it; the node goes
    on."""
    net.elect(2)
    net.lose_answers = True
    read: list[Outcome] = []

    def chokes(outcome: Outcome) -> None:
        raise ValueError("cut short")

    net[1].engine.submit(GROUP, command("x"), chokes, anywhere=True)
    net[1].engine.submit(GROUP, command("y"), read.append, anywhere=True)
    net.settle()
    for _, _, number in net.forwards:
        net[1].engine.on_forwarded(NodeId(2), number, Done(b"\xff"))
    assert read == [Done(b"\xff")]
    assert len(net[1].recorder.said("request handler failed")) == 1


def forwarded(member: Member, data: bytes, group: GroupId = GROUP) -> list[tuple[int, Outcome]]:
    """Node 3 forwards these bytes; returns the answer."""
    answers: list[tuple[int, Outcome]] = []
    links = member.engine.links
    assert links is not None
    links.answer_forward = lambda to, number, outcome: answers.append((number, outcome))
    member.engine.on_forward(NodeId(3), 7, group, False, memoryview(data))
    member.net.settle()
    return answers


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\0\0\0\1\x02",
        b"".join(command("one") + command("two")),
        b"".join(opaque(CommandKind.REGISTRY, b"only in group 0")),
        b"".join(opaque(CommandKind.CONSUMER_GROUP, b"no such command")),
        b"\0\0\0\2\x4dxx",
        b"".join(records(1, memoryview(b"no batch"))),
        damaged(b"".join(records(1, memoryview(batch("damaged on the way"))))),
    ],
)
def test_what_is_no_command_is_not_proposed(data: bytes) -> None:
    """Every restart applies what was chosen, for ever: nonsense must not get that far."""
    net = Net()
    master = net.elect(1)
    applied = master.ledger.applied
    assert forwarded(master, data) == [(7, NotDone(FailureReason.NOT_MASTER))]
    assert master.ledger.applied == applied
    assert len(master.recorder.said("forwarded command refused")) == 1


def test_a_peer_that_forwards_nonsense_does_not_fill_the_log(net: Net) -> None:
    master = net.elect(1)
    for _ in range(1_000):
        assert forwarded(master, b"garbage") == [(7, NotDone(FailureReason.NOT_MASTER))]
    assert [line["refused"] for line in master.recorder.said("forwarded command refused")] == [1]
    net.advance(1_000)
    forwarded(master, b"garbage")
    lines = master.recorder.said("forwarded command refused")
    assert [line["refused"] for line in lines] == [1, 1_000]


def test_a_larger_command_than_any_entry_is_not_proposed(net: Net) -> None:
    master = net.elect(1)
    huge = bytes(ENTRY_BYTES_MAX + 1)
    assert forwarded(master, huge) == [(7, NotDone(FailureReason.NOT_MASTER))]


def test_a_forwarded_batch_is_proposed(net: Net) -> None:
    master = net.elect(1)
    data = b"".join(records(5, memoryview(batch("a", "b"))))
    ((number, outcome),) = forwarded(master, data)
    assert number == 7
    assert isinstance(outcome, Done)


@pytest.mark.parametrize("pid", [7, 8])
def test_the_answer_says_whether_the_producer_is_at_home_here(net: Net, pid: int) -> None:
    master = net.elect(1)
    master.engine.producer_connections.changed(-1, 7)
    data = b"".join(records(5, memoryview(batch("a", pid=pid))))
    ((_, outcome),) = forwarded(master, data)
    assert isinstance(outcome, Done)
    assert outcome.at_home is (pid == 7)


def test_a_forwarded_batch_may_be_larger_than_everybodys_segments() -> None:
    net = Net(segment=200_000)
    master = net.elect(1)
    data = b"".join(records(1, memoryview(batch("larger", pad=300_000))))
    ((_, outcome),) = forwarded(master, data)
    assert isinstance(outcome, Done)
    net.until(lambda: net[3].ledger.lines == master.ledger.lines)
    net.crash(3)
    net.restart(3)
    net.until(lambda: net[3].ledger.lines == master.ledger.lines)


def test_a_forward_for_a_group_we_do_not_have(net: Net) -> None:
    answers = forwarded(net[1], b"".join(command("x")), NOWHERE)
    assert answers == [(7, NotDone(FailureReason.NOT_MASTER))]


# -- steals ---------------------------------------------------------------------------------------


def test_a_steal_moves_the_master_and_forwards_what_comes_meanwhile(net: Net) -> None:
    """A client that produces to the old master during the steal does not notice."""
    old = net.elect(1)
    net.advance(100)
    net[2].writer.held = net[3].writer.held = True
    before = old.submit("before")
    net.hand_over(old, net[3])
    net.settle()
    assert old.replica.handing_to == 3, "it drains: the first command is not chosen yet"
    during = old.submit("during")
    net.settle()
    assert (before, during) == ([], [])
    net[2].writer.held = net[3].writer.held = False
    net.settle()
    net.advance(40)
    assert net[3].acting()
    assert not old.acting()
    assert why(before) == why(during) == "done"
    after = old.submit("after")
    net.settle()
    assert why(after) == "done", "the old master still forwards, for its grace period"
    assert net[3].ledger.texts() == ["before", "during", "after"]


def test_a_new_masters_state_is_as_new_as_its_log_before_the_round_is_over(net: Net) -> None:
    """Clients' requests are read between the messages of a round. A consumer that the old master
    had redirected came in the very round in which the Steal was applied. It asked for the offset
    after its last one and got OFFSET_OUT_OF_RANGE: it began anew at the end and missed messages.
    Seen with confluent-kafka in one of 50 moves on a busy machine."""
    old, new = net.elect(1), net[3]
    net.advance(100)
    looked: list[tuple[bool, int, int]] = []
    deliver = new.engine.on_messages

    def served_in_between(sender: NodeId, messages: Iterable[Message]) -> None:
        deliver(sender, messages)
        looked.append((new.acting(), new.replica.learner.applied, new.ledger.applied))

    new.engine.on_messages = served_in_between
    old.submit("last")
    net.hand_over(old, new)
    net.settle()
    net.advance(40)
    assert new.acting()
    assert all(replica == machine for acting, replica, machine in looked if acting)
    assert any(acting for acting, _, _ in looked)
    assert new.ledger.texts() == ["last"]


def test_commands_taken_between_the_messages_of_a_steal_are_all_done(net: Net) -> None:
    """Some follow others that were accepted before the Steal was applied in that very round."""
    old = net.elect(1)
    net.advance(100)
    deliver = old.engine.on_messages
    outcomes: list[list[Outcome]] = []
    seen: set[bool] = set()

    def taken_in_between(sender: NodeId, messages: Iterable[Message]) -> None:
        if len(outcomes) >= 40:
            deliver(sender, messages)
            return
        outcomes.append(old.take(str(len(outcomes))))
        before = old.replica.handover
        deliver(sender, messages)
        seen.add(before is None and old.replica.handover is not None)
        outcomes.append(old.take(str(len(outcomes))))

    old.engine.on_messages = taken_in_between
    net.hand_over(old, net[3])
    net.advance(200)
    assert net[3].acting()
    assert True in seen, "the Steal was applied between two commands"
    assert {why(one) for one in outcomes} == {"done"}
    assert net[3].ledger.texts() == [str(number) for number in range(len(outcomes))]


def test_a_steal_of_an_idle_group_takes_no_time(net: Net) -> None:
    """It consists of messages only: it needs no tick, and the broker hears of it at once."""
    old = net.elect(1)
    net.advance(100)
    told = net[3].hooks.acting_changed
    net.hand_over(old, net[3])
    net.settle()
    assert net[3].acting()
    assert net[3].hooks.acting_changed == told + 1


def test_a_steal_does_not_wait_for_those_who_may_ask_again(net: Net) -> None:
    """Commands that wait for group commit are forwarded like the rest, and no time has passed (ADR
    31)."""
    old = net.elect(1)
    net.advance(100)
    first = [old.submit(str(number)) for number in range(20)]
    net.settle()
    waiting = [old.submit(str(number)) for number in range(5)]
    net.settle()
    assert old.engine.group_commit.waits
    assert not any(waiting)
    net.hand_over(old, net[3])
    net.settle()
    assert net[3].acting()
    assert [why(one) for one in (*first, *waiting)] == ["done"] * 25


def test_nothing_is_under_way_at_a_master_that_was_replaced(net: Net) -> None:
    """Otherwise its next mastership would wait for answers that never come."""
    old = net.elect(1)
    net.cut(1, 2)
    net.cut(1, 3)
    lost = [old.submit(str(number)) for number in range(20)]
    net.settle()
    assert old.engine.group_commit.under_way == 20
    net[3].replica.election.abstaining = True
    net.until(lambda: net[2].acting())
    net.heal(1, 2)
    net.heal(1, 3)
    net.advance(1_000)
    assert old.engine.group_commit.under_way == 0
    assert all(why(one) != "done" for one in lost)


def steal_request(net: Net, token: int) -> StealRequest:
    replica = net[2].replica
    return StealRequest(
        GROUP, net[2].multi.incarnation, replica.lease.ver, replica.learner.applied, token
    )


def test_a_steal_that_is_ahead_of_our_registry_waits_for_it(net: Net) -> None:
    """The token was granted in a slot of group 0 that this master has not applied yet."""
    master = net.elect(1)
    master.hooks.allows = None
    net.hand_over(master, net[2])
    net.settle()
    assert master.hooks.asked == 1
    assert master.replica.handing_to is None
    master.engine.retry_parked_steals()
    assert master.hooks.asked == 2
    master.hooks.allows = True
    master.engine.retry_parked_steals()
    net.settle()
    net.advance(40)
    assert net[2].acting()
    asked = master.hooks.asked
    master.engine.retry_parked_steals()
    assert master.hooks.asked == asked, "it is done"


def test_a_parked_steal_is_also_looked_at_with_every_tick(net: Net) -> None:
    master = net.elect(1)
    master.hooks.allows = None
    net.hand_over(master, net[2])
    net.advance(40)
    master.hooks.allows = True
    net.advance(40)
    assert net[2].acting()


def test_a_parked_steal_of_a_group_that_was_dropped_meanwhile_is_forgotten(net: Net) -> None:
    master = net.elect(1)
    master.hooks.allows = None
    net.hand_over(master, net[2])
    net.settle()
    asked = master.hooks.asked
    master.engine.remove_group(GROUP)
    master.hooks.allows = True
    master.engine.retry_parked_steals()
    net.advance(40)
    assert master.hooks.asked == asked


def test_a_steal_does_not_wait_for_ever(net: Net) -> None:
    master = net.elect(1)
    master.hooks.allows = None
    net.hand_over(master, net[2])
    net.advance(PARKED_STEAL_NS // MS + 60)
    asked = master.hooks.asked
    master.hooks.allows = True
    net.advance(100)
    assert master.hooks.asked == asked
    assert master.acting()


def test_few_steals_wait_at_a_time(net: Net) -> None:
    """A peer that repeats itself takes a bounded amount of memory."""
    master = net.elect(1)
    master.hooks.allows = None
    for token in range(1000):
        master.engine.on_message(NodeId(2), steal_request(net, token))
    master.hooks.asked = 0
    master.engine.retry_parked_steals()
    assert master.hooks.asked == PARKED_STEALS_MAX


def test_a_steal_that_may_not_be_is_not(net: Net) -> None:
    master = net.elect(1)
    master.hooks.allows = False
    net.hand_over(master, net[2])
    net.advance(100)
    assert master.acting()
    assert master.replica.handing_to is None


def test_a_steal_of_a_group_we_do_not_have_is_noted(net: Net) -> None:
    """Nodes with another groups.count, or a peer that invents it. It is logged once per link,
    because such a peer sends messages for the group all the time, and each of them was a line in
    the log."""
    master = net.elect(1)
    request = StealRequest(NOWHERE, Incarnation(1), Slot(1), Slot(1), 1)

    def noted() -> list[str]:
        for _ in range(10):
            master.engine.on_message(NodeId(2), request)
        net.settle()
        return [one.what for one in master.hooks.notices if one.group == NOWHERE]

    assert noted() == ["unknown-group"]
    assert noted() == ["unknown-group"]
    net.cut(1, 2)
    net.heal(1, 2)
    assert noted() == ["unknown-group"] * 2
    assert master.hooks.asked == 0
