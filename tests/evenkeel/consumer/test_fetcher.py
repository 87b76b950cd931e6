"""A consumer's progress reports to a master that asks for them (E13)."""

from collections.abc import Collection
from typing import cast

import pytest
import trio
import trio.testing

from evenkeel.client import Client
from evenkeel.config import ClientConfig, ConsumerConfig
from evenkeel.consumer.fetched import FetchedPartition
from evenkeel.consumer.fetcher import Fetcher, Report, _NodeState
from wire.cluster_view import ClusterView, TopicPartition, TopicView
from wire.codec.schema import UUID_ZERO
from wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ProgressReport,
    ReportProgress,
)

NODE = 1
PLACE = TopicPartition("t", 0)
WAIT_MS = 50
NEWEST = 12


class Master:
    """Asks for progress number 7 in its first answer; client and connection in one."""

    def __init__(self) -> None:
        self.config = ClientConfig()
        self.view = ClusterView()
        self.progress: list[ProgressReport | None] = []

    async def connection(self, node: int, purpose: object) -> "Master":
        await trio.lowlevel.checkpoint()
        return self

    def follow(self, topics: Collection[str]) -> None:
        pass

    def want_refresh(self) -> None:
        pass

    def version_for(self, kind: object, at_most: int = NEWEST) -> int:
        return at_most

    async def request(self, request: FetchRequest, kind: object, **_: object) -> FetchResponse:
        await trio.lowlevel.checkpoint()
        self.progress.append(request.progress)
        asks = len(self.progress) == 1
        row = PartitionData(
            partition_index=0, report_progress=ReportProgress(7, WAIT_MS) if asks else None
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])


async def twice(report: Report | None) -> tuple[Master, Fetcher]:
    """Two fetches from a master that asks in the first one's answer."""
    master = Master()
    fetcher = Fetcher(cast(Client, master), ConsumerConfig(), report, lambda: None)
    one = fetcher.assigned[PLACE] = FetchedPartition(PLACE)
    one.seek(0)
    state = fetcher._nodes.setdefault(NODE, _NodeState())
    for _ in range(2):
        await fetcher._fetch(NODE, state, [one], 500)
    return master, fetcher


async def test_a_position_is_not_taken_into_the_next_topic_of_the_name() -> None:
    """It would skip records that nobody has read; the start is looked up again."""
    arrived: list[bool] = []
    master = Master()
    fetcher = Fetcher(cast(Client, master), ConsumerConfig(), None, lambda: arrived.append(True))
    one = fetcher.assigned[PLACE] = FetchedPartition(PLACE)
    one.seek(100)

    def look(topic_id: bytes) -> tuple[int | None, int | None, int | None]:
        master.view.topics["t"] = TopicView("t", topic_id, False, {})
        fetcher._start_requests(0.0)
        return one.position, one.processed, one.committed

    assert look(b"a" * 16) == (100, 100, None)
    assert look(UUID_ZERO) == (100, 100, None)  # a node that sends no ids
    one.committed = 100
    assert not arrived
    assert look(b"b" * 16) == (None, None, None)
    assert arrived
    one.seek(7)
    assert look(b"b" * 16) == (7, 7, None)


async def succeed(places: Collection[TopicPartition]) -> bool:
    await trio.lowlevel.checkpoint()
    return True


async def fail(places: Collection[TopicPartition]) -> bool:
    await trio.lowlevel.checkpoint()
    return False


async def dawdle(places: Collection[TopicPartition]) -> bool:
    await trio.sleep((WAIT_MS + 1) / 1000)
    return True


@pytest.mark.parametrize(("report", "reported"), [(succeed, 7), (fail, 0), (dawdle, 0)])
async def test_E13_only_progress_that_was_committed_in_time_counts_as_reported(
    report: Report, reported: int, autojump_clock: trio.testing.MockClock
) -> None:
    master, fetcher = await twice(report)
    first, second = master.progress
    assert first is not None
    assert second == ProgressReport(first.consumer, reported)
    assert fetcher.reports == (reported > 0)


async def test_E14_nothing_is_reported_before_its_commit_is_answered() -> None:
    """Committed offsets are in another group than the one that moves. So the report waits until
    their own group has answered, which means that they are replicated."""
    answered, asked = trio.Event(), trio.Event()

    async def commit(places: Collection[TopicPartition]) -> bool:
        asked.set()
        await answered.wait()
        return True

    master = Master()
    fetcher = Fetcher(cast(Client, master), ConsumerConfig(), commit, lambda: None)
    one = fetcher.assigned[PLACE] = FetchedPartition(PLACE)
    one.seek(0)
    state = _NodeState()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher._fetch, NODE, state, [one], 500)
        await asked.wait()
        assert (state.reported, fetcher.reports) == (0, 0)
        answered.set()
    await fetcher._fetch(NODE, state, [one], 500)
    assert [report and report.reported for report in master.progress] == [0, 7]


async def test_who_has_nothing_to_report_is_neither_asked_nor_waited_for() -> None:
    master, fetcher = await twice(None)
    assert master.progress == [None, None]
    assert fetcher.reports == 0
