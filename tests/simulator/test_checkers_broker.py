"""The checkers of worlds with brokers are checked: each anomaly is reported by its name."""

from typing import Any

import pytest

from broker.proposals import commands
from broker.proposals.commands import RECORDS_RESULT, CommandKind
from coordinator.model import ConsumerGroupId, ErrorCode, MemberId, PartitionOffset, TopicOffsets
from coordinator.replicated.commands import (
    CommitOffsets,
    DropGroup,
    GroupSnapshot,
    MemberRecord,
    Result,
    encode,
    encode_result,
)
from coordinator.states import GroupState
from paxos import entry as entries
from paxos.entry import BeMaster
from paxos.ids import GroupId, Incarnation, NodeId, Slot
from simulator.checkers.groups import GroupLogs
from simulator.checkers.orders import Orders
from simulator.checkers.partition_logs import PartitionLogs, Sent
from simulator.checkers.protocol import Results
from simulator.environment.violation import Violation
from tests.broker.batches import batch, under
from wire.error_codes import ErrorCode as KafkaError
from wire.messages.fetch import PartitionData

GROUP = GroupId(1)
CLIENT = 110
NAME = ConsumerGroupId("readers")


class Story:
    """One client and one partition; batches have one record each."""

    def __init__(self) -> None:
        self.groups = GroupLogs(fresh=True)
        self.orders = Orders()
        self.logs = PartitionLogs(self.groups, self.orders, fresh=True)
        self.made: dict[int, bytes] = {}

    def made_batch(self, number: int) -> Sent:
        sent = Sent(CLIENT, 0, number, 1)
        if number not in self.made:
            self.made[number] = batch(str(number), pid=5, seq=number - 1)
            self.logs.produced(sent, self.made[number])
        return sent

    def append(self, number: int, offset: int, error: int = 0, uid: int = 7) -> Sent:
        sent = self.made_batch(number)
        chunks = commands.records(uid, memoryview(self.made[number]))
        entry = entries.batch(chunks)
        self.logs.applied(GROUP, Slot(1), entry, [RECORDS_RESULT.pack(error, offset, -1)])
        return sent

    def fetch(self, position: int, *numbers: int, watermark: int, floor: int = 0) -> int:
        data = PartitionData(0, 0, watermark)
        data.records = b"".join(
            (position + index).to_bytes(8, "big") + self.made[number][8:]
            for index, number in enumerate(numbers)
        )
        return self.logs.fetched(NodeId(0), position, floor, data)

    def command(self, command: Any, error: ErrorCode = ErrorCode.NONE) -> None:
        chunks = commands.opaque(CommandKind.CONSUMER_GROUP, encode(command))
        self.logs.applied(GROUP, Slot(1), entries.batch(chunks), [encode_result(Result(error))])

    def generation(self, number: int, parts: dict[str, bytes], *, stable: bool = True) -> None:
        members = tuple(
            MemberRecord(MemberId(name), None, "", "", 1, 1, (), part)
            for name, part in parts.items()
        )
        state = GroupState.STABLE if stable else GroupState.COMPLETING_REBALANCE
        leader = MemberId(min(parts))
        self.command(GroupSnapshot(NAME, 0, number, state, "consumer", "range", leader, members))

    def commit(self, generation: int, member: str, offset: int, name: str) -> None:
        topics = (TopicOffsets("t", (PartitionOffset(0, offset, -1, name),)),)
        self.command(CommitOffsets(NAME, generation, MemberId(member), None, 0, topics))


@pytest.fixture
def story() -> Story:
    return Story()


def noticed(name: str) -> Any:
    return pytest.raises(Violation, match=f"^{name}:? ")


def test_a_good_history_is_good(story: Story) -> None:
    first, second = story.append(1, 0), story.append(2, 1)
    assert story.append(1, 0) == first, "a duplicate is answered with its first offset"
    story.logs.acked(first, 0)
    story.logs.known(second)
    assert story.logs.floor(0) == 1
    assert story.fetch(0, 1, 2, watermark=2, floor=1) == 2
    assert story.fetch(1, 2, watermark=2) == 2
    assert (story.logs.acknowledged, story.logs.duplicates) == (2, 1)


