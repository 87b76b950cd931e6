"""Produce checks records before they are stored: what is refused, with which error, and where."""

import struct
from typing import Any

import pytest
from crc32c import crc32c

from balancer.registry.commands import ConfigureTopic
from broker.lifecycle.compaction import RECORDS_MAX as COMPACTED_RECORDS_MAX
from broker.lifecycle.compaction import UNPACKED_BYTES_MAX
from broker.producers.batch_validation import (
    ON_LOOP_BYTES_MAX,
    ON_LOOP_RECORDS_MAX,
    RECORDS_MAX,
    check_in_background,
    check_on_loop,
    rules_of,
)
from broker.proposals.commands import records
from paxos.ids import MS, GroupId, Now
from runtime.engine.forwarding import problem
from tests.broker.batches import START_MS, batch, contents
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld, want
from tests.broker.fakes import FakeReply
from wire.apis import encode_request
from wire.error_codes import ErrorCode
from wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from wire.records.batch import (
    TIMESTAMP_END,
    Batch,
    BatchError,
    Compression,
    Record,
    parse_header,
    split,
)
from wire.records.batch_writer import BatchWriter, build_batch
from wire.records.compression import compress
from wire.records.validation import READABLE

GARBAGE = b"\xff" * 20
HOUR_MS = 3600 * 1000


def made(payload: bytes, count: int = 1, *, at_ms: int = START_MS, **fields: Any) -> bytes:
    """A batch of any bytes with a correct checksum."""
    values = {"attributes": 0, "max_ms": at_ms, "pid": -1, "base": 0} | fields
    body = struct.pack(
        ">hiqqqhii",
        values["attributes"],
        count - 1,
        at_ms,
        values["max_ms"],
        values["pid"],
        0 if values["pid"] >= 0 else -1,
        0 if values["pid"] >= 0 else -1,
        count,
    )
    body += payload
    return struct.pack(">qiibI", values["base"], len(body) + 9, -1, 2, crc32c(body)) + body


def packed(given: list[Record], codec: Compression) -> bytes:
    writer = BatchWriter()
    for one in given:
        writer.append(one)
    return writer.seal(compress(writer.payload, codec), compression=codec)


def end_of(world: DataWorld, partition: int = 0) -> int:
    group = world.group(partition)
    return world[1].machines[group].partition(world.uid(partition)).next_offset


