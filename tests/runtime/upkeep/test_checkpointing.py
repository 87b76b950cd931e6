"""A whole node takes checkpoints while it works, and restarts from them."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.lifecycle.tiering import STEPPED_MAX
from broker.proposals.commands import delete_records, records
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from broker.reads.batch_copy import copy
from broker.reads.disk_reads import read_waiting
from broker.state_machine.checkpoint_chunks import ChunkKind
from broker.transfer.messages import AskData, Message, Refused
from broker.transfer.messages import RefusalReason as RefusedFor
from node import Node
from paxos.entry import Buffer
from paxos.ids import Ballot, GroupId, NodeId
from paxos.step import PromiseRecord
from storage.disk.files import RealDisk
from storage.format import place_of
from tests.broker.batches import batch, contents
from tests.runtime.one_node import one_node, run_until

OFTEN = ("storage.checkpoint_records=100",)
GROUP = GroupId(1)
UID = 7


def append(node: Node, count: int, first: int = 0, *, uid: int = UID, pad: int = 0) -> None:
    """That many batches of an idempotent producer, one after the other."""
    run_until(node, lambda: node.engine.acting(GROUP))
    for number in range(first, first + count):
        one = batch(f"value {number}", pid=5, seq=number, pad=pad)
        submit(node, records(uid, memoryview(one)))


def submit(node: Node, command: tuple[Buffer, ...]) -> None:
    """As a client does: again if it was not carried out, because a lease may expire on a busy
    machine."""
    outcome: Outcome = NotDone(FailureReason.NOT_MASTER)
    while isinstance(outcome, NotDone) and outcome.why is FailureReason.NOT_MASTER:
        run_until(node, lambda: node.engine.acting(GROUP))
        outcome = outcome_of(node, command)
    assert isinstance(outcome, Done)


def outcome_of(node: Node, command: tuple[Buffer, ...]) -> Outcome:
    outcomes: list[Outcome] = []
    node.engine.submit(GROUP, command, outcomes.append)
    run_until(node, lambda: outcomes)
    return outcomes[0]


def state_of(node: Node) -> dict[int, list[bytes]]:
    """The state that entries have made, without the lease, as a checkpoint would write it now."""
    return {
        group: [
            bytes(chunk.body)
            for chunk in machine.chunks(local=True)
            if chunk.kind in (ChunkKind.PARTITION, ChunkKind.CONSUMER_GROUPS)
        ]
        for group, machine in node.machines.items()
    }


def values(node: Node, start: int = 0, *, uid: int = UID) -> list[str]:
    """All values in the partition, read from it."""
    state, budget = node.machines[GROUP].partitions[uid], 100_000_000
    found: list[tuple[int, str]] = []
    while start + len(found) < state.next_offset:
        buffers, _ = read_waiting(
            node.tail, node.wal, node.statistics, state, start + len(found), budget
        )
        found += contents(memoryview(b"".join(buffers)))
    assert [offset for offset, _ in found] == [*range(start, state.next_offset)]
    return [value for _, value in found]


def checkpoint_files(tmp_path: Path) -> list[str]:
    return [name for name in RealDisk(tmp_path / "data").names() if name.endswith(".ckpt")]


def test_a_start_from_checkpoints_is_where_the_node_was(tmp_path: Path) -> None:
    """And it reads no more of the log than the checkpoints leave to be read."""
    with one_node(tmp_path, *OFTEN) as node:
        append(node, 300)
        run_until(
            node, lambda: all(one.slot > 0 for one in node.upkeep.checkpointing.taken.values())
        )
        assert set(node.upkeep.checkpointing.taken) == set(node.machines)
        append(node, 20, 300)
        before = {group: replica.base() for group, replica in node.multi.replicas.items()}
        states = state_of(node)
    assert checkpoint_files(tmp_path)
    with one_node(tmp_path, *OFTEN) as node:
        for group, replica in node.multi.replicas.items():
            assert node.wal.slots(group).start > 1, "all of it was read"
            slot = before[group].slot
            run_until(node, lambda: replica.learner.applied >= slot)  # noqa: B023 (it is over then)
            assert replica.chain.at(slot) == before[group].chain
        assert state_of(node) == states
        assert values(node) == [f"value {number}" for number in range(320)]
        append(node, 5, 320)
        assert node.machines[GROUP].partitions[UID].next_offset == 325


def test_damaged_checkpoints_cost_time_only(tmp_path: Path) -> None:
    """The newer one of a group is damaged, then both: the log is read from where it is needed."""
    with one_node(tmp_path, *OFTEN) as node:
        append(node, 400)
        states = state_of(node)
    prefix = f"checkpoint-{GROUP:010d}"
    for reached in (-1, 0):
        mine = [name for name in checkpoint_files(tmp_path) if name.startswith(prefix)]
        assert len(mine) == 2
        path = tmp_path / "data" / mine[reached]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with one_node(tmp_path, "storage.checkpoint_records=1000000") as node:
            machine = node.machines[GROUP]
            run_until(node, lambda: machine.partitions[UID].next_offset == 400)  # noqa: B023
            assert state_of(node)[GROUP] == states[GROUP]


def test_a_checkpoint_says_nothing_that_a_crash_takes_back(tmp_path: Path) -> None:
    """The position of unsynced data may belong to another batch after a crash: an index that kept
    it would read that batch, which is intact as well."""
    with one_node(tmp_path) as node:
        append(node, 1)
        run_until(node, lambda: node.wal.reached == node.wal.end and not node.writer.busy)
        checkpointing, now = node.upkeep.checkpointing, node.engine.now()
        written = checkpointing.statistics.written
        promise = PromiseRecord(GROUP, Ballot(1 << 40, NodeId(1)))
        node.wal.stage(promise)
        node.writer.busy = True  # as if it wrote something else
        checkpointing.soon(GROUP)
        for _ in range(100):
            checkpointing.tick(now.boot_ns)
        assert not node.upkeep.busy, "it is written before the log is"
        node.writer.busy = False
        run_until(node, lambda: checkpointing.statistics.written > written)


def test_an_idle_node_takes_none(tmp_path: Path) -> None:
    with one_node(tmp_path, "storage.checkpoint_records=100000") as node:
        append(node, 3)
        for _ in range(50):
            node.shell.tick()
        assert not node.upkeep.checkpointing.statistics.written
    assert not checkpoint_files(tmp_path)


SMALL = (
    "storage.checkpoint_records=100",
    "storage.log_bytes=8388608",
    "storage.segment_bytes=1048576",
)
PAD = 60_000


def test_the_log_is_no_longer_than_it_should_be(tmp_path: Path) -> None:
    """Data moves out of it, its segments are retired, and all reads work as before; after a start,
    too."""
    with one_node(tmp_path, *SMALL) as node:
        append(node, 500, pad=PAD)
        run_until(node, lambda: node.wal.kept().start > 10 and len(node.wal.kept()) <= 10)
        assert values(node) == [f"value {number}" for number in range(500)]
        assert node.machines[GROUP].partitions[UID].index_start > 100
        first = place_of(node.wal.kept().start, 0)
    with one_node(tmp_path, *SMALL) as node:
        state = node.machines[GROUP].partitions[UID]
        needed = node.machines[GROUP].needed_from()
        assert needed is None or needed >= first, "what has gone is not looked for there"
        run_until(node, lambda: state.next_offset == 500)
        assert values(node) == [f"value {number}" for number in range(500)]
        append(node, 200, 500, pad=PAD)
        assert values(node) == [f"value {number}" for number in range(700)]
        run_until(node, lambda: len(node.wal.kept()) <= 10)


def test_what_is_deleted_goes_from_the_cold_store_as_well(tmp_path: Path) -> None:
    with one_node(tmp_path, *SMALL) as node:
        append(node, 300, pad=PAD)
        run_until(node, lambda: node.cold.start(UID) == 0 and len(node.wal.kept()) <= 10)
        submit(node, delete_records(UID, 290))
        append(node, 200, 300, pad=PAD)  # the first batch after the log start begins a new file
        run_until(node, lambda: len(node.wal.kept()) <= 10)
        assert values(node, 290) == [f"value {number}" for number in range(290, 500)]
    with one_node(tmp_path, *SMALL) as node:
        state = node.machines[GROUP].partitions[UID]
        run_until(node, lambda: state.next_offset == 500)
        assert values(node, 290) == [f"value {number}" for number in range(290, 500)]


def test_a_group_that_was_left_keeps_nothing_of_the_log(tmp_path: Path) -> None:
    """Its promises stay known for ever, although it has no checkpoint."""
    left = GroupId(9)
    with one_node(tmp_path, *SMALL) as node:
        node.wal.stage(PromiseRecord(left, Ballot(1, NodeId(2))))
        node.wal.forget_group(left)
        append(node, 300, pad=PAD)
        run_until(node, lambda: len(node.wal.kept()) <= 10)
        assert left in node.wal.groups()


def test_no_segment_goes_that_a_batch_is_still_read_from(tmp_path: Path) -> None:
    """An entry may be applied long after it was written, when everything applied before has left
    its segment: its group had no majority meanwhile."""
    with one_node(tmp_path, *SMALL) as node:
        tiering = node.upkeep.tiering
        tiering.held.add(GROUP)
        tiering.clear_below = 1 << 20  # passes have found nothing below
        append(node, 300, pad=PAD)
        written = node.upkeep.checkpointing.statistics.written
        append(node, 200, 300)
        run_until(node, lambda: node.upkeep.checkpointing.statistics.written >= written + 8)
        needed = node.machines[GROUP].needed_from()
        assert needed is not None
        assert needed >= place_of(node.wal.kept().start, 0)
        assert values(node) == [f"value {number}" for number in range(500)]
        tiering.held.clear()
        tiering.clear_below = 0
        run_until(node, lambda: len(node.wal.kept()) <= 10)
        assert values(node) == [f"value {number}" for number in range(500)]


class _Letters:
    """Links that record everything."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def catch_up(self, _to: NodeId, message: Message) -> None:
        self.sent.append(message)

    def connected(self, _node: NodeId) -> bool:
        return False


