"""The node's clock: it never jumps, and it stops being trusted before the margin is used up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxos.ids import MS, NodeId
from runtime.system.clock import Clock
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
    """NTP or an operator moves the wall clock by an hour: our leases hardly notice."""
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
    """The loop hung, or the machine slept: the limit is per second, not per call."""
    system.wall += 8 * MS
    system.advance(5 * SECOND_NS)
    clock.slew()
    assert error_ns(system, clock) == -3 * MS


def test_suspend_counts_as_time(system: FakeSystemClock, clock: Clock) -> None:
    """CLOCK_BOOTTIME continues while the machine sleeps, so a lease cannot expire unnoticed."""
    before = clock.now()
    system.advance(60 * SECOND_NS)
    after = clock.now()
    assert after.wall_ns - before.wall_ns == after.boot_ns - before.boot_ns == 60 * SECOND_NS


# -- trust ----------------------------------------------------------------------------------------


def starting(system: FakeSystemClock, others_needed: int = 1) -> Clock:
    return Clock(MARGIN_NS, system, others_needed=others_needed)


@pytest.fixture
def agreed(system: FakeSystemClock) -> Clock:
    """One of three nodes whose clocks agreed."""
    clock = starting(system)
    for peer in (A, B):
        clock.on_reading(peer, 0, MS)
    assert clock.now().trusted
    return clock


def test_one_bad_peer_is_outvoted(system: FakeSystemClock) -> None:
    """Two of three clocks agree: the third one's reading is its own problem."""
    clock = starting(system)
    clock.on_reading(A, 0, MS)
    clock.on_reading(B, 3_600 * SECOND_NS, MS)
    assert clock.now().trusted
    assert clock.offsets_ns == {A: 0, B: 3_600 * SECOND_NS}


def test_two_peers_against_us_cost_us_our_trust(agreed: Clock) -> None:
    """The median of three clocks is nearly a margin away: then ours is wrong."""
    agreed.on_reading(A, -171 * MS, MS)
    assert agreed.now().trusted, "the other one vouches for us"
    agreed.on_reading(B, -175 * MS, MS)
    assert not agreed.now().trusted
    assert "clock is off" in agreed.complaint


@pytest.mark.parametrize(
    ("off_ms", "error_ms", "trusted"),
    [
        (158, 1, True),
        (159, 1, False),
        (-158, 1, True),
        (-159, 1, False),
        (0, 159, True),
        (0, 160, False),
        (155, 100, False),
        (900, 800, False),
    ],
)
def test_trust_begins_when_even_the_worst_case_is_within_four_fifths_of_the_margin(
    system: FakeSystemClock, off_ms: int, error_ms: int, trusted: bool
) -> None:
    clock = starting(system)
    for peer in (A, B):
        clock.on_reading(peer, off_ms * MS, error_ms * MS)
    assert clock.now().trusted is trusted


@pytest.mark.parametrize(
    ("off_ms", "error_ms", "trusted"),
    [
        (160, 1, True),
        (161, 1, False),
        (-161, 1, False),
        (259, 100, True),
        (260, 100, False),
        (5_000, 120, False),
        (-5_000, 4_000, False),
    ],
)
def test_doubt_begins_when_even_the_best_case_is_not(
    system: FakeSystemClock, off_ms: int, error_ms: int, trusted: bool
) -> None:
    """A slow reading may prove a fault as well as a quick one."""
    clock = starting(system)
    for peer in (A, B):
        clock.on_reading(peer, 150 * MS, 5 * MS)
    assert clock.now().trusted
    for peer in (A, B):
        clock.on_reading(peer, off_ms * MS, error_ms * MS)
    assert clock.now().trusted is trusted


def test_trust_comes_back_with_better_readings(system: FakeSystemClock, agreed: Clock) -> None:
    for peer in (A, B):
        agreed.on_reading(peer, 190 * MS, MS)
    assert not agreed.now().trusted
    live(system, agreed, 1)
    agreed.on_reading(A, 20 * MS, MS)
    assert agreed.now().trusted, "two of three agree again"


