"""Scenario 25: the three older ways to hand a group over (E19), each safe, each with its gap.

They use the same machine as the steal proper. They differ in the content of their one entry, if
they have one, and an ordinary election follows.
"""

from functools import cache
from itertools import pairwise

import attrs
import pytest

from paxos.entry import EntryKind
from paxos.ids import MS, NOBODY
from paxos.messages import Prepare
from paxos.timing import Strategy, Timing
from simulator.script import Script, Ticket, is_kind

TIMING = Timing()
OLDER = (Strategy.TWO_PROPOSES, Strategy.MOVE_EXPIRY, Strategy.WAIT_EXPIRY)
WAITING = (Strategy.MOVE_EXPIRY, Strategy.WAIT_EXPIRY)


def begun(strategy: Strategy) -> Script:
    """Node 0 is master and has written; node 1 would be first in an election."""
    script = Script(timing=attrs.evolve(TIMING, strategy=strategy))
    script.elect(0)
    script.write_all(0, 3)
    script.replica(1).election.preferred = True
    return script


def longest_pause_ms(script: Script, answered_ns: list[int]) -> float:
    return max(b - a for a, b in pairwise(answered_ns)) / MS


@cache
def moved_under_load(strategy: Strategy) -> tuple[Script, list[Ticket], list[int]]:
    """A client of the old master goes on writing while the group moves, one command every 2 ms."""
    script = begun(strategy)
    script.steal(1)
    tickets: list[Ticket] = []
    answered_ns: list[int] = []
    seq = 3
    while not script.acting(1) or seq < 20:
        seq += 1
        tickets.append(script.write(0, seq))
        script.wait(2)
        done = sum(bool(ticket.slot) for ticket in tickets)
        answered_ns += [script.loop.now_ns] * (done - len(answered_ns))
    script.until(lambda: all(ticket.slot for ticket in tickets))
    answered_ns.append(script.loop.now_ns)
    return script, tickets, answered_ns


@pytest.mark.parametrize("strategy", Strategy)
def test_a_move_under_load_costs_no_client_an_error(strategy: Strategy) -> None:
    """The gaps differ, but clients notice no difference: commands wait for the new master."""
    script, tickets, _ = moved_under_load(strategy)
    assert script.masters() == [1]
    assert not any(ticket.refused for ticket in tickets)
    slots = [ticket.slot for ticket in tickets]
    assert slots == sorted(slots), "in the order in which they were sent"
    assert script.replica(0).handover is None
    assert script.one_master.seen_two == 0


def test_E19_the_older_the_strategy_the_longer_the_gap() -> None:
    """One round trip; a second proposal with its phase 1; twice the clock margin and an election.
    Waiting for the expiry has no longer gap than moving it, only a longer wait before."""
    gaps = {}
    for strategy in Strategy:
        script, _, answered_ns = moved_under_load(strategy)
        gaps[strategy] = longest_pause_ms(script, answered_ns)
    margin_ms = TIMING.margin_ns / MS
    assert gaps[Strategy.DELEGATE] < gaps[Strategy.TWO_PROPOSES] < gaps[Strategy.MOVE_EXPIRY]
    assert gaps[Strategy.TWO_PROPOSES] < margin_ms
    for strategy in WAITING:
        assert 2 * margin_ms <= gaps[strategy] < 3 * margin_ms


@pytest.mark.parametrize("strategy", OLDER)
def test_the_target_prepares_and_proposes_for_itself(strategy: Strategy) -> None:
    script = begun(strategy)
    began_ns, ballot = script.loop.now_ns, script.replica(0).proposer.ballot
    script.steal(1)
    script.until(lambda: script.acting(1))
    assert {sent.source for sent in script.sent(Prepare, since_ns=began_ns)} == {1}
    assert script.replica(1).proposer.ballot > ballot
    assert script.replica(1).lease.holder == 1


def test_two_proposes_frees_the_lease_for_all_but_calls_the_target() -> None:
    """The others hold back only for their waiting time: a target that is gone stops nobody."""
    script = begun(Strategy.TWO_PROPOSES)
    began_ns = script.loop.now_ns
    script.steal(1)
    script.until(lambda: script.acting(1))
    quick_ns = script.loop.now_ns - began_ns
    assert quick_ns < 20 * MS, "five messages and their fsyncs, no tick and no clock"

    script = begun(Strategy.TWO_PROPOSES)
    deaf = script.drop(target=1)
    script.steal(1)
    script.until(lambda: script.replica(0).lease.holder == NOBODY)
    assert script.replica(0).lease.free(script.node(0).now(), TIMING.margin_ns)
    script.crash(1)
    script.until(lambda: script.masters() in ([0], [2]), within_ns=TIMING.lease_ns)
    deaf.lift()


