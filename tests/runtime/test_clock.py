"""The node's clock: it never jumps, and it stops being trusted before the margin is used up."""

import pytest

from paxos.ids import MS, NodeId
from runtime.clock import Clock
from tests.runtime.doubles import START_BOOT_NS, START_WALL_NS, FakeSystemClock

MARGIN_NS = 200 * MS
SECOND_NS = 1_000 * MS
A, B, C = NodeId(2), NodeId(3), NodeId(4)


@pytest.fixture
def system() -> FakeSystemClock:
    return FakeSystemClock()


@pytest.fixture
def clock(system: FakeSystemClock) -> Clock:
    return Clock(MARGIN_NS, system)


def live(system: FakeSystemClock, clock: Clock, seconds: int) -> None:
    """Time passes; slewing happens at every tick of 20 ms."""
    for _ in range(seconds * 50):
        system.advance(20 * MS)
        clock.slew()


def error_ns(system: FakeSystemClock, clock: Clock) -> int:
    return clock.now().wall_ns - system.wall_ns()


def test_it_starts_with_what_the_system_says(clock: Clock) -> None:
    now = clock.now()
    assert (now.wall_ns, now.boot_ns, now.trusted) == (START_WALL_NS, START_BOOT_NS, True)


def test_a_stepped_wall_clock_does_not_step_ours(system: FakeSystemClock, clock: Clock) -> None:
    """NTP or an operator moves the wall clock by an hour: our leases notice next to nothing."""
    before = clock.now()
    system.wall += 3_600 * SECOND_NS
    assert clock.now() == before
    live(system, clock, 1)
    moved = clock.now().wall_ns - before.wall_ns - SECOND_NS
    assert 0 < moved <= 1 * MS


@pytest.mark.parametrize("step_ns", [-5 * MS, 5 * MS])
def test_a_small_error_is_slewed_away_and_then_left_alone(
    system: FakeSystemClock, clock: Clock, step_ns: int
) -> None:
    """At 1 ms per second, in either direction, and not beyond the goal."""
    system.wall += step_ns
    live(system, clock, 2)
    assert error_ns(system, clock) == pytest.approx(-step_ns * 3 / 5, abs=MS / 10)
    live(system, clock, 4)
    assert error_ns(system, clock) == 0


def test_slewing_backwards_never_makes_time_run_backwards(
    system: FakeSystemClock, clock: Clock
) -> None:
    system.wall -= 3_600 * SECOND_NS
    readings = []
    for _ in range(200):
        system.advance(20 * MS)
        clock.slew()
        readings.append(clock.now().wall_ns)
    assert readings == sorted(set(readings))


def test_a_clock_that_was_not_slewed_for_long_makes_up_for_it(
    system: FakeSystemClock, clock: Clock
) -> None:
    """The loop hung, or the machine slept: the bound is per second, not per call."""
    system.wall += 8 * MS
    system.advance(5 * SECOND_NS)
    clock.slew()
    assert error_ns(system, clock) == -3 * MS


def test_suspend_counts_as_time(system: FakeSystemClock, clock: Clock) -> None:
    """CLOCK_BOOTTIME goes on while the machine sleeps, so no lease outlives its expiry unseen."""
    before = clock.now()
    system.advance(60 * SECOND_NS)
    after = clock.now()
    assert after.wall_ns - before.wall_ns == after.boot_ns - before.boot_ns == 60 * SECOND_NS


# -- trust ----------------------------------------------------------------------------------------


def test_one_bad_peer_is_outvoted(clock: Clock) -> None:
    """Two clocks of three agree: the third one's reading is its own problem."""
    clock.on_reading(A, 0, MS)
    clock.on_reading(B, 3_600 * SECOND_NS, MS)
    assert clock.now().trusted
    assert clock.offsets_ns == {A: 0, B: 3_600 * SECOND_NS}


def test_two_peers_against_us_cost_us_our_trust(clock: Clock) -> None:
    """The middle of three clocks is nearly a margin away: then it is ours that is wrong."""
    clock.on_reading(A, 161 * MS, MS)
    assert clock.now().trusted, "one peer alone proves nothing"
    clock.on_reading(B, 175 * MS, MS)
    assert not clock.now().trusted
    assert clock.off_by_ns() == 161 * MS