def test_with_more_nodes_more_have_to_agree_again(system: FakeSystemClock) -> None:
    """Agreement has to be new: a peer that had no objection before the others objected does not
    count."""
    clock = starting(system, others_needed=2)
    for peer in (A, B, C):
        clock.on_reading(peer, 0, MS)
    for peer in (B, C):
        clock.on_reading(peer, -10 * SECOND_NS, MS)
    assert not clock.now().trusted
    live(system, clock, 1)
    clock.on_reading(B, 0, MS)
    assert not clock.now().trusted
    clock.on_reading(A, 0, MS)
    assert clock.now().trusted


def test_three_clocks_of_which_no_two_agree_are_not_trusted(agreed: Clock) -> None:
    """The bound is violated, and that ours is between the others does not help."""
    agreed.on_reading(A, -500 * MS, MS)
    agreed.on_reading(B, 500 * MS, MS)
    assert not agreed.now().trusted


def test_a_clock_known_to_be_wrong_stays_so_when_links_are_lost(agreed: Clock) -> None:
    """A lost link says nothing about the time: two masters were the consequence (issue 23)."""
    for peer in (A, B):
        agreed.on_reading(peer, -10 * SECOND_NS, MS)
    for peer in (A, B):
        agreed.forget(peer)
        assert not agreed.now().trusted
    agreed.on_reading(A, -10 * SECOND_NS, MS)
    assert not agreed.now().trusted
    assert agreed.complaint


def test_slow_readings_that_prove_nothing_keep_trust_and_do_not_give_it_back(
    system: FakeSystemClock, agreed: Clock
) -> None:
    """A line of one megabit is full for minutes: the clock is as good as it was."""
    for _ in range(600):
        live(system, agreed, 1)
        agreed.on_reading(A, 0, 400 * MS)
        assert agreed.now().trusted
    for peer in (A, B):
        agreed.on_reading(peer, SECOND_NS, 400 * MS)
    assert not agreed.now().trusted
    agreed.on_reading(A, 0, 400 * MS)
    agreed.on_reading(B, 0, 400 * MS)
    assert not agreed.now().trusted


def test_slow_readings_together_prove_no_more_than_the_best_of_them(
    system: FakeSystemClock,
) -> None:
    """The peer's clock may have been set between them."""
    clock = starting(system)
    clock.on_reading(A, 1 * MS, 159 * MS)
    clock.on_reading(A, -200 * MS, 42 * MS)
    assert not clock.now().trusted
    clock = starting(system)
    clock.on_reading(A, -150 * MS, 200 * MS)
    clock.on_reading(A, 150 * MS, 250 * MS)
    assert not clock.now().trusted


def test_nobody_vouches_for_ever(system: FakeSystemClock, agreed: Clock) -> None:
    """A peer that is gone is outvoted by one that is there, and in the end by none at all."""
    for peer in (A, B):
        agreed.forget(peer)
    live(system, agreed, 29)
    assert agreed.now().trusted, "a link that is lost says nothing about the time"
    agreed.on_reading(B, -300 * SECOND_NS, MS)
    assert agreed.now().trusted
    live(system, agreed, 2)
    assert not agreed.now().trusted
    assert "node 3" in agreed.complaint
    agreed.on_reading(A, 0, MS)
    assert agreed.now().trusted


def test_a_peer_that_was_removed_has_no_say_any_more(system: FakeSystemClock) -> None:
    clock = starting(system, others_needed=2)
    for peer in (A, B):
        clock.on_reading(peer, 0, MS)
    clock.on_reading(C, SECOND_NS, MS)
    clock.drop(A)
    assert not clock.now().trusted
    clock.drop(C)
    clock.needs(1)
    clock.on_reading(B, 0, MS)
    assert clock.now().trusted
    assert clock.offsets_ns == {B: 0}


