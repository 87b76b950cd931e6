"""Checkpoints of a group's state machine: made in parts while it runs, restored, replayed."""

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.registry import image as registry_image
from balancer.registry.codec import encode_command
from balancer.registry.commands import AllocateProducerIds, CreateTopic, DeleteTopic, FoundCluster
from balancer.registry.registry import Registry
from broker.ports import NO_COLD, ColdReader
from broker.proposals import commands
from broker.proposals.commands import CommandKind
from broker.state_machine import partition_image
from broker.state_machine.checkpoint_chunks import (
    PORTABLE,
    Chunk,
    ChunkKind,
    ImageError,
    decode_chunk,
    encode_chunk,
)
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import PartitionState
from broker.state_machine.partition_image import encode_partition, load_partition
from broker.state_machine.writer_state import WRITERS_MAX, Writer
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.model import ConsumerGroupId, MemberId
from coordinator.replicated import image as group_image
from coordinator.replicated.commands import CommitOffsets, DropGroup, PartitionOffset, Sweep
from coordinator.replicated.commands import encode as group_command
from paxos import entry as entries
from paxos.entry import BeMaster, Buffer, Entry
from paxos.ids import REGISTRY_GROUP, GroupId, Incarnation, NodeId, Slot
from tests.broker.batches import batch, under
from tests.broker.fakes import FakeCold
from wire.records.write_tokens import FIRST_ID, Position

GOLDEN = Path(__file__).parent / "golden"
WRITTEN = "chunks-v5.txt"
UIDS = range(1, 5)


class Story:
    """Entries for the registry's group, which may hold everything; made from a few dice."""

    def __init__(self, seed: int, *, writers: bool = True) -> None:
        self.dice = Random(seed)
        self.kinds = [self._records, self._records, self._again, self._delete, self._group]
        self.kinds += [self._topics, self._chunk, self._chunk] if writers else [self._topics]
        self.entries: list[Entry] = [entries.batch(self._registry(FoundCluster("test", 0)))]
        self.lease = 0
        self.gone: set[int] = set()
        self.sequences: dict[tuple[int, int], int] = {}
        self.positions: dict[tuple[int, int], tuple[int, int, bool]] = {}
        self.sent: list[tuple[Buffer, ...]] = []

    def next(self) -> Entry:
        slot = len(self.entries) + 1
        if self.dice.random() < 0.15:
            before = self.lease if self.dice.random() < 0.8 else 0
            self.lease = slot if before == self.lease else self.lease
            node = NodeId(self.dice.randrange(3))
            entry = entries.be_master(BeMaster(node, Incarnation(1), Slot(before), 10**18))
        elif self.dice.random() < 0.1:
            entry = entries.NOOP
        else:
            several = [self._command() for _ in range(self.dice.randrange(1, 4))]
            entry = entries.batch(tuple(chunk for one in several for chunk in one))
        self.entries.append(entry)
        return entry

    def _command(self) -> tuple[Buffer, ...]:
        return self.dice.choice(self.kinds)()

    def _records(self) -> tuple[Buffer, ...]:
        uid, pid = self.dice.choice(UIDS), self.dice.randrange(-1, 4)
        count = self.dice.randrange(1, 4)
        fields = {}
        if pid >= 0:
            sequence = self.sequences.get((uid, pid), 0)
            self.sequences[uid, pid] = sequence + count
            fields = {"pid": pid, "seq": sequence}
        data = batch(*["x"] * count, at_ms=self.dice.randrange(5_000), **fields)
        command = commands.records(uid, memoryview(data))
        self.sent.append(command)
        return command

    def _chunk(self) -> tuple[Buffer, ...]:
        """A chunk of a writer that continues; now and then of a later micro-batch, too early."""
        uid, writer = self.dice.choice(UIDS), self.dice.randrange(2)
        number, chunk, more = self.positions.get((uid, writer), (0, 0, False))
        goes_on = more and self.dice.random() < 0.9
        place = (number, chunk + 1) if goes_on else (number + self.dice.randrange(1, 3), 0)
        more = self.dice.random() < 0.8
        self.positions[uid, writer] = (*place, more)
        data = batch("x", **under(*place, more=more, writer=FIRST_ID + writer))
        self.sent.append(commands.records(uid, memoryview(data)))
        return self.sent[-1]

    def _again(self) -> tuple[Buffer, ...]:
        return self.dice.choice(self.sent) if self.sent else self._records()

    def _delete(self) -> tuple[Buffer, ...]:
        return commands.delete_records(self.dice.choice(UIDS), self.dice.randrange(-1, 12))

    def _group(self) -> tuple[Buffer, ...]:
        name = ConsumerGroupId(self.dice.choice("abc"))
        offset = PartitionOffset(self.dice.randrange(3), self.dice.randrange(99), 1, "")
        wall_ms = self.dice.randrange(1_000)
        topics = (("orders", (offset,)),)
        command = self.dice.choice(
            [
                CommitOffsets(name, -1, MemberId(""), None, wall_ms, topics),
                CommitOffsets(name, -1, MemberId(""), None, wall_ms, topics),
                DropGroup(name),
                Sweep(wall_ms, 500, 200),
            ]
        )
        return commands.opaque(CommandKind.CONSUMER_GROUP, group_command(command))

    def _topics(self) -> tuple[Buffer, ...]:
        name = self.dice.choice("abc")
        topic_id = self.dice.randbytes(16)
        return self._registry(
            self.dice.choice(
                [
                    CreateTopic(name, topic_id, 2),
                    DeleteTopic(name=name),
                    AllocateProducerIds(NodeId(1), 100),
                ]
            )
        )

    def _registry(self, command: Any) -> tuple[Buffer, ...]:
        return commands.opaque(CommandKind.REGISTRY, encode_command(command))


