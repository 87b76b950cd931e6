"""A node whose disk hangs gives up its masters, and bounds what waits for the disk."""

import pytest

from broker.proposals.intake import Done, FailureReason, NotDone
from paxos.changes import handover
from paxos.ids import MS, NodeId
from paxos.messages import Accept, Accepted
from runtime.disk.disk_pressure import OVERLOADED_NS, UNWRITTEN_BYTES_MAX, DiskPressure
from storage.disk.health import HUNG_NS
from storage.disk.space import Room
from tests.runtime.engines import TIMING, Net

HUNG_MS = HUNG_NS // MS
LEASE_MS = (TIMING.lease_ns + 2 * TIMING.margin_ns) // MS


@pytest.fixture
def net() -> Net:
    return Net()


def test_who_cannot_write_does_not_renew(net: Net) -> None:
    """The others' votes would suffice for renewals, for ever; and no group would have a master that
    can serve what is on its disk."""
    master = net.elect(2)
    epoch = master.replica.lease.epoch
    master.submit("before")
    net.settle()
    master.writer.held = True
    master.submit("meanwhile")
    net.advance(HUNG_MS + 100)
    assert master.engine.disk_health.hung
    net.advance(LEASE_MS + 1_000)
    assert not master.acting()
    (other,) = [one for one in net.members.values() if one.acting()]
    assert other.replica.lease.epoch > epoch
    assert master.submit("x") == [NotDone(FailureReason.NOT_MASTER, other.node)]
    assert other.ledger.texts() == ["before", "meanwhile"]


def test_it_hands_over_while_it_still_may(net: Net) -> None:
    """Its disk hangs, and the others' votes are enough for the Steal."""
    master = net.elect(2)
    master.writer.held = True
    master.submit("waits")
    net.advance(HUNG_MS + 100)
    assert master.acting()
    assert not handover.steal_away(master.replica, master.clock.now(), NodeId(3))
    net.advance(200)
    assert net[3].acting()
    outcome = net[3].submit("served")
    net.settle()
    assert outcome == [Done(b"2")]


def test_nothing_that_waits_for_the_disk_is_told(net: Net) -> None:
    master = net.elect(2)
    follower = net[1]
    net.settle()
    follower.writer.held = True
    net.sent.clear()
    outcome = master.submit("x")
    net.advance(HUNG_MS + 500)
    assert outcome == [Done(b"1")], "the other two are enough"
    assert follower.engine.disk_health.hung
    assert [one for one in net.sent if type(one.message) is Accept and one.target == 1]
    votes = [one for one in net.sent if type(one.message) is Accepted and one.source == 1]
    assert votes == []


def test_it_takes_part_again_when_the_disk_answers(net: Net) -> None:
    master = net.elect(2)
    master.writer.held = True
    master.submit("meanwhile")
    net.advance(HUNG_MS + LEASE_MS + 1_100)
    assert not master.acting()
    assert master.replica.election.abstaining
    master.writer.held = False
    net.advance(100)
    assert not master.engine.disk_health.hung
    assert not master.replica.election.abstaining
    assert master.ledger.texts() == ["meanwhile"]
    (now_master,) = [one for one in net.members.values() if one.acting()]
    (third,) = [one for one in net.others(2) if one is not now_master]
    net.crash(third.node)
    outcome = now_master.submit("needs its vote")
    net.advance(100)
    assert outcome == [Done(b"2")]


def test_who_leaves_goes_on_leaving(net: Net) -> None:
    """A short hang during the drain does not make the node a candidate again."""
    master = net.elect(2)
    master.engine.disk_watch.leaving = True
    master.replica.election.abstaining = True
    master.writer.held = True
    master.submit("x")
    net.advance(HUNG_MS + 100)
    master.writer.held = False
    net.advance(100)
    assert not master.engine.disk_health.hung
    assert master.replica.election.abstaining


def test_what_waits_in_memory_is_bounded() -> None:
    disk_pressure, room = DiskPressure(), Room(free_bytes=1 << 40, low=False, reserve=True)
    disk_pressure.seen(0, room, UNWRITTEN_BYTES_MAX)
    assert not any((disk_pressure.low, disk_pressure.critical, disk_pressure.stuck))
    disk_pressure.seen(0, room, UNWRITTEN_BYTES_MAX + 1)
    assert not disk_pressure.low, "a message of 10 MB in each group, for a moment"
    disk_pressure.seen(OVERLOADED_NS - 1, room, UNWRITTEN_BYTES_MAX)
    disk_pressure.seen(OVERLOADED_NS, room, UNWRITTEN_BYTES_MAX + 1)
    assert not disk_pressure.low, "it was less meanwhile"
    disk_pressure.seen(OVERLOADED_NS, room, UNWRITTEN_BYTES_MAX * 3 // 2 + 1)
    assert disk_pressure.low, "so much is too much at once"
    disk_pressure.seen(2 * OVERLOADED_NS, room, UNWRITTEN_BYTES_MAX + 1)
    assert disk_pressure.low, "clients' writes are refused, retriably"
    assert disk_pressure.critical, "peers' large entries are not taken"
    assert not disk_pressure.stuck, "leases, promises, steals go on"
    disk_pressure.seen(2 * OVERLOADED_NS, room, 2 * UNWRITTEN_BYTES_MAX + 1)
    assert disk_pressure.stuck, "nothing is taken any more"
    disk_pressure.seen(2 * OVERLOADED_NS, room, 0)
    assert not any(
        (disk_pressure.low, disk_pressure.critical, disk_pressure.stuck, disk_pressure.overloaded)
    )