def held_back(node: Node, count: int, partitions: int, pad: int) -> None:
    """Batches of partitions that alternate in the log, none of them tiered so far: what follows is
    one pass over all of them."""
    node.upkeep.tiering.held.add(GROUP)
    run_until(node, lambda: node.engine.acting(GROUP))
    for number in range(count):
        for uid in range(UID, UID + partitions):
            one = batch(f"value {number}", pid=5, seq=number, pad=pad)
            submit(node, records(uid, memoryview(one)))
    assert node.cold.end(UID) is None


@contextmanager
def bytes_read(node: Node) -> Iterator[list[int]]:
    """Sizes of the reads from the log meanwhile."""
    sizes: list[int] = []
    read_span = node.wal.read_span

    def noting(position: int, size: int) -> memoryview:
        sizes.append(size)
        return read_span(position, size)

    node.wal.read_span = noting  # type: ignore[method-assign]
    try:
        yield sizes
    finally:
        node.wal.read_span = read_span  # type: ignore[method-assign]


def test_partitions_leave_the_log_side_by_side(tmp_path: Path) -> None:
    """A pass goes in steps, so that the region they share is read once for all of them."""
    with one_node(tmp_path, *SMALL) as node:
        appended: list[int] = []
        append_cold = node.cold.append

        def noting(uid: int, *arguments: Any, **options: Any) -> int:
            appended.append(uid)
            return append_cold(uid, *arguments, **options)

        node.cold.append = noting  # type: ignore[method-assign]
        held_back(node, 300, 2, PAD)
        with bytes_read(node) as sizes:
            node.upkeep.tiering.release(GROUP)
            run_until(node, lambda: node.wal.kept().start > 15 and len(node.wal.kept()) <= 10)
        turns = sum(one != other for one, other in itertools.pairwise(appended))
        assert turns > 5, appended
        settled = node.upkeep.tiering.statistics.bytes_tiered
        assert sum(sizes) < 1.5 * settled, "each reads all of the region"
        assert not node.upkeep.tiering.statistics.damaged
        for uid in (UID, UID + 1):
            assert values(node, uid=uid) == [f"value {number}" for number in range(300)]