def machine(is_gone: Any = lambda uid: False, cold: ColdReader = NO_COLD) -> GroupMachine:
    return GroupMachine(
        REGISTRY_GROUP,
        tail=Tail(1 << 16),
        statistics=BrokerStatistics(),
        registry=Registry(),
        is_gone=is_gone,
        cold=cold,
    )


def apply(one: GroupMachine, slot: int, entry: Entry) -> list[bytes]:
    return one.apply(Slot(slot), entries.decode(b"".join(entry.chunks)), slot * 10_000)


def all_of(one: GroupMachine, *, local: bool = True) -> list[tuple[int, int, int, bytes]]:
    return [(*chunk[:3], bytes(chunk.body)) for chunk in one.chunks(local=local)]


def layout(one: GroupMachine) -> dict[int, Any]:
    """The positions of all batches; each node has its own."""
    indexes = {uid: state.index for uid, state in one.partitions.items() if not state.blank}
    return {
        uid: [
            index.columns(index.first, index.stop),
            [index.base(at) for at in [index.next_latest()] if at is not None],
            [index.size(number) for number in range(index.first, index.stop)],
        ]
        for uid, index in indexes.items()
    }


def sent(chunks: list[Chunk]) -> Iterator[Chunk]:
    """The checkpoint as another node gets it, or this one after a restart."""
    for chunk in chunks:
        yield decode_chunk(encode_chunk(chunk))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_image, "PIECE_WORK", 3)
    monkeypatch.setattr(registry_image, "PIECE_TOPICS", 1)
    monkeypatch.setattr(partition_image, "INDEX_PIECE", 2)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    before=st.integers(0, 30),
    lag=st.integers(0, 5),
    meanwhile=st.lists(st.integers(0, 3), max_size=25),
    after=st.integers(0, 10),
    local=st.booleans(),
    deleted=st.none() | st.tuples(st.sampled_from(UIDS), st.integers(0, 60)),
)
def test_a_restored_machine_is_the_one_that_never_stopped(
    seed: int,
    before: int,
    lag: int,
    meanwhile: list[int],
    after: int,
    local: bool,
    deleted: tuple[int, int] | None,
) -> None:
    """However many entries are applied between the parts of its checkpoint, and however many of
    them are replayed: leases, offsets, producers, log starts, consumer groups and the registry
    agree."""
    story, gone = Story(seed), set[int]()
    one = machine(gone.__contains__)
    apply(one, 1, story.entries[0])

    def step() -> None:
        apply(one, len(story.entries) + 1, story.next())
        if deleted is not None and deleted[1] == len(story.entries):
            gone.add(deleted[0])
            one.drop(deleted[0])

    for _ in range(before):
        step()
    base = Slot(max(0, one.applied - lag))  # Paxos may need the log from earlier on
    making, chunks = one.chunks(local=local), list[Chunk]()
    for taken in meanwhile:  # parts made before the next entry is applied
        chunks += [chunk for _ in range(taken) for chunk in [next(making, None)] if chunk]
        if chunks:
            step()
    chunks += making
    for _ in range(after):
        step()
    restored = machine(gone.__contains__)
    restored.restore(base, sent(chunks))
    for slot in range(base + 1, len(story.entries) + 1):
        apply(restored, slot, story.entries[slot - 1])
    assert all_of(restored, local=False) == all_of(one, local=False)
    if local:
        assert layout(restored) == layout(one)
    for uid, state in restored.partitions.items():
        assert [state.epoch_of(at)[0] for at in range(state.log_start, state.next_offset)] == [
            one.partitions[uid].epoch_of(at)[0] for at in range(state.log_start, state.next_offset)
        ]
    told = apply(one, len(story.entries) + 1, story.next())
    assert apply(restored, len(story.entries), story.entries[-1]) == told


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    meanwhile=st.lists(st.integers(0, 2), max_size=15),
    applied=st.integers(0, 15),
)
def test_a_restored_machine_is_checkpointed_before_its_parts_are_level(
    seed: int, meanwhile: list[int], applied: int
) -> None:
    """After a transfer the next checkpoint is taken at once. Its parts have to state what they
    include, or a restart would apply it again (found by the simulator: a registry that refused to
    go back)."""
    story, one = Story(seed), machine()
    apply(one, 1, story.entries[0])
    for _ in range(10):
        apply(one, len(story.entries) + 1, story.next())
    base, making, chunks = one.applied, one.chunks(local=False), list[Chunk]()
    for taken in meanwhile:
        chunks += [chunk for _ in range(taken) for chunk in [next(making, None)] if chunk]
        if chunks:
            apply(one, len(story.entries) + 1, story.next())
    chunks += making
    second, third = machine(), machine()
    second.restore(base, sent(chunks))
    for slot in range(base + 1, min(base + applied, len(story.entries)) + 1):
        apply(second, slot, story.entries[slot - 1])
    third.restore(second.applied, sent([*second.chunks(local=True)]))
    for slot in range(third.applied + 1, len(story.entries) + 1):
        apply(third, slot, story.entries[slot - 1])
    assert all_of(third, local=False) == all_of(one, local=False)


