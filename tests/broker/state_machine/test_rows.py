"""Batches in a row are appended together, with the same result as one by one."""

import random
from typing import Any

import pytest

from broker.proposals import commands
from broker.state_machine.batch_index import BLOCK_BATCHES
from broker.state_machine.machine import GroupMachine
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.model import ConsumerGroupId, MemberId, PartitionOffset, TopicOffsets
from coordinator.replicated.commands import CommitOffsets, encode
from paxos import entry as entries
from paxos.entry import Buffer
from paxos.ids import GroupId, Slot
from tests.broker.batches import batch, under
from wire.records.batch import LOG_APPEND_TIME_BIT, parse_header, stamped
from wire.records.batch import split as split_batches

UIDS = (1, 2)
PRODUCERS = (7, 8)


class Dice:
    """Commands in a realistic mix: mostly ordinary batches, and everything else in between."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._next = {(uid, pid): 0 for uid in UIDS for pid in PRODUCERS}
        self.kinds: set[str] = set()

    def command(self) -> tuple[Buffer, ...]:
        dice = self._random
        uid = dice.choices(UIDS, (9, 1))[0]
        kind = dice.choices(
            ("plain", "idempotent", "again", "gap", "stamped", "token", "offsets", "large"),
            (60, 25, 5, 2, 2, 2, 2, 2),
        )[0]
        self.kinds.add(kind)
        if kind == "offsets":
            offsets = (PartitionOffset(0, 5),)
            commit = CommitOffsets(
                ConsumerGroupId("g"), -1, MemberId(""), None, 1, (TopicOffsets("t", offsets),)
            )
            return commands.opaque(commands.CommandKind.CONSUMER_GROUP, encode(commit))
        return commands.records(uid, memoryview(self._batch(kind, uid)))

    def _batch(self, kind: str, uid: int) -> bytes:
        dice = self._random
        values = ["v"] * dice.choice((1, 1, 3))
        at_ms = dice.randrange(10_000)
        if kind in ("idempotent", "again", "gap"):
            pid = dice.choice(PRODUCERS)
            seq = self._next[uid, pid]
            if kind == "idempotent":
                self._next[uid, pid] += len(values)
            elif kind == "again":
                seq, values = max(0, seq - 1), ["v"]
            else:
                seq += 3
            return batch(*values, at_ms=at_ms, pid=pid, seq=seq)
        if kind == "token":
            return batch(*values, **under(dice.randrange(3), dice.randrange(2), more=True))
        if kind == "stamped":
            (one,) = split_batches(memoryview(batch(*values)))
            return bytes(stamped(one, 1_800_000_000_000 + at_ms))
        return batch(*values, at_ms=at_ms, pad=commands.SMALL_BYTES if kind == "large" else 0)


def machine() -> GroupMachine:
    return GroupMachine(GroupId(3), tail=Tail(1 << 16), statistics=BrokerStatistics())


def picture(one: GroupMachine) -> Any:
    """Everything a machine knows, as values that can be compared."""
    tail = one._tail
    return {
        uid: (
            state.next_offset,
            state.append_time_ms,
            state.epochs(),
            state.index.columns(state.index.first, state.index.stop),
            list(state.index._blocks),
            state.index.bytes_end,
            list(state.producers.images()),
            list(state.writers.images()),
            None if (kept := tail.kept(uid)) is None else kept.stop,
        )
        for uid, state in one.partitions.items()
    } | {"grown": one.take_grown()}


def check_kept(rows: Tail, singles: Tail) -> None:
    """Both keep the newest batches; how many of the oldest they drop is up to them."""
    for uid in UIDS:
        row, single = rows.kept(uid), singles.kept(uid)
        if row is not None and single is not None:
            first = max(row.first, single.first)
            assert row.between(first, row.stop) == single.between(first, single.stop)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_together_is_the_same_as_one_by_one(seed: int, keep: bool) -> None:
    dice = Dice(seed)
    rows, singles, as_chunks, unasked = (machine() for _ in range(4))
    singles.on_records = lambda _uid, _batch: None  # it is called for each
    for slot in range(1, 150):
        chunks = tuple(chunk for _ in range(1 + slot % 23) for chunk in dice.command())
        position = slot * 1_000_000
        entry = entries.batch((b"".join(chunks),))
        got = [one.apply(Slot(slot), entry, position, keep_in_tail=keep) for one in (rows, singles)]
        assert got[0] == got[1]
        as_chunks.apply(Slot(slot), entries.batch(chunks), position, keep_in_tail=keep)
        unasked.apply(Slot(slot), entry, position, keep_in_tail=keep, answer=False)
        seen = picture(rows)
        assert seen == picture(singles) == picture(as_chunks) == picture(unasked)
        check_kept(rows._tail, singles._tail)
    assert (rows._tail.kept(UIDS[0]) is not None) == keep
    assert len(dice.kinds) == 8
    assert rows.partitions[1].index.stop > 2 * BLOCK_BATCHES
    assert rows._statistics.duplicates == singles._statistics.duplicates > 0


def test_a_row_ends_where_a_batch_is_damaged() -> None:
    """Applying must stop there; what precedes it is the same as one by one."""
    good = batch("a")
    bad = bytearray(good)
    bad[16] = 1  # a format of long ago
    row = [commands.records(1, memoryview(one)) for one in (good, good, bytes(bad))]
    entry = entries.batch((b"".join(chunk for command in row for chunk in command),))
    one = machine()
    one.apply(Slot(1), entries.batch(commands.records(1, memoryview(good))), 0)
    with pytest.raises(ValueError, match="partition 1"):
        one.apply(Slot(2), entry, 1_000)
    assert one.partitions[1].next_offset == 3


@pytest.mark.parametrize("cut", [1, 5, 70, 100])
def test_an_entry_that_is_cut_short_is_refused(cut: int) -> None:
    """In a command's head, in its batch's, in its records: nothing of it is appended."""
    command = b"".join(commands.records(1, memoryview(batch("v" * 100))))
    one = machine()
    one.apply(Slot(1), entries.batch((command,)), 0)
    with pytest.raises(commands.CommandError):
        one.apply(Slot(2), entries.batch((2 * command + command[:cut],)), 1_000)
    assert one.partitions[1].next_offset == 3


def test_the_stamped_batches_of_these_tests_are_stamped() -> None:
    (one,) = split_batches(memoryview(batch("v")))
    assert parse_header(stamped(one, 5)).attributes & LOG_APPEND_TIME_BIT
