"""The bare append's parts, the evaluation of its rounds, and the output."""

from pathlib import Path

import pytest

from benchmarks.limits import __main__ as command
from benchmarks.limits import tables
from benchmarks.limits.kafka import PRODUCE_VERSIONS, Topic, Topics, read_produce
from benchmarks.limits.loads import LOADS
from benchmarks.limits.machine import PROBES
from benchmarks.limits.measure import BARE, CONSUME, PRODUCT, outcome_of, rounds
from benchmarks.limits.ring import BATCH_BYTES_MAX, BLOCK_BYTES, ENTRY, Entry, Ring, entries
from benchmarks.limits.streams import JOIN_BELOW_BYTES, Buffer, Closed, joined
from benchmarks.load.frames import CORRELATION, CORRELATION_AT, produce_frame
from benchmarks.load.histogram import Histogram
from benchmarks.load.jobs import Measured
from benchmarks.load.usage import Usage
from benchmarks.report.results import Bar, Figure, Outcome
from wire.apis import (
    ApiKey,
    RequestHeader,
    Response,
    decode_response,
    encode_request,
    encode_response,
)
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from wire.messages.membership import HeartbeatRequest
from wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from wire.records.batch import produced_batch

CONTEXT = {
    "commit": "c0ffee" * 5,
    "uncommitted_changes": False,
    "began": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "a CPU", "cores": 2, "kernel": "Linux 6", "file_system": "ext4"},
    "python": "3.11.2",
    "pairs": 4,
    "window_s": 3.0,
    "partitions": 12,
    "masters": "concentrated",
}


def produced(topic: str, *, partition: int = 3, size: int = 100, records: int = 1) -> bytearray:
    frame = produce_frame(topic, partition, size, records)
    CORRELATION.pack_into(frame, CORRELATION_AT, 123_456)
    return frame


# -- Kafka ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 50, 127, 16_000, 1_000_000])
@pytest.mark.parametrize("topic", ["t", "a-much-longer-name"])
def test_a_produce_request_is_cut_where_its_parts_are(topic: str, size: int) -> None:
    cut = read_produce(memoryview(produced(topic, size=size))[4:])
    assert cut is not None
    assert (cut.correlation, cut.topic, cut.partition) == (123_456, topic.encode(), 3)
    batch = produced_batch(cut.records)
    assert len(batch.data) == len(cut.records)


def test_an_answer_is_what_the_codec_would_have_made() -> None:
    topic = Topic("load", 12)
    cut = read_produce(memoryview(produced("load", records=16))[4:])
    assert cut is not None
    assert [topic.take_offset(cut), topic.take_offset(cut)] == [0, 16]
    answer = PartitionProduceResponse(index=3, error_code=0, base_offset=16)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="load", partition_responses=[answer])]
    )
    for version in PRODUCE_VERSIONS:
        header = RequestHeader(ApiKey.PRODUCE, version, 123_456, None, 0)
        assert topic.answer(123_456, 3, 16) == b"".join(encode_response(header, response))


def test_a_partition_that_is_not_there_ends_the_connection() -> None:
    cut = read_produce(memoryview(produced("load", partition=12))[4:])
    assert cut is not None
    with pytest.raises(Closed):
        Topic("load", 12).take_offset(cut)


def asked(topics: Topics, key: ApiKey, version: int, request: bytes) -> Response:
    answer = memoryview(b"".join(topics.answer(memoryview(request)[4:])))
    return decode_response(key, version, answer[4:])


def test_clients_are_told_versions_and_offsets() -> None:
    topics = Topics(9092, 12)
    cut = read_produce(memoryview(produced("load", records=16))[4:])
    assert cut is not None
    topics.topic(b"load").take_offset(cut)
    versions = b"".join(encode_request(ApiVersionsRequest("x", "1"), 3, 1, None))
    told = asked(topics, ApiKey.API_VERSIONS, 3, versions)
    assert isinstance(told, ApiVersionsResponse)
    ranges = {one.api_key: (one.min_version, one.max_version) for one in told.api_keys}
    assert ranges[ApiKey.PRODUCE] == (0, PRODUCE_VERSIONS[-1])
    assert ApiKey.INIT_PRODUCER_ID not in ranges, "it gives no producer ids"
    places = [ListOffsetsPartition(3, timestamp=-2), ListOffsetsPartition(3, timestamp=-1)]
    question = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("load", places)])
    marks = asked(topics, ApiKey.LIST_OFFSETS, 5, b"".join(encode_request(question, 5, 1, None)))
    assert isinstance(marks, ListOffsetsResponse)
    assert [one.offset for one in marks.topics[0].partitions] == [0, 16]


def test_what_it_does_not_serve_ends_the_connection() -> None:
    heartbeat = b"".join(encode_request(HeartbeatRequest("group", 1, "member"), 1, 1, None))
    with pytest.raises(Closed):
        Topics(9092, 12).answer(memoryview(heartbeat)[4:])


# -- the log --------------------------------------------------------------------------------------


def test_small_buffers_are_joined_and_large_ones_left_alone() -> None:
    large = bytes(JOIN_BELOW_BYTES)
    buffers: list[Buffer] = [b"a", memoryview(b"b"), large, b"c", large]
    found = joined(buffers)
    assert b"".join(found) == b"".join(buffers)
    assert [len(one) for one in found] == [2, len(large), 1, len(large)]
    assert found[1] is large


