"""Clients that act on no hint, at a node that was the master: they notice nothing (ADR 50)."""

from typing import Any

import pytest

from broker.leaders_told import SETTLES_NS, TOPICS_MAX, LeadersTold
from paxos.ids import MS, NodeId
from tests.broker.batches import batch, contents
from tests.broker.data_world import TOPIC, DataWorld, partition_of, want
from tests.broker.world import Asked
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

OLD_PRODUCE, OLD_FETCH = 7, 11
"""What kafkajs 2.2 speaks: there is no field that could name the leader."""
LATEST = -1


def moved_away(values: str = "", *, to: int = 2) -> DataWorld:
    """Node 1 had the group of partition 0, and has handed it over."""
    world = DataWorld()
    for value in values:
        world.produce(1, 0, batch(value))
    move(world, to)
    return world


def move(world: DataWorld, to: int, *, source: int = 1) -> None:
    world[source].groups.moved[world.group(0)] = world.cluster.clock.boot_ns
    world.cluster.install(world.group(0), to)


def ask_metadata(world: DataWorld, node: int, *, client: str = "test", every: bool = False) -> None:
    topics = None if every else [MetadataRequestTopic(name=TOPIC)]
    world.ask(node, MetadataRequest(topics), 6, client=client)


def old_fetch(world: DataWorld, offset: int, **fields: Any) -> Asked:
    return world.begin_fetch(1, want(0, offset), version=OLD_FETCH, **fields)


# ---- produce ------------------------------------------------------------------------------------


def test_what_they_send_to_the_former_master_is_appended() -> None:
    """Whether it is the first request of its kind or one that is remembered."""
    world = moved_away("a")
    for value in "bcd":
        assert world.produce(1, 0, batch(value), version=OLD_PRODUCE).error_code == ErrorCode.NONE
    assert contents(world.fetch(2, want(0, 0)).records) == list(enumerate("abcd"))


@pytest.mark.parametrize("name", ["platformatic-kafka", "somebody", "aiokafka"])
def test_a_library_that_is_not_known_to_act_on_hints_is_not_given_any(name: str) -> None:
    world = moved_away()
    world.ask(1, ApiVersionsRequest(name, "1"), 3)
    answer = world.produce(1, 0, batch("a"), version=10)
    assert (answer.error_code, answer.current_leader) == (ErrorCode.NONE, None)
    world[1].groups.moved.clear()
    asked = world.begin_produce(1, {0: batch("b")}, version=10)
    (refused,) = asked.response.responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader, asked.response.node_endpoints) == (None, [])
    fetched = world.begin_fetch(1, want(0, 0), version=16, max_wait_ms=0)
    assert partition_of(fetched).current_leader is None


@pytest.mark.parametrize(
    "name", ["librdkafka", "confluent-kafka-python", "apache-kafka-java", "kgo", "evenkeel"]
)
def test_one_that_is_known_to_is_told_instead(name: str) -> None:
    world = moved_away()
    world.ask(1, ApiVersionsRequest(name, "1"), 3)
    answer = world.produce(1, 0, batch("a"), version=10)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == 2
    answer = world.fetch(1, want(0, 0), version=16)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == 2
    world = moved_away()
    world.ask(1, ApiVersionsRequest(name, "1"), 3)
    answer = world.produce(1, 0, batch("a"), version=OLD_PRODUCE)
    assert answer.error_code == ErrorCode.NONE, "in this version it can be told nothing"


