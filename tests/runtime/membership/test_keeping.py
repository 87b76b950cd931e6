"""What a node records beside its log, and an operator's order, carried out once."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from paxos.ids import BALLOT_ZERO, MS, GroupId, Incarnation, NodeId, Slot
from paxos.messages import Progress
from paxos.state.core import Recovered
from paxos.step import Step, VotingRecord
from runtime.membership.admission import Admission, Life
from runtime.membership.local_records import UNSAFE_AFTER_NS, LocalRecords, UnsafeOrder
from runtime.shell import what_is_in_doubt, why_no_master
from runtime.system.journal import Journal
from runtime.system.worker import Worker
from storage.disk.memory import MemoryDisk
from storage.evidence import evidence_name
from storage.format import segment_name
from storage.log.wal import Wal
from storage.witness import read_witness
from tests.paxos.core import GROUP, LIFE, Member, ballot, member

OTHER = NodeId(2)


class Harness:
    def __init__(self, directory: Path, disk: MemoryDisk) -> None:
        self.disk = disk
        self.worker = Worker("keeping", lambda: None)
        self.local_records = LocalRecords(disk, directory, self.worker, Journal("error", node=1))
        self.local_records.admission = Admission(
            NodeId(1),
            Incarnation(9),
            Incarnation(8),
            quorum_sets=lambda: [(NodeId(1), OTHER)],
            nodes=dict,
            untouched=lambda _node: False,
            witnessed=read_witness(disk),
        )
        self.worker.start()

    def hears(self, place: int) -> None:
        assert self.local_records.admission is not None
        one = Life(Incarnation(5), Incarnation(4), place, settled=True, asks=False)
        for _ in range(2):  # a single report may be wrong
            self.local_records.admission.witness(OTHER, one)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while not condition():
                await trio.sleep(0.001)
                self.worker.take()


async def test_what_is_heard_of_others_is_written_when_it_changes(tmp_path: Path) -> None:
    harness = Harness(tmp_path, MemoryDisk())
    harness.local_records.tick()
    assert not harness.worker.jobs, "nothing is known"
    harness.hears(70)
    harness.local_records.tick()
    harness.hears(80)
    harness.local_records.tick()
    assert harness.worker.jobs <= 1, "one at a time"
    await harness.until(lambda: not harness.worker.jobs)
    assert read_witness(harness.disk) == {OTHER: (5, 70)}
    harness.local_records.tick()
    await harness.until(lambda: not harness.worker.jobs)
    assert read_witness(harness.disk) == {OTHER: (5, 80)}
    harness.local_records.tick()
    assert not harness.worker.jobs, "nothing has changed"
    later = Harness(tmp_path, harness.disk)
    later.local_records.tick()
    assert not later.worker.jobs, "it is what the disk says"
    for one in (harness, later):
        assert one.worker.stop()


async def test_evidence_is_kept_aside(tmp_path: Path) -> None:
    (tmp_path / segment_name(1)).write_text("log")
    harness = Harness(tmp_path, MemoryDisk())
    harness.local_records.keep_evidence(GROUP)
    await harness.until(lambda: not harness.worker.jobs)
    assert (tmp_path / evidence_name(GROUP) / segment_name(1)).read_text() == "log"
    assert harness.worker.stop()


# -- an operator's order --------------------------------------------------------------------------


class Damaged(Wal):
    """A log in which one slot cannot be read."""

    def __init__(self, lost: int) -> None:
        self.lost = lost

    def slots(self, group: GroupId) -> range:
        return range(1, 5)

    def readable_to(self, group: GroupId, slot: Slot, end: Slot) -> Slot:
        return Slot(slot - 1) if slot == self.lost else end


def silent(nodes: int) -> Member:
    return member(nodes=nodes, recovered=Recovered(voting=False, floor=ballot(9, 1)))


def ticks(order: UnsafeOrder, one: Member, ns: int) -> Step:
    one.now_ns += ns
    step = Step()
    order.tick(one.now, one.multi.replicas, step)
    return step


def test_an_order_is_carried_out_once_and_not_before_others_could_speak() -> None:
    one = silent(3)
    order = UnsafeOrder({GROUP, GroupId(44)}, Damaged(0), Journal("error", node=0))
    assert not ticks(order, one, 0).persist
    assert not ticks(order, one, UNSAFE_AFTER_NS - MS).persist
    step = ticks(order, one, MS)
    assert [record.voting for record in step.persist if isinstance(record, VotingRecord)] == [True]
    assert one.replica.can_vote()
    assert not ticks(order, one, UNSAFE_AFTER_NS).persist


def test_without_an_order_nothing_happens() -> None:
    one = silent(3)
    order = UnsafeOrder((), Damaged(0), Journal("error", node=0))
    for _ in range(3):
        assert not ticks(order, one, UNSAFE_AFTER_NS).persist
    assert not one.replica.can_vote()


def test_who_is_alone_passes_over_what_is_lost_and_over_nothing_else() -> None:
    one = silent(1)
    order = UnsafeOrder({GROUP}, Damaged(1), Journal("error", node=0))
    ticks(order, one, 0)
    ticks(order, one, UNSAFE_AFTER_NS)
    for _ in range(3):
        ticks(order, one, 20 * MS)
    assert one.replica.learner.applied == 1
    assert order.filled == 1


# -- what /readyz reports -------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [(1,), (1, 2)])
def test_a_doubt_is_told_with_whose_log_differs(wrong: tuple[int, ...]) -> None:
    one = member()
    for node in wrong:
        one.give(node, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE, 7))
    one.replica.doubt = True
    said = what_is_in_doubt(one.replica)
    assert f"node {', '.join(map(str, wrong))}: " in said
    assert ("until a majority" in said) is (len(wrong) == 1)


def test_who_waits_for_others_says_for_whom() -> None:
    assert why_no_master(GROUP, None) == "group 1 has no master yet"
    assert why_no_master(GROUP, member().replica) == "group 1 has no master yet"
    assert "(0 have; not: 1, 2;" in why_no_master(GROUP, silent(3).replica)


@pytest.mark.parametrize(
    ("nodes", "told"), [(3, "learns again what its log has lost"), (1, "no other node has them")]
)
def test_whoever_has_lost_entries_says_whether_somebody_else_has_them(
    nodes: int, told: str
) -> None:
    one = member(nodes=nodes)
    one.replica.proven = Slot(4)
    assert told in why_no_master(GROUP, one.replica)