@pytest.mark.parametrize("strategy", WAITING)
def test_a_target_that_dies_gives_the_lease_back_to_its_holder(strategy: Strategy) -> None:
    """Nobody waits for a silent target: the master renews if it still can, or is elected again."""
    script = begun(strategy)
    script.steal(1)
    script.until(lambda: script.replica(0).handing_to == 1)
    script.crash(1)
    script.until(lambda: script.replica(0).handing_to is None)
    if strategy is Strategy.WAIT_EXPIRY:  # the lease outlives the silence: nobody notices
        assert script.acting(0)
        assert "target not heard" in script.aborts()
        script.wait(2 * TIMING.lease_ns / MS)
        assert script.masters() == [0]
    script.until(lambda: script.masters() in ([0], [2]))
    script.until_acknowledged(script.write(script.masters()[0], 4))


def test_waiting_for_the_expiry_serves_nearly_to_the_end() -> None:
    script = begun(Strategy.WAIT_EXPIRY)
    script.steal(1)
    script.until(lambda: script.replica(0).handing_to == 1)
    expires_ns = script.replica(0).lease.expires_wall_ns
    seq = 3
    while script.acting(0):
        seq += 1
        ticket = script.write(0, seq)
        script.wait(10)
        if ticket.slot:
            served_ns = script.node(0).now().wall_ns
    assert script.replica(0).lease.expires_wall_ns == expires_ns, "no renewal"
    left_ns = expires_ns - TIMING.margin_ns - served_ns
    assert TIMING.last_commands_ns - 15 * MS < left_ns < TIMING.last_commands_ns + 30 * MS


@pytest.mark.parametrize("strategy", [Strategy.TWO_PROPOSES, Strategy.MOVE_EXPIRY])
@pytest.mark.parametrize("keep", [0, 100])
def test_the_entry_reaches_one_acceptor_and_its_author_crashes(
    strategy: Strategy, keep: int
) -> None:
    """Its fate is open: a rival recovers with it or without it, and there is one master in the
    end."""
    script = begun(strategy)
    lost = script.drop(source=0, target=2, where=is_kind(EntryKind.STEAL))
    script.steal(1)
    script.until(lambda: script.replica(0).suspended > 0)
    script.wait(2)
    script.crash(0, keep=keep)
    lost.lift()
    script.boot(0)
    script.until(lambda: len(script.masters()) == 1)
    script.until_acknowledged(script.write(script.masters()[0], 4, anywhere=True))
    script.same_everywhere()


@pytest.mark.parametrize("strategy", [Strategy.TWO_PROPOSES, Strategy.MOVE_EXPIRY])
def test_an_entry_that_is_lost_is_settled_and_its_author_goes_on(strategy: Strategy) -> None:
    script = begun(strategy)
    lost = script.drop(source=0, where=is_kind(EntryKind.STEAL))
    script.steal(1)
    script.until(lambda: script.replica(0).suspended > 0)
    assert not script.acting(0), "R3 holds for every last word"
    script.wait(100)
    lost.lift()
    script.until(lambda: script.replica(0).suspended == 0)
    script.until(lambda: len(script.masters()) == 1)
    script.until_acknowledged(script.write(script.masters()[0], 4))
    script.same_everywhere()


def test_move_expiry_ends_no_lease_before_its_time_by_any_clock() -> None:
    """A rival whose clock is ahead by the whole bound still starts after the holder has stopped."""
    script = begun(Strategy.MOVE_EXPIRY)
    script.set_clock(1, TIMING.margin_ns / MS - 1)
    script.set_clock(0, 1 - TIMING.margin_ns / MS)
    script.steal(1)
    script.until(lambda: not script.acting(0))
    stopped_ns = script.loop.now_ns
    script.until(lambda: script.acting(1))
    assert script.loop.now_ns > stopped_ns
    assert script.loop.now_ns - stopped_ns < 2 * TIMING.margin_ns, "the clocks cost it the margins"
    assert script.one_master.seen_two == 0
