"""A group's state machine: entries in, results out, the same on every replica."""

import pytest

from balancer.registry.codec import KINDS, decode_result, encode_command
from balancer.registry.commands import Done, FoundCluster
from balancer.registry.registry import Registry
from balancer.registry.versions import RaiseClusterVersion
from broker.proposals import commands
from broker.proposals.commands import RECORDS_RESULT, CommandKind
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import DamagedEntryError
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.model import ConsumerGroupId, MemberId
from coordinator.replicated.commands import CommandKind as CoordinatorKind
from coordinator.replicated.commands import CommitOffsets, PartitionOffset, encode
from coordinator.replicated.commands import decode_result as decode_group_result
from paxos import entry as entries
from paxos.entry import BeMaster, Buffer, Entry, Steal
from paxos.ids import Ballot, GroupId, Incarnation, NodeId, Slot
from storage.errors import DirectoryRefused
from tests.broker.batches import batch
from wire.error_codes import ErrorCode

GROUP = GroupId(3)


def machine(**fields: object) -> GroupMachine:
    values = {"tail": Tail(1 << 20), "statistics": BrokerStatistics()} | fields
    return GroupMachine(GROUP, **values)  # type: ignore[arg-type]


def records(uid: int, data: bytes) -> tuple[Buffer, ...]:
    return commands.records(uid, memoryview(data))


def result(error: ErrorCode, base_offset: int) -> bytes:
    return RECORDS_RESULT.pack(error, base_offset, -1)


def be_master(node: int, before: int) -> Entry:
    return entries.be_master(BeMaster(NodeId(node), Incarnation(1), Slot(before), 10**18))


def steal(source: int, target: int, before: int, chunks: tuple[Buffer, ...]) -> Entry:
    value = Steal(
        NodeId(source),
        NodeId(target),
        Incarnation(1),
        Ballot(5, NodeId(source)),
        Slot(before),
        10**18,
    )
    return entries.steal(value, chunks)


def reread(entry: Entry) -> Entry:
    """The entry as a follower or a replay gets it: one buffer."""
    return entries.decode(memoryview(b"".join(entry.chunks)))


LARGE = batch("large", pad=commands.SMALL_BYTES)


@pytest.mark.parametrize("again", [lambda entry: entry, reread])
def test_positions_lead_to_the_batches_in_batch_and_steal_entries(again: object) -> None:
    """Whatever precedes a batch in its entry: the index has the byte where it begins."""
    assert callable(again)
    chunks = records(1, batch("a")) + records(2, LARGE) + records(1, batch("b", "c"))
    for make in (entries.batch, lambda parts: steal(1, 2, 0, parts)):
        entry = again(make(chunks))
        one = machine()
        results = one.apply(Slot(1), entry, 5_000)
        assert results == [result(ErrorCode.NONE, offset) for offset in (0, 0, 1)]
        encoded = b"".join(entry.chunks)
        for uid, expected in [(1, [batch("a"), batch("b", "c")]), (2, [LARGE])]:
            index = one.partition(uid).index
            for number, data in enumerate(expected):
                at = index.position(number) - 5_000
                assert encoded[at : at + index.size(number)] == data
        assert one.take_grown() == [1, 2]
        assert one.take_grown() == []


def test_an_entry_that_was_written_again_is_found_where_it_is_now() -> None:
    """Once, and again; batches of other entries, and one that was refused, stay where they are."""
    one = machine()
    written: dict[int, Entry] = {}
    for slot in (1, 2, 3):
        parts = records(1, batch(f"a{slot}")) + records(2, LARGE) + records(1, batch(f"b{slot}"))
        written[slot] = entries.batch(parts)
        one.apply(Slot(slot), written[slot], slot * 10_000)
    where = {1: 10_000, 2: 20_000, 3: 30_000}
    for slot, new in [(2, 70_000), (1, 80_000), (2, 90_000)]:
        one.relocate(reread(written[slot]), where[slot], new)
        one.relocate(reread(written[slot]), 5, 6)  # nothing of it is there
        where[slot] = new
    for slot, entry in written.items():
        encoded = b"".join(entry.chunks)
        for uid, number, data in [
            (1, 2 * slot - 2, batch(f"a{slot}")),
            (1, 2 * slot - 1, batch(f"b{slot}")),
            (2, slot - 1, LARGE),
        ]:
            at = one.partition(uid).index.position(number) - where[slot]
            assert encoded[at : at + len(data)] == data


