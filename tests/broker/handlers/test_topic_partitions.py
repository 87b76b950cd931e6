"""DescribeTopicPartitions: topics page by page (KIP-966), and who produces to them (KIP-664)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxos.ids import REGISTRY_GROUP
from tests.broker.batches import batch
from tests.broker.data_world import TOPIC, DataWorld
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    PartitionCursor,
    PartitionsOfTopic,
)
from wire.messages.producer_ids import DescribeProducersRequest, DescribeProducersTopic
from wire.messages.topics import CreatableTopic, CreateTopicsRequest

SIZES = {"a": 3, "b": 1, "c": 7, "d": 2}


@pytest.fixture(scope="module")
def world() -> World:
    made = World()
    topics = [CreatableTopic(name, size, -1) for name, size in SIZES.items()]
    made.ask(1, CreateTopicsRequest(topics), 7)
    return made


def page(
    world: World, *names: str, limit: int = 2_000, cursor: PartitionCursor | None = None
) -> Any:
    named = [PartitionsOfTopic(name) for name in names]
    return world.ask(2, DescribeTopicPartitionsRequest(named, limit, cursor), 0)


def test_what_is_told_of_a_partition_is_what_metadata_tells(world: World) -> None:
    known = {one.name: one for one in world.ask(2, MetadataRequest(None), 12).topics}
    answer = page(world)
    assert [topic.name for topic in answer.topics] == list("abcd")
    assert answer.next_cursor is None
    for topic in answer.topics:
        assert topic.topic_id == known[topic.name].topic_id
        assert topic.topic_authorized_operations == 0b1101_1111_1000
        assert [
            (
                one.partition_index,
                one.leader_id,
                one.leader_epoch,
                one.replica_nodes,
                one.isr_nodes,
                one.offline_replicas,
            )
            for one in topic.partitions
        ] == [
            (
                one.partition_index,
                one.leader_id,
                one.leader_epoch,
                one.replica_nodes,
                one.isr_nodes,
                one.offline_replicas,
            )
            for one in known[topic.name].partitions
        ]
        assert all(one.eligible_leader_replicas == [] for one in topic.partitions)


@settings(deadline=None, max_examples=60)
@given(limit=st.integers(-1, 9), names=st.sets(st.sampled_from("abcdx")))
def test_pages_are_the_whole_in_order(world: World, limit: int, names: set[str]) -> None:
    """Each page has as much as fits, and the next begins where it ends."""
    found: list[tuple[str, int]] = []
    cursor = None
    for _ in range(40):
        answer = page(world, *names, limit=limit, cursor=cursor)
        counts = [len(topic.partitions) or 1 for topic in answer.topics]
        assert 0 < sum(counts) <= max(1, limit)
        for topic in answer.topics:
            found += [(topic.name, one.partition_index) for one in topic.partitions]
            if topic.name == "x":
                assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found.append(("x", -1))
        cursor = answer.next_cursor
        if cursor is None:
            break
        assert sum(counts) == max(1, limit)
    wanted = sorted(names or set("abcd"))
    assert found == [
        (name, index) for name in wanted for index in (range(SIZES[name]) if name != "x" else [-1])
    ]


def test_a_cursor_may_point_to_what_is_gone(world: World) -> None:
    """Its topic was deleted, or has no such partition: the page begins with the next topic."""
    answer = page(world, cursor=PartitionCursor("bb", 5))
    assert [topic.name for topic in answer.topics] == ["c", "d"]
    answer = page(world, cursor=PartitionCursor("b", 5))
    assert [(one.name, len(one.partitions)) for one in answer.topics] == [
        ("b", 0),
        ("c", 7),
        ("d", 2),
    ]
    for wrong in (PartitionCursor("a", -1), PartitionCursor("aa", 0), PartitionCursor("c", 0)):
        answer = page(world, "a", "b", cursor=wrong)
        assert [one.error_code for one in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2


def test_names_are_checked_and_may_be_many(world: World) -> None:
    answer = page(world, "a/b", *(f"none-{at}" for at in range(600)), "a")
    assert [one.name for one in answer.topics[:2]] == ["a", "a/b"]
    assert answer.topics[1].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(answer.topics) == 602


def test_a_partition_without_a_leader_is_no_error() -> None:
    """As in Kafka, where only Metadata has an error for it."""
    world = World()
    world.ask(1, CreateTopicsRequest([CreatableTopic("t", 4, -1)]), 7)
    group = world[1].registry.topics["t"].partitions[2].group
    world.cluster.install(group, None)
    [topic] = page(world, "t").topics
    assert [one.leader_id for one in topic.partitions] == [1, 1, -1, 1]
    assert {one.error_code for one in topic.partitions} == {ErrorCode.NONE}


def test_a_node_that_is_catching_up_denies_nothing() -> None:
    world = World(no_coordinator_wait_ms=200)
    world[2].groups.outdated.add(REGISTRY_GROUP)
    for names in ([PartitionsOfTopic("none")], []):
        asked = world.send(2, DescribeTopicPartitionsRequest(names), 0)
        assert not asked.settled
        world.advance(300)
        assert asked.reply.closed is not None
        assert "catching up" in asked.reply.closed


def producers_of(world: World, node: int, *partitions: int, topic: str = TOPIC) -> list[Any]:
    asked = DescribeProducersRequest([DescribeProducersTopic(topic, list(partitions))])
    [described] = world.ask(node, asked, 0).topics
    assert described.name == topic
    return list(described.partitions)


def test_producers_of_what_is_not_there_or_cannot_be() -> None:
    world = DataWorld()
    for topic, error in (
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        [one] = producers_of(world, 1, 0, topic=topic)
        assert (one.error_code, bool(one.error_message)) == (error, True)


def test_producers_are_described_by_the_leader() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", "b", pid=7, epoch=3))
    world.produce(1, 0, batch("c", pid=9))
    world.produce(1, 0, batch("d"))
    [row, empty] = producers_of(world, 1, 0, 1)
    assert (row.error_code, empty.error_code, empty.active_producers) == (0, 0, [])
    told = [
        (one.producer_id, one.producer_epoch, one.last_sequence) for one in row.active_producers
    ]
    assert told == [(7, 3, 1), (9, 0, 0)]
    assert [one.current_txn_start_offset for one in row.active_producers] == [-1, -1]
    [there] = producers_of(world, 2, 0)
    assert there.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    [nowhere] = producers_of(world, 1, 99)
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [unknown] = producers_of(world, 1, 0, topic="none")
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_answer_holds_a_limited_number_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.handlers.records.describe_producers.PRODUCERS_MAX", 2)
    world = DataWorld()
    for pid in (7, 8):
        world.produce(1, 0, batch("a", pid=pid))
    world.produce(1, 1, batch("a", pid=7))
    [first, second] = producers_of(world, 1, 0, 1)
    assert len(first.active_producers) == 2
    assert second.error_code == ErrorCode.REQUEST_TIMED_OUT
    [alone] = producers_of(world, 1, 1)
    assert len(alone.active_producers) == 1
