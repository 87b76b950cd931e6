"""Scenario 26: whoever dies at any moment of a steal, the group soon has one master, then the right
one.

The token is free again, and everything acknowledged is there. The balancer is the production one:
node 2 is the ideal node of group 1 and holds the token, node 0 is its master, node 1 is a follower.
Each of them in turn is the registry's master.
"""

from collections.abc import Callable

import pytest

from balancer.registry.records import Outcome
from paxos.entry import EntryKind
from paxos.ids import MS, REGISTRY_GROUP
from paxos.messages import Accept, Accepted, Commit, StealRequest
from paxos.state.handover import Stage
from paxos.timing import Timing
from simulator.node.balancing import CONFIG
from simulator.script import GROUP, Script, is_kind

MASTER, FOLLOWER, IDEAL = 0, 1, 2
TIMING = Timing()
MASTERLESS_NS_MAX = (
    TIMING.lease_ns + 2 * TIMING.margin_ns + TIMING.settle_ns + TIMING.backoff_cap_ns + 500 * MS
)
"""The longest time nobody acts: a whole lease, if its holder is the node that died."""

TOKEN_MARGIN_NS = 500 * MS

Point = Callable[[Script], bool]


def has_token(script: Script) -> bool:
    token = script.registry(IDEAL).token
    return token is not None and token.group == GROUP


def asked(script: Script) -> bool:
    return any(one.target == MASTER for one in script.sent(StealRequest))


def draining(script: Script) -> bool:
    handover = script.replica(MASTER).handover
    return handover is not None and handover.stage is Stage.DRAINING


def sent(script: Script) -> bool:
    return script.replica(MASTER).suspended > 0


def chosen(script: Script) -> bool:
    return script.replica(MASTER).lease.holder == IDEAL


def taken_over(script: Script) -> bool:
    return script.acting(IDEAL)


def given_back(script: Script) -> bool:
    return bool(script.registry(IDEAL).history)


POINTS: dict[str, Point] = {
    point.__name__: point
    for point in (has_token, asked, draining, sent, chosen, taken_over, given_back)
}


def founded(registry: int = MASTER) -> Script:
    script = Script(groups=(REGISTRY_GROUP, GROUP), balancing=True)
    script.elect(registry, REGISTRY_GROUP)
    script.elect(MASTER)
    script.until(lambda: len(script.registry(MASTER).nodes) == 3)
    script.wait(600)
    script.write_all(MASTER, 3)
    return script


def begun_to(script: Script, point: Point) -> None:
    """A write is on its way, so that there is something to drain; then the steal begins."""
    script.place_master(GROUP, IDEAL)
    if point is draining:
        held = script.hold(Accepted, target=MASTER, where=lambda one: one.group == GROUP)
        script.write(MASTER, 4)
        script.until(lambda: point(script))
        held.lift()
    else:
        script.until(lambda: point(script))


def is_token_free(script: Script) -> bool:
    """It was given back or has expired: the next node that wants it takes it over."""
    token = script.registry(IDEAL).token
    now = script.node(IDEAL).now()
    return token is None or now.wall_ns > token.expires_wall_ns + TOKEN_MARGIN_NS


def ends_well(script: Script) -> None:
    """One master within the bound, then the ideal one; the token is free; the log goes on
    everywhere."""
    script.until(lambda: len(script.masters()) == 1, within_ns=MASTERLESS_NS_MAX)
    script.until(lambda: script.masters() == [IDEAL])
    script.until(lambda: is_token_free(script))
    ticket = script.write(IDEAL, 4)
    script.wait(200)
    if not ticket.slot:  # number 4 was written earlier, by another node's client
        script.until_acknowledged(script.write(IDEAL, 5))
    script.same_everywhere()
    assert script.replica(MASTER).handing_to is None


@pytest.mark.parametrize("victim", [MASTER, FOLLOWER, IDEAL])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash(point: str, victim: int) -> None:
    """The master, a follower, or the ideal node, which holds the token, crashes. It comes back a
    little later without anything it had not synced."""
    script = founded()
    begun_to(script, POINTS[point])
    script.crash(victim, keep=0)
    script.wait(700)
    script.boot(victim)
    ends_well(script)