def test_batches_far_from_each_other_are_read_one_by_one(tmp_path: Path) -> None:
    """With too many partitions for steps, and when one group is tiered alone: large pieces would be
    read again and again, for one batch each."""
    partitions = STEPPED_MAX + 10
    with one_node(tmp_path, *SMALL) as node:
        tiering = node.upkeep.tiering
        held_back(node, 5, partitions, PAD)
        before = tiering.statistics.bytes_tiered
        with bytes_read(node) as sizes:
            tiering.release(GROUP)
            run_until(node, lambda: len(node.wal.kept()) <= 10)
        passed = tiering.statistics.bytes_tiered
        assert 0 < sum(sizes) <= passed - before
        done: list[bool] = []
        with bytes_read(node) as sizes:
            tiering.tier_all(GROUP, lambda: done.append(True))
            run_until(node, lambda: done)
        assert 0 < sum(sizes) <= tiering.statistics.bytes_tiered - passed
        for uid in range(UID, UID + partitions):
            assert values(node, uid=uid) == [f"value {number}" for number in range(5)]


def test_one_group_is_settled_without_the_others_pieces(tmp_path: Path) -> None:
    """Even with few partitions: only the steps of a pass share their reads."""
    with one_node(tmp_path, *SMALL) as node:
        held_back(node, 50, 20, PAD // 10)
        before = node.upkeep.tiering.statistics.bytes_tiered
        done: list[bool] = []
        with bytes_read(node) as sizes:
            node.upkeep.tiering.tier_all(GROUP, lambda: done.append(True))
            run_until(node, lambda: done)
        assert 0 < sum(sizes) <= node.upkeep.tiering.statistics.bytes_tiered - before


def test_a_checkpoint_of_a_group_that_was_dropped_meanwhile_is_none_of_its_next_life(
    tmp_path: Path,
) -> None:
    """Its file is removed, so the log must not be retired because of it."""
    with one_node(tmp_path, *SMALL) as node:
        append(node, 20, pad=PAD)
        run_until(node, lambda: not node.upkeep.busy)
        checkpointing = node.upkeep.checkpointing
        checkpointing.held.add(GROUP)  # no other one is taken
        checkpointing._begin(0, GROUP)
        making, checkpointing._making = checkpointing._making, None
        assert making is not None
        checkpointing._save(0, making)
        checkpointing.dropped(GROUP)
        assert GROUP in node.multi.replicas, "it has the group again"
        run_until(node, lambda: not node.upkeep.busy)
        assert not [
            name for name in node.disk.names() if name.startswith(f"checkpoint-{GROUP:010d}")
        ]
        assert GROUP not in checkpointing.taken


def test_what_is_missing_here_is_not_served_and_is_asked_for_until_it_is_here(
    tmp_path: Path,
) -> None:
    """The end of a partition's cold data is gone, and the log no longer has it."""
    with one_node(tmp_path, *SMALL) as node:
        append(node, 300, pad=PAD)
        run_until(node, lambda: len(node.wal.kept()) <= 10 and not node.upkeep.busy)
        (name,) = [name for name in node.disk.names() if name.startswith(f"cold-{UID:010d}")]
    cold_file = tmp_path / "data" / name
    cold_file.write_bytes(cold_file.read_bytes()[: 5 * PAD])
    with one_node(tmp_path, *SMALL) as node:
        catching_up, letters = node.upkeep.catching_up, _Letters()
        catching_up.links = letters
        state = node.machines[GROUP].partitions[UID]
        missing = state.missing()
        assert missing is not None
        catching_up.on_message(NodeId(2), AskData(1, GROUP, UID, missing[0], 1000))
        run_until(node, lambda: letters.sent)
        assert letters.sent == [Refused(1, GROUP, RefusedFor.DAMAGED)]
        catching_up.sink.request_data(GroupId(2), 99, 0, 10, repairs=True)  # first
        append(node, 100, 300, pad=PAD)
        run_until(node, lambda: catching_up.sink.waiting)
        node.upkeep.dropped(GROUP, node.machines[GROUP])
        assert not catching_up.sink.waiting
        append(node, 100, 400, pad=PAD)
        run_until(node, lambda: catching_up.sink.waiting)


def test_what_a_peer_has_sent_meanwhile_is_not_settled_once_more(tmp_path: Path) -> None:
    """A transfer was given up, because the log has caught up by itself. Its last data is still on
    its way to the cold store when the same offsets are to be tiered."""
    with one_node(tmp_path, *SMALL) as node:
        append(node, 20, pad=PAD)
        plan = node.machines[GROUP].partitions[UID].read_plan(0, 12)
        sent = copy(node.wal, plan, 10**9).batches
        goes_on = threading.Event()
        mover = node.upkeep.catching_up._mover
        run_until(node, lambda: not node.upkeep.busy)
        mover.submit(goes_on.wait, lambda _: None)
        mover.submit(lambda: node.cold.append(UID, sent), lambda _: None)
        node.upkeep.tiering.tier_all(GROUP, lambda: None)
        run_until(node, lambda: mover.jobs > 2)  # tiering comes after it
        goes_on.set()
        run_until(node, lambda: node.cold.end(UID) == 20)
        node.upkeep.tiering.release(GROUP)
        append(node, 280, 20, pad=PAD)
        run_until(node, lambda: len(node.wal.kept()) <= 10)
        assert values(node) == [f"value {number}" for number in range(300)]


def test_who_is_asked_for_what_was_deleted_after_its_checkpoint_makes_another(
    tmp_path: Path,
) -> None:
    """Whole-node world 113: a group of two without a master, because one of them was catching up.
    The other's checkpoint had records that were deleted since, nothing was appended any more, and
    so it was asked for them for ever."""
    with one_node(tmp_path) as node:  # which takes checkpoints rarely
        append(node, 20)
        checkpointing = node.upkeep.checkpointing
        checkpointing.soon(GROUP)
        run_until(node, lambda: not node.upkeep.busy and GROUP in checkpointing.taken)
        saved = checkpointing.taken[GROUP].slot
        submit(node, delete_records(UID, 5))
        run_until(node, lambda: not node.upkeep.busy)
        assert checkpointing.taken[GROUP].slot == saved
        deleted_at = node.machines[GROUP].applied
        catching_up, letters = node.upkeep.catching_up, _Letters()
        catching_up.links = letters
        catching_up.on_message(NodeId(2), AskData(1, GROUP, UID, 3, 1000))
        run_until(node, lambda: letters.sent)
        assert letters.sent == [Refused(1, GROUP, RefusedFor.GONE)]
        run_until(node, lambda: checkpointing.taken[GROUP].slot >= deleted_at)
