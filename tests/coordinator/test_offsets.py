"""Committed offsets: fencing, limits, fetching, deleting, expiring (D12)."""

import struct
from unittest.mock import patch

import pytest

from broker.groups.topic_patterns import matching
from coordinator.coordinator import Coordinator
from coordinator.limits import DAY_MS, CoordinatorConfig
from coordinator.model import (
    NO_OFFSET,
    ConsumerGroupId,
    DeleteGroup,
    DeleteGroupResponse,
    ErrorCode,
    Heartbeat,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    MemberId,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionOffset,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
    TopicOffsets,
    TopicPartitions,
)
from coordinator.replicated.codec import CommandError
from coordinator.replicated.store import GroupStore
from coordinator.topics import ANY_TOPIC, Topics
from paxos.ids import Slot
from tests.coordinator.world import (
    GROUP,
    WALL_MS,
    Client,
    World,
    committed_offset,
    share,
    stable_group,
)


def commit_of(offset: int, group: ConsumerGroupId = GROUP, *, uid: int = ANY_TOPIC) -> OffsetCommit:
    topics = (TopicOffsets("t", (PartitionOffset(0, offset, uid=uid),)),)
    return OffsetCommit(group=group, commit_wall_ms=WALL_MS, topics=topics)


def named(next_uid: int = 0, **uids: tuple[int, ...]) -> Topics:
    """Topics with these uids; all uids up to the greatest have been assigned."""
    ids = {name: (name.encode().ljust(16), len(given)) for name, given in uids.items()}
    ends = [uid + 1 for given in uids.values() for uid in given]
    return Topics(1, ids, uids, max([next_uid, *ends]))


def simple_commit(
    world: World, offset: int, group: ConsumerGroupId = GROUP, *, uid: int = ANY_TOPIC
) -> ErrorCode:
    """As by a consumer without group management, or an operator who moves a group."""
    token = world.ask(commit_of(offset, group, uid=uid))
    return world.answer(token, OffsetCommitResponse).topics[0].partitions[0].error


def delete_group(world: World) -> ErrorCode:
    return world.answer(world.ask(DeleteGroup(group=GROUP)), DeleteGroupResponse).error


def test_D12_a_commit_is_answered_when_the_log_has_it_and_is_then_seen_by_all() -> None:
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    world.auto_commit = False
    token = anna.send_commit(17, metadata="half way")
    assert token not in world.answers
    assert committed_offset(world) == NO_OFFSET
    world.commit()
    assert anna.committed(token) == ErrorCode.NONE
    asked = world.ask(OffsetFetch(group=GROUP, topics=(TopicPartitions("t", (0, 9)),)))
    (topic,) = world.answer(asked, OffsetFetchResponse).topics
    assert topic.partitions == (
        PartitionOffset(0, 17, 1, "half way"),
        PartitionOffset(9, NO_OFFSET),
    )


def test_a_group_may_be_set_back_by_an_explicit_commit() -> None:
    """Kafka allows it: the last commit counts, not the highest."""
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    assert anna.commit(100) == ErrorCode.NONE
    assert anna.commit(10) == ErrorCode.NONE
    assert committed_offset(world) == 10


