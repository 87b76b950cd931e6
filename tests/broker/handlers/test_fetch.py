"""Fetch in real frames: what is read, when it waits, and what ends the wait."""

import pytest

from balancer.registry.commands import DeleteTopic
from broker.proposals.commands import SMALL_BYTES
from broker.reads import reader
from paxos.ids import GroupId
from storage.errors import NotInLog
from tests.broker.batches import batch, contents, whole_batches
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld, partition_of, want
from tests.broker.world import Asked
from wire.error_codes import ErrorCode
from wire.messages.fetch import FetchRequest, FetchTopic, ReplicaState
from wire.records.batch import HEADER_BYTES


def filled(values: str = "abcdef", *, tail: bool = True, pad: int = 0) -> DataWorld:
    """One batch for each letter in partition 0 of node 1."""
    world = DataWorld()
    for value in values:
        world.produce(1, 0, batch(value, pad=pad))
    if not tail:
        forget_tail(world)
    return world


def forget_tail(world: DataWorld) -> None:
    """As after a restart: all reads go to the log."""
    for partition in range(len(world[1].registry.topics[TOPIC].partitions)):
        world[1].tail.drop(world.uid(partition))


# ---- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [True, False])
@pytest.mark.parametrize("version", range(4, 17))
def test_whole_batches_from_the_offset_on(version: int, tail: bool) -> None:
    world = filled(tail=tail)
    answer = world.fetch(1, want(0, 2), version=version)
    assert answer.error_code == ErrorCode.NONE
    assert contents(answer.records) == [(2, "c"), (3, "d"), (4, "e"), (5, "f")]
    assert (answer.high_watermark, answer.last_stable_offset) == (6, 6)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert (world[1].statistics.log_reads == 0) == tail


@pytest.mark.parametrize("tail", [True, False])
@pytest.mark.parametrize("pad", [0, SMALL_BYTES])
def test_offset_and_epoch_are_written_into_every_batch(tail: bool, pad: int) -> None:
    """The CRC does not cover them: each batch is still the one its producer made."""
    world = filled("ab", pad=pad)
    old_epoch = world.cluster.epochs[world.group(0)]
    world.cluster.install(world.group(0), 2)
    world.cluster.install(world.group(0), 1)
    epoch = world.cluster.epochs[world.group(0)]
    world.produce(1, 0, batch("c", pad=pad))
    if not tail:
        forget_tail(world)
    batches = whole_batches(world.fetch(1, want(0, 0)).records)
    assert [one.header.base_offset for one in batches] == [0, 1, 2]
    assert [one.header.leader_epoch for one in batches] == [old_epoch, old_epoch, epoch]


def test_the_batch_that_contains_the_offset_comes_whole() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", "b", "c"))
    assert contents(world.fetch(1, want(0, 1)).records) == [(0, "a"), (1, "b"), (2, "c")]


@pytest.mark.parametrize("tail", [True, False])
def test_limits_are_soft_for_the_first_batch_only(tail: bool) -> None:
    world = filled(tail=False)
    for _ in range(2):
        world.produce(1, 1, batch("x"))
    if not tail:
        forget_tail(world)
    size = len(batch("a"))
    assert contents(world.fetch(1, want(0, 0, bytes_max=1)).records) == [(0, "a")]
    assert len(contents(world.fetch(1, want(0, 0, bytes_max=3 * size)).records)) == 3
    both = world.begin_fetch(1, want(0, 0), want(1, 0), max_bytes=7 * size, max_wait_ms=0)
    assert len(contents(partition_of(both, 0).records)) == 6
    assert len(contents(partition_of(both, 1).records)) == 1
    none = world.begin_fetch(1, want(0, 6), want(0, 0), want(1, 0), max_bytes=1, max_wait_ms=0)
    assert [len(contents(partition_of(none, at).records)) for at in range(3)] == [0, 1, 0]


