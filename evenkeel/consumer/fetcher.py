"""Fetching: one long poll for each node that leads an assigned partition, and its results.

Like the producer's sender, one task loops. From every node without a request in flight it requests
all partitions led there that have a position and room in the buffer. One task per request handles
the answer.

A master that is about to move asks for our progress in an answer (docs/kafka.md): the next fetch to
that node waits until we have reported it, and says so.
"""

import random
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

import attrs
import trio

from evenkeel.client import Client, Purpose, backoff_s
from evenkeel.config import ConsumerConfig
from evenkeel.consumer.fetched import FetchedPartition
from evenkeel.errors import EvenkeelError, UnsupportedError, refusal
from wire.cluster_view import TopicPartition
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ProgressReport,
)

NEVER: Final = float("inf")
TOPIC_IDS_FROM: Final = 13
"""From this version on, topics are named only by their ids."""
CONSUMER: Final = -1
SESSIONLESS_EPOCH: Final = -1
LEADERLESS_LOOK_S: Final = 0.1
CROWDED_WAIT_MS: Final = 10
"""The long poll's length while another partition of the node has no room: it soon may."""
GRACE_S: Final = 10.0
"""How much later than the longest requested wait an answer may come."""

Report = Callable[[Collection[TopicPartition]], Awaitable[bool]]
"""Commit what has been processed of these; returns whether that succeeded."""


@attrs.define(eq=False)
class _NodeState:
    busy: bool = False
    reported: int = 0
    """The last progress request of this node that we have answered."""
    turn: int = 0


