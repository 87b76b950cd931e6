"""Scenario 8: a StealRequest of an old incarnation or version is refused or has no effect."""

from paxos.ids import Incarnation, Slot
from paxos.messages import Accept, Learned, StealRequest
from paxos.timing import STEAL_LAG_SLOTS_MAX
from simulator.script import GROUP, Script


def test_an_old_version_is_refused() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 1)
    old = Slot(script.replica(1).lease.ver - 1)
    script.node(1).ask_for(GROUP, Incarnation(1), old, 0)
    script.wait(10)
    assert script.aborts() == ["stale version"]
    assert script.masters() == [0]


def test_an_old_incarnation_is_refused_where_the_new_one_is_known() -> None:
    script = Script()
    script.elect(0)
    script.crash(1)
    script.boot(1)
    script.wait(600)  # its Progress has told the others
    script.node(1).ask_for(GROUP, Incarnation(1), script.replica(0).lease.ver, 0)
    script.wait(10)
    assert script.aborts() == ["stale incarnation"]
    assert script.masters() == [0]


def test_an_old_incarnation_that_slips_through_owns_nothing() -> None:
    """M does not know of the restart: the Steal names an incarnation that is over; nobody takes
    over b."""
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    ballot = script.replica(0).proposer.ballot
    late = script.hold(StealRequest)
    script.steal(1)
    script.crash(1)
    mute = script.drop(source=1)
    script.boot(1)
    script.release(late)
    script.until(lambda: script.replica(0).lease.holder == 1)
    assert script.replica(0).lease.incarnation == 1
    mute.lift()
    script.until(lambda: script.masters() == [1])
    assert script.replica(1).proposer.ballot > ballot
    script.until_acknowledged(script.write(1, 3))


def test_a_target_that_is_far_behind_is_refused() -> None:
    """It would have to learn all entries first, and nobody would act meanwhile."""
    script = Script()
    script.elect(0)
    script.drop(Accept, Learned, target=1)
    script.write_all(0, STEAL_LAG_SLOTS_MAX + 1)
    assert script.handed_over(0, 1) == "target behind"
    script.node(1).ask_for(GROUP, Incarnation(1), script.replica(0).lease.ver, 0)
    script.wait(10)
    assert script.aborts() == ["target behind"]
    assert script.masters() == [0]