# -- a machine that stood still -------------------------------------------------------------------


def test_clocks_that_stood_still_are_doubted_at_a_peers_first_word(
    system: FakeSystemClock, agreed: Clock
) -> None:
    """Whatever that peer said before: it had not seen the standstill yet."""
    live(system, agreed, 1)
    agreed.on_told(A, agreed.now().wall_ns + 5 * SECOND_NS)
    assert not agreed.now().trusted
    assert agreed.trust.asks
    assert agreed.trust.stood_still == 1


def test_answers_to_what_was_asked_before_it_stood_still_prove_nothing(
    system: FakeSystemClock, agreed: Clock
) -> None:
    """They waited in the socket and look quick."""
    live(system, agreed, 1)
    agreed.on_reading(A, 5 * SECOND_NS, MS)
    agreed.on_reading(B, 0, 2 * MS)
    assert not agreed.now().trusted
    system.advance(4 * MS)
    agreed.on_reading(B, 5 * SECOND_NS, 2 * MS)
    assert not agreed.now().trusted, "it was us"


def test_words_that_waited_while_it_stood_still_do_not_hide_that_it_did(agreed: Clock) -> None:
    """Peers ask five times a second: the first question in the socket is ahead by little, and later
    ones by more and more."""
    for ahead_ms in (45, 145, 245):
        assert agreed.trusted
        agreed.on_told(A, agreed.now().wall_ns + ahead_ms * MS)
    assert not agreed.trusted


def test_an_answer_after_such_a_word_shows_that_it_stood_still(agreed: Clock) -> None:
    agreed.on_told(A, agreed.now().wall_ns + 45 * MS)
    agreed.on_reading(A, 3 * SECOND_NS, MS)
    assert not agreed.trusted
    assert agreed.trust.stood_still == 1


def test_a_peer_behind_a_slow_link_can_tell_that_it_stood_still(system: FakeSystemClock) -> None:
    """Its answers cannot prove agreement within the margin, but they do prove that it is seconds
    ahead now."""
    clock = starting(system)
    clock.on_reading(B, 0, MS)
    clock.on_reading(A, 100 * MS, 300 * MS)
    assert clock.trusted
    clock.on_told(A, clock.now().wall_ns + 5 * SECOND_NS)
    assert not clock.trusted


def test_if_it_was_the_peer_the_next_answer_of_another_says_so(
    system: FakeSystemClock, agreed: Clock
) -> None:
    live(system, agreed, 1)
    agreed.on_reading(A, 5 * SECOND_NS, MS)
    assert not agreed.now().trusted
    system.advance(10 * MS)
    agreed.on_reading(B, 0, 2 * MS)
    assert agreed.now().trusted
    for _ in range(9):
        live(system, agreed, 1)
        agreed.on_reading(A, 0, MS)
        agreed.on_reading(A, 5 * SECOND_NS, MS)
        assert agreed.now().trusted, "a clock that jumps about costs others next to nothing"


def test_who_was_right_is_heard_again_at_any_time(system: FakeSystemClock, agreed: Clock) -> None:
    """The machine stands still again and again, and only one link is left."""
    for stop in range(1, 4):
        ahead = 5 * stop * SECOND_NS
        agreed.on_told(A, agreed.now().wall_ns + ahead)
        assert not agreed.now().trusted
        system.wall += ahead
        system.advance(10 * MS)
        for peer in (A, B):  # its clock was corrected meanwhile
            agreed.on_reading(peer, 0, 2 * MS)
        assert agreed.now().trusted


def test_a_peer_that_stood_still_itself_costs_us_nothing(agreed: Clock) -> None:
    agreed.on_reading(A, -5 * SECOND_NS, MS)
    assert agreed.now().trusted
    assert agreed.trust.stood_still == 0


