"""Commits in groups that the broker assigns, under the current epoch or an older one (KIP-1251).

The log has the epoch since which a member holds each partition, and decides by it.
"""

import attrs
import pytest

from coordinator.model import (
    ErrorCode,
    MemberId,
    OffsetCommit,
    OffsetCommitResponse,
    PartitionOffset,
    TopicOffsets,
)
from coordinator.replicated.commands import decode_result, encode
from coordinator.replicated.store import GroupStore
from coordinator.topics import Topics
from tests.coordinator.test_assigned_groups import GROUP, Consumer, world_of
from tests.coordinator.world import WALL_MS, World


def commit_all(world: World, member: str, epoch: int, offset: int) -> list[ErrorCode]:
    """All four partitions at once; returns the errors by partition."""
    partitions = tuple(PartitionOffset(number, offset) for number in range(4))
    token = world.ask(
        OffsetCommit(
            group=GROUP,
            generation=epoch,
            member_id=MemberId(member),
            commit_wall_ms=WALL_MS,
            topics=(TopicOffsets("orders", partitions),),
        )
    )
    world.commit()
    (topic,) = world.answer(token, OffsetCommitResponse).topics
    return [one.error for one in topic.partitions]


def committed(world: World) -> dict[int, int]:
    stored = world.stores[0].get(GROUP)
    assert stored is not None
    return {number: one.offset for number, one in stored.offsets.get("orders", {}).items()}


def shared_in_two(world: World) -> tuple[Consumer, Consumer]:
    """`one` has had everything in epoch 1, and half of it since; `two` has the rest from epoch 2
    on."""
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.beat()
    for _ in range(4):
        two.beat()
        one.beat()
    assert (one.epoch, two.epoch) == (2, 2)
    assert (len(one.held), len(two.held)) == (2, 2)
    return one, two


STALE, TAKEN = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NONE


@pytest.mark.parametrize("moves", ["", "a steal", "a restart"])
def test_an_older_epoch_commits_what_was_held_since(moves: str) -> None:
    """KIP-1251: the heartbeat with a new epoch overtook the commit; this does no harm if nobody
    else has had the partition. Each partition is judged by itself, by any master alike."""
    world = world_of()
    one, _ = shared_in_two(world)
    if moves == "a steal":
        world.fail_over()
    elif moves == "a restart":
        world.resign()
        world.stores = [GroupStore.restore(store.snapshot()) for store in world.stores]
        world.nodes = [world.node_of(store) for store in world.stores]
        world.elect()
    kept = [TAKEN if number in one.numbers else STALE for number in range(4)]
    assert commit_all(world, "one", 1, 10) == kept
    assert committed(world) == dict.fromkeys(one.numbers, 10)
    assert commit_all(world, "two", 1, 11) == [STALE] * 4, "it has had nothing in epoch 1"
    assert commit_all(world, "one", 3, 12) == [STALE] * 4, "nobody has come to epoch 3"
    assert commit_all(world, "one", 0, 13) == [STALE] * 4
    assert committed(world) == dict.fromkeys(one.numbers, 10)
    assert commit_all(world, "two", 2, 14) == [TAKEN] * 4, "as Kafka: its own epoch says it all"


def test_what_was_away_in_between_is_held_from_its_return_on() -> None:
    """A commit from before must not overwrite the offset of the member that held it in between."""
    world = world_of()
    one, two = shared_in_two(world)
    lost = two.numbers
    two.leave()
    for _ in range(2):
        one.beat()
    assert (one.epoch, one.numbers) == (3, [0, 1, 2, 3])
    assert commit_all(world, "one", 2, 10) == [
        STALE if number in lost else TAKEN for number in range(4)
    ]
    assert commit_all(world, "one", 1, 11) == [
        STALE if number in lost else TAKEN for number in range(4)
    ]
    assert commit_all(world, "one", 3, 12) == [TAKEN] * 4


def test_what_is_to_be_given_up_may_still_be_committed() -> None:
    """A member commits what it has processed before it gives a partition up, under the epoch it
    knows."""
    world = world_of()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.beat()
    two.beat()
    one.beat()  # it has to give up two
    assert commit_all(world, "one", 1, 10) == [TAKEN] * 4


def test_what_is_to_be_given_up_may_be_committed_under_an_older_epoch_as_well() -> None:
    world = world_of()
    one, _ = shared_in_two(world)
    kept = one.numbers
    Consumer(world, "three").beat()
    one.beat()
    assert (one.epoch, len(one.held)) == (2, 1), "told to give up one"
    assert commit_all(world, "one", 1, 10) == [
        TAKEN if number in kept else STALE for number in range(4)
    ]


def test_a_commit_that_a_heartbeat_overtook_is_taken() -> None:
    """Both are on their way at once, as the Java consumer sends them."""
    world = world_of()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.beat()
    two.beat()
    one.beat()
    world.auto_commit = False
    beat = one.begin()  # it gives up two partitions and moves to epoch 2
    kept = tuple(PartitionOffset(number, 7) for number in one.numbers)
    token = world.ask(
        OffsetCommit(
            group=GROUP,
            generation=1,
            member_id=MemberId("one"),
            commit_wall_ms=WALL_MS,
            topics=(TopicOffsets("orders", kept),),
        )
    )
    world.commit()
    assert one.finish(beat).epoch == 2
    (topic,) = world.answer(token, OffsetCommitResponse).topics
    assert {verdict.error for verdict in topic.partitions} == {TAKEN}


def test_a_static_member_that_comes_back_commits_from_its_first_epoch_on() -> None:
    world = world_of()
    one = Consumer(world, "one", instance="i")
    one.beat()
    one.leave(-2)
    again = Consumer(world, "again", instance="i")
    again.beat()
    assert len(again.held) == 4
    assert commit_all(world, "one", 1, 10) == [ErrorCode.UNKNOWN_MEMBER_ID] * 4
    first = again.epoch
    assert commit_all(world, "again", first, 11) == [TAKEN] * 4
    two = Consumer(world, "two")
    for _ in range(4):
        two.beat()
        again.beat()
    assert again.epoch > first
    assert commit_all(world, "again", first, 12) == [
        TAKEN if number in again.numbers else STALE for number in range(4)
    ]


def test_another_topic_of_the_name_was_never_held() -> None:
    world = world_of()
    shared_in_two(world)
    world.topics = Topics(2, {"orders": (b"x" * 16, 4)})
    assert commit_all(world, "one", 1, 10) == [STALE] * 4


def test_a_group_from_before_is_fenced_as_before_until_it_changes() -> None:
    """Its snapshot does not say since when parts are held: the member's current epoch counts."""
    world = world_of()
    one, two = shared_in_two(world)
    for store in world.stores:
        stored = store.get(GROUP)
        assert stored is not None
        assert stored.assigned is not None
        members = tuple(attrs.evolve(member, since={}) for member in stored.assigned.members)
        old = attrs.evolve(stored.assigned, members=members, prev_revision=stored.revision)
        assert encode(old)[:2] == b"\1\6"
        assert decode_result(store.apply(encode(old))).error == TAKEN
    world.fail_over()
    assert commit_all(world, "one", 1, 10) == [STALE] * 4
    assert commit_all(world, "one", 2, 10) == [TAKEN] * 4
    three = Consumer(world, "three")
    for _ in range(4):
        for consumer in (three, one, two):
            consumer.beat()
    assert one.epoch == 3
    kept = [TAKEN if number in one.numbers else STALE for number in range(4)]
    assert commit_all(world, "one", 2, 11) == kept