SOUND = build_batch([Record(b"v", timestamp_ms=START_MS)])
RECORD = SOUND[61:]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (made(GARBAGE), ErrorCode.INVALID_RECORD),
        (made(RECORD + b"junk"), ErrorCode.INVALID_RECORD),
        (made(RECORD * 2, 2), ErrorCode.INVALID_RECORD),
        (made(RECORD * 2, 1), ErrorCode.INVALID_RECORD),
        (made(b"notgzip-notgzip", attributes=1), ErrorCode.INVALID_RECORD),
        (made(b"x" * 30, attributes=4), ErrorCode.INVALID_RECORD),
        (made(b"", attributes=3), ErrorCode.INVALID_RECORD),
        (made(RECORD, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (made(RECORD, attributes=0x40), ErrorCode.INVALID_RECORD),
        (made(RECORD, base=1), ErrorCode.INVALID_RECORD),
        (made(compress(bytearray(RECORD), Compression.GZIP), 2**31 - 1, attributes=1), 87),  # a lie
        (made(RECORD, at_ms=START_MS + 2 * HOUR_MS), ErrorCode.INVALID_TIMESTAMP),
        (made(RECORD, at_ms=TIMESTAMP_END - 1), ErrorCode.INVALID_TIMESTAMP),
        (made(RECORD, at_ms=-TIMESTAMP_END), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_what_nobody_could_read_is_not_stored(data: bytes, code: int) -> None:
    """On a connection's first request, and on the fast path."""
    world = DataWorld()
    for _ in range(2):
        answer = world.produce(1, 0, data)
        assert answer.error_code == code
        assert answer.error_message
        assert answer.base_offset == -1
        assert world.produce(1, 1, SOUND).error_code == ErrorCode.NONE
    assert end_of(world) == 0
    assert end_of(world, 1) == 2


def test_what_kafka_lets_through_is_stored() -> None:
    """No time, a very old time, undefined attributes, ids of no producer."""
    world = DataWorld()
    for data in (made(RECORD, at_ms=-1), made(RECORD, at_ms=0), made(RECORD, attributes=0x80)):
        assert world.produce(1, 0, data).error_code == ErrorCode.NONE
    assert end_of(world) == 3


def test_every_bad_record_is_named() -> None:
    world = DataWorld()
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {"cleanup.policy": "compact"}))
    given = [Record(b"v", key, START_MS) for key in (b"k", None, b"k", None)]
    answer = world.produce(1, 0, build_batch(given))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [1, 3]
    assert all(type(one) is BatchIndexAndErrorMessage for one in answer.record_errors)
    assert "record 3 of the batch has no key" in answer.record_errors[1].batch_index_error_message
    assert "2 records are refused" in answer.error_message


def test_times_are_within_what_the_topic_says() -> None:
    world = DataWorld()
    limits = {"message.timestamp.before.max.ms": "5000", "message.timestamp.after.max.ms": "1000"}
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, limits))
    now_ms = world.cluster.clock.now().wall_ns // MS
    times = [0, -5000, -5001, 1000, 1001]
    answer = world.produce(1, 0, build_batch([Record(b"", None, now_ms + ms) for ms in times]))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [one.batch_index for one in answer.record_errors] == [2, 4]
    good = build_batch([Record(b"", None, now_ms + ms) for ms in (0, -5000, 1000)])
    assert world.produce(1, 0, good).error_code == ErrorCode.NONE
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, limits | {"message.timestamp.type": "LogAppendTime"}))
    late = build_batch([Record(b"", None, now_ms - 10_000)])
    assert world.produce(1, 0, late).error_code == ErrorCode.NONE, "its time does not matter"


def test_a_clock_that_is_not_trusted_refuses_nobody() -> None:
    far = Now(wall_ns=0, boot_ns=0, trusted=False)
    assert rules_of({}, far) == READABLE
    assert rules_of({}, far._replace(trusted=True)).latest_ms == HOUR_MS


@pytest.mark.parametrize("usual", [False, True])
def test_the_greatest_time_is_put_right(usual: bool) -> None:
    """Searches by time and retention rely on it."""
    world = DataWorld()
    if usual:
        world.produce(1, 0, SOUND)
    start = end_of(world)
    answer = world.produce(1, 0, made(RECORD, max_ms=START_MS + 77_000))
    assert answer.error_code == ErrorCode.NONE
    stored = split(memoryview(world.fetch(1, want(0, start)).records))
    assert stored[-1].header.max_timestamp_ms == START_MS


@pytest.mark.parametrize("version", [6, 7])
def test_zstandard_is_for_clients_that_know_it(version: int) -> None:
    world = DataWorld()
    data = packed([Record(b"v", None, START_MS)], Compression.ZSTD)
    code = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    for _ in range(2):
        assert world.produce(1, 0, data, version=version).error_code == code


# ---- in the background ---------------------------------------------------------------------------

MANY = packed([Record(b"m", None, START_MS)] * (ON_LOOP_RECORDS_MAX + 1), Compression.NONE)
LARGE = packed([Record(bytes(ON_LOOP_BYTES_MAX), b"l", START_MS)], Compression.LZ4)


@pytest.fixture
def held() -> DataWorld:
    world = DataWorld()
    world[1].background.held = True
    return world


@pytest.mark.parametrize("data", [MANY, LARGE])
def test_what_takes_long_is_read_aside_and_the_connection_waits(
    held: DataWorld, data: bytes
) -> None:
    """The client's next requests must not overtake it; it is answered when it is stored."""
    asked = held.begin_produce(1, {0: data})
    held.settle()
    assert asked.reply.stopped == 1
    assert not asked.settled
    assert end_of(held) == 0
    assert held[1].statistics.produce_read_aside == 1
    held[1].background.do_one()
    assert asked.reply.stopped == 0
    held.settle()
    answer = asked.response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