def test_what_a_peer_says_unasked_is_no_proof_that_we_are_right(agreed: Clock) -> None:
    """It may have been under way for any time: it only gives a lower bound of our lateness."""
    for peer in (A, B):
        agreed.on_reading(peer, 10 * SECOND_NS, MS)
    for peer in (A, B):
        agreed.on_told(peer, agreed.now().wall_ns + 20 * SECOND_NS)
        agreed.on_told(peer, agreed.now().wall_ns)
    assert not agreed.now().trusted


# -- before the first comparison ------------------------------------------------------------------


def test_a_node_that_has_just_started_asks_a_majority_first(system: FakeSystemClock) -> None:
    """A wrong clock sees all leases as expired: before a comparison it would take their groups for
    hours."""
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
    assert "clock is off from that of node 2 by 299999 ms" in clock.complaint
    clock.on_reading(B, 5 * MS, MS)
    assert clock.now().trusted, "now they are two against one"


# -- with random readings -------------------------------------------------------------------------

PEERS = (A, B, C, NodeId(5))
words = st.lists(
    st.tuples(
        st.sampled_from(["read", "told", "lost", "wait", "stop", "step"]),
        st.sampled_from(PEERS),
        st.integers(-400, 400),
        st.integers(0, 300),
    ),
    max_size=40,
)


@given(words=words, others=st.integers(1, 2))
def test_a_clock_that_is_trusted_is_as_good_as_somebody_who_vouches_for_it(
    words: list[tuple[str, NodeId, int, int]], others: int
) -> None:
    """Peers answer with any delay in either direction. While enough peers have clocks that never
    jumped, the clock of a node that regains trust is within the margin of that many of them."""
    system = FakeSystemClock()
    clock = Clock(MARGIN_NS, system, others_needed=others)
    true_ns = dict.fromkeys(PEERS, 0)  # by how much each peer's clock is ahead of ours
    for what, peer, offset_ms, error_ms in words:
        before = clock.trusted
        if what == "read":
            skew = max(-error_ms, min(error_ms, offset_ms))
            system.advance(2 * error_ms * MS)
            clock.on_reading(peer, true_ns[peer] + skew * MS, error_ms * MS)
        elif what == "told":
            clock.on_told(peer, clock.now().wall_ns + true_ns[peer] - error_ms * MS)
        elif what == "lost":
            clock.forget(peer)
        elif what == "wait":
            live(system, clock, 1 + error_ms // 100)
        elif what == "stop":  # ours falls behind, so that all others get ahead
            true_ns = {node: ahead + error_ms * 10 * MS for node, ahead in true_ns.items()}
        else:
            true_ns[peer] += offset_ms * MS
        if clock.trusted and not before:
            assert what == "read", "only an answer gives trust back"
            assert abs(true_ns[peer]) < MARGIN_NS


@given(words=words, others=st.integers(1, 2))
def test_once_all_others_have_contradicted_it_only_a_majority_gives_trust_back(
    words: list[tuple[str, NodeId, int, int]], others: int
) -> None:
    """Lost links, slow answers and the passing of time do not."""
    system = FakeSystemClock()
    clock = Clock(MARGIN_NS, system, others_needed=others)
    for peer in PEERS:
        clock.on_reading(peer, 0, MS)
    for peer in PEERS:
        clock.on_reading(peer, -10 * SECOND_NS, MS)
    assert not clock.trusted
    agreed: set[NodeId] = set()
    for what, peer, offset_ms, error_ms in words:
        if what == "read":
            clock.on_reading(peer, offset_ms * MS, error_ms * MS)
            if abs(offset_ms) - error_ms < 160:
                agreed.add(peer)
        elif what == "told":
            clock.on_told(peer, clock.now().wall_ns + offset_ms * MS)
        elif what == "lost":
            clock.forget(peer)
        else:
            live(system, clock, 1)
        if clock.trusted:
            assert len(agreed) >= max(others, len(PEERS) // 2)
