"""Leader epochs as clients see them, who remember them by the partition's name.

A client that has seen a leader epoch ignores a lower one (librdkafka stays with the old leader). So
the epochs of a new topic begin above those of every earlier topic of that name.
"""

from typing import Any

from tests.broker.batches import batch
from tests.broker.data_world import TOPIC, DataWorld, want
from wire.error_codes import ErrorCode
from wire.messages.logs import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

EARLIEST, LATEST = -2, -1


def metadata(world: DataWorld, node: int = 1) -> list[Any]:
    request = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
    (topic,) = world.ask(node, request, 12).topics
    assert topic.error_code == ErrorCode.NONE
    return list(topic.partitions)


def make_anew(world: DataWorld, partitions: int = 4) -> None:
    state = DeleteTopicState(TOPIC)
    deleted = world.ask(2, DeleteTopicsRequest(topics=[state], timeout_ms=1_000), 6)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    made = world.ask(3, CreateTopicsRequest([CreatableTopic(TOPIC, partitions, -1)]), 7)
    assert made.topics[0].error_code == ErrorCode.NONE


def old_world() -> DataWorld:
    """The masters of the first two groups have changed often, those of the others hardly ever. The
    first two are full, so a new topic goes to other groups."""
    world = DataWorld()
    for number in range(40):
        for group in (1, 2):
            world.cluster.install(group, number % 3 + 1)
    return world


def test_leader_epochs_do_not_fall_when_a_topic_is_made_anew() -> None:
    world = old_world()
    seen = {one.partition_index: one.leader_epoch for one in metadata(world)}
    world.ask(1, CreateTopicsRequest([CreatableTopic("others", 2, -1)]), 7)
    for _ in range(3):
        make_anew(world)
        for node in (1, 2, 3):
            now = {one.partition_index: one.leader_epoch for one in metadata(world, node)}
            assert all(now[index] > epoch for index, epoch in seen.items())
        seen = now
        world.cluster.install(1, 2)
    more = CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 6)], 1_000)
    assert world.ask(1, more, 3).results[0].error_code == ErrorCode.NONE
    grown = {one.partition_index: one.leader_epoch for one in metadata(world)}
    assert min(grown[4], grown[5]) >= min(seen.values())


def test_all_answers_say_the_same_epoch_of_a_partition() -> None:
    """Metadata, Fetch, ListOffsets and refusals all use the same epoch."""
    world = old_world()
    make_anew(world)
    (first, *_) = metadata(world)
    leader, epoch = first.leader_id, first.leader_epoch
    stranger = leader % 3 + 1
    assert world.fetch(leader, want(0, 0, epoch=epoch), version=12).error_code == ErrorCode.NONE
    fenced = world.fetch(leader, want(0, 0, epoch=epoch - 1), version=12)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fenced.current_leader.leader_epoch == epoch
    newer = world.fetch(leader, want(0, 0, epoch=epoch + 1), version=12)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    elsewhere = world.fetch(stranger, want(0, 0, epoch=epoch), version=12)
    assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert elsewhere.current_leader.leader_epoch == epoch
    for at, expected in (
        (epoch, ErrorCode.NONE),
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert world.list_offsets(leader, 0, LATEST, epoch=at).error_code == expected
    assert world.list_offsets(leader, 0, LATEST).leader_epoch == epoch
    assert world.list_offsets(leader, 0, EARLIEST).leader_epoch == epoch


def test_a_producer_is_told_the_same_epoch() -> None:
    world = old_world()
    make_anew(world)
    (first, *_) = metadata(world)
    refused = world.produce(first.leader_id % 3 + 1, 0, batch("x"))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.current_leader.leader_epoch == first.leader_epoch


def test_a_node_that_has_not_heard_of_a_master_waits_before_it_deletes() -> None:
    """Otherwise nobody would know which epochs the new topic must exceed."""
    world = old_world()
    groups, asked = world[2].groups, []
    known, groups.epoch = groups.epoch, lambda group: 0  # type: ignore[method-assign]
    state = DeleteTopicState(TOPIC)
    asked.append(world.send(2, DeleteTopicsRequest(topics=[state], timeout_ms=1_000), 6))
    world.settle()
    assert world[1].registry.topic(TOPIC) is not None
    groups.epoch = known  # type: ignore[method-assign]
    world.advance(100)
    assert world[1].registry.topic(TOPIC) is None
    assert asked[0].response.responses[0].error_code == ErrorCode.NONE


# -- where an epoch ends (OffsetForLeaderEpoch) ----------------------------------------------------


def led_by_three() -> tuple[DataWorld, list[tuple[int, int, int]]]:
    """A partition that three nodes have led in turn: (epoch, begin, end) of each."""
    world, reigns, at = DataWorld(), list[tuple[int, int, int]](), 0
    for node in (1, 2, 3):
        world.cluster.install(1, node)
        world.settle()
        for _ in range(node):
            assert world.produce(node, 0, batch("x")).error_code == ErrorCode.NONE
        epoch = world.list_offsets(node, 0, LATEST).leader_epoch
        reigns.append((epoch, at, at + node))
        at += node
    return world, reigns


def test_each_epoch_ends_where_the_next_one_begins() -> None:
    world, reigns = led_by_three()
    for epoch, _, end in reigns:
        answer = world.end_of_epoch(3, 0, epoch)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, epoch, end)


