"""Scenario 13: the wall clock is set back on the holder, and forward on a rival."""

from paxos.ids import MS
from simulator.script import Script


def test_set_back_on_the_holder_it_does_not_extend_the_lease() -> None:
    """The deadline on the holder's own boot clock ends the lease."""
    script = Script()
    script.elect(0)
    lease_ms = script.options.timing.lease_ns / MS
    script.isolate(0)
    script.set_clock(0, -10 * lease_ms)
    assert script.acting(0)
    script.wait(lease_ms)
    assert not script.acting(0)
    script.until(lambda: script.masters() not in ([], [0]))
    assert script.one_master.seen_two == 0


def test_set_forward_on_a_rival_it_does_not_shorten_the_lease() -> None:
    """The others' boot clocks must agree that the lease is over."""
    script = Script()
    script.elect(0)
    lease_ms = script.options.timing.lease_ns / MS
    script.isolate(0)
    script.set_clock(1, 10 * lease_ms)
    script.set_clock(2, 10 * lease_ms)
    began_ns = script.loop.now_ns
    script.until(lambda: not script.acting(0))
    script.until(lambda: script.masters() != [])
    assert script.loop.now_ns - began_ns > script.options.timing.lease_ns / 2
    assert script.one_master.seen_two == 0