class Fetcher:
    """Fetches for the partitions of `assigned`, which its owner changes and then calls `wake`."""

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        report: Report | None,
        arrived: Callable[[], None],
    ) -> None:
        """Without `report`, masters neither ask us for progress nor wait for us."""
        self.assigned: dict[TopicPartition, FetchedPartition] = {}
        self._client = client
        self._config = config
        self._report = report
        self._arrived = arrived
        self._wake = trio.Event()
        self._nodes: dict[int, _NodeState] = {}
        self._ident = random.getrandbits(63)
        self.requests = 0
        self.reports = 0

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake = trio.Event()
            until = self._start_requests(trio.current_time())
            with trio.move_on_at(until):
                await self._wake.wait()

    # -- asking -----------------------------------------------------------------------------------

    def _start_requests(self, now: float) -> float:
        """Send the requests that can be sent now; returns when to try again unless woken before."""
        until = NEVER
        by_node: dict[int, list[FetchedPartition]] = {}
        crowded: set[int] = set()
        full = sum(one.buffered for one in self.assigned.values()) >= self._config.buffer_bytes
        for place, one in self.assigned.items():
            if one.position is None or one.paused or one.settling:
                continue
            if one.in_flight or one.error is not None:
                continue
            topic = self._client.view.topics.get(place.topic)
            if topic is not None and not one.is_of(topic.topic_id):
                self._arrived()  # the consumer looks up where to begin
                continue
            leader = self._client.view.leader(place)
            if leader is None:
                self._client.follow([place.topic])
                self._client.want_refresh()
                until = min(until, now + LEADERLESS_LOOK_S)
            elif full or one.buffered >= self._config.partition_bytes_max:
                crowded.add(leader)
            elif one.not_before > now:
                until = min(until, one.not_before)
            else:
                by_node.setdefault(leader, []).append(one)
        for node, partitions in by_node.items():
            state = self._nodes.setdefault(node, _NodeState())
            if not state.busy:
                wait_ms = CROWDED_WAIT_MS if node in crowded else self._config.fetch_wait_ms
                state.busy = True
                self._client.start(partial(self._fetch, node, state, partitions, wait_ms))
        return until

    async def _fetch(
        self, node: int, state: _NodeState, partitions: list[FetchedPartition], wait_ms: int
    ) -> None:
        """Send one request to one node, and handle its answer."""
        asked: dict[TopicPartition, int] = {}
        for one in partitions:
            one.in_flight = True
            asked[one.place] = one.fetch_from
        try:
            response = await self._ask(node, state, partitions, wait_ms)
            wanted = self._take_in(response, partitions, asked)
            if wanted and self._report is not None:
                await self._tell_progress(self._report, state, wanted)
        except EvenkeelError as error:
            self._failed(partitions, error)
        finally:
            for one in partitions:
                one.in_flight = False
            state.busy = False
            self._arrived()
            self.wake()

    async def _ask(
        self, node: int, state: _NodeState, partitions: list[FetchedPartition], wait_ms: int
    ) -> FetchResponse:
        connection = await self._client.connection(node, Purpose.FETCH)
        version = connection.version_for(FetchRequest)
        view = self._client.view.topics
        ids = {one.place.topic: UUID_ZERO for one in partitions}
        for topic in ids:
            if topic in view:
                ids[topic] = view[topic].topic_id
        if version >= TOPIC_IDS_FROM and UUID_ZERO in ids.values():
            version = connection.version_for(FetchRequest, at_most=TOPIC_IDS_FROM - 1)
        state.turn += 1
        turned = state.turn % len(partitions)  # a broker serves the first ones first: take turns
        topics: dict[str, list[FetchPartition]] = {}
        for one in (*partitions[turned:], *partitions[:turned]):
            topics.setdefault(one.place.topic, []).append(self._row(one))
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=wait_ms,
            min_bytes=self._config.fetch_bytes_min,
            max_bytes=self._config.fetch_bytes_max,
            isolation_level=self._config.isolation.value,
            session_epoch=SESSIONLESS_EPOCH,
            topics=[FetchTopic(name, ids[name], parts) for name, parts in topics.items()],
            progress=None if self._report is None else ProgressReport(self._ident, state.reported),
        )
        self.requests += 1
        timeout_s = wait_ms / 1000 + min(GRACE_S, self._client.config.request_timeout_ms / 1000)
        return await connection.request(
            request, FetchResponse, version=version, timeout_s=timeout_s
        )

    def _row(self, one: FetchedPartition) -> FetchPartition:
        view = self._client.view.partition(one.place)
        return FetchPartition(
            one.place.partition,
            -1 if view is None else view.epoch,
            one.fetch_from,
            partition_max_bytes=self._config.partition_bytes_max,
        )

    # -- answers ----------------------------------------------------------------------------------

    def _take_in(
        self,
        response: FetchResponse,
        partitions: list[FetchedPartition],
        asked: dict[TopicPartition, int],
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Take in all partitions; returns those with a progress request: its number, and how long
        the master waits."""
        if response.error_code != ErrorCode.NONE:
            raise refusal("a fetch was refused", response.error_code)
        rows: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            name = topic.topic or self._client.view.name_of(topic.topic_id)
            if name is not None:
                rows |= {TopicPartition(name, one.partition_index): one for one in topic.partitions}
        wanted = {}
        for one in partitions:
            row = rows.get(one.place)
            if row is None or self.assigned.get(one.place) is not one:
                continue
            self._take_one(one, asked[one.place], row, response)
            if row.report_progress is not None:
                wanted[one.place] = (row.report_progress.request, row.report_progress.wait_ms)
        return wanted

    def _take_one(
        self, one: FetchedPartition, asked_from: int, row: PartitionData, response: FetchResponse
    ) -> None:
        code = row.error_code
        if code == ErrorCode.NONE:
            one.failures = 0
            try:
                one.take(asked_from, row, self._config.check_crcs)
            except EvenkeelError as error:
                one.error = error
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if asked_from == one.fetch_from and not one.has_records:
                one.drop()
                one.position = None
                one.reset = one.reset or self._config.offset_reset
        else:
            refused = refusal(f"{one.place} cannot be fetched", code)
            moved = self._client.view.learn(one.place, row.current_leader, response.node_endpoints)
            if not moved:
                self._pause(one, refused)

    def _failed(self, partitions: list[FetchedPartition], error: EvenkeelError) -> None:
        for one in partitions:
            self._pause(one, error)

    def _pause(self, one: FetchedPartition, error: EvenkeelError) -> None:
        """Retry later, with newer metadata; report to the user an error that will never pass."""
        self._client.want_refresh()
        one.not_before = trio.current_time() + backoff_s(self._client.config, one.failures)
        one.failures += 1
        if not error.retriable or isinstance(error, UnsupportedError):
            one.error = error

    async def _tell_progress(
        self, report: Report, state: _NodeState, wanted: dict[TopicPartition, tuple[int, int]]
    ) -> None:
        """Let the owner commit, for as long as the master waits; if it succeeds, report it.

        If the owner is too slow or fails, the next fetch does not confirm the master's request.
        """
        self._arrived()  # the answer may have records: do not delay them
        wait_ms = max(wait for _, wait in wanted.values())
        done = False
        with trio.move_on_after(wait_ms / 1000):
            done = await report(wanted.keys())
        if done:
            state.reported = max([state.reported, *(request for request, _ in wanted.values())])
            self.reports += 1
