"""Groups with broker-side assignment (KIP-848) as stories; members behave like librdkafka."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.limits import DAY_MS, CoordinatorConfig
from coordinator.model import (
    AssignedHeartbeat,
    AssignedHeartbeatResponse,
    ConsumerGroupId,
    DeleteGroup,
    DeleteGroupResponse,
    DescribeAssigned,
    DescribeAssignedResponse,
    ErrorCode,
    JoinGroup,
    JoinGroupResponse,
    MemberId,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    PartitionOffset,
    ProposalFailure,
    Protocol,
    TopicIdPartitions,
    TopicOffsets,
    TopicPartitions,
)
from coordinator.replicated.store import GroupStore
from coordinator.topics import Topics
from tests.coordinator.world import WALL_MS, World

GROUP = ConsumerGroupId("shared")
ORDERS, RETURNS = bytes([1]) * 16, bytes([2]) * 16
BEAT_MS = 1_000
SESSION_MS = 45_000
REVOKE_MS = 20_000
Part = tuple[bytes, int]


def world_of(orders: int = 4, **settings: int) -> World:
    world = World(CoordinatorConfig(**settings))
    world.topics = Topics(1, {"orders": (ORDERS, orders), "returns": (RETURNS, 2)})
    return world


@attrs.define(eq=False)
class Consumer:
    """Holds and gives up what it is told to, and reports it in its next heartbeat."""

    world: World
    name: str
    topics: tuple[str, ...] = ("orders",)
    pattern: str | None = None
    instance: str | None = None
    stubborn: bool = False
    epoch: int = 0
    held: frozenset[tuple[bytes, int]] = frozenset()
    said: frozenset[tuple[bytes, int]] | None = None
    error: ErrorCode = ErrorCode.NONE

    def begin(self) -> int:
        joining = self.epoch == 0
        owned = None if not joining and self.said == self.held else self.held
        self.said = self.held
        return self.world.ask(
            AssignedHeartbeat(
                group=GROUP,
                member_id=MemberId(self.name),
                epoch=self.epoch,
                instance_id=self.instance,
                rebalance_timeout_ms=REVOKE_MS if joining else -1,
                topics=self.topics if joining else None,
                pattern=self.pattern if joining else None,
                owned=None if owned is None else _grouped(owned),
            )
        )

    def finish(self, token: int) -> AssignedHeartbeatResponse:
        answer = self.world.answer(token, AssignedHeartbeatResponse)
        self.error = answer.error
        if answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.held, self.said = 0, frozenset(), None
        if answer.error == ErrorCode.NONE:
            self.epoch = answer.epoch
            if answer.assignment is not None and not self.stubborn:
                self.held = frozenset((t, one) for t, ones in answer.assignment for one in ones)
        return answer

    def beat(self) -> AssignedHeartbeatResponse:
        token = self.begin()
        self.world.commit()
        return self.finish(token)

    def begin_leave(self, epoch: int = -1) -> int:
        member = MemberId(self.name)
        self.held, self.said, self.epoch = frozenset(), None, 0
        return self.world.ask(
            AssignedHeartbeat(group=GROUP, member_id=member, epoch=epoch, instance_id=self.instance)
        )

    def leave(self, epoch: int = -1) -> AssignedHeartbeatResponse:
        token = self.begin_leave(epoch)
        self.world.commit()
        return self.world.answer(token, AssignedHeartbeatResponse)

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.held)


def _grouped(held: frozenset[tuple[bytes, int]]) -> tuple[TopicIdPartitions, ...]:
    topics = sorted({topic for topic, _ in held})
    return tuple(
        TopicIdPartitions(topic, tuple(sorted(n for t, n in held if t == topic)))
        for topic in topics
    )


def exclusive(*consumers: Consumer) -> None:
    held = [part for one in consumers for part in one.held]
    assert len(set(held)) == len(held), "two consume the same partition"


def rounds(world: World, *consumers: Consumer, times: int = 5) -> None:
    for _ in range(times):
        for one in consumers:
            one.beat()
            exclusive(*consumers)
        world.pass_time(BEAT_MS)


def test_one_takes_all_and_shares_with_the_next() -> None:
    """Incrementally: the first keeps part and continues with it while it gives the rest up."""
    world = world_of()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    assert one.beat().epoch == 1
    assert one.numbers == [0, 1, 2, 3]
    joined = two.beat()
    assert (joined.error, two.numbers) == (ErrorCode.NONE, [])  # nothing is free yet
    one.beat()
    assert len(one.numbers) == 2  # it has to give two up
    two.beat()
    assert two.numbers == []  # and has not reported it yet
    one.beat()
    two.beat()
    exclusive(one, two)
    assert sorted(one.numbers + two.numbers) == [0, 1, 2, 3]
    two.leave()
    rounds(world, one)
    assert one.numbers == [0, 1, 2, 3]


def test_nobody_is_told_what_the_log_does_not_have() -> None:
    world = world_of()
    world.auto_commit = False
    one = Consumer(world, "one")
    token = one.begin()
    assert token not in world.answers
    world.commit()
    assert one.finish(token).epoch == 1
    quiet = one.begin()
    assert quiet in world.answers  # nothing has changed, so nothing is written
    assert world.answer(quiet, AssignedHeartbeatResponse).assignment is None


def test_a_coordinator_that_moves_keeps_members_and_shares() -> None:
    world = world_of()
    members = [Consumer(world, name) for name in ("one", "two", "three")]
    rounds(world, *members)
    before = [(one.epoch, one.numbers) for one in members]
    world.fail_over()
    for one in members:
        answer = one.beat()
        assert answer.assignment is not None  # it may have missed one
    assert [(one.epoch, one.numbers) for one in members] == before


@pytest.mark.parametrize("lose", [True, False])
def test_a_coordinator_that_moves_in_the_middle_of_a_change(lose: bool) -> None:
    world = world_of()
    world.auto_commit = False
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.beat()
    token = two.begin()
    world.fail_over(lose=lose)
    assert two.finish(token).error == ErrorCode.NOT_COORDINATOR
    rounds(world, one, two)
    exclusive(one, two)
    assert (len(one.held), len(two.held)) == (2, 2)


def test_a_proposal_that_fails_changes_nothing() -> None:
    world = world_of()
    world.auto_commit = False
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.beat()
    token = two.begin()
    world.fail(ProposalFailure.OVERLOADED)
    assert two.finish(token).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rounds(world, one, two)
    assert (len(one.held), len(two.held)) == (2, 2)


def test_a_silent_member_is_removed_after_its_session() -> None:
    world = world_of()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    rounds(world, one, two)
    for _ in range(SESSION_MS // BEAT_MS + 1):
        world.pass_time(BEAT_MS)
        world.commit()
        one.beat()
    rounds(world, one)
    assert one.numbers == [0, 1, 2, 3]
    assert two.beat().error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


def test_who_does_not_let_go_is_removed_after_its_own_timeout() -> None:
    world = world_of()
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.beat()
    one.stubborn = True
    two.beat()
    for _ in range(REVOKE_MS // BEAT_MS + 2):
        one.beat()
        if one.error == ErrorCode.UNKNOWN_MEMBER_ID:
            break
        two.beat()
        assert two.numbers == []
        world.pass_time(BEAT_MS)
    assert one.error == ErrorCode.UNKNOWN_MEMBER_ID
    two.beat()
    assert two.numbers == [0, 1, 2, 3]
    one.stubborn = False
    rounds(world, one, two)
    assert (len(one.held), len(two.held)) == (2, 2)


def test_a_topic_grows_and_a_pattern_finds_new_ones() -> None:
    world = world_of()
    one = Consumer(world, "one", topics=(), pattern="ord.*|new")
    one.beat()
    assert one.numbers == [0, 1, 2, 3]
    world.topics = Topics(2, {**world.topics.ids, "orders": (ORDERS, 6), "new": (b"n" * 16, 1)})
    rounds(world, one)
    assert len(one.held) == 7


def test_a_static_member_comes_back_to_its_partitions() -> None:
    world = world_of()
    one, two = Consumer(world, "one", instance="i"), Consumer(world, "two")
    rounds(world, one, two)
    kept, epoch = one.numbers, two.epoch
    thief = Consumer(world, "thief", instance="i")
    assert thief.beat().error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert one.leave(epoch=-2).error == ErrorCode.NONE
    rounds(world, two)
    assert two.epoch == epoch  # nobody else noticed
    again = Consumer(world, "again", instance="i")
    rounds(world, again, two)
    assert again.numbers == kept
    one.epoch = epoch
    assert one.beat().error == ErrorCode.FENCED_INSTANCE_ID


def test_an_answer_that_got_lost_is_given_again() -> None:
    world = world_of()
    one = Consumer(world, "one")
    one.beat()
    two = Consumer(world, "two")
    two.beat()
    before = attrs.evolve(one)
    one.beat()
    one.beat()  # it is at the new epoch now, but suppose it never heard so
    one.epoch = before.epoch
    one.said = None
    answer = one.beat()
    assert (answer.error, len(one.held)) == (ErrorCode.NONE, 2)
    one.epoch -= 1
    one.said = None
    assert one.beat().error in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)


def commit(world: World, member: str, epoch: int, offset: int) -> ErrorCode:
    topics = (TopicOffsets("orders", (PartitionOffset(0, offset),)),)
    token = world.ask(
        OffsetCommit(
            group=GROUP,
            generation=epoch,
            member_id=MemberId(member),
            commit_wall_ms=WALL_MS,
            topics=topics,
        )
    )
    world.commit()
    return world.answer(token, OffsetCommitResponse).topics[0].partitions[0].error


def test_commits_are_fenced_by_the_members_epoch() -> None:
    world = world_of()
    one = Consumer(world, "one")
    one.beat()
    assert commit(world, "one", one.epoch, 5) == ErrorCode.NONE
    assert commit(world, "one", one.epoch - 1, 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "two", one.epoch, 4) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "", -1, 4) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, "m" * 40_000, one.epoch, 4) == ErrorCode.INVALID_REQUEST
    one.leave()
    assert commit(world, "", -1, 4) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("topics", "pattern", "kept"),
    [(("orders",), None, True), (("returns",), None, False), (("returns",), "o.*", True)],
)
def test_old_offsets_of_topics_nobody_reads_any_more_expire(
    topics: tuple[str, ...], pattern: str | None, kept: bool
) -> None:
    """As in classic groups; the topics of a pattern may change, so its subscriber keeps all
    offsets."""
    world = world_of()
    one = Consumer(world, "one", topics=topics, pattern=pattern)
    one.beat()
    assert commit(world, "one", one.epoch, 5) == ErrorCode.NONE
    world.sweep(WALL_MS + 100 * DAY_MS)
    world.commit()
    stored = world.stores[1].get(GROUP)
    assert stored is not None
    assert bool(stored.offsets) == kept


def test_a_classic_member_whose_subscription_cannot_be_read_does_not_mix() -> None:
    world = world_of()
    classic = JoinGroup(
        group=GROUP,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(Protocol("range", b""),),
    )
    one = Consumer(world, "one")
    one.beat()
    token = world.ask(classic)
    refused = world.answer(token, JoinGroupResponse)
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    one.leave()
    token = world.ask(classic)
    world.pass_time(200)
    world.commit()
    assert world.answer(token, JoinGroupResponse).error == ErrorCode.NONE
    assert one.beat().error == ErrorCode.GROUP_ID_NOT_FOUND


def test_operators_see_it_and_cannot_delete_it_under_its_members() -> None:
    world = world_of()
    one = Consumer(world, "one")
    one.beat()
    listed = world.listed()
    assert [(group.group, group.state, group.type) for group in listed] == [
        (GROUP, "Stable", "consumer")
    ]
    told = world.answer(world.ask(DescribeAssigned(group=GROUP)), DescribeAssignedResponse)
    assert (told.state, told.epoch, told.assignor) == ("Stable", 1, "uniform")
    assert told.members[0].assigned == (TopicIdPartitions(ORDERS, (0, 1, 2, 3)),)
    delete = DeleteGroup(group=GROUP)
    refused = world.answer(world.ask(delete), DeleteGroupResponse)
    assert refused.error == ErrorCode.NON_EMPTY_GROUP
    one.leave()
    token = world.ask(delete)
    world.commit()
    assert world.answer(token, DeleteGroupResponse).error == ErrorCode.NONE
    unknown = world.answer(world.ask(DescribeAssigned(group=GROUP)), DescribeAssignedResponse)
    assert unknown.error == ErrorCode.GROUP_ID_NOT_FOUND


JOIN = AssignedHeartbeat(
    group=GROUP,
    member_id=MemberId("m"),
    epoch=0,
    rebalance_timeout_ms=1,
    topics=("orders",),
    owned=(),
)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (attrs.evolve(JOIN, group=ConsumerGroupId("")), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, group=ConsumerGroupId("g" * 1_025)), ErrorCode.INVALID_GROUP_ID),
        (attrs.evolve(JOIN, rack_id=""), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, instance_id=""), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, owned=None), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, assignor=""), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (attrs.evolve(JOIN, epoch=-3), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, epoch=-2), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, epoch=7), ErrorCode.UNKNOWN_MEMBER_ID),
        (attrs.evolve(JOIN, epoch=7, member_id=MemberId("")), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, topics=None), ErrorCode.INVALID_REQUEST),
        (attrs.evolve(JOIN, assignor="mine"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (attrs.evolve(JOIN, pattern="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (
            attrs.evolve(JOIN, owned=(TopicIdPartitions(ORDERS, (1,)),)),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    request_: AssignedHeartbeat, error: ErrorCode
) -> None:
    world = world_of()
    answer = world.answer(world.ask(request_), AssignedHeartbeatResponse)
    assert (answer.error, bool(answer.message)) == (error, True)
    assert not world.in_flight
    assert world.listed() == ()


@pytest.mark.parametrize(
    "request_",
    [
        attrs.evolve(JOIN, rebalance_timeout_ms=0),
        attrs.evolve(JOIN, topics=None, pattern=""),
        attrs.evolve(JOIN, topics=()),
        attrs.evolve(JOIN, topics=("",)),
    ],
)
def test_whoever_wants_nothing_or_waits_for_nothing_may_join(request_: AssignedHeartbeat) -> None:
    world = world_of()
    token = world.ask(request_)
    answer = world.answer(token, AssignedHeartbeatResponse)
    assert (answer.error, answer.epoch) == (ErrorCode.NONE, 1)


def test_nobody_describes_a_group_without_a_name() -> None:
    world = world_of()
    token = world.ask(DescribeAssigned(group=ConsumerGroupId("")))
    answer = world.answer(token, DescribeAssignedResponse)
    assert answer.error == ErrorCode.INVALID_GROUP_ID


def test_a_full_group_refuses_and_stays_as_it_is() -> None:
    world = world_of(members_per_group_max=1)
    one, two = Consumer(world, "one"), Consumer(world, "two")
    one.beat()
    assert two.beat().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert one.beat().epoch == 1


def test_topics_that_outgrow_the_limit_cost_nobody_his_place() -> None:
    """Time goes on for existing members: nothing that a timer does may be refused, or raise."""
    world = world_of(4, assigned_partitions_max=6)
    one, two, three = (Consumer(world, name) for name in ("one", "two", "three"))
    rounds(world, one, two)
    world.topics = Topics(2, {"orders": (ORDERS, 100), "returns": (RETURNS, 2)})
    rounds(world, one, two)
    assert (one.error, one.numbers, two.numbers) == (ErrorCode.NONE, [0, 1], [2, 3])
    assert three.beat().error == ErrorCode.POLICY_VIOLATION
    world.pass_time(SESSION_MS // 2)
    one.beat()
    world.pass_time(SESSION_MS // 2 + BEAT_MS)
    world.commit()
    assert [notice.what for notice in world.notices].count("plan_refused") == 2
    assert [one.beat().error, two.beat().error] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert one.leave().error == ErrorCode.NONE
    world.topics = Topics(3, {"orders": (ORDERS, 6)})
    rounds(world, two)
    assert two.numbers == list(range(6))


def test_a_pattern_is_held_against_the_topics_once_for_all_members() -> None:
    world = world_of(patterns_per_group_max=2)
    asked = []
    matching, world.match = world.match, lambda *args: asked.append(args[0]) or matching(*args)
    for name in "abcdef":
        Consumer(world, name, topics=(), pattern="ord.*").beat()
    assert asked == ["ord.*"] * 6, "once for each plan, however many members it has"
    assert Consumer(world, "g", topics=(), pattern="ret.*").beat().error == ErrorCode.NONE
    refused = Consumer(world, "h", topics=(), pattern="x.*").beat()
    assert refused.error == ErrorCode.POLICY_VIOLATION


def test_offsets_of_a_group_whose_patterns_cannot_be_matched_any_more_are_kept() -> None:
    """A limit was lowered: nobody knows which topics are in use, so all may be."""
    world = world_of(patterns_per_group_max=2)
    for name, pattern in (("a", "ord.*"), ("b", "ret.*")):
        assert Consumer(world, name, topics=(), pattern=pattern).beat().error == ErrorCode.NONE
    world.config = attrs.evolve(world.config, patterns_per_group_max=1)
    world.nodes[1] = world.node_of(world.stores[1])
    world.fail_over()
    topics = (TopicPartitions("orders", (0,)),)
    answer = world.answer(world.ask(OffsetDelete(group=GROUP, topics=topics)), OffsetDeleteResponse)
    assert answer.error == ErrorCode.NONE
    ((_, partitions),) = ((one.topic, one.partitions) for one in answer.topics)
    assert [one.error for one in partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_checkpoint_restores_it() -> None:
    world = world_of()
    rounds(world, Consumer(world, "one"), Consumer(world, "two"))
    chunks = world.stores[0].snapshot()
    restored = GroupStore.restore(chunks)
    assert restored.snapshot() == chunks
    stored = restored.get(GROUP)
    assert stored is not None
    assert stored.assigned is not None
    assert len(stored.assigned.members) == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("bbbbblsfgw")), max_size=80))
def test_whatever_happens_no_partition_has_two_owners(script: list[tuple[int, str]]) -> None:
    """Members beat, leave, fall silent, come back; the coordinator moves; topics grow."""
    world = world_of(5)
    members = [Consumer(world, f"m{number}") for number in range(5)]
    for who, what in script:
        one = members[who]
        if what == "b":
            one.beat()
        elif what == "l" and one.epoch:
            one.leave()
        elif what == "s":
            one.epoch, one.held, one.said = 0, frozenset(), None  # restarts with the same id
        elif what == "f":
            world.fail_over()
        elif what == "g":
            count = world.topics.ids["orders"][1] + 1
            ids = {**world.topics.ids, "orders": (ORDERS, count)}
            world.topics = Topics(world.topics.version + 1, ids)
        elif what == "w":
            world.pass_time(BEAT_MS)
            world.commit()
        exclusive(*members)
    rounds(world, *members, times=12)
    everything = {(ORDERS, n) for n in range(world.topics.ids["orders"][1])}
    assert {part for one in members for part in one.held} == everything