@pytest.mark.parametrize(
    ("off_ms", "trusted"), [(159, True), (160, False), (-159, True), (-160, False)]
)
def test_trust_ends_at_four_fifths_of_the_margin(clock: Clock, off_ms: int, trusted: bool) -> None:
    for peer in (A, B):
        clock.on_reading(peer, off_ms * MS, MS)
    assert clock.now().trusted is trusted


def test_trust_comes_back_with_better_readings(clock: Clock) -> None:
    for peer in (A, B):
        clock.on_reading(peer, 190 * MS, MS)
    assert not clock.now().trusted
    clock.on_reading(A, 20 * MS, MS)
    assert clock.now().trusted


def test_peers_that_are_wrong_in_opposite_directions_leave_us_in_the_middle(clock: Clock) -> None:
    clock.on_reading(A, 500 * MS, MS)
    clock.on_reading(B, -500 * MS, MS)
    assert clock.now().trusted


def test_a_reading_that_took_too_long_says_nothing(clock: Clock) -> None:
    """Its error is half the way there and back: over half the margin it could mean anything."""
    for peer in (A, B):
        clock.on_reading(peer, 190 * MS, MARGIN_NS // 2 + 1)
    assert clock.now().trusted
    assert clock.offsets_ns == {}


def test_a_peer_that_is_gone_votes_no_more(clock: Clock) -> None:
    """Four nodes: the last reading of a dead peer must not decide whether we may act."""
    for peer, offset_ms in ((A, 190), (B, 190), (C, 190)):
        clock.on_reading(peer, offset_ms * MS, MS)
    assert not clock.now().trusted
    clock.forget(A)
    assert not clock.now().trusted
    clock.forget(B)
    assert clock.now().trusted, "one peer alone proves nothing"
    clock.forget(B)
    assert clock.offsets_ns == {C: 190 * MS}


# -- before it has been compared ------------------------------------------------------------------


def starting(system: FakeSystemClock, others_needed: int = 1) -> Clock:
    return Clock(MARGIN_NS, system, others_needed=others_needed)


def test_a_node_that_has_just_started_asks_a_majority_first(system: FakeSystemClock) -> None:
    """A wrong clock sees all leases over: before anybody said so, it would take them for hours."""
    clock = starting(system, others_needed=2)
    assert "not been compared" in clock.complaint
    assert not clock.now().trusted
    clock.on_reading(A, 10 * MS, MS)
    clock.on_reading(A, 10 * MS, MS)
    assert not clock.now().trusted, "one node is one, however often it is asked"
    clock.on_reading(B, -10 * MS, MS)
    assert clock.now().trusted
    assert clock.complaint == ""


def test_one_that_contradicts_does_not_make_it_trusted(system: FakeSystemClock) -> None:
    """Two nodes of three are up, and nobody can say whose clock is wrong."""
    clock = starting(system)
    clock.on_reading(A, 300 * SECOND_NS, MS)
    assert not clock.now().trusted
    assert "clock is off" in clock.complaint
    clock.on_reading(B, 5 * MS, MS)
    assert clock.now().trusted, "now they are two against one"


def test_what_was_trusted_once_takes_more_than_one_to_be_doubted(system: FakeSystemClock) -> None:
    clock = starting(system)
    clock.on_reading(A, 0, MS)
    clock.forget(A)
    assert clock.now().trusted, "a link that is lost says nothing about the time"
    clock.on_reading(B, 300 * SECOND_NS, MS)
    assert clock.now().trusted


def test_a_slow_exchange_is_enough_to_see_that_it_is_far_off(system: FakeSystemClock) -> None:
    clock = starting(system)
    clock.on_reading(A, 300 * SECOND_NS, 500 * MS)
    assert not clock.now().trusted
    clock.on_reading(A, 300 * MS, 500 * MS)
    assert clock.now().trusted, "as far as anybody can tell: the node must not wait for ever"
    assert clock.offsets_ns == {}
