"""Each checker objects where it should; the parts of a world do their work."""

import random

import pytest

from paxos.entry import batch
from paxos.ids import BALLOT_ZERO, Ballot, GroupId, Incarnation, NodeId, Slot
from paxos.lease import Lease
from paxos.step import AcceptRecord, LearnedRecord, PromiseRecord
from simulator.checkers.protocol import (
    Acknowledged,
    Agreement,
    Chosen,
    Leases,
    OneMaster,
    OneValuePerBallot,
    Reads,
)
from simulator.environment.clock import Clock
from simulator.environment.loop import Loop
from simulator.environment.network import GOOD, Network
from simulator.environment.violation import Violation
from simulator.node.balancing import CONFIG, StealBudget
from simulator.node.disk import Boot, RecordDisk
from simulator.node.recovery import restarts
from simulator.node.state_machine import GAP, RESULT, Machine, command
from simulator.node.wal_disk import WalDisk

G = GroupId(1)
A, B, C = NodeId(0), NodeId(1), NodeId(2)
BALLOT, HIGHER = Ballot(1, A), Ballot(2, B)
ONE, OTHER = batch((command(100, 1),)), batch((command(100, 2),))


def agreement() -> Agreement:
    return Agreement({G: Machine()})


def test_two_values_at_one_ballot() -> None:
    checker = OneValuePerBallot()
    checker.seen(G, Slot(1), BALLOT, ONE)
    checker.seen(G, Slot(1), BALLOT, batch((command(100, 1),)))
    checker.seen(G, Slot(1), HIGHER, OTHER)
    with pytest.raises(Violation, match="I1"):
        checker.seen(G, Slot(1), BALLOT, OTHER)


def test_two_values_chosen() -> None:
    checker = Chosen({G: (A, B, C)})
    checker.voted(A, G, Slot(1), BALLOT, ONE)
    checker.voted(B, G, Slot(1), BALLOT, ONE)
    checker.voted(B, G, Slot(1), HIGHER, OTHER)
    with pytest.raises(Violation, match="I2"):
        checker.voted(C, G, Slot(1), HIGHER, OTHER)


def test_votes_of_outsiders_and_of_one_node_choose_nothing() -> None:
    checker = Chosen({G: (A, B, C)})
    for node in (A, NodeId(7), NodeId(8)):
        checker.voted(node, G, Slot(1), BALLOT, ONE)
    checker.voted(A, G, Slot(1), BALLOT, ONE)
    checker.voted(B, G, Slot(1), HIGHER, OTHER)
    checker.voted(C, G, Slot(1), HIGHER, OTHER)


def test_logs_that_part() -> None:
    checker = agreement()
    checker.applied(A, G, Slot(1), ONE)
    checker.applied(B, G, Slot(1), ONE)
    with pytest.raises(Violation, match="I3"):
        checker.applied(C, G, Slot(1), OTHER)
    with pytest.raises(Violation, match="I3"):
        checker.applied(C, G, Slot(3), OTHER)


def test_two_masters() -> None:
    OneMaster(enforced=True).acting(G, [A])
    with pytest.raises(Violation, match="I4"):
        OneMaster(enforced=True).acting(G, [A, B])
    beyond = OneMaster(enforced=False)
    beyond.acting(G, [A, B])
    assert beyond.seen_two == 1


def test_an_acknowledgement_of_what_is_not_there() -> None:
    log = agreement()
    checker = Acknowledged(log)
    with pytest.raises(Violation, match="not in the log"):
        checker.acknowledged(A, G, 100, 1, 1)
    log.applied(A, G, Slot(1), ONE)
    checker.acknowledged(A, G, 100, 1, 1)
    with pytest.raises(Violation, match="executed in slot 1"):
        checker.acknowledged(A, G, 100, 1, 2)
    assert checker.floor(G) == {100: 1}


def test_a_stale_read() -> None:
    reads = Reads(enforced=True)
    reads.answered(A, G, {100: 3}, {100: 3, 101: 9})
    with pytest.raises(Violation, match="I7"):
        reads.answered(A, G, {100: 3}, {100: 2})


def test_a_lease_that_goes_back() -> None:
    checker = Leases()
    checker.seen(A, G, Lease(holder=A, ver=Slot(3), epoch=Slot(3), expires_wall_ns=50))
    checker.seen(B, G, Lease(holder=A, ver=Slot(3), epoch=Slot(3), expires_wall_ns=50))
    with pytest.raises(Violation, match="I8"):
        checker.seen(B, G, Lease(holder=A, ver=Slot(5), epoch=Slot(3), expires_wall_ns=40))


def test_a_lease_that_differs_between_nodes() -> None:
    checker = Leases()
    checker.seen(A, G, Lease(holder=A, ver=Slot(3), epoch=Slot(3), expires_wall_ns=50))
    with pytest.raises(Violation, match="lease 3"):
        checker.seen(B, G, Lease(holder=B, ver=Slot(3), epoch=Slot(3), expires_wall_ns=50))