def test_what_is_kept_in_memory_always_reaches_to_the_end() -> None:
    """A master lost its group, others appended, and it became master again. Found in a cluster
    whose consumers could not read a partition until somebody produced to it."""
    tail = Tail(1 << 20)
    one = machine(tail=tail)
    one.apply(Slot(1), entries.batch(records(1, batch("a")) + records(2, batch("x"))), 0)
    one.apply(Slot(2), entries.batch(records(1, batch("b"))), 0, keep_in_tail=False)
    assert tail.kept(1) is None
    assert tail.kept(2) is not None
    one.apply(Slot(3), entries.batch(records(1, batch("c"))), 0)
    kept = tail.kept(1)
    assert kept is not None
    assert (kept.first, kept.stop) == (2, 3)


def test_the_leader_epoch_is_that_of_the_last_lease_entry_before() -> None:
    """A lease entry that lost its race changes nothing; commands that ride on a Steal come before
    it."""
    one = machine()
    story = [
        be_master(1, 0),
        entries.batch(records(9, batch("a"))),
        be_master(2, 0),  # lost: the version is 1 by now
        entries.batch(records(9, batch("b"))),
        be_master(1, 1),  # a renewal keeps the epoch
        entries.batch(records(9, batch("c"))),
        steal(1, 2, 5, records(9, batch("d"))),
        entries.batch(records(9, batch("e"))),
        entries.NOOP,
    ]
    for slot, entry in enumerate(story, start=1):
        one.apply(Slot(slot), entry, slot * 1_000)
    state = one.partition(9)
    assert [state.epoch_of(offset)[0] for offset in range(5)] == [1, 1, 1, 1, 2]


