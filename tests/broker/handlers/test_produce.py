"""Produce in real frames: what is acknowledged, what is refused, and with which error."""

import pytest
from crc32c import crc32c

from balancer.registry.commands import ConfigureTopic, CreateTopic
from balancer.registry.load import LOAD_TOPIC
from broker.delayed.delayed_produces import SWEEP_MS
from broker.producers.sequence_gaps import FORGET_NS, GAPS_MAX, PATIENCE_NS, SequenceGaps
from broker.proposals.commands import SMALL_BYTES
from broker.proposals.intake import FailureReason
from paxos.ids import MS, REGISTRY_GROUP, GroupId
from tests.broker.batches import batch, contents, under
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld, partition_of, want
from tests.broker.fakes import FakeReply
from wire.apis import encode_request
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from wire.records.batch import TRANSACTIONAL_BIT, Compression, Record
from wire.records.batch_writer import build_batch
from wire.records.write_tokens import CHUNK_END


def read_all(world: DataWorld, node: int, partition: int) -> list[tuple[int, str]]:
    return contents(world.fetch(node, want(partition, 0)).records)


@pytest.mark.parametrize("version", range(3, 11))
def test_a_batch_is_appended_and_answered_with_its_offset(version: int) -> None:
    world = DataWorld()
    first = world.produce(1, 2, batch("a", "b"), version=version)
    second = world.produce(1, 2, batch("c"), version=version)
    assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
    assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 2)
    assert first.log_append_time_ms == -1
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert read_all(world, 1, 2) == [(0, "a"), (1, "b"), (2, "c")]


def test_nothing_is_answered_before_it_is_applied() -> None:
    world = DataWorld()
    asked = world.begin_produce(1, {0: batch("a"), 1: batch("b")})
    assert not asked.settled
    assert partition_of(world.begin_fetch(1, want(0, 0), max_wait_ms=0)).high_watermark == 0
    world.settle()
    answers = asked.response.responses[0].partition_responses
    assert [(one.index, one.error_code, one.base_offset) for one in answers] == [
        (0, ErrorCode.NONE, 0),
        (1, ErrorCode.NONE, 0),
    ]


def test_all_partitions_are_answered_together_each_with_its_own_fate() -> None:
    world = DataWorld()
    world.cluster.install(world.group(1), 2)
    asked = world.begin_produce(1, {0: batch("a"), 1: batch("b"), 9: batch("c"), -1: batch("d")})
    assert not asked.settled
    world.settle()
    codes = [one.error_code for one in asked.response.responses[0].partition_responses]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert world[1].statistics.errors == {
        ErrorCode.NOT_LEADER_OR_FOLLOWER: 1,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2,
    }