def test_batches_of_one_request_do_not_overtake_each_other(held: DataWorld) -> None:
    """Also between partitions: a small batch behind a large one is checked after it."""
    asked = held.begin_produce(1, {0: LARGE, 1: batch("small")})
    held.settle()
    assert (end_of(held, 0), end_of(held, 1)) == (0, 0)
    assert asked.reply.stopped == 2
    held[1].background.do_one()
    held[1].background.do_one()
    held.settle()
    assert (end_of(held, 0), end_of(held, 1)) == (1, 1)
    assert asked.reply.stopped == 0
    assert contents(held.fetch(1, want(1, 0)).records) == [(0, "small")]


def test_what_is_found_bad_aside_is_refused_as_everywhere(held: DataWorld) -> None:
    bad = bytearray(MANY)
    bad[-1] = 1
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    asked = held.begin_produce(1, {0: bytes(bad)})
    held[1].background.do_one()
    answer = asked.response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in answer.record_errors] == [ON_LOOP_RECORDS_MAX]
    assert asked.reply.stopped == 0
    assert end_of(held) == 0


def test_who_has_given_up_gets_nothing_stored(held: DataWorld) -> None:
    asked = held.begin_produce(1, {0: LARGE}, timeout_ms=100)
    held.cluster.advance(2_000)
    answer = asked.response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert asked.reply.stopped == 1, "it is still being read"
    held[1].background.do_one()
    held.settle()
    assert asked.reply.stopped == 0
    assert end_of(held) == 0


def test_a_bug_that_is_found_aside_costs_one_connection(
    held: DataWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*_: object, **__: object) -> int:
        raise RuntimeError("of ours")

    monkeypatch.setattr("broker.producers.batch_validation.check_records", buggy)
    asked = held.begin_produce(1, {0: MANY})
    held[1].background.do_one()
    assert asked.reply.closed is not None
    assert asked.reply.stopped == 0


def test_the_frame_may_be_used_again_while_its_batch_is_read(held: DataWorld) -> None:
    """If the frame's memory is not the broker's own, the broker keeps a copy."""
    part = PartitionProduceData(0, memoryview(LARGE))
    request = ProduceRequest(None, -1, 1_000, [TopicProduceData(TOPIC, [part])])
    frame = bytearray(b"".join(encode_request(request, 9, 1, "c"))[4:])
    held[1].api.handle_frame(memoryview(frame), False, "host", FakeReply())
    frame[:] = bytes(len(frame))
    held[1].background.do_one()
    held.settle()
    assert bytes(held.fetch(1, want(0, 0)).records)[21:] == LARGE[21:]


@pytest.mark.parametrize("keyed", [False, True])
def test_nobody_reads_more_than_so_much_at_a_time(keyed: bool) -> None:
    rules = READABLE._replace(keyed=keyed)
    many = COMPACTED_RECORDS_MAX if keyed else RECORDS_MAX
    data = memoryview(build_batch([Record(b"v", b"k", START_MS)]))
    header = parse_header(data)
    one = Batch(header._replace(record_count=many + 1, last_offset_delta=many), data)
    with pytest.raises(BatchError) as refused:
        check_on_loop(one, rules)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    if keyed:
        large = packed([Record(bytes(UNPACKED_BYTES_MAX), b"k", START_MS)], Compression.GZIP)
        (one,) = split(memoryview(large))
        with pytest.raises(BatchError) as refused:
            check_in_background(one, rules, lambda: None)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


# ---- batches from other nodes --------------------------------------------------------------------


@pytest.mark.parametrize("data", [made(GARBAGE), made(RECORD, attributes=0x10), made(RECORD * 2)])
def test_what_a_node_forwards_is_read_as_well(data: bytes) -> None:
    (command,) = [b"".join(records(7, memoryview(data)))]
    assert problem(GroupId(1), memoryview(command))


@pytest.mark.parametrize("data", [SOUND, MANY, LARGE])
def test_what_takes_long_is_taken_on_a_nodes_word(data: bytes) -> None:
    assert problem(GroupId(1), memoryview(b"".join(records(7, memoryview(data))))) == ""