@pytest.mark.parametrize("point", POINTS)
def test_the_registrys_master_crashes(point: str) -> None:
    """The token is in the registry's log: the next master knows it, and the watchdogs do the
    rest."""
    script = founded(registry=FOLLOWER)
    begun_to(script, POINTS[point])
    script.crash(FOLLOWER, keep=0)
    script.wait(700)
    script.boot(FOLLOWER)
    ends_well(script)


@pytest.mark.parametrize("point", POINTS)
def test_the_registrys_group_moves_meanwhile(point: str) -> None:
    """The registry's own steal needs no token (a drain); the token survives it in the log."""
    script = founded(registry=FOLLOWER)
    begun_to(script, POINTS[point])
    assert script.node(FOLLOWER).act(REGISTRY_GROUP, "hand over", script.node(MASTER).me) == ""
    ends_well(script)
    assert script.masters(REGISTRY_GROUP) == [MASTER]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("who", [MASTER, IDEAL])
def test_a_pause_longer_than_a_lease(point: str, who: int) -> None:
    """After a SIGSTOP the node goes on as if nothing had happened: it must notice (R11 to R14)."""
    script = founded()
    begun_to(script, POINTS[point])
    script.pause(who, TIMING.lease_ns / MS + 500)
    script.wait(TIMING.lease_ns / MS + 600)
    ends_well(script)
    assert script.one_master.seen_two == 0


LOST: dict[str, dict[str, object]] = {
    "the notice": {"kinds": (StealRequest,)},
    "the entry, everywhere": {"kinds": (Accept,), "where": is_kind(EntryKind.STEAL)},
    "the entry, to the follower": {
        "kinds": (Accept,),
        "where": is_kind(EntryKind.STEAL),
        "target": FOLLOWER,
    },
    "the votes": {"kinds": (Accepted,), "target": MASTER},
    "the commit": {"kinds": (Commit,), "source": MASTER, "target": IDEAL},
}


@pytest.mark.parametrize("what", LOST)
def test_a_message_is_lost(what: str) -> None:
    """It is lost for half a second; then it is sent again, or a watchdog ends the cycle."""
    script = founded()
    where = dict(LOST[what])
    kinds = where.pop("kinds")
    assert isinstance(kinds, tuple)
    lost = script.drop(*kinds, **where)  # type: ignore[arg-type]
    script.place_master(GROUP, IDEAL)
    script.until(lambda: bool(lost.caught))
    script.wait(500)
    lost.lift()
    ends_well(script)


def test_E21_a_notice_that_is_lost_for_good_ends_with_two_renewals() -> None:
    """Or with the deadline, if that is sooner. The group is muted for its cool-down, others could
    go on, and then the steal is tried again."""
    script = founded()
    lost = script.drop(StealRequest)
    began_ns = script.loop.now_ns
    script.place_master(GROUP, IDEAL)
    script.until(lambda: bool(script.registry(IDEAL).history))
    assert script.registry(IDEAL).history[0].outcome in (Outcome.RENEWED, Outcome.TIMED_OUT)
    assert script.loop.now_ns - began_ns <= CONFIG.deadline_ns + CONFIG.release_timeout_ns
    assert script.acting(MASTER), "it never heard of it"
    lost.lift()
    ends_well(script)


@pytest.mark.parametrize("ahead", [MASTER, IDEAL])
def test_clocks_at_the_edge_of_the_bound(ahead: int) -> None:
    """Nearly twice the margin apart: a steal needs no clock, and its token only a bounded one."""
    script = founded()
    edge_ms = TIMING.margin_ns / MS - 1
    for ident in (MASTER, FOLLOWER, IDEAL):
        script.set_clock(ident, edge_ms if ident == ahead else -edge_ms)
    script.place_master(GROUP, IDEAL)
    ends_well(script)
    assert script.one_master.seen_two == 0
    script.place_master(GROUP, MASTER)  # and back
    script.until(lambda: script.masters() == [MASTER])
    assert script.one_master.seen_two == 0
