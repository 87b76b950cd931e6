"""Scenario 12: clocks at +eps and -eps, then beyond: the log stays safe, and it is noticed."""

import pytest

from paxos.ids import MS, NodeId
from runtime.system.clock import Clock as NodeClock
from simulator.environment.clock import Clock
from simulator.environment.options import Clocks
from simulator.script import Script


@pytest.mark.parametrize(("master_ms", "rival_ms"), [(-200, 200), (200, -200), (-200, -200)])
def test_within_the_bound_masters_never_overlap(master_ms: float, rival_ms: float) -> None:
    """The OneMaster checker runs at every moment at which a node begins to act."""
    script = Script()
    script.elect(0)
    script.set_clock(0, master_ms)
    script.set_clock(1, rival_ms)
    script.set_clock(2, rival_ms)
    script.wait(2_000)  # a renewal or two by the skewed clock
    script.isolate(0)
    script.until(lambda: script.masters() not in ([], [0]))
    assert script.one_master.seen_two == 0
    script.until_acknowledged(script.write(script.masters()[0], 1))


def test_beyond_the_bound_two_may_act_and_the_log_is_still_one() -> None:
    """I5: the checkers of the log stay on; the checker of the lease counts its violations."""
    script = Script(clocks=Clocks.BEYOND)
    script.elect(0)
    lease_ms = script.options.timing.lease_ns / MS
    script.wait(1_100)
    script.isolate(0)
    script.set_clock(0, -lease_ms)
    # M's own boot clock would stop it in time; this test lets that fail as well.
    script.replica(0).lease.deadline_boot_ns += int(lease_ms * MS)
    script.write(0, 1)  # two masters accept writes for one slot ...
    script.until(lambda: len(script.masters()) == 2)
    assert script.one_master.seen_two > 0
    other = next(node for node in script.masters() if node != 0)
    ticket = script.write(other, 1, client=200)
    script.until_acknowledged(ticket)
    script.mend()
    script.same_everywhere()  # ... and the ballot decides which write is in the log


class Skewed:
    """A node's operating system, as the production clock sees it."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.true_ns = clock, 0

    def wall_ns(self) -> int:
        return self.clock.read(self.true_ns).wall_ns

    def boot_ns(self) -> int:
        return self.clock.read(self.true_ns).boot_ns


@pytest.mark.parametrize(
    ("off_ms", "trusted"), [(0, True), (150, True), (170, False), (-400, False)]
)
def test_a_clock_near_the_bound_is_noticed_and_gives_its_masters_up(
    off_ms: int, trusted: bool
) -> None:
    """The production clock gets its peers' readings; when it is untrusted the replica does not
    act."""
    mine = Clock()
    mine.step(0, off_ms * MS)
    clock = NodeClock(200 * MS, Skewed(mine))
    for peer in (1, 2):
        clock.on_reading(NodeId(peer), -off_ms * MS, 1 * MS)
    assert clock.trusted is trusted

    script = Script()
    script.elect(0)
    script.node(0).clock.trusted = clock.trusted
    assert script.acting(0) is trusted
    if not trusted:
        script.until(lambda: script.masters() not in ([], [0]))
