"""The lease record's rules as tables: margins, both clocks, R8, R11, R12, R15."""

import pytest

from paxos.entry import BeMaster, Entry, Steal, be_master, steal
from paxos.ids import MS, Incarnation, NodeId, Now, Slot
from paxos.lease import Lease
from paxos.messages import Learned
from paxos.timing import Timing
from tests.paxos.core import GROUP, Member, ballot, member

SECOND = 1_000 * MS
MARGIN = 200 * MS
LONGEST = 3 * SECOND


def steal_entry(
    *,
    source: int,
    target: int,
    round_: int = 1,
    prev: int = 0,
    inc: int = 1,
    expires: int = 1 << 60,
) -> Entry:
    value = Steal(
        NodeId(source),
        NodeId(target),
        Incarnation(inc),
        ballot(round_, source),
        Slot(prev),
        expires,
    )
    return steal(value)


def be_master_entry(node: int, *, prev: int, expires: int, inc: int = 1) -> Entry:
    return be_master(BeMaster(NodeId(node), Incarnation(inc), Slot(prev), expires))


def acting_master(timing: Timing | None = None) -> Member:
    """Node 0 of three, leading and acting, with its lease in slot 1."""
    one = member(timing=timing)
    one.lead()
    one.multi.peer_up(one.now, NodeId(1), Incarnation(1))
    one.multi.peer_up(one.now, NodeId(2), Incarnation(1))
    one.tick()
    one.accepted(1, 0, 1)
    assert one.replica.acting(one.now)
    return one


def held(*, expires: int = 10 * SECOND, wall: int = 7 * SECOND, boot: int = 7 * SECOND) -> Lease:
    """Node 0's lease until `expires`, applied when the clocks said `wall` and `boot`."""
    lease = Lease()
    value = BeMaster(NodeId(0), Incarnation(1), Slot(0), expires)
    assert lease.apply_be_master(Slot(1), value, Now(wall, boot), LONGEST)
    return lease


@pytest.mark.parametrize(
    ("wall", "boot", "trusted", "acts"),
    [
        (9_000, 9_000, True, True),
        (9_799, 9_799, True, True),
        (9_800, 9_799, True, False),  # keeping the margin is the holder's duty (R12)
        (9_799, 9_800, True, False),
        (5_000, 9_900, True, False),  # a wall clock stepped back does not extend the lease
        (9_900, 5_000, True, False),
        (9_000, 9_000, False, False),  # a clock that may be off by more than the bound
    ],
)
def test_the_holder_stops_a_margin_early_on_both_clocks(
    wall: int, boot: int, trusted: bool, acts: bool
) -> None:
    now = Now(wall * MS, boot * MS, trusted)
    assert held().safely_before_expiry(now, MARGIN) is acts


@pytest.mark.parametrize(
    ("wall", "boot", "free"),
    [
        (9_900, 9_900, False),
        (10_200, 10_201, False),
        (10_201, 10_200, False),
        (10_201, 10_201, True),
        (99_000, 8_000, False),  # a wall clock stepped forward does not end it early
    ],
)
def test_others_start_a_margin_late_on_both_clocks(wall: int, boot: int, free: bool) -> None:
    assert held().free(Now(wall * MS, boot * MS), MARGIN) is free


def test_nobody_holds_the_first_lease() -> None:
    assert Lease().free(Now(0, 0), MARGIN)
    assert not Lease().held_by(NodeId(0), Incarnation(1))


def test_no_lease_runs_longer_than_the_longest_on_the_boot_clock() -> None:
    """Its author's wall clock was far ahead: our own clock still ends it."""
    lease = held(expires=100 * SECOND)
    assert lease.deadline_boot_ns == 7 * SECOND + LONGEST


def test_a_lease_entry_is_compare_and_set_on_the_version() -> None:
    """R8: if two entries saw the same version, the first in the log wins, whoever wrote it."""
    lease = held()
    now = Now(8 * SECOND, 8 * SECOND)
    late = BeMaster(NodeId(1), Incarnation(1), Slot(0), 20 * SECOND)
    assert not lease.apply_be_master(Slot(2), late, now, LONGEST)
    assert (lease.holder, lease.ver, lease.epoch) == (0, 1, 1)
    stale = Steal(NodeId(0), NodeId(2), Incarnation(1), ballot(1, 0), Slot(0), 20 * SECOND)
    assert not lease.apply_steal(Slot(3), stale, now, LONGEST)
    assert lease.holder == 0


def test_a_renewal_keeps_the_epoch_and_never_shortens() -> None:
    """R15."""
    lease = held()
    now = Now(8 * SECOND, 8 * SECOND)
    shorter = BeMaster(NodeId(0), Incarnation(1), Slot(1), 9 * SECOND)
    assert lease.apply_be_master(Slot(5), shorter, now, LONGEST)
    assert (lease.ver, lease.epoch, lease.expires_wall_ns) == (5, 1, 10 * SECOND)
    assert (lease.renewals, lease.deadline_boot_ns) == (1, 10 * SECOND)


def test_a_steal_moves_the_expiry_back_if_need_be_and_begins_an_epoch() -> None:
    lease = held()
    value = Steal(NodeId(0), NodeId(2), Incarnation(4), ballot(1, 0), Slot(1), 9 * SECOND)
    assert lease.apply_steal(Slot(6), value, Now(8 * SECOND, 8 * SECOND), LONGEST)
    assert lease.held_by(NodeId(2), Incarnation(4))
    assert (lease.ver, lease.since, lease.epoch, lease.expires_wall_ns) == (6, 6, 2, 9 * SECOND)
    assert lease.renewals == 0


def test_another_incarnation_of_the_holder_begins_an_epoch() -> None:
    """R11: a restarted holder never acts on the lease of its earlier life."""
    lease = held()
    assert not lease.held_by(NodeId(0), Incarnation(2))
    again = BeMaster(NodeId(0), Incarnation(2), Slot(1), 9 * SECOND)
    assert lease.apply_be_master(Slot(2), again, Now(8 * SECOND, 8 * SECOND), LONGEST)
    assert (lease.epoch, lease.expires_wall_ns) == (2, 9 * SECOND)


def test_a_replayed_lease_is_not_acted_on() -> None:
    """R11, on the replica: the log gives the lease to an earlier incarnation of node 0."""
    one = member(incarnation=2)
    entry = be_master_entry(0, prev=0, expires=one.now_ns + LONGEST, inc=1)
    one.give(1, Learned(GROUP, Slot(1), (entry,)))
    assert one.replica.lease.holder == 0
    assert not one.replica.acting(one.now)


def test_a_suspended_master_does_not_act() -> None:
    """R13."""
    one = acting_master()
    one.replica.suspended = Slot(2)
    assert not one.replica.acting(one.now)