def busy(*, writers: bool = True) -> GroupMachine:
    """The same every time: golden bytes are made from it. Version 1 has no writers."""
    story, one = Story(7, writers=writers), machine()
    apply(one, 1, story.entries[0])
    for slot in range(2, 60):
        apply(one, slot, story.next())
    return one


def test_what_is_there_already_becomes_what_the_checkpoint_says() -> None:
    """A node that was away: its partitions stay the same objects, and deleted ones go."""
    one, away = busy(), machine()
    story = Story(7)
    apply(away, 1, story.entries[0])
    for slot in range(2, 20):
        apply(away, slot, story.next())
    known = dict(away.partitions)
    stale = away.partition(99)
    apply(away, 20, entries.batch(commands.records(99, memoryview(batch("x")))))
    away.take_grown()
    away.restore(one.applied, list(one.chunks(local=False)))
    assert stale.dropped
    assert 99 not in away.partitions
    assert all(away.partitions[uid] is state for uid, state in known.items())
    assert set(away.take_grown()) >= set(one.partitions)
    assert all_of(away, local=False) == all_of(one, local=False)


def written(chunks: list[Chunk]) -> str:
    return "".join(f"{one.kind.name} {encode_chunk(one).hex()}\n" for one in chunks)


def test_these_bytes_are_what_we_write() -> None:
    """A change to them needs a new version of the kind, and this one must still be readable. (The
    registry's own bytes have versions of their own, and only have to be readable.)"""
    expected = (GOLDEN / WRITTEN).read_text().splitlines()
    chunks = [chunk for chunk in busy().chunks(local=True) if chunk.kind != ChunkKind.REGISTRY]
    assert written(chunks).splitlines() == [one for one in expected if one[:8] != "REGISTRY"]


@pytest.mark.parametrize(
    ("file", "writers"),
    [
        ("chunks-v1.txt", False),
        ("chunks-v2.txt", True),
        ("chunks-v3.txt", True),
        ("chunks-v4.txt", True),
        (WRITTEN, True),
    ],
)
def test_the_bytes_of_all_versions_stay_readable(file: str, writers: bool) -> None:
    one = busy(writers=writers)
    assert any(len(state.writers) for state in one.partitions.values()) is writers
    kinds = set()
    chunks = []
    for line in (GOLDEN / file).read_text().splitlines():
        kind, data = line.split()
        chunks.append(decode_chunk(bytes.fromhex(data)))
        kinds.add(ChunkKind[kind])
        assert chunks[-1].kind == ChunkKind[kind]
    assert kinds == set(ChunkKind) - {ChunkKind.REPLICA, ChunkKind.COLD}
    restored = machine()
    restored.restore(one.applied, chunks)
    assert all_of(restored) == all_of(one)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "0 bytes"),
        (bytes(18), "kind 0"),
        (bytes([3, 99]) + bytes(16), "PARTITION of version 99, known is 2"),
        (bytes([7, 2]) + bytes(16), "LEASE of version 2, known is 1"),
        (bytes([3, 1]) + b"\xff" * 16, "slot"),
    ],
)
def test_what_is_no_chunk_is_named(data: bytes, complaint: str) -> None:
    with pytest.raises(ImageError, match=complaint):
        decode_chunk(data)