def test_a_duplicate_and_a_reordered_batch(story: Story) -> None:
    story.append(1, 0)
    with noticed("duplicate"):
        story.append(1, 1)


def test_a_gap(story: Story) -> None:
    story.append(1, 0)
    with noticed("nonmonotonic-send"):
        story.append(3, 1)


def test_what_was_given_up_may_be_missing(story: Story) -> None:
    story.append(1, 0)
    story.logs.gave_up(story.made_batch(2))
    story.append(3, 1)


def test_without_answers_only_a_lost_master_leaves_a_gap(story: Story) -> None:
    """It fills a slot that nobody remembers with a no-op (whole nodes, 661)."""
    story.logs.silent(Sent(CLIENT, 0, 1, 1))
    story.logs.no_op(GROUP, Slot(0))  # before it began
    story.append(1, 0)
    with noticed("nonmonotonic-send"):
        story.append(3, 1)
    story.logs.no_op(GROUP, Slot(2))
    story.append(3, 1)
    assert story.logs.lost_silently == 1


def test_without_answers_a_master_that_was_not_handed_the_group_leaves_a_gap(story: Story) -> None:
    """A later master finds a vote beyond what it wrote (whole nodes, 181)."""
    for node, slot in ((1, 1), (2, 3)):
        if slot == 3:
            with noticed("nonmonotonic-send"):
                story.append(3, 1)
        lease = BeMaster(NodeId(node), Incarnation(1), Slot(slot // 2), 10**18)
        story.logs.lease_entry(GROUP, Slot(slot), lease)
        if slot == 1:
            story.logs.silent(Sent(CLIENT, 0, 1, 1))
            story.append(1, 0)
    story.append(3, 1)
    assert story.logs.lost_silently == 1


def test_who_asks_for_answers_misses_nothing_because_of_a_no_op(story: Story) -> None:
    story.append(1, 0)
    story.logs.no_op(GROUP, Slot(2))
    with noticed("nonmonotonic-send"):
        story.append(3, 1)


def test_a_refused_batch_that_is_appended(story: Story) -> None:
    story.append(1, 0)
    story.logs.failed(story.made_batch(2))
    with noticed("G1a"):
        story.append(2, 1)
    with noticed("G1a"):
        story.logs.failed(story.made_batch(1))


def test_a_batch_nobody_sent_and_one_in_the_wrong_partition(story: Story) -> None:
    story.append(1, 0)
    with noticed("unexpected"):
        story.append(2, 1, uid=8)
    story.logs._sent.clear()
    with noticed("unexpected"):
        story.append(2, 1)


def test_a_duplicate_of_something_else(story: Story) -> None:
    story.append(1, 0)
    with noticed("inconsistent-offsets"):
        story.append(2, 0)


def test_an_acknowledgement_of_what_is_not_there(story: Story) -> None:
    first, second = story.append(1, 0), story.made_batch(2)
    with noticed("lost-write"):
        story.logs.acked(second, 1)
    with noticed("lost-write"):
        story.logs.acked(second, 0)
    with noticed("lost-write"):
        story.logs.known(second)
    story.logs.acked(first, 0)


def test_a_writer_that_is_told_of_what_is_not_there(story: Story) -> None:
    """The log notices it, whether or not the writer does: the writer would continue with what comes
    next."""
    there = KafkaError.DUPLICATE_SEQUENCE_NUMBER
    for number in (1, 2):
        story.made[number] = batch(str(number), **under(0, number - 1, more=True))
        story.logs.produced(Sent(CLIENT, 0, number, 1), story.made[number])
    story.append(1, 0)
    story.append(1, 0, there)
    story.append(1, -1, there)
    with noticed("lost-write"):
        story.append(2, -1, there)
    with noticed("inconsistent-offsets"):
        story.append(2, 0, there)


def test_fetches_that_skip_lie_or_come_late(story: Story) -> None:
    story.append(1, 0)
    story.append(2, 1)
    with noticed("poll-skip"):
        story.fetch(0, watermark=2)
    with noticed("inconsistent-offsets"):
        story.fetch(0, 2, watermark=2)
    with noticed("unexpected"):
        story.fetch(0, 1, 2, watermark=3)
    with noticed("I7"):
        story.fetch(0, 1, watermark=1, floor=2)


def test_generations_and_owners(story: Story) -> None:
    story.generation(1, {"a": b"\x00", "b": b"\x01"})
    story.groups.told_members(NAME, 1, "a", "a", frozenset("ab"))
    story.groups.told_plan(NAME, 1, "b", b"\x01")
    with noticed("generation"):
        story.groups.told_members(NAME, 2, "a", "a", frozenset("ab"))
    with noticed("generation"):
        story.groups.told_members(NAME, 1, "a", "b", frozenset())
    with noticed("owner"):
        story.groups.told_plan(NAME, 1, "a", b"\x01")
    with noticed("owner"):
        story.generation(2, {"a": b"\x00", "b": b"\x00"})


def test_a_generation_that_is_used_twice_or_goes_back(story: Story) -> None:
    story.generation(1, {"a": b"\x00"})
    with noticed("generation"):
        story.generation(1, {"a": b"\x00", "b": b"\x01"})
    with noticed("generation"):
        story.generation(1, {"a": b"\x01"})
    story.generation(2, {"a": b"\x00"})
    with noticed("generation"):
        story.generation(1, {"a": b"\x00"})


def test_commits_of_strangers_and_of_the_past(story: Story) -> None:
    story.generation(2, {"a": b"\x00"})
    story.commit(2, "a", 5, "a-1")
    with noticed("fenced"):
        story.commit(1, "a", 6, "a-2")
    with noticed("fenced"):
        story.commit(2, "b", 6, "b-1")
    with noticed("committed"):
        story.commit(2, "a", 4, "a-3")
    story.groups.told_failed(NAME, "a-4")
    with noticed("G1a"):
        story.commit(2, "a", 6, "a-4")
    with noticed("G1a"):
        story.groups.told_failed(NAME, "a-1")


def test_a_command_of_an_earlier_mastership_that_is_carried_out(story: Story) -> None:
    for slot, node in ((1, 0), (1, 0), (3, 1)):
        lease = BeMaster(NodeId(node), Incarnation(1), Slot(slot // 2), 10**18)
        story.logs.lease_entry(GROUP, Slot(slot), lease)
    command = commands.opaque(CommandKind.CONSUMER_GROUP, encode(DropGroup(NAME)))
    entry = entries.batch(commands.fenced(1, command))
    passed = encode_result(Result(ErrorCode.NOT_COORDINATOR))
    story.logs.applied(GROUP, Slot(4), entry, [passed])
    assert story.groups.late == 1
    with noticed("late"):
        story.logs.applied(GROUP, Slot(5), entry, [encode_result(Result(ErrorCode.NONE, 1))])
    story.logs.applied(GROUP, Slot(2), entry, [encode_result(Result(ErrorCode.NONE, 1))])
    assert story.groups.late == 2, "a node applied slot 2 after another had applied slot 3"


def test_commits_that_are_lost_or_not_seen(story: Story) -> None:
    story.generation(1, {"a": b"\x00"})
    with noticed("lost-commit"):
        story.groups.told_committed(NAME, "a-1", 0, 5)
    story.commit(1, "a", 5, "a-1")
    story.groups.told_committed(NAME, "a-1", 0, 5)
    assert story.groups.floor(NAME, 0) == 5
    story.groups.told_offset(NAME, 0, 5, 5)
    with noticed("I7"):
        story.groups.told_offset(NAME, 0, 5, -1)


def test_replicas_that_make_different_things_of_one_entry() -> None:
    results = Results()
    assert results.applied(NodeId(0), GROUP, 1, [b"a"])  # type: ignore[arg-type] # a plain int does
    assert not results.applied(NodeId(1), GROUP, 1, [b"a"])  # type: ignore[arg-type]
    with noticed("I3"):
        results.applied(NodeId(2), GROUP, 1, [b"b"])  # type: ignore[arg-type]
