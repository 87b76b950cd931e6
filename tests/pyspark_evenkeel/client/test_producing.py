"""Writing: what is sent again, what the caller hears, and what is an error."""

from collections.abc import Callable
from typing import TypeVar

import pytest
import trio

from pyspark_evenkeel.client import producing
from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.client.producing import Produced
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import BadAnswerError, RefusedError, UnavailableError
from tests.pyspark_evenkeel.client.small_broker import SmallBroker, small_broker
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch
from wire.messages.produce import PartitionProduceResponse

T = TypeVar("T")
FIRST, SECOND = Place("t", 0), Place("t", 1)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def row(
    partition: int, code: ErrorCode = ErrorCode.NONE, offset: int = 7, **more: str
) -> dict[int, PartitionProduceResponse]:
    return {partition: PartitionProduceResponse(partition, code, offset, **more)}  # type: ignore[arg-type]


async def with_client(
    broker: SmallBroker, work: Callable[[Cluster], T], *, retry_ms: int = 10_000
) -> T:
    async with small_broker(broker) as bootstrap:
        settings = ClusterSettings(
            bootstrap=bootstrap, retry_ms=retry_ms, backoff_ms=1, backoff_max_ms=20
        )

        def run() -> T:
            with Cluster(settings) as cluster:
                return work(cluster)

        return await trio.to_thread.run_sync(run)


def write_both(cluster: Cluster) -> dict[Place, Produced]:
    return cluster.produce_many({FIRST: b"first", SECOND: bytearray(b"second")})


async def test_one_request_takes_what_one_node_leads() -> None:
    broker = SmallBroker(verdicts=[row(0) | row(1, offset=9)])
    done = await with_client(broker, write_both)
    assert done == {FIRST: Produced(ErrorCode.NONE, 7), SECOND: Produced(ErrorCode.NONE, 9)}
    assert broker.written == [{0: b"first", 1: b"second"}]


async def test_only_what_was_not_done_is_sent_again() -> None:
    """A lost answer, a leader that moved, a missing row: each costs another attempt."""
    broker = SmallBroker(
        verdicts=[
            None,
            row(0, NOT_LEADER) | row(1),
            {},
            row(0, ErrorCode.NOT_ENOUGH_REPLICAS),
            row(0),
        ]
    )
    done = await with_client(broker, write_both)
    assert {one.error for one in done.values()} == {ErrorCode.NONE}
    both, left = {0: b"first", 1: b"second"}, {0: b"first"}
    assert broker.written == [both, both, left, left, left]


async def test_what_is_final_is_for_the_caller_to_judge() -> None:
    verdict = row(0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 5) | row(
        1, ErrorCode.MESSAGE_TOO_LARGE, -1, error_message="at most 3"
    )
    done = await with_client(SmallBroker(verdicts=[verdict]), write_both)
    assert done[FIRST] == Produced(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 5)
    assert done[SECOND] == Produced(ErrorCode.MESSAGE_TOO_LARGE, -1, "at most 3")


@pytest.mark.parametrize(
    ("verdict", "kind", "told"),
    [
        (
            None,
            UnavailableError,
            "writing to t/0 and 1 more failed: tried .* the broker closed",
        ),
        (row(0, NOT_LEADER), UnavailableError, "tried .* NOT_LEADER_OR_FOLLOWER"),
        ({}, BadAnswerError, "the answer does not have it"),
        (row(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), RefusedError, "create the topic first"),
    ],
)
async def test_it_does_not_go_on_for_ever(
    verdict: dict[int, PartitionProduceResponse] | None, kind: type[Exception], told: str
) -> None:
    verdicts = [verdict if verdict is None else verdict | row(1)]
    retry_ms = 10_000 if kind is BadAnswerError else 100  # nonsense is counted, the rest is timed
    with pytest.raises(kind, match=told):
        await with_client(SmallBroker(verdicts=verdicts), write_both, retry_ms=retry_ms)


async def test_a_leader_that_is_named_is_followed_without_asking() -> None:
    """KIP-951: the refusal names the new leader and its address."""
    other = SmallBroker(verdicts=[row(0)])
    async with small_broker(other) as address:
        host, _, port = address.rpartition(":")
        verdict = row(0, NOT_LEADER)
        verdict[0].current_leader = LeaderIdAndEpoch(2, 9)
        first = SmallBroker(verdicts=[verdict], leaders={2: (host, int(port))})
        done = await with_client(first, lambda cluster: cluster.produce(FIRST, b"x"))
    assert done.error is ErrorCode.NONE
    assert (first.metadata, len(first.written)) == (1, 1)
    assert (other.metadata, len(other.written)) == (0, 1)


async def test_large_batches_travel_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker accepts only so much in one request."""
    monkeypatch.setattr(producing, "REQUEST_BYTES_MAX", 10)
    broker = SmallBroker(verdicts=[row(0) | row(1)])
    done = await with_client(broker, write_both)
    assert {one.error for one in done.values()} == {ErrorCode.NONE}
    assert broker.written == [{0: b"first"}, {1: b"second"}]


async def test_without_acknowledgement_nothing_is_waited_for() -> None:
    broker = SmallBroker(verdicts=[row(0)])

    def write(cluster: Cluster) -> Produced:
        done = cluster.produce(FIRST, b"x", acks=0)
        cluster.topics(["t"])  # answers are in order: what was sent before has arrived by then
        return done

    assert await with_client(broker, write) == Produced(ErrorCode.NONE, -1)
    assert broker.written == [{0: b"x"}]