def test_the_end_of_the_log_is_no_error_and_beyond_it_is() -> None:
    world = filled()
    assert contents(world.fetch(1, want(0, 6)).records) == []
    for offset in (7, -1):
        assert world.fetch(1, want(0, offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    world[1].machines[world.group(0)].partition(world.uid(0)).start_at(3)
    assert world.fetch(1, want(0, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    answer = world.fetch(1, want(0, 3))
    assert answer.log_start_offset == 3
    assert contents(answer.records) == [(3, "d"), (4, "e"), (5, "f")]


def test_read_committed_reads_the_same() -> None:
    world = filled()
    assert world.fetch(1, want(0, 4), isolation_level=0).aborted_transactions is None
    answer = world.fetch(1, want(0, 4), isolation_level=1)
    assert answer.aborted_transactions == []
    assert contents(answer.records) == [(4, "e"), (5, "f")]


# ---- the log ------------------------------------------------------------------------------------


def test_batches_close_to_each_other_are_read_in_one_go() -> None:
    world = filled(tail=False)
    world.fetch(1, want(0, 0))
    assert world[1].statistics.log_reads == 1


def test_a_wide_gap_is_not_read() -> None:
    world = DataWorld()
    for value in "ab":
        world.produce(1, 0, batch(value))
        world.produce(1, 1, batch("other", pad=2 * reader.GAP_BYTES_MAX))
    forget_tail(world)
    assert contents(world.fetch(1, want(0, 0)).records) == [(0, "a"), (1, "b")]
    assert world[1].statistics.log_reads == 2
    assert world[1].statistics.log_bytes == 2 * len(batch("a"))


def test_one_request_reads_a_bounded_part_of_the_log() -> None:
    world = DataWorld()
    for value in "abcdefgh":
        world.produce(1, 0, batch(value, pad=reader.LOG_BYTES_MAX // 4))
    forget_tail(world)
    offset, values = 0, ""
    while offset < 8:
        answer = world.fetch(1, want(0, offset, bytes_max=50 << 20))
        got = contents(answer.records)
        assert 0 < len(got) <= 4
        values += "".join(value for _, value in got)
        offset = got[-1][0] + 1
    assert values == "abcdefgh"


def behind(partitions: int, batches: int = 24) -> DataWorld:
    """Node 1's first partitions have much data, and none of it is in memory."""
    world = DataWorld()
    for number in range(batches):
        for partition in range(partitions):
            value = f"{partition}.{number}"
            world.produce(1, 2 * partition, batch(value, pad=reader.LOG_BYTES_MAX // 8))
    forget_tail(world)
    return world


def spans_read(world: DataWorld, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    log = world[1].log
    read_span = log.read_span

    def noted(position: int, size: int) -> memoryview:
        spans.append((position, size))
        return read_span(position, size)

    monkeypatch.setattr(log, "read_span", noted)
    return spans


@pytest.mark.parametrize("partitions", [1, 2])
def test_what_the_next_request_reads_first_is_begun_before(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients move a partition that they got data from to the end of the request."""
    world = behind(partitions)
    spans, soon = spans_read(world, monkeypatch), world[1].log.soon
    offsets = dict.fromkeys(range(0, 2 * partitions, 2), 0)
    read: list[str] = []
    guesses = right = 0
    while any(offset < 24 for offset in offsets.values()):
        guess = soon[-1] if soon else None
        soon.clear()
        spans.clear()
        wanted = [want(one, offset) for one, offset in offsets.items() if offset < 24]
        asked = world.begin_fetch(1, *wanted, max_wait_ms=0)
        for number, one in enumerate(wanted):
            got = contents(partition_of(asked, number).records)
            read += [value for _, value in got]
            if got:
                offsets[one.partition] = got[-1][0] + 1
                offsets[one.partition] = offsets.pop(one.partition)
        assert len(soon) <= 1
        if guess is not None:
            guesses += 1
            right += guess == spans[0]
    assert sorted(read) == sorted(f"{p}.{n}" for p in range(partitions) for n in range(24))
    assert guesses >= 2 * partitions
    assert right == guesses


def test_who_reads_the_end_has_nothing_read_ahead() -> None:
    world = behind(1)
    world.produce(1, 0, batch("z"))
    world.fetch(1, want(0, 24))
    world.fetch(1, want(0, 22, bytes_max=1))
    assert world[1].log.soon == []
    world.fetch(1, want(0, 18))
    assert world[1].log.soon == [], "all there is was given"


def test_log_and_tail_meet_without_a_gap() -> None:
    world = filled("abc", tail=False)
    for value in "def":
        world.produce(1, 0, batch(value))
    answer = world.fetch(1, want(0, 0))
    assert "".join(value for _, value in contents(answer.records)) == "abcdef"
    assert world[1].statistics.log_bytes < 4 * len(batch("a"))


def test_a_read_that_ends_below_the_tail_needs_nothing_of_it() -> None:
    """Found by a consumer of old data in a benchmark: it got an assertion error instead, for
    ever."""
    world = filled("abc", tail=False)
    world.produce(1, 0, batch("d"))
    asked = world.fetch(1, want(0, 0, bytes_max=1))
    assert len(contents(asked.records)) == 1


@pytest.mark.parametrize("byte", [11, 16, 17, HEADER_BYTES])
def test_damage_on_the_disk_is_never_served(byte: int) -> None:
    """The data before it is served; then the client gets a storage error."""
    world = filled(tail=False)
    index = world[1].machines[world.group(0)].partition(world.uid(0)).index
    world[1].log.data[index.position(3) + byte] ^= 1
    assert contents(world.fetch(1, want(0, 0)).records) == [(0, "a"), (1, "b"), (2, "c")]
    assert world.fetch(1, want(0, 3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert contents(world.fetch(1, want(0, 4)).records) == [(4, "e"), (5, "f")]
    assert world[1].statistics.damaged_reads == 2
    (bug,) = world[1].bugs
    assert f"position {index.position(3)} is damaged" in str(bug[1])


def test_a_log_that_cannot_be_read_is_told_from_where_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two spans, and the second is retired meanwhile: the first is served."""
    world = DataWorld()
    for value in "ab":
        world.produce(1, 0, batch(value))
        world.produce(1, 1, batch("other", pad=2 * reader.GAP_BYTES_MAX))
    forget_tail(world)
    log = world[1].log
    read_span = log.read_span

    def retired(position: int, size: int) -> memoryview:
        if position > reader.GAP_BYTES_MAX:
            raise NotInLog("retired")
        return read_span(position, size)

    monkeypatch.setattr(log, "read_span", retired)
    assert contents(world.fetch(1, want(0, 0)).records) == [(0, "a")]
    assert world.fetch(1, want(0, 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


# ---- which node is asked -------------------------------------------------------------------------


def test_another_node_names_the_leader() -> None:
    world = filled()
    asked = world.begin_fetch(3, want(0, 0))
    answer = partition_of(asked)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert contents(answer.records) == []
    epoch = world.cluster.epochs[world.group(0)]
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, epoch)
    assert [(one.node_id, one.port) for one in asked.response.node_endpoints] == [(1, 9001)]


def test_epochs_are_fenced_both_ways() -> None:
    world = filled()
    epoch = world.cluster.epochs[world.group(0)]
    assert world.fetch(1, want(0, 0, epoch=epoch)).error_code == ErrorCode.NONE
    for none in (-1, -2, -(2**31)):
        assert world.fetch(1, want(0, 0, epoch=none)).error_code == ErrorCode.NONE
    old = world.fetch(1, want(0, 0, epoch=epoch - 1))
    assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (1, epoch)
    new = world.fetch(1, want(0, 0, epoch=epoch + 1))
    assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_master_that_may_not_act_says_nothing_about_its_data() -> None:
    """The lease is checked after the read: what was read is not sent (R14)."""
    world = filled()
    world[1].groups.asleep.add(world.group(0))
    answer = world.fetch(1, want(0, 0))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert contents(answer.records) == []
    assert answer.high_watermark == -1
    assert answer.current_leader is None, "we are it, as far as we know"


@pytest.mark.parametrize("why", ["asleep", "behind"])
def test_a_master_that_may_not_act_calls_no_offset_out_of_range(why: str) -> None:
    """It may be behind the node that acts now: a consumer that believed it would reset its
    offset."""
    world = filled()
    groups = world[1].groups
    (groups.asleep if why == "asleep" else groups.behind).add(world.group(0))
    asked = world.begin_fetch(1, want(0, 7), max_wait_ms=100)
    assert not asked.settled
    world.advance(120)
    assert partition_of(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.fetch(1, want(0, 7)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_lease_may_end_while_we_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(tail=False)
    log = world[1].log
    read_span = log.read_span

    def slow_read(position: int, size: int) -> memoryview:
        world[1].groups.asleep.add(world.group(0))
        return read_span(position, size)

    monkeypatch.setattr(log, "read_span", slow_read)
    assert world.fetch(1, want(0, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_lost_lease_costs_the_other_partitions_nothing() -> None:
    world = filled()
    world.produce(1, 1, batch("x"))
    world[1].groups.asleep.add(world.group(0))
    asked = world.begin_fetch(1, want(0, 0), want(1, 0), max_wait_ms=0)
    assert partition_of(asked, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert contents(partition_of(asked, 1).records) == [(0, "x")]
    assert world[1].statistics.fetch_bytes == len(batch("x"))


def test_a_master_that_has_not_caught_up_says_nothing() -> None:
    world = filled()
    world[1].groups.behind.add(world.group(0))
    assert world.fetch(1, want(0, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_unknown_topics_and_partitions_are_refused_by_name_and_by_id() -> None:
    world = DataWorld()
    assert world.fetch(1, want(99, 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for version, code in [
        (12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, ErrorCode.UNKNOWN_TOPIC_ID),
    ]:
        topic = FetchTopic("nobody's", b"n" * 16, [want(0, 0)])
        answer = partition_of(world.send(1, FetchRequest(topics=[topic], max_wait_ms=100), version))
        assert answer.error_code == code


@pytest.mark.parametrize("version", [4, 11, 14, 16])
def test_followers_of_kafka_are_refused(version: int) -> None:
    world = filled()
    fields = {"replica_id": 2} if version < 15 else {"replica_state": ReplicaState(2, 0)}
    answer = partition_of(world.begin_fetch(1, want(0, 0), version=version, **fields))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert contents(answer.records) == []


def test_sessions_are_never_granted_and_unknown_ones_are_refused() -> None:
    world = filled()
    asked = world.begin_fetch(1, want(0, 0), session_id=0, session_epoch=0)
    assert asked.response.session_id == 0
    for session in (0, 17):
        for epoch in (1, 5, 2**31 - 1, -2):
            asked = world.begin_fetch(1, want(0, 0), session_id=session, session_epoch=epoch)
            assert asked.response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [0, -1])
def test_who_begins_or_ends_a_session_says_all_it_wants(epoch: int) -> None:
    """As in Kafka, whatever session it names: the session of another client is neither closed nor
    read."""
    world = filled()
    asked = world.begin_fetch(1, want(0, 0), session_id=17, session_epoch=epoch)
    assert (asked.response.error_code, asked.response.session_id) == (ErrorCode.NONE, 0)
    assert contents(partition_of(asked).records)


# ---- waiting ------------------------------------------------------------------------------------


def waiting(world: DataWorld, *, offset: int = 6, node: int = 1, **fields: int) -> Asked:
    asked = world.begin_fetch(node, want(0, offset), **fields)
    assert not asked.settled
    return asked


def test_an_append_wakes_who_waits_for_it() -> None:
    world = filled()
    asked = waiting(world)
    world.produce(1, 1, batch("elsewhere"))
    assert not asked.settled
    world.produce(1, 0, batch("g"))
    assert contents(partition_of(asked).records) == [(6, "g")]
    assert len(world[1].broker.delayed_fetches) == 0


def test_many_appends_of_one_round_wake_once() -> None:
    world = filled()
    asked = waiting(world)
    for value in "ghi":
        world.begin_produce(1, {0: batch(value)})
    world.settle()
    assert contents(partition_of(asked).records) == [(6, "g"), (7, "h"), (8, "i")]


def test_min_bytes_are_waited_for_until_the_time_is_over() -> None:
    world = filled()
    size = len(batch("g"))
    asked = waiting(world, min_bytes=2 * size)
    world.produce(1, 0, batch("g"))
    assert not asked.settled
    world.produce(1, 0, batch("h"))
    assert len(contents(partition_of(asked).records)) == 2
    asked = waiting(world, offset=8, min_bytes=2 * size, max_wait_ms=100)
    world.produce(1, 0, batch("i"))
    world.advance(90)
    assert not asked.settled
    world.advance(20)
    assert contents(partition_of(asked).records) == [(8, "i")]


def test_bytes_beyond_the_limits_of_the_request_are_not_counted_for_ever() -> None:
    """min_bytes is above what one partition may return: another partition can still fill the
    answer."""
    world = filled("")
    size = len(batch("x"))
    wanted = [want(partition, 0, bytes_max=size) for partition in (0, 1)]
    asked = world.begin_fetch(1, *wanted, min_bytes=2 * size)
    for value in "xyz":
        world.produce(1, 0, batch(value))
    assert not asked.settled
    world.produce(1, 1, batch("x"))
    assert asked.settled


def test_no_more_is_waited_for_than_may_be_answered() -> None:
    world = filled("")
    size = len(batch("x"))
    asked = world.begin_fetch(1, want(0, 0), min_bytes=100 * size, max_bytes=2 * size)
    world.produce(1, 0, batch("x"))
    assert not asked.settled
    world.produce(1, 0, batch("y"))
    assert len(contents(partition_of(asked).records)) == 2


def test_no_min_bytes_or_no_time_is_answered_at_once() -> None:
    world = filled()
    assert world.begin_fetch(1, want(0, 6), min_bytes=0).settled
    assert world.begin_fetch(1, want(0, 6), max_wait_ms=0).settled
    assert world.begin_fetch(1).settled, "no partition, no wait"


def test_an_error_in_one_partition_is_told_at_once() -> None:
    world = filled()
    asked = world.begin_fetch(1, want(0, 6), want(99, 0))
    assert partition_of(asked, 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_who_waits_hears_of_the_new_master() -> None:
    world = filled()
    asked = waiting(world)
    world.cluster.install(world.group(1), 2)
    assert not asked.settled
    world.cluster.install(world.group(0), 2)
    answer = partition_of(asked)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader.leader_id == 2
    assert [one.port for one in asked.response.node_endpoints] == [9002]


def test_a_fetch_waits_out_a_handover_rather_than_bring_back_an_error() -> None:
    """While the group is being handed over, even a fetch that has data waits for the outcome."""
    world = filled()
    world[1].groups.asleep.add(world.group(0))
    asked, other = waiting(world, offset=0), waiting(world, offset=0)
    world[1].groups.asleep.clear()
    world.masters_changed()  # the steal was refused: we act again
    assert len(contents(partition_of(asked).records)) == 6
    assert other.settled
    world[1].groups.asleep.add(world.group(0))
    asked = waiting(world, offset=0)
    world.cluster.install(world.group(0), 2)
    assert partition_of(asked).current_leader.leader_id == 2


def test_a_client_that_heard_of_our_mastership_before_us_waits_for_it() -> None:
    """The old master applied the Steal first and redirected its consumers here."""
    world = filled()
    coming = world.cluster.epochs[world.group(0)] + 1
    asked = world.begin_fetch(2, want(0, 0, epoch=coming))
    assert not asked.settled
    world.cluster.install(world.group(0), 2)
    assert len(contents(partition_of(asked).records)) == 6


def test_a_lapsed_lease_is_told_when_the_time_is_over() -> None:
    world = filled()
    asked = waiting(world, max_wait_ms=200)
    world[1].groups.asleep.add(world.group(0))
    world.advance(210)
    assert partition_of(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deleted_topic_ends_the_wait() -> None:
    world = filled()
    asked = waiting(world)
    uid, group = world.uid(0), world.group(0)
    world.run(DeleteTopic(TOPIC, TOPIC_ID))
    world[1].machines[group].drop(uid)
    world.settle()
    assert partition_of(asked).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_over_the_limit_nobody_is_parked_but_asked_to_pause() -> None:
    world = DataWorld(parked_fetches_max=2)
    held = [world.begin_fetch(1, want(0, 0)) for _ in range(2)]
    refused = world.begin_fetch(1, want(0, 0))
    assert refused.response.throttle_time_ms > 0
    assert not any(one.settled for one in held)
    assert world[1].statistics.fetches_refused == 1
    world.produce(1, 0, batch("a"))
    assert all(contents(partition_of(one).records) == [(0, "a")] for one in held)


def test_no_wait_is_longer_than_the_broker_allows() -> None:
    world = DataWorld(fetch_wait_ms_max=100)
    asked = world.begin_fetch(1, want(0, 0), max_wait_ms=2**31 - 1)
    world.advance(110)
    assert asked.settled


def test_one_timer_serves_them_all_and_answered_ones_leave_nothing_behind() -> None:
    world = filled("")
    for number in range(2_000):
        asked = world.begin_fetch(1, want(0, number), max_wait_ms=30_000)
        world.produce(1, 0, batch("x"))
        assert asked.settled
    parked = world[1].broker.delayed_fetches
    assert len(parked) == 0
    assert len(parked._deadlines) < 600
    short = world.begin_fetch(1, want(0, 2_000), max_wait_ms=100)
    long = world.begin_fetch(1, want(0, 2_000), max_wait_ms=200)
    world.advance(110)
    assert short.settled
    assert not long.settled
    world.advance(100)
    assert long.settled


def test_groups_are_looked_at_once_however_many_partitions_they_have() -> None:
    """Twelve partitions in two groups: the lease is checked twice, not twelve times."""
    world = DataWorld(groups=1)
    looked: list[GroupId] = []
    groups = world[1].groups
    acting = groups.acting

    def counting(group: GroupId) -> bool:
        looked.append(group)
        return acting(group)

    groups.acting = counting  # type: ignore[method-assign]
    world.fetch(1, *[want(0, 0) for _ in range(12)])
    assert looked == [world.group(0)]


def test_a_parked_fetch_makes_room_for_another_kind_of_request_behind_it() -> None:
    """Answers keep the order of requests: a FindCoordinator would wait as long as the fetch
    does."""
    world = filled()
    asked = waiting(world, max_wait_ms=30_000)
    hurry = asked.reply.hurry
    assert hurry is not None
    hurry()
    assert asked.settled
    assert partition_of(asked).error_code == ErrorCode.NONE
    hurry()  # doing it once more changes nothing
