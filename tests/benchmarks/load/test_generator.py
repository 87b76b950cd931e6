"""The load generator against a small broker that can stall, refuse and hang up."""

import socket
import time

import pytest

from benchmarks.load import generator, jobs
from benchmarks.load.frames import (
    CORRELATION,
    CORRELATION_AT,
    TargetError,
    describe_refusal,
    error_code_at,
    leaders_of,
    produce_frame,
)
from benchmarks.load.generator import LoadFailed
from benchmarks.load.jobs import RequestJob
from benchmarks.suites.bench import QUICK, Bench, BenchmarkFailed
from benchmarks.target import given_brokers
from tests.benchmarks.load.brokers import TinyBroker, stall_once, tiny_broker
from wire.apis import RequestHeader, encode_response, parse_request_header
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

MS = 1_000_000


def job_for(broker: TinyBroker, **changes: object) -> RequestJob:
    settings: dict[str, object] = {
        "bootstrap": f"127.0.0.1:{broker.port}",
        "topic": broker.topic,
        "connections": 4,
        "in_flight": 1,
        "record_bytes": 100,
        "rate": 0.0,
        "first_node": 0,
        "warm_up_s": 0.1,
        "window_s": 0.5,
        **changes,
    }
    return RequestJob(**settings)  # type: ignore[arg-type]  # the fields above


def test_a_frame_is_patched_in_the_right_place() -> None:
    frame = produce_frame("load", 3, 100)
    CORRELATION.pack_into(frame, CORRELATION_AT, 123_456)
    header = parse_request_header(memoryview(frame)[4:])
    assert isinstance(header, RequestHeader)
    assert (header.api_key, header.correlation_id) == (0, 123_456)


@pytest.mark.parametrize("topic", ["t", "a-much-longer-name"])
def test_the_error_code_is_where_it_is_looked_for(topic: str) -> None:
    partition = PartitionProduceResponse(index=5, error_code=6, base_offset=77)
    answer = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[partition])]
    )
    header = RequestHeader(0, 9, 1, None, 0)
    frame = b"".join(encode_response(header, answer))[4:]
    at = error_code_at(topic)
    assert frame[at : at + 2] == (6).to_bytes(2, "big")
    assert describe_refusal(memoryview(frame)) == "partition 5: NOT_LEADER_OR_FOLLOWER"


def test_closed_loop_counts_what_was_answered_and_uses_all_partitions() -> None:
    with tiny_broker(partitions=3) as broker:
        measured = generator.run(job_for(broker))
    assert measured.count > 100
    assert measured.latency_ns.count == measured.count
    assert measured.seconds == 0.5
    assert measured.bytes == measured.count * 100
    assert set(broker.records) == {0, 1, 2}
    assert broker.records.total() >= measured.count
    assert max(broker.records.values()) - min(broker.records.values()) <= 4


def test_connections_begin_with_different_partitions() -> None:
    """Otherwise all of them would load one partition at a time, which real clients do not do."""

    def slow(_number: int) -> int:
        time.sleep(0.2)  # longer than the window: each connection sends one request
        return 0

    with tiny_broker(partitions=3, judge=slow) as broker:
        generator.run(job_for(broker, connections=3, warm_up_s=0.0, window_s=0.1))
    assert broker.records == {0: 1, 1: 1, 2: 1}


def test_a_load_may_be_for_one_partition_only() -> None:
    with tiny_broker(partitions=3) as broker:
        measured = generator.run(job_for(broker, partitions_max=1))
    assert measured.count > 100
    assert set(broker.records) == {0}


def test_several_requests_in_flight_are_answered_in_order() -> None:
    with tiny_broker() as broker:
        measured = generator.run(job_for(broker, connections=1, in_flight=16))
    assert measured.count > 100


def test_open_loop_keeps_its_rate() -> None:
    with tiny_broker() as broker:
        measured = generator.run(job_for(broker, rate=200.0))
    assert measured.latency_ns.count == pytest.approx(100, abs=1)
    assert measured.count == pytest.approx(100, abs=20)


def test_a_stall_costs_every_request_that_was_due_meanwhile() -> None:
    """No coordinated omission: a fifth of the window was stalled, so p90 shows it.

    A closed loop with one request outstanding would see only one slow request.
    """
    stall_s = 0.2
    with tiny_broker(judge=stall_once(100, stall_s)) as broker:
        measured = generator.run(job_for(broker, rate=500.0, warm_up_s=0.1, window_s=1.0))
    assert measured.latency_ns.percentile(90) > stall_s * 0.3 * 1e9
    assert measured.latency_ns.max > stall_s * 0.9 * 1e9


def test_what_a_full_socket_holds_up_is_late_and_not_left_out() -> None:
    """The broker stops reading for longer than the window: sending itself blocks. Requests due
    meanwhile still count, from when they were due."""
    rate, window_s, stall_s = 100.0, 1.0, 1.5
    with tiny_broker(partitions=1, judge=stall_once(20, stall_s)) as broker:
        job = job_for(
            broker,
            rate=rate,
            connections=1,
            record_bytes=900_000,
            warm_up_s=0.0,
            window_s=window_s,
        )
        measured = generator.run(job)
    assert measured.latency_ns.count == rate * window_s
    assert measured.latency_ns.percentile(50) > (stall_s - window_s) * 1e9


def test_a_refusal_ends_the_run_and_says_which() -> None:
    def judge(number: int) -> int:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 50 else ErrorCode.NONE

    with tiny_broker(judge=judge) as broker, pytest.raises(LoadFailed, match="NOT_LEADER"):
        generator.run(job_for(broker))


def test_a_request_without_an_answer_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(generator, "LATEST_WAKE_S", 0.05)
    with (
        tiny_broker(judge=stall_once(20, 1.0)) as broker,
        pytest.raises(LoadFailed, match="not answered"),
    ):
        generator.run(job_for(broker))


def test_nobody_there_is_told_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(TargetError, match=str(port)):
        leaders_of(f"127.0.0.1:{port}", "load")


async def test_a_job_is_carried_out_in_a_process_of_its_own() -> None:
    with tiny_broker() as broker:
        bench = Bench(given_brokers(f"127.0.0.1:{broker.port}", 1), QUICK, lambda _line: None)
        measured = await bench.run(job_for(broker))
    assert measured.count > 100
    assert measured.usage.client_s > 0


async def test_why_a_job_failed_comes_back_from_its_process() -> None:
    said: list[str] = []
    with tiny_broker(judge=lambda _number: ErrorCode.NOT_ENOUGH_REPLICAS) as broker:
        bench = Bench(given_brokers(f"127.0.0.1:{broker.port}", 1), QUICK, said.append)
        with pytest.raises(BenchmarkFailed, match="NOT_ENOUGH_REPLICAS"):
            await bench.repeat(lambda _repetition: job_for(broker), lambda _one: "done")
    assert len(bench.retried) == 3
    assert "done" not in said


def test_a_job_survives_json() -> None:
    job = jobs.ProduceJob(
        bootstrap="127.0.0.1:9092",
        topic="load",
        partitions=12,
        message_bytes=100,
        idempotent=True,
        warm_up_s=1.0,
        window_s=5.0,
        pids=(1, 2, 3),
    )
    assert jobs.job_from_json(jobs.job_to_json(job)) == job