GARBAGE = b"\0" * 70


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ([batch("a"), batch("b")], "b"),
        ([batch("a"), batch("b"), batch("c")], "c"),
        ([batch("a"), GARBAGE], "a"),
        ([GARBAGE, batch("b")], "b"),
        ([batch("a"), b""], "a"),
        ([batch("a"), batch("b") + batch("c")], "a"),
        ([GARBAGE, b""], None),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_partition_that_is_named_twice_is_appended_to_and_answered_once(
    sent: list[bytes], stored: str | None, apart: bool
) -> None:
    """As in Kafka: the last valid batch counts, whether or not its topic is named again."""
    world = DataWorld()
    rows = [PartitionProduceData(2, memoryview(one)) for one in sent]
    other = PartitionProduceData(0, memoryview(batch("other")))
    topics = [TopicProduceData(TOPIC, [one]) for one in rows] if apart else []
    topics += [TopicProduceData(TOPIC, [other] if apart else [*rows, other])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    asked = world.send(1, request, 10)
    world.settle()
    (topic,) = asked.response.responses
    twice, once = topic.partition_responses
    assert (once.index, once.error_code, once.base_offset) == (0, ErrorCode.NONE, 0)
    assert twice.index == 2
    assert (twice.error_code == ErrorCode.NONE) is (stored is not None)
    assert read_all(world, 1, 2) == ([(0, stored)] if stored else [])
    assert read_all(world, 1, 0) == [(0, "other")]


def test_the_new_leader_is_named_with_its_address() -> None:
    world = DataWorld()
    world.cluster.install(world.group(0), 3)
    asked = world.begin_produce(1, {0: batch("a")})
    answer = asked.response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == 3
    assert answer.current_leader.leader_epoch == world.cluster.epochs[world.group(0)]
    (endpoint,) = asked.response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (3, "node-3", 9003)


def test_nobody_is_named_where_nobody_is_known() -> None:
    world = DataWorld()
    world.cluster.install(world.group(0), None)
    answer = world.produce(1, 0, batch("a"))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader is None


def test_the_names_of_the_clusters_own_topics_are_reserved() -> None:
    """No client can create one, or delete the one that every node reads."""
    world = DataWorld()
    world.run(CreateTopic(LOAD_TOPIC, bytes(15) + b"\x07", 1))
    wanted = [CreatableTopic(name, 1, 1) for name in ("__evenkeel_mine", LOAD_TOPIC)]
    made = world.ask(1, CreateTopicsRequest(wanted, 5_000), 7).topics
    assert [one.error_code for one in made] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2
    assert "begin with __evenkeel_" in made[0].error_message
    request = DeleteTopicsRequest(topics=[DeleteTopicState(LOAD_TOPIC)], timeout_ms=5_000)
    (gone,) = world.ask(1, request, 6).responses
    assert gone.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world[1].registry.topic(LOAD_TOPIC) is not None


def test_the_clusters_own_topics_are_for_its_nodes() -> None:
    """Every node decodes what is applied there: a gigabyte of gzip from a client would stop them
    all."""
    world = DataWorld()
    world.run(CreateTopic(LOAD_TOPIC, bytes(15) + b"\x07", 1))
    data = [PartitionProduceData(0, memoryview(batch("{}")))]
    topics = [TopicProduceData(LOAD_TOPIC, data)]
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics)
    asked = world.send(1, request, 10)
    answer = asked.response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "nodes" in answer.error_message
    assert not any(world.cluster.queues.values())


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (FailureReason.NOT_MASTER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (FailureReason.UNKNOWN, ErrorCode.REQUEST_TIMED_OUT),
        (FailureReason.OVERLOADED, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_was_not_carried_out_is_answered_with_something_to_retry(
    why: FailureReason, code: ErrorCode
) -> None:
    world = DataWorld()
    world[1].groups.refuse = why
    assert world.produce(1, 0, batch("a")).error_code == code
    assert code.retriable


def test_a_retry_is_answered_with_the_offset_of_the_first_time() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", "b", pid=7, seq=0))
    world.produce(1, 0, batch("c", pid=7, seq=2))
    again = world.produce(1, 0, batch("a", "b", pid=7, seq=0))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert read_all(world, 1, 0) == [(0, "a"), (1, "b"), (2, "c")]
    assert world[1].statistics.duplicates == 1


def test_a_gap_may_close_and_is_told_as_one_only_if_it_stays() -> None:
    """The batch is to come again if its predecessor is still on its way. Otherwise librdkafka would
    begin a new epoch, and append twice what it has no answer for."""
    world = DataWorld()
    world.produce(1, 0, batch("a", pid=7, seq=0))
    for _ in range(2):
        early = world.produce(1, 0, batch("c", pid=7, seq=2))
        assert early.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert ErrorCode(early.error_code).retriable
    assert world.produce(1, 0, batch("b", pid=7, seq=1)).base_offset == 1
    assert world.produce(1, 0, batch("c", pid=7, seq=2)).base_offset == 2
    world.advance(PATIENCE_NS // MS, step_ms=1_000)
    stays = world.produce(1, 0, batch("e", pid=7, seq=4))
    assert stays.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    world.advance(FORGET_NS // MS, step_ms=1_000)
    another = world.produce(1, 0, batch("e", pid=7, seq=4))
    assert another.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert read_all(world, 1, 0) == [(0, "a"), (1, "b"), (2, "c")]


def test_a_gap_behind_what_was_refused_for_good_is_told_at_once() -> None:
    """Nothing will come that could close the gap, so the producer need not wait."""
    world = DataWorld()
    world.produce(1, 0, batch("a", pid=7, seq=0))
    damaged = bytearray(batch("b", pid=7, seq=1))
    damaged[-1] ^= 1
    assert world.produce(1, 0, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    gap = world.produce(1, 0, batch("c", pid=7, seq=2))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    elsewhere = world.produce(1, 1, batch("c", pid=7, seq=2))
    assert elsewhere.error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_gaps_are_not_remembered_without_a_limit() -> None:
    gaps = SequenceGaps()
    assert gaps.may_close(-1, 0, 0)
    for producer_id in range(GAPS_MAX):
        assert gaps.may_close(producer_id, 0, PATIENCE_NS)
    assert len(gaps) == GAPS_MAX
    assert gaps.may_close(-1, 0, PATIENCE_NS), "forgotten, so it is a new one"
    assert not gaps.may_close(GAPS_MAX - 1, 0, 2 * PATIENCE_NS)
    assert gaps.may_close(GAPS_MAX - 1, 1, 2 * PATIENCE_NS), "another partition"
    for uid in range(GAPS_MAX + 1):
        gaps.refused(uid, 3 * PATIENCE_NS)
    assert not gaps.may_close(-2, 8, 3 * PATIENCE_NS)
    assert gaps.may_close(-2, 0, 3 * PATIENCE_NS), "forgotten"


def test_a_new_master_knows_the_producers_of_the_old_one() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", pid=7, seq=0))
    world.cluster.install(world.group(0), 2)
    again = world.produce(2, 0, batch("a", pid=7, seq=0))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert world.produce(2, 0, batch("b", pid=7, seq=1)).base_offset == 1


def test_a_micro_batch_that_is_run_again_is_appended_once() -> None:
    """A new master knows the chunks from the log as well. The answer has an error code of its own:
    a writer has to know which of its chunks an earlier run has written."""
    world, seen = DataWorld(), ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert world.produce(1, 0, batch("a", "b", **under(5, 0, more=True))).base_offset == 0
    world.cluster.install(world.group(0), 2)
    again = world.produce(2, 0, batch("a", "b", **under(5, 0, more=True)))
    assert (again.error_code, again.base_offset) == (seen, 0)
    last = world.produce(2, 0, batch("c", **under(5, 1)), acks=1)
    assert (last.error_code, last.base_offset) == (ErrorCode.NONE, 2)
    for chunk, offset in ((0, 0), (1, 2)):
        complete = world.produce(2, 0, batch("else", **under(5, chunk)))
        assert (complete.error_code, complete.base_offset) == (seen, offset)
    assert world.produce(1, 1, batch("a", **under(5, 0))).error_code == ErrorCode.NONE
    assert read_all(world, 2, 0) == [(0, "a"), (1, "b"), (2, "c")]
    assert world[1].statistics.duplicates == world[2].statistics.duplicates == 3


def test_a_chunk_before_its_time_is_to_come_again_while_its_predecessor_may() -> None:
    world = DataWorld()
    early = world.produce(1, 0, batch("b", **under(5, 1)))
    assert early.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.produce(1, 0, batch("a", **under(5, 0, more=True))).base_offset == 0
    assert world.produce(1, 0, batch("b", **under(5, 1))).base_offset == 1
    world.advance(PATIENCE_NS // MS, step_ms=1_000)
    never = world.produce(1, 0, batch("d", **under(6, 1)))
    assert never.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_writers_and_idempotent_producers_do_not_push_each_other_out() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", **under(5, 0)))
    state = world[1].machines[world.group(0)].partition(world.uid(0))
    state.producers.limit = state.writers.limit = 1
    for pid in (1, 2):
        world.produce(1, 0, batch("b", pid=pid))
    again = world.produce(1, 0, batch("a", **under(5, 0)))
    assert again.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert (len(state.producers), len(state.writers)) == (1, 1)


def test_a_stuck_request_is_answered_when_its_time_is_over_and_only_once() -> None:
    world = DataWorld()
    asked = world.begin_produce(1, {0: batch("a")}, timeout_ms=1_000)
    held, world.cluster.queues = world.cluster.queues, {}
    world.advance(1_000)
    assert not asked.settled, "a producer is never told too early"
    world.advance(2 * SWEEP_MS)
    answer = asked.response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(world[1].broker.delayed_produces) == 0
    world.cluster.queues = held
    world.settle()
    assert read_all(world, 1, 0) == [(0, "a")], "it came true after all"


def test_the_sweep_stops_when_nothing_waits() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a"))
    world.advance(2 * SWEEP_MS)
    timers = world.cluster.timers
    assert timers.next_boot_ns() is None


# ---- refusals -----------------------------------------------------------------------------------


def damaged(at: int, value: int) -> bytes:
    data = bytearray(batch("a"))
    data[at] ^= value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
        (damaged(-2, 1), ErrorCode.CORRUPT_MESSAGE),
        (damaged(16, 3), ErrorCode.INVALID_RECORD),
        (damaged(16, 8), ErrorCode.CORRUPT_MESSAGE),
        (batch("a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch("x" * 5_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_not_one_sound_batch_is_refused(data: bytes, code: ErrorCode) -> None:
    world = DataWorld(batch_bytes_max=4_096)
    assert world.produce(1, 0, data).error_code == code
    assert world[1].machines[world.group(0)].partition(world.uid(0)).next_offset == 0


def test_a_topic_may_have_a_lower_limit_of_its_own() -> None:
    world = DataWorld()
    world.run(CreateTopic("small", b"s" * 16, 1, configs={"max.message.bytes": "100"}))
    for pad, code in [(10, ErrorCode.NONE), (100, ErrorCode.MESSAGE_TOO_LARGE)]:
        data = PartitionProduceData(0, memoryview(batch("a", pad=pad)))
        request = ProduceRequest(None, -1, 1_000, [TopicProduceData("small", [data])])
        answer = world.ask(1, request, 9).responses[0].partition_responses[0]
        assert answer.error_code == code


def transactional() -> bytes:
    data = bytearray(batch("a", pid=1))
    data[22] |= TRANSACTIONAL_BIT
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def test_transactions_are_refused_so_that_clients_give_up_at_once() -> None:
    world = DataWorld()
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert world.produce(1, 0, batch("a"), transactional_id="t").error_code == code
    assert world.produce(1, 0, transactional()).error_code == code


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_are_all_one_or_none(acks: int) -> None:
    world = DataWorld()
    assert world.produce(1, 0, batch("a"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("wrong", [{"epoch": -1}, {"seq": -1}, under(5, CHUNK_END - 1, more=True)])
def test_a_token_that_is_no_place_in_any_order_is_refused(wrong: dict[str, int]) -> None:
    world = DataWorld()
    answer = world.produce(1, 0, batch("a", **(under(5, 0) | wrong)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message
    assert read_all(world, 1, 0) == []


def test_a_writer_has_to_hear_what_has_become_of_its_batches() -> None:
    world = DataWorld()
    asked = world.begin_produce(1, {0: batch("a", **under(5, 0))}, acks=0)
    assert asked.reply.closed is not None
    assert "INVALID_REQUIRED_ACKS" in asked.reply.closed
    assert read_all(world, 1, 0) == []


def test_acks_1_waits_for_the_log_as_well() -> None:
    world = DataWorld()
    asked = world.begin_produce(1, {0: batch("a")}, acks=1)
    assert not asked.settled
    world.settle()
    assert asked.settled


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection() -> None:
    world = DataWorld()
    asked = world.begin_produce(1, {0: batch("a")}, acks=0)
    world.settle()
    assert asked.reply.silent
    assert read_all(world, 1, 0) == [(0, "a")]
    world.cluster.install(world.group(0), 2)
    asked = world.begin_produce(1, {0: batch("b")}, acks=0)
    assert asked.reply.closed is not None
    assert "NOT_LEADER_OR_FOLLOWER" in asked.reply.closed


def test_an_unknown_topic_is_refused() -> None:
    world = DataWorld()
    data = PartitionProduceData(0, memoryview(batch("a")))
    request = ProduceRequest(None, -1, 1_000, [TopicProduceData("nobody's", [data])])
    answer = world.ask(1, request, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# ---- memory -------------------------------------------------------------------------------------


def produce_frame(world: DataWorld, data: bytes, *, owned: bool) -> bytearray:
    """Send a frame as the listener does, and return its memory, which the listener may reuse."""
    part = PartitionProduceData(0, memoryview(data))
    request = ProduceRequest(None, -1, 1_000, [TopicProduceData(TOPIC, [part])])
    frame = bytearray(b"".join(encode_request(request, 9, 1, "c"))[4:])
    world[1].api.handle_frame(memoryview(frame), owned, "host", FakeReply())
    return frame


@pytest.mark.parametrize("pad", [10, SMALL_BYTES // 2, SMALL_BYTES, 3 * SMALL_BYTES])
def test_memory_of_a_frame_that_is_not_ours_is_not_kept(pad: int) -> None:
    world = DataWorld()
    frame = produce_frame(world, batch("a", pad=pad), owned=False)
    frame[:] = bytes(len(frame))
    world.settle()
    assert read_all(world, 1, 0) == [(0, "a")]


def test_a_large_batch_in_an_owned_frame_is_never_copied() -> None:
    world = DataWorld()
    frame = produce_frame(world, batch("a", pad=3 * SMALL_BYTES), owned=True)
    world.settle()
    kept = world[1].tail.kept(world.uid(0))
    assert kept is not None
    assert kept.between(0, 1)[0].obj is frame


def test_the_registrys_group_has_its_log_to_itself() -> None:
    """Partitions are in the data groups, numbered from 1."""
    world = DataWorld(groups=2)
    assert sorted(world.group(partition) for partition in range(2)) == [GroupId(1), GroupId(2)]
    assert not world[1].machines[REGISTRY_GROUP].partitions


def test_a_compacted_topic_takes_records_with_keys_only() -> None:
    """The error names the record without a key. Other topics, and this one before and after, take
    all records."""
    world = DataWorld()
    keyed = build_batch([Record(b"v", b"k"), Record(None, b"k")])
    policy = {"cleanup.policy": "compact"}
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, policy))
    refused = world.produce(1, 0, build_batch([Record(b"v", b"k"), Record(b"v")]))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    (named,) = refused.record_errors
    assert named.batch_index == 1
    assert "record 1 of the batch has no key" in named.batch_index_error_message
    assert world.produce(1, 0, keyed).error_code == ErrorCode.NONE
    lies = bytearray(keyed)
    lies[22] = Compression.LZ4
    lies[17:21] = crc32c(bytes(lies[21:])).to_bytes(4)
    unreadable = world.produce(1, 0, bytes(lies))
    assert unreadable.error_code == ErrorCode.INVALID_RECORD
    assert "LZ4" in unreadable.error_message
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {}, replace=True))
    assert world.produce(1, 0, batch("no key")).error_code == ErrorCode.NONE
    assert world.produce(1, 0, bytes(lies)).error_code == ErrorCode.INVALID_RECORD


def test_who_crowds_a_group_is_held_back_and_not_refused() -> None:
    """On the general path and on the fast path."""
    world = DataWorld()
    world[1].groups.backlogged.add(world.group(0))
    for _ in range(2):
        asked = world.begin_produce(1, {0: batch("a"), 1: batch("a")})
        assert asked.reply.held_back == [world.group(0)]
    for _ in range(2):
        asked = world.begin_produce(1, {0: batch("a")})
        assert asked.reply.held_back == [world.group(0)]
        world.settle()
        assert asked.response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