def test_what_the_log_has_given_up_since_is_not_looked_for_there() -> None:
    """A checkpoint may be older than the remaining log: positions below that mean nothing, whether
    the log's beginning is given or follows from the cold store."""
    cold = FakeCold()
    one, told, concluded = machine(), machine(cold=cold), machine(cold=cold)
    for slot in range(1, 9):
        apply(one, slot, entries.batch(commands.records(1, memoryview(batch("x")))))
    plan = one.partition(1).copy_plan(50_000)
    assert plan is not None
    cold.settle(plan, lambda position, size: memoryview(batch("x")))
    told.restore(one.applied, one.chunks(local=True), log_from=50_000)
    concluded.restore(one.applied, one.chunks(local=True))
    assert [each.partition(1).index_start for each in (one, told, concluded)] == [0, 4, 4]
    assert told.needed_from() == concluded.needed_from() == one.partition(1).index.position(4)
    assert told.partition(1).missing() is None


def with_writers(*written: bytes) -> bytes:
    """A partition of two records, and what it reports about its writers."""
    state = PartitionState(1)
    state.append(memoryview(batch("x", "y")), 0, 1)
    return encode_partition(state)[:-4] + struct.pack(">I", len(written)) + b"".join(written)


def writer(place: dict[str, int], *bases: int) -> bytes:
    head = struct.pack(">qhiB", place["pid"], place["epoch"], place["seq"], len(bases))
    return head + struct.pack(f">{len(bases)}q", *bases)


def test_what_is_said_of_a_writer_is_read_back() -> None:
    state = PartitionState(1)
    data = with_writers(
        writer(under(7, 0), 1),
        writer(under(1 << 29, 1, more=True, writer=FIRST_ID + 1), 0, 1),
    )
    load_partition(state, data)
    assert encode_partition(state) == data
    assert list(state.writers.images()) == [
        (FIRST_ID, Writer(Position(7, 0, more=False), (1,))),
        (FIRST_ID + 1, Writer(Position(1 << 29, 1, more=True), (0, 1))),
    ]


@pytest.mark.parametrize(
    "written",
    [
        [writer(under(5, 0) | {"pid": FIRST_ID - 1}, 0)],
        [writer(under(5, 0) | {"pid": -1}, 0)],
        [writer(under(5, 0) | {"epoch": -1}, 0)],
        [writer(under(5, 0) | {"seq": -1}, 0)],
        [writer(under(5, 0))],
        [writer(under(5, 0), 0, 1)],
        [writer(under(5, 1), 0)],
        [writer(under(5, 0, more=True))],
        [writer(under(5, 0, more=True), 0, 1)],
        [writer(under(5, 0, more=True), 2)],
        [writer(under(5, 0, more=True), -1)],
        [writer(under(5, 1, more=True), 1, 0)],
        [writer(under(5, 9, more=True), 0, 0, 0, 0, 1)],
        [writer(under(5, 0), 0), writer(under(6, 0), 1)],
        [writer(under(5, 0, writer=FIRST_ID + one), 0) for one in range(WRITERS_MAX + 1)],
        [writer(under(5, 0), 0)[:-1]],
        [writer(under(5, 0), 0) + b"x"],
    ],
)
def test_what_cannot_be_said_of_a_writer_is_refused(written: list[bytes]) -> None:
    state = PartitionState(1)
    before = encode_partition(state)
    with pytest.raises(ImageError):
        load_partition(state, with_writers(*written))
    assert encode_partition(state) == before


def test_another_node_leaves_out_what_only_this_one_can_use() -> None:
    one, restored = busy(), machine()
    chunks = [chunk for chunk in one.chunks(local=True) if chunk.kind in PORTABLE]
    restored.restore(one.applied, chunks)
    assert all_of(restored, local=False)[:-1] == all_of(one, local=False)[:-1]


def test_a_checkpoint_with_a_part_missing_or_displaced_is_refused() -> None:
    chunks = list(busy().chunks(local=True))
    base = chunks[0].slot
    for at in range(len(chunks)):
        with pytest.raises(ImageError):
            machine().restore(base, chunks[:at] + chunks[at + 1 :])
        if at and chunks[at].kind != ChunkKind.END:
            with pytest.raises(ImageError):
                machine().restore(base, [*chunks[:at], chunks[at], *chunks[at:]])
    with pytest.raises(ImageError, match="not"):
        machine().restore(Slot(base + 1), chunks)
    with pytest.raises(ImageError, match="registry"):
        GroupMachine(GroupId(1), tail=Tail(0), statistics=BrokerStatistics()).restore(base, chunks)