def test_two_steals_at_once() -> None:
    checker = StealBudget(enforced=True)
    checker.requested(A, G, B, 0)
    checker.requested(A, G, B, 5)
    checker.ended(A)
    checker.requested(B, G, A, 10)
    checker.requested(C, G, A, 10 + CONFIG.deadline_ns)
    with pytest.raises(Violation, match="I9"):
        checker.requested(B, G, A, 11 + CONFIG.deadline_ns)


def test_a_budget_of_steals_has_each_node_once() -> None:
    a, b, c, d, e, f = (NodeId(node) for node in range(6))
    checker = StealBudget(2, enforced=True)
    checker.requested(a, G, b, 0)
    checker.requested(c, G, d, 1)
    assert checker.together == 2
    with pytest.raises(Violation, match="I9"):
        checker.requested(e, G, f, 2)
    checker.ended(c)
    for target, source in ((c, a), (b, c), (c, b)):
        with pytest.raises(Violation, match="I9"):
            checker.requested(target, G, source, 3)


def test_the_machine_executes_only_the_next_sequence() -> None:
    """R16."""
    machine = Machine()
    results = machine.apply(Slot(1), batch((command(7, 1), command(7, 3), command(7, 1))))
    assert results == [RESULT.pack(1), GAP, RESULT.pack(1)]
    assert machine.apply(Slot(2), batch((command(7, 2),))) == [RESULT.pack(2)]
    assert machine.value() == {7: 2}


def test_a_cut_is_one_way() -> None:
    loop, arrived = Loop(), []
    network = Network(loop, random.Random(1), 1, 1)
    network.quality = GOOD
    for address in (0, 1):
        network.attach(address, lambda source, what: arrived.append((source, what)))
    network.isolate(1, [0, 1], inbound=True, outbound=False)
    network.send(0, 1, "lost")
    network.send(1, 0, "heard")
    loop.run_until(10)
    assert arrived == [(1, "heard")]


def test_the_loop_keeps_the_order_of_equal_times() -> None:
    loop, order = Loop(), []
    for name in "abc":
        loop.at(5, order.append, name)
    loop.at(2, order.append, "first")
    loop.run_until(5)
    assert order == ["first", "a", "b", "c"]
    assert loop.now_ns == 5


def test_clocks_step_drift_and_reboot() -> None:
    clock = Clock(boot_ppm=100)
    clock.step(1_000_000, 500, drift_ppm=100)
    before, after = clock.read(1_000_000), clock.read(11_000_000)
    assert after.wall_ns - before.wall_ns == 10_000_000 + 1_000
    assert after.boot_ns - before.boot_ns == 10_000_000 + 1_000
    clock.reboot(11_000_000)
    assert clock.read(11_000_000).boot_ns == 0


def records() -> list[AcceptRecord | LearnedRecord | PromiseRecord]:
    return [
        PromiseRecord(G, BALLOT),
        AcceptRecord(G, Slot(1), BALLOT, ONE, Slot(0)),
        AcceptRecord(G, Slot(2), BALLOT, ONE, Slot(0)),
        PromiseRecord(G, HIGHER),
        LearnedRecord(G, Slot(2), OTHER, Slot(1)),
        AcceptRecord(G, Slot(3), HIGHER, ONE, Slot(2)),
    ]


def test_a_restart_replays_what_its_records_prove() -> None:
    """The last record before the proof holds the chosen entry: in slot 2 the learned one."""
    restart = restarts(records())[G]
    assert [entry.same_as(want) for entry, want in zip(restart.chosen, (ONE, OTHER), strict=True)]
    assert restart.recovered.promised == HIGHER
    assert sorted(restart.recovered.votes) == [3]
    assert not restart.recovered.learned


@pytest.mark.parametrize("disk", [RecordDisk(), WalDisk(A)], ids=["records", "wal"])
def test_both_disks_recover_the_same(disk: RecordDisk | WalDisk) -> None:
    assert disk.boot([G]) == Boot(Incarnation(1), {})
    for record in records():
        disk.append([record])
        assert not disk.settled
        assert disk.begin()
        disk.end()
    assert disk.settled
    assert len(disk.durable) == 6
    booted = disk.boot([G])
    restart = booted.groups[G]
    assert booted.incarnation == 2
    assert (restart.recovered.promised, sorted(restart.recovered.votes)) == (HIGHER, [3])
    assert [e.same_as(w) for e, w in zip(restart.chosen, (ONE, OTHER), strict=True)] == [True] * 2


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_keeps_a_prefix_and_all_that_was_synced(seed: int) -> None:
    for disk in (RecordDisk(), WalDisk(A)):
        disk.boot(())
        disk.append(records()[:2])
        disk.begin()
        disk.end()
        disk.append(records()[2:])
        disk.begin()
        disk.cut_power(random.Random(seed))
        found = disk.boot(()).groups
        survived = found[G]
        votes = {*survived.recovered.votes, *range(1, len(survived.chosen) + 1)}
        assert {1} <= votes <= {1, 2, 3}
        assert survived.recovered.promised in (BALLOT, HIGHER)
        assert survived.recovered.promised != BALLOT_ZERO