@pytest.mark.parametrize("every", [True, False])
def test_once_they_have_asked_who_leads_they_are_on_their_own(every: bool) -> None:
    """Except for what was on its way then."""
    world = moved_away()
    ask_metadata(world, 1, every=every)
    assert world.produce(1, 0, batch("a"), version=OLD_PRODUCE).error_code == ErrorCode.NONE
    world.advance(SETTLES_NS // MS)
    answer = world.produce(1, 0, batch("b"), version=OLD_PRODUCE)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_another_connection_was_told_is_not_known_here() -> None:
    world = moved_away()
    ask_metadata(world, 1, client="another")
    ask_metadata(world, 2)
    world.advance(SETTLES_NS // MS)
    assert world.produce(1, 0, batch("a"), version=OLD_PRODUCE).error_code == ErrorCode.NONE


def test_what_was_told_before_the_move_or_named_no_leader_does_not_count() -> None:
    world = DataWorld()
    ask_metadata(world, 1)
    world.advance(SETTLES_NS // MS)
    move(world, 2)
    world.cluster.install(world.group(0), None)
    asked = world.send(1, MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 6)
    world.advance(1_500)
    assert asked.settled
    world.advance(SETTLES_NS // MS)
    world.cluster.install(world.group(0), 3)
    assert world.produce(1, 0, batch("a"), version=OLD_PRODUCE).error_code == ErrorCode.NONE


def test_a_move_back_and_away_again_begins_anew() -> None:
    world = moved_away()
    ask_metadata(world, 1)
    world.advance(SETTLES_NS // MS)
    world.cluster.install(world.group(0), 1)
    assert world.produce(1, 0, batch("a"), version=OLD_PRODUCE).error_code == ErrorCode.NONE
    move(world, 3)
    assert world.produce(1, 0, batch("b"), version=OLD_PRODUCE).error_code == ErrorCode.NONE


def test_sequences_are_judged_where_the_log_is() -> None:
    world = DataWorld()
    first, second = batch("a", pid=9, seq=0), batch("b", pid=9, seq=1)
    assert world.produce(1, 0, first, version=OLD_PRODUCE).base_offset == 0
    move(world, 2)
    assert world.produce(1, 0, second, version=OLD_PRODUCE).base_offset == 1
    assert world.produce(1, 0, second, version=OLD_PRODUCE).base_offset == 1, "a retry"
    assert contents(world.fetch(2, want(0, 0)).records) == [(0, "a"), (1, "b")]


def test_a_producer_that_nobody_knows_is_sent_to_the_master_which_can_admit_it() -> None:
    """It continues from an earlier topic, say. A former master cannot let it begin, and asked for
    another try for as long as it stood in."""
    world = moved_away()
    goes_on = batch("a", pid=9, seq=5)
    answers = []
    for _ in range(8):
        answers.append(world.produce(1, 0, goes_on, version=OLD_PRODUCE).error_code)
        world.advance(1_000)
    assert answers[0] == ErrorCode.NOT_ENOUGH_REPLICAS, "its predecessor may be on its way"
    assert answers[-1] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for _ in range(5):
        answer = world.produce(2, 0, goes_on, version=OLD_PRODUCE)
        world.advance(1_000)
    assert answer.error_code == ErrorCode.NONE


def test_of_many_topics_those_told_first_are_forgotten() -> None:
    told = LeadersTold()
    for number in range(TOPICS_MAX + 1):
        told.told(f"topic {number}", 10)
    later = 10 + SETTLES_NS
    assert told.misses("topic 0", 5, later)
    assert not told.misses("topic 1", 5, later)
    assert told.misses("topic 1", 11, later)
    told.told(None, 20)
    assert not told.misses("topic 0", 15, 20 + SETTLES_NS)


# ---- fetch and offsets --------------------------------------------------------------------------


def test_a_fetch_is_served_once_the_master_has_said_how_far_it_is() -> None:
    world = moved_away("abc")
    asked = old_fetch(world, 1)
    assert not asked.settled
    (tell,) = world[1].groups.questions
    tell(True)
    answer = partition_of(asked)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 3)
    assert contents(answer.records) == [(1, "b"), (2, "c")]
    assert world[1].statistics.fetched_unaware == 1


def test_it_waits_for_data_like_any_other() -> None:
    world = moved_away("a")
    asked = old_fetch(world, 1)
    world[1].groups.questions.pop()(True)
    assert not asked.settled
    world.produce(2, 0, batch("b"))
    assert contents(partition_of(asked).records) == [(1, "b")]
    empty = old_fetch(world, 2, max_wait_ms=200)
    world[1].groups.questions.pop()(True)
    world.advance(210)
    assert (partition_of(empty).error_code, partition_of(empty).high_watermark) == (0, 2)


def test_one_that_was_parked_when_the_group_moved_goes_on_waiting() -> None:
    world = DataWorld()
    asked = old_fetch(world, 0)
    move(world, 2)
    assert not asked.settled
    world[1].groups.questions.pop()(True)
    world.produce(2, 0, batch("a"))
    assert contents(partition_of(asked).records) == [(0, "a")]


@pytest.mark.parametrize("max_wait_ms", [0, 100])
def test_the_answer_is_not_older_than_the_question(max_wait_ms: int) -> None:
    """Nor does it come without an answer of the master: at worst it is an error."""
    world = moved_away("a")
    world.cluster.lagging.add(NodeId(1))
    world.produce(2, 0, batch("b"))
    asked = old_fetch(world, 1, max_wait_ms=max_wait_ms)
    world.advance(500)
    assert not asked.settled
    world.cluster.catch_up(1)
    world[1].groups.questions.pop()(True)
    world.settle()
    assert contents(partition_of(asked).records) == [(1, "b")]
    asked = old_fetch(world, 1, max_wait_ms=max_wait_ms)
    world.advance(5_000)
    assert partition_of(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_where_no_master_answers_the_client_is_sent_away() -> None:
    world = moved_away("a")
    asked = old_fetch(world, 0)
    world[1].groups.questions.pop()(False)
    answer = partition_of(asked)
    assert (answer.error_code, answer.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


def test_a_fetch_that_ends_during_a_handover_waits_for_the_end_of_it() -> None:
    """Its client would take the error for a reason to rejoin its consumer group (kafkajs)."""
    world = DataWorld()
    asked = old_fetch(world, 0, max_wait_ms=100)
    world[1].groups.asleep.add(world.group(0))
    world.advance(110)
    assert not asked.settled
    world[1].groups.asleep.clear()
    move(world, 2)
    world[1].groups.questions.pop()(True)
    assert partition_of(asked).error_code == ErrorCode.NONE


def test_an_epoch_that_the_client_could_not_know_to_be_over_is_no_offence() -> None:
    """Away and back: its epoch is two behind."""
    world = DataWorld()
    world.produce(1, 0, batch("a"))
    epoch = world.cluster.epochs[world.group(0)]
    move(world, 2)
    world.cluster.install(world.group(0), 1)
    answer = world.fetch(1, want(0, 0, epoch=epoch), version=OLD_FETCH)
    assert contents(answer.records) == [(0, "a")]
    ask_metadata(world, 1)
    world.advance(SETTLES_NS // MS)
    answer = world.fetch(1, want(0, 0, epoch=epoch), version=OLD_FETCH)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_out_of_range_is_said_of_what_the_master_does_not_have_either() -> None:
    world = moved_away("a")
    asked = old_fetch(world, 2)
    world[1].groups.questions.pop()(True)
    assert partition_of(asked).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("fresh", [True, False])
def test_offsets_are_told_like_records(fresh: bool) -> None:
    world = moved_away("abc")
    asked = world.begin_list_offsets(1, 0, LATEST)
    assert not asked.settled
    world[1].groups.questions.pop()(fresh)
    (answer,) = asked.response.topics[0].partitions
    expected = (ErrorCode.NONE, 3) if fresh else (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert (answer.error_code, answer.offset) == expected


def test_who_never_was_the_master_answers_as_ever() -> None:
    world = DataWorld()
    world.cluster.install(world.group(0), 2)
    answer = world.produce(3, 0, batch("a"), version=OLD_PRODUCE)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = world.fetch(3, want(0, 0), version=OLD_FETCH)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.list_offsets(3, 0, LATEST).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not world[3].groups.questions