def test_duplicates_are_answered_with_their_first_offset_and_counted() -> None:
    statistics = BrokerStatistics()
    one = machine(statistics=statistics)
    first = batch("a", pid=5, seq=0)
    late = batch("c", pid=5, seq=7)
    entry = entries.batch(records(1, first) + records(1, first) + records(1, late))
    assert one.apply(Slot(1), entry, 0) == [
        result(ErrorCode.NONE, 0),
        result(ErrorCode.NONE, 0),
        result(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
    ]
    assert statistics.duplicates == 1
    assert one.partition(1).next_offset == 1


def test_consumer_groups_commit_in_the_same_log() -> None:
    one = machine()
    offsets = (("orders", (PartitionOffset(0, 42, 1, ""),)),)
    commit = CommitOffsets(ConsumerGroupId("readers"), -1, MemberId(""), None, 0, offsets)
    chunks = commands.opaque(CommandKind.CONSUMER_GROUP, encode(commit))
    assert len(one.apply(Slot(1), entries.batch(chunks), 0)) == 1
    group = one.consumer_groups.get(ConsumerGroupId("readers"))
    assert group is not None
    assert group.offsets["orders"][0].offset == 42


def test_what_was_decided_in_another_mastership_is_refused() -> None:
    """F1: every replica refuses it, wherever the command was meanwhile; also if it comes early."""
    one = machine()
    offsets = (("orders", (PartitionOffset(0, 42, 1, ""),)),)
    commit = CommitOffsets(ConsumerGroupId("readers"), -1, MemberId(""), None, 0, offsets)
    plain = commands.opaque(CommandKind.CONSUMER_GROUP, encode(commit))
    one.apply(Slot(1), be_master(1, 0), 0)
    one.apply(Slot(2), be_master(2, 1), 0)
    one.apply(Slot(3), entries.batch(records(1, batch("a"))), 0)

    def told(slot: int, epoch: int, command: tuple[Buffer, ...]) -> bytes:
        (told,) = one.apply(Slot(slot), entries.batch(commands.fenced(epoch, command)), 0)
        return told

    trim = commands.delete_records(1, 1)
    for slot, epoch in ((4, 1), (6, 3)):
        refused = decode_group_result(told(slot, epoch, plain)).error
        assert refused == ErrorCode.NOT_COORDINATOR
        error, _ = commands.DELETE_RECORDS_RESULT.unpack(told(slot + 1, epoch, trim))
        assert error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one.consumer_groups.get(ConsumerGroupId("readers")) is None
    assert one.partition(1).log_start == 0
    assert decode_group_result(told(8, 2, plain)).error == ErrorCode.NONE
    assert commands.DELETE_RECORDS_RESULT.unpack(told(9, 2, trim)) == (ErrorCode.NONE, 1)
    assert one.consumer_groups.get(ConsumerGroupId("readers")) is not None


def test_deleted_records_make_room_whether_fenced_or_not() -> None:
    trim = commands.delete_records(1, 1)
    assert commands.trims(trim[0])
    assert commands.trims(commands.fenced(4, trim)[0])
    commit = commands.fenced(4, commands.opaque(CommandKind.CONSUMER_GROUP, b"x"))
    assert not commands.trims(commit[0])
    assert commands.is_fenced(commit[0])
    assert not commands.is_fenced(trim[0])
    assert not commands.is_fenced(b"")


def test_a_dropped_partition_refuses_what_is_still_on_its_way() -> None:
    tail, gone = Tail(1 << 20), set[int]()
    one = machine(tail=tail, is_gone=gone.__contains__)
    one.apply(Slot(1), entries.batch(records(1, batch("a"))), 0)
    state = one.partition(1)
    one.take_grown()
    gone.add(1)
    one.drop(1)
    assert state.dropped
    assert one.take_grown() == [1], "whoever waits for it must look again"
    assert tail.kept(1) is None
    late = one.apply(Slot(2), entries.batch(records(1, batch("b"))), 0)
    assert late == [result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert 1 not in one.partitions


def test_a_replay_fills_no_tail() -> None:
    tail = Tail(1 << 20)
    one = machine(tail=tail)
    one.apply(Slot(1), entries.batch(records(1, batch("a"))), 0, keep_in_tail=False)
    assert tail.kept(1) is None
    one.apply(Slot(2), entries.batch(records(1, batch("b"))), 0)
    kept = tail.kept(1)
    assert kept is not None
    assert kept.first == 1


def test_what_a_follower_does_not_keep_leaves_no_hole_in_the_tail() -> None:
    """A node that was master, followed, and is master again reads the entries in between from the
    log: the tail must not end before the partition does (found by the swarm, seed 10)."""
    tail = Tail(1 << 20)
    one = machine(tail=tail)
    one.apply(Slot(1), entries.batch(records(1, batch("as master"))), 0)
    one.apply(Slot(2), entries.batch(records(1, batch("as follower"))), 0, keep_in_tail=False)
    assert tail.kept(1) is None
    one.apply(Slot(3), entries.batch(records(1, batch("as master again"))), 0)
    kept = tail.kept(1)
    assert kept is not None
    assert (kept.first, kept.stop) == (2, 3)


@pytest.mark.parametrize(
    "chunks",
    [
        (b"\x00",),
        (commands.HEAD.pack(4, 0) + b"what",),
        (commands.RECORDS_HEAD.pack(4 + 3, CommandKind.RECORDS, 1) + b"abc",),
        commands.opaque(CommandKind.REGISTRY, b"not in this group"),
        commands.opaque(CommandKind.CONSUMER_GROUP, b"\xff"),
        commands.opaque(CommandKind.FENCED, b"\0\0"),
        commands.opaque(CommandKind.FENCED, bytes(8) + bytes([CommandKind.FENCED]) + b"again"),
    ],
)
def test_an_entry_nobody_can_have_proposed_stops_the_replica(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError):
        machine().apply(Slot(1), entries.batch(chunks), 0)


def test_registry_commands_go_to_the_registry_with_their_slot() -> None:
    registry = Registry()
    one = machine(registry=registry)
    found = encode_command(FoundCluster("test", 4))
    chunks = commands.opaque(CommandKind.REGISTRY, found)
    assert decode_result(one.apply(Slot(4), entries.batch(chunks), 0)[0]) == Done(1)
    assert registry.applied == 4
    assert registry.cluster is not None


def test_damage_names_the_group_and_the_slot() -> None:
    with pytest.raises(DamagedEntryError, match="group 3, slot 12"):
        machine().apply(Slot(12), entries.batch(commands.opaque(CommandKind.REGISTRY, b"")), 0)


@pytest.mark.parametrize(
    "chunks",
    [
        commands.opaque(CommandKind.REGISTRY, bytes((1, KINDS[-1] + 1, 0))),
        commands.opaque(CommandKind.REGISTRY, encode_command(RaiseClusterVersion(9))),
        commands.opaque(CommandKind.CONSUMER_GROUP, bytes((1, max(CoordinatorKind) + 1, 0))),
        commands.fenced(
            0, commands.opaque(CommandKind.CONSUMER_GROUP, bytes((1, max(CoordinatorKind) + 1)))
        ),
        (commands.HEAD.pack(9, max(CommandKind) + 1) + bytes(9),),
        (commands.HEAD.pack(9, CommandKind.FENCED) + bytes(8) + bytes([max(CommandKind) + 1]),),
    ],
    ids=["registry", "raised too far", "coordinator", "fenced", "entry", "fenced entry"],
)
def test_what_only_a_later_version_can_read_stops_the_node_in_words(
    chunks: tuple[Buffer, ...],
) -> None:
    """The other nodes have applied it: going on without it would mean another state."""
    registry = Registry()
    registry.apply_command(FoundCluster("c", 4), 1)
    group, before = machine(registry=registry), registry.snapshot()
    with pytest.raises(DirectoryRefused) as refused:
        group.apply(Slot(2), entries.batch(chunks), 0)
    assert "a later version of Evenkeel wrote it" in str(refused.value)
    assert "start this node with that version (docs/upgrades.md)" in str(refused.value)
    registry.applied = Slot(1)
    assert registry.snapshot() == before