def test_commits_are_fenced_by_generation_and_member() -> None:
    world = World()
    anna, eve = Client(world, "anna"), Client(world, "eve")
    stable_group(world, anna)
    anna.generation = 0
    assert anna.commit(1) == ErrorCode.ILLEGAL_GENERATION
    eve.generation, eve.member_id = 1, MemberId("eve-1-1")
    assert eve.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert simple_commit(world, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    nobody = Client(world, "nobody", group=ConsumerGroupId("no such group"))
    nobody.generation, nobody.member_id = 3, eve.member_id
    assert nobody.commit(1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert committed_offset(world) == NO_OFFSET


def test_a_member_of_a_group_that_only_has_offsets_is_unknown() -> None:
    """Whether or not it names itself; who claims no generation may go on committing."""
    world = World()
    assert simple_commit(world, 1) == ErrorCode.NONE
    claims = Client(world, "claims")
    for member_id, generation in (("someone-1", 3), ("", 3), ("someone-1", 0)):
        claims.member_id, claims.generation = MemberId(member_id), generation
        assert claims.commit(5) == ErrorCode.UNKNOWN_MEMBER_ID
    claims.member_id, claims.generation = MemberId("someone-1"), -2
    assert claims.commit(6) == ErrorCode.NONE
    assert committed_offset(world) == 6


def test_a_group_without_a_name_keeps_offsets_and_has_no_members() -> None:
    """Simple consumers of old committed without a group; members have always had to name one."""
    world = World()
    group = ConsumerGroupId("")
    anna = Client(world, "anna", group=group)
    assert anna.commit(7) == ErrorCode.NONE
    anna.member_id, anna.generation = MemberId("anna-1"), 1
    assert anna.commit(8) == ErrorCode.UNKNOWN_MEMBER_ID
    member = {"group": group, "generation": 1, "member_id": MemberId("anna-1")}
    sync = world.ask(SyncGroup(**member, assignments=()))
    assert world.answer(sync, SyncGroupResponse).error == ErrorCode.INVALID_GROUP_ID
    beat = world.ask(Heartbeat(**member))
    assert world.answer(beat, HeartbeatResponse).error == ErrorCode.INVALID_GROUP_ID
    leave = world.ask(LeaveGroup(group=group, members=(LeavingMember(MemberId("anna-1")),)))
    assert world.answer(leave, LeaveGroupResponse) == LeaveGroupResponse(
        error=ErrorCode.INVALID_GROUP_ID
    )
    drop = world.ask(OffsetDelete(group=group, topics=()))
    assert world.answer(drop, OffsetDeleteResponse).error == ErrorCode.INVALID_GROUP_ID


def test_a_commit_is_taken_during_the_wait_for_members_and_not_while_work_is_shared() -> None:
    """Members commit before they rejoin (that is what the wait is for), not after."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna)
    token = bert.join()
    assert anna.commit(5) == ErrorCode.NONE
    anna.learn(anna.join())
    bert.learn(token)
    assert anna.commit(6) == ErrorCode.REBALANCE_IN_PROGRESS
    share(world, anna, bert)
    assert anna.commit(6) == ErrorCode.NONE


def test_a_commit_in_flight_through_a_rebalance_is_stopped_in_the_log() -> None:
    """Chosen after the next generation it no longer counts: its partitions may be another
    member's."""
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna)
    world.auto_commit = False
    late = anna.send_commit(99)
    bert.join()
    anna.join()
    world.in_flight.rotate(-1)  # the network delivered them in this order
    world.commit()
    assert anna.committed(late) == ErrorCode.ILLEGAL_GENERATION
    assert committed_offset(world) == NO_OFFSET


def test_a_commit_of_a_deposed_coordinator_cannot_sneak_in_after_a_rebalance() -> None:
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    stable_group(world, anna, bert)
    world.auto_commit = False
    bert.send_commit(99)
    stale = world.in_flight.popleft().command
    world.auto_commit = True
    world.fail_over()
    bert.leave()
    anna.learn(anna.join())
    share(world, anna)
    for store in world.stores:
        store.apply(stale)
    assert committed_offset(world) == NO_OFFSET


def test_a_simple_consumer_commits_without_a_group() -> None:
    """Generation -1 and no members: the group is only a name for offsets."""
    world = World()
    assert simple_commit(world, 3) == ErrorCode.NONE
    assert committed_offset(world) == 3
    stable_group(world, Client(world, "anna"))
    assert simple_commit(world, 4) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed_offset(world) == 3


def test_a_simple_commit_overtaken_by_a_member_is_stopped_in_the_log() -> None:
    world = World()
    world.auto_commit = False
    topics = (TopicOffsets("t", (PartitionOffset(0, 9),)),)
    token = world.ask(OffsetCommit(group=GROUP, commit_wall_ms=WALL_MS, topics=topics))
    join = Client(world, "anna").join()
    world.pass_time(500)
    world.in_flight.rotate(-1)
    world.commit()
    assert world.answer(join, JoinGroupResponse).error == ErrorCode.NONE
    verdict = world.answer(token, OffsetCommitResponse).topics[0].partitions[0].error
    assert verdict == ErrorCode.UNKNOWN_MEMBER_ID


def test_bad_partitions_do_not_spoil_good_ones() -> None:
    """Metadata and names have limits, partition by partition."""
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    topics = (
        TopicOffsets("t", (PartitionOffset(0, 1), PartitionOffset(1, 2, -1, "x" * 4097))),
        TopicOffsets("n" * 250, (PartitionOffset(0, 3),)),
    )
    request = OffsetCommit(
        group=GROUP,
        generation=1,
        member_id=anna.member_id,
        commit_wall_ms=WALL_MS,
        topics=topics,
    )
    answer = world.answer(world.ask(request), OffsetCommitResponse)
    assert [[one.error for one in partitions] for _, partitions in answer.topics] == [
        [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE],
        [ErrorCode.INVALID_TOPIC_EXCEPTION],
    ]
    assert committed_offset(world) == 1
    assert committed_offset(world, partition=1) == NO_OFFSET


def test_too_many_partitions_are_refused_as_a_whole() -> None:
    world = World(CoordinatorConfig(commit_partitions_max=2))
    topics = (TopicOffsets("t", tuple(PartitionOffset(p, 1) for p in range(3))),)
    token = world.ask(OffsetCommit(group=GROUP, commit_wall_ms=WALL_MS, topics=topics))
    errors = {e for _, ps in world.answer(token, OffsetCommitResponse).topics for _, e in ps}
    assert errors == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    for offset in range(5):
        world.pass_time(9_000)
        assert anna.commit(offset) == ErrorCode.NONE


def test_only_a_group_without_members_can_be_deleted() -> None:
    world = World()
    anna = Client(world, "anna")
    assert delete_group(world) == ErrorCode.GROUP_ID_NOT_FOUND
    stable_group(world, anna)
    anna.commit(7)
    assert delete_group(world) == ErrorCode.NON_EMPTY_GROUP
    anna.leave()
    assert delete_group(world) == ErrorCode.NONE
    assert committed_offset(world) == NO_OFFSET
    assert delete_group(world) == ErrorCode.GROUP_ID_NOT_FOUND
    stable_group(world, Client(world, "bert"))


def test_a_group_that_is_being_deleted_is_dead_to_newcomers() -> None:
    world = World()
    simple_commit(world, 1)
    world.auto_commit = False
    deleting = world.ask(DeleteGroup(group=GROUP))
    anna = Client(world, "anna")
    refused = world.answer(anna.send_join(), JoinGroupResponse)
    assert refused.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.commit()
    assert world.answer(deleting, DeleteGroupResponse).error == ErrorCode.NONE
    world.auto_commit = True
    stable_group(world, anna)


def test_offsets_in_use_are_not_deleted() -> None:
    """OffsetDelete leaves topics that a member of a consumer group subscribes to."""
    world = World()
    anna = Client(world, "anna", protocols=(Protocol("range", subscription("u")),))
    simple_commit(world, 5)
    stable_group(world, anna)
    topics = (TopicPartitions("t", (0, 1)), TopicPartitions("u", (0,)))
    token = world.ask(OffsetDelete(group=GROUP, topics=topics))
    answer = world.answer(token, OffsetDeleteResponse)
    used = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert [[e for _, e in partitions] for _, partitions in answer.topics] == [[0, 0], [used]]
    assert committed_offset(world) == NO_OFFSET
    anna.protocols = (Protocol("range", b"not to be understood"),)
    anna.learn(anna.join())
    share(world, anna)
    answer = world.answer(world.ask(OffsetDelete(group=GROUP, topics=topics)), OffsetDeleteResponse)
    assert {e for _, partitions in answer.topics for _, e in partitions} == {used}


def test_offsets_of_a_group_without_members_expire() -> None:
    """Counted from the first sweep that finds the group empty; a move of the coordinator does not
    delay it."""
    world = World()
    anna = Client(world, "anna")
    stable_group(world, anna)
    anna.commit(5)
    world.sweep(WALL_MS + 100 * DAY_MS)
    assert committed_offset(world) == 5  # members keep offsets for ever
    anna.leave()
    world.sweep(WALL_MS + 100 * DAY_MS)
    world.fail_over()
    world.sweep(WALL_MS + 107 * DAY_MS - 1)
    assert committed_offset(world) == 5
    world.sweep(WALL_MS + 107 * DAY_MS)
    assert committed_offset(world) == NO_OFFSET
    assert world.stores[1].get(GROUP) is None


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription v0."""
    names = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def test_old_offsets_of_topics_nobody_reads_any_more_expire() -> None:
    """Otherwise a group that lives for ever would keep for ever whatever it once read (KIP-211)."""
    world = World()
    anna = Client(world, "anna", protocols=(Protocol("range", subscription("t", "u")),))
    bert = Client(world, "bert", protocols=(Protocol("range", subscription("u")),))
    stable_group(world, anna, bert)
    anna.commit(5)
    world.sweep(WALL_MS + 100 * DAY_MS)
    assert committed_offset(world) == 5
    anna.protocols = (Protocol("range", subscription("u")),)
    token = anna.join()
    world.sweep(WALL_MS + 100 * DAY_MS)
    assert committed_offset(world) == 5  # in a rebalance nobody knows
    bert.learn(bert.join())
    anna.learn(token)
    share(world, anna, bert)
    world.sweep(WALL_MS + 7 * DAY_MS - 1)
    assert committed_offset(world) == 5
    world.sweep(WALL_MS + 7 * DAY_MS)
    assert committed_offset(world) == NO_OFFSET
    assert (anna.heartbeat(), bert.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_topic_that_is_gone_takes_its_offsets_along() -> None:
    """In all groups of the log, with members or without; other topics' offsets stay."""
    world = World()
    world.topics = named(t=(3,), u=(4,))
    simple_commit(world, 5, uid=3)
    other = ConsumerGroupId("other")
    simple_commit(world, 6, other, uid=3)
    world.topics = named(t=(3,), next_uid=5)
    world.forget_topics()
    assert (committed_offset(world), committed_offset(world, 0, other)) == (5, 6)
    world.topics = named(u=(5,))
    world.forget_topics()
    world.topics = named(t=(3,), u=(5,))  # so that it would be seen
    assert (committed_offset(world), committed_offset(world, 0, other)) == (NO_OFFSET, NO_OFFSET)


def test_a_new_topic_of_the_name_has_no_offsets_whoever_was_coordinator_when_the_old_one_went() -> (
    None
):
    """No coordinator looked when the topic was deleted and made again: the uid decides."""
    world = World()
    world.topics = named(t=(3, 4))
    simple_commit(world, 5, uid=3)
    world.resign()
    world.topics = named(t=(7, 8))
    world.fail_over()
    assert committed_offset(world) == NO_OFFSET
    everything = world.answer(world.ask(OffsetFetch(group=GROUP, topics=None)), OffsetFetchResponse)
    assert everything.topics == ()
    world.pass_time(0)
    stored = world.stores[0].get(GROUP)
    assert stored is not None
    assert stored.offsets == {}
    assert simple_commit(world, 1, uid=7) == ErrorCode.NONE
    assert committed_offset(world) == 1


def test_a_commit_for_the_old_topic_does_not_land_in_the_new_one() -> None:
    """It waited for its coordinator, or in the log, while the topic was deleted and made again."""
    world = World()
    world.topics = named(t=(3,))
    world.auto_commit = False
    late = world.ask(commit_of(5, uid=3))
    world.topics = named(t=(7,))
    later = world.ask(commit_of(2, uid=7))
    assert world.answer(world.ask(commit_of(6, uid=3)), OffsetCommitResponse).topics[0].partitions[
        0
    ].error == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    old, new = world.in_flight
    world.in_flight.clear()
    world.in_flight += [new, old]
    world.commit()
    assert committed_offset(world) == 2
    answers = [world.answer(one, OffsetCommitResponse).topics[0] for one in (late, later)]
    errors = [one.partitions[0].error for one in answers]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_topic_that_the_coordinator_has_not_heard_of_yet_keeps_its_offsets() -> None:
    """Another node had a newer registry, and was coordinator before."""
    world = World()
    world.topics = named(t=(3,))
    simple_commit(world, 5, uid=3)
    world.fail_over()
    world.topics = named(t=(2,))
    world.pass_time(0)
    assert committed_offset(world) == 5
    world.topics = named(t=(3,))
    assert committed_offset(world) == 5


def test_an_offset_of_before_there_were_uids_is_of_the_topic_that_is_found_with_it() -> None:
    world = World()
    simple_commit(world, 5)
    gone = ConsumerGroupId("of a topic that is gone")
    topics = (TopicOffsets("gone", (PartitionOffset(0, 9),)),)
    world.ask(OffsetCommit(group=gone, commit_wall_ms=WALL_MS, topics=topics))
    world.topics = named(t=(3,))
    world.fail_over()
    assert committed_offset(world) == 5
    world.pass_time(0)
    world.sweep(WALL_MS)
    world.pass_time(0)
    assert committed_offset(world) == 5
    world.topics = named(t=(4,), gone=(5,))
    assert committed_offset(world) == NO_OFFSET
    asked = world.ask(OffsetFetch(group=gone, topics=None))
    assert world.answer(asked, OffsetFetchResponse).topics == ()


def test_a_sweep_with_nothing_to_do_stays_out_of_the_log() -> None:
    world = World()
    stable_group(world, Client(world, "anna"))
    before = len(world.log)
    world.sweep(WALL_MS)
    assert len(world.log) == before


def test_a_sweep_and_a_newcomer_at_the_same_time() -> None:
    """The group is removed while a member joins it: it starts over, and works."""
    world = World()
    first = Client(world, "anna")
    stable_group(world, first)
    first.leave()
    world.sweep(WALL_MS)
    bert = Client(world, "bert")
    token = bert.join()
    world.sweep(WALL_MS + DAY_MS)
    assert world.stores[0].get(GROUP) is None
    world.pass_time(500)
    bert.learn(token)
    share(world, bert)


def test_the_store_can_be_restored_from_its_checkpoint() -> None:
    world = World()
    stable_group(world, Client(world, "anna", instance_id="i"), Client(world, "bert"))
    other = ConsumerGroupId("simple")
    for offset in range(3):
        simple_commit(world, offset, other)
    world.sweep(WALL_MS)
    chunks = world.stores[0].snapshot()
    restored = GroupStore.restore(chunks)
    assert restored.snapshot() == chunks
    coordinator = Coordinator(restored, world.config, lambda: world.topics, matching)
    coordinator.elected(world.now_ms, Slot(9), b"chance")
    fetch = OffsetFetch(group=other, topics=None)
    (reply,) = coordinator.handle(world.now_ms, fetch, "token").replies
    assert isinstance(reply.response, OffsetFetchResponse)
    assert reply.response.topics[0].partitions[0].offset == 2
    assert coordinator.statistics().members == 2
    with pytest.raises(CommandError):
        GroupStore.restore(chunks[:-1])


def test_a_fetch_examines_only_the_partitions_it_names() -> None:
    """A group may have 100,000 offsets, and a client asks in portions."""
    world = World()
    for partition in range(50):
        topics = (TopicOffsets("t", (PartitionOffset(partition, 7, uid=partition),)),)
        world.topics = named(t=tuple(range(50)))
        world.ask(OffsetCommit(group=GROUP, commit_wall_ms=WALL_MS, topics=topics))
    examined = []
    is_of = Topics.is_of

    def counted(self: Topics, topic: str, partition: int, uid: int) -> bool:
        examined.append(partition)
        return is_of(self, topic, partition, uid)

    with patch.object(Topics, "is_of", counted):
        asked = world.ask(OffsetFetch(group=GROUP, topics=(TopicPartitions("t", (3, 60, 4)),)))
    (topic,) = world.answer(asked, OffsetFetchResponse).topics
    assert [one.offset for one in topic.partitions] == [7, NO_OFFSET, 7]
    assert examined == [3, 4]