def test_an_epoch_that_appended_nothing_ends_with_the_one_before() -> None:
    world, reigns = led_by_three()
    world.cluster.install(1, 1)
    world.settle()
    now = world.list_offsets(1, 0, LATEST).leader_epoch
    assert now > reigns[-1][0]
    answer = world.end_of_epoch(1, 0, now, current=now)
    assert (answer.leader_epoch, answer.end_offset) == (now, reigns[-1][2])
    between = world.end_of_epoch(1, 0, now - 1)
    assert (between.leader_epoch, between.end_offset) == (reigns[-1][0], reigns[-1][2])
    unknown = world.end_of_epoch(1, 0, now + 1)
    assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)


def test_who_names_no_epoch_is_told_of_none() -> None:
    """As in Kafka: -1 is not an epoch before all others."""
    world, _ = led_by_three()
    answer = world.end_of_epoch(3, 0, -1)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, -1, -1)


def test_who_has_read_anything_is_never_told_that_it_is_gone() -> None:
    """This also holds after DeleteRecords, and for a topic that was deleted and made again."""
    world, reigns = led_by_three()
    trim = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 4)])
    trimmed = world.ask(3, DeleteRecordsRequest([trim], 1_000), 2)
    assert trimmed.topics[0].partitions[0].error_code == ErrorCode.NONE
    for epoch, _, end in reigns:
        assert world.end_of_epoch(3, 0, epoch).end_offset >= end
    old = world.end_of_epoch(3, 0, 0)
    assert old.end_offset >= 0
    remade = old_world()
    make_anew(remade)
    (first, *_) = metadata(remade)
    assert remade.produce(first.leader_id, 0, batch("x")).error_code == ErrorCode.NONE
    read = remade.fetch(first.leader_id, want(0, 0), version=12)
    epoch = int.from_bytes(bytes(read.records)[12:16], "big")
    for known in (epoch, first.leader_epoch):
        answer = remade.end_of_epoch(first.leader_id, 0, known, current=first.leader_epoch)
        assert (answer.error_code, answer.end_offset) == (ErrorCode.NONE, 1)


def test_epochs_are_asked_of_the_leader_and_fenced_as_elsewhere() -> None:
    world, reigns = led_by_three()
    epoch = reigns[-1][0]
    for node, partition, current, error in (
        (3, 0, epoch, ErrorCode.NONE),
        (3, 0, epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (3, 0, epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (1, 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, 99, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        assert world.end_of_epoch(node, partition, epoch, current=current).error_code == error