def entry(sequence: int, size: int) -> list[Buffer]:
    return [
        ENTRY.pack(size, sequence, sequence % 12, 7 * sequence),
        b"%c" % (sequence % 256) * size,
    ]


def test_a_log_gives_back_what_was_written(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "log", BATCH_BYTES_MAX)
    ring.write([*entry(1, 100), *entry(2, 3 * BLOCK_BYTES)])
    ring.write(entry(3, BLOCK_BYTES - ENTRY.size))  # a block to the last byte
    ring.write(entry(4, 1))
    ring.close()
    found = list(entries(tmp_path / "log"))
    assert [one.sequence for one in found] == [1, 2, 3, 4]
    assert found[1] == Entry(2, 2, 14, b"\x02" * 3 * BLOCK_BYTES)


def test_at_its_end_a_log_begins_again(tmp_path: Path) -> None:
    """The rest of the round before must not be taken for the end of this one."""
    ring = Ring(tmp_path / "log", BATCH_BYTES_MAX)
    whole = BATCH_BYTES_MAX // 4
    for sequence in range(1, 7):
        ring.write(entry(sequence, whole - ENTRY.size))
    ring.close()
    assert [one.sequence for one in entries(tmp_path / "log")] == [5, 6]
    assert (tmp_path / "log").stat().st_size == BATCH_BYTES_MAX


# -- rounds and shares ----------------------------------------------------------------------------


def test_the_order_within_pairs_alternates() -> None:
    sides = [side for _, side in rounds(4)]
    assert sides == [BARE, PRODUCT, PRODUCT, BARE, BARE, PRODUCT, PRODUCT, BARE]
    assert [pair for pair, _ in rounds(2)] == [0, 0, 1, 1]


def measured(count: int, *, cpu_s: float = 0.1, p50_ms: float = 1.0) -> Measured:
    return Measured(
        seconds=1.0,
        count=count,
        bytes=count * 100,
        usage=Usage(1.0, (cpu_s, cpu_s, cpu_s), 0.2, 0.3),
        latency_ns=Histogram([int(p50_ms * 1e6)]),
    )


def outcomes() -> list[Outcome]:
    """Twice or half as fast in the middle pair: the median stays the same."""
    found = []
    for load in LOADS:
        pairs = [
            {BARE: measured(30_000), PRODUCT: measured(product, cpu_s=0.2, p50_ms=1.4)}
            for product in (12_000, 60_000, 13_500)
        ]
        found.append(outcome_of(load, pairs, {}, []))
    return found


def test_the_bar_is_for_the_median_share_of_the_pairs() -> None:
    by_name = {one.name: one for one in outcomes()}
    rate = by_name["requests-64x1"]
    share = rate.figures[0]
    assert share.values == pytest.approx((0.4, 2.0, 0.45))
    assert share.passed is False
    assert not rate.passed
    latency = by_name["single"].figures[0]
    assert latency.value == pytest.approx(1.4)
    assert latency.passed is True, "at most half again as long"
    costs = {one.name: one.value for one in rate.figures}
    assert costs["bare us/request"] == pytest.approx(10)


def test_tables_fit_80_columns_and_say_what_was_missed() -> None:
    consume = Outcome(
        name=CONSUME.name,
        title="",
        figures=(Figure(name="MB/s", values=[400, 600], bar=Bar(500)),),
    )
    loopback = Outcome(name="loopback", title="", figures=(Figure(name="MB/s", values=[3210]),))
    failed = Outcome(name="disk", title="", failure="no room")
    found = [loopback, failed, *outcomes(), consume]
    text = tables.table(found)
    assert max(map(len, text.splitlines())) <= 80
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["requests-64x1"][1:] == (
        ["requests/s", "30,000", "13,500", "0.45", "0.40", "-", "2.00", ">=", "0.5", "MISS"]
    )
    assert rows["single"][-3:] == ["<=", "1.5", "pass"]
    assert text.count("p50 ms") == len(LOADS), "once for each load, with or without a bar for it"
    assert rows["consume"][1:4] == ["MB/s", "3,210", "500"]
    assert "disk FAILED: no room" in text
    page = tables.markdown(found, CONTEXT)
    assert (
        "| requests-64x1 | requests/s | 30,000 | 13,500 | 0.45 | 0.40 - 2.00 | >= 0.5 | MISS |"
        in page
    )
    assert "Not measured: disk, no room" in page
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {9, 5}


def test_names_of_measurements_are_unique_and_can_be_chosen() -> None:
    assert len(set(command.NAMES)) == len(PROBES) + len(LOADS) + 1
    options = command.options_of(["--only", "disk", "single", "--quick", "--pairs", "3"])
    assert options.only == ["disk", "single"]
    assert command.scale_of(options).pairs == 3
    assert command.scale_of(options).name == "quick"


@pytest.mark.parametrize("wrong", [["--pairs", "0"], ["--seconds", "x"], ["--only", "nothing"]])
def test_wrong_arguments_are_told(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        command.options_of(wrong)
    assert refusal.value.code == 2
    assert wrong[1] in capsys.readouterr().err
