"""Asks every node, directly and all the time, where its partitions end, and keeps the answers.

A client that follows the cluster soon talks only to the new master. The prober never leaves a node,
so it is there when an old master wakes, with questions from after another node had become master.
An answer below what was acknowledged before the question is a stale read (`stale-offsets` of the
history checker). It counts refusals: a node that never refuses was never put to the test.
"""

import time
from collections import Counter, defaultdict
from typing import Final

import attrs
import trio

from cluster.recorder import Recorder
from cluster.spec import ClusterSpec, NodeSpec
from evenkeel.config import ClientConfig
from evenkeel.connection import Connection, Pending
from evenkeel.errors import EvenkeelError
from evenkeel.opening import connect
from history.record import Key, Op, Outcome, Record
from tests.exam.hurting import until_true
from wire.apis import api_of
from wire.error_codes import ErrorCode
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EVERY_S: Final = 0.05
UNANSWERED_MAX: Final = 400
"""After this many open questions a node that stands still is asked no more."""
ANSWER_S_MAX: Final = 60.0
LATEST: Final = -1


@attrs.define
class Prober:
    spec: ClusterSpec
    topic: str
    partitions: int
    recorder: Recorder
    answers: dict[int, Counter[int]] = attrs.Factory(lambda: defaultdict(Counter))
    """For each node: how often it answered with which error code."""
    _asked: Counter[int] = attrs.Factory(Counter)
    _settled: Counter[int] = attrs.Factory(Counter)
    """For each node: questions that were answered, or lost with their connection."""

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            for node in self.spec.nodes:
                nursery.start_soon(self._ask_for_ever, node)

    async def asked_again(self, node: int, times: int) -> None:
        """Wait until it has asked that often from now on."""
        goal = self._asked[node] + times
        await until_true(lambda: self._asked[node] >= goal, f"node {node} is asked")

    async def answered(self, node: int) -> None:
        """Wait until the node has answered everything it was asked so far."""
        goal = self._asked[node]
        await until_true(lambda: self._settled[node] >= goal, f"node {node} answers")

    async def _ask_for_ever(self, node: NodeSpec) -> None:
        config = ClientConfig(client_id="prober", request_timeout_ms=round(ANSWER_S_MAX * 1000))
        while True:
            try:
                async with trio.open_nursery() as nursery:
                    connection = await connect(nursery, node.kafka.host, node.kafka.port, config)
                    await self._ask(nursery, node, connection)
                    nursery.cancel_scope.cancel()
            except* EvenkeelError:
                pass  # it is down: the exam is about that
            await trio.sleep(EVERY_S)

    async def _ask(self, nursery: trio.Nursery, node: NodeSpec, connection: Connection) -> None:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    self.topic,
                    [
                        ListOffsetsPartition(partition_index=number, timestamp=LATEST)
                        for number in range(self.partitions)
                    ],
                )
            ],
        )
        version = min(5, api_of(ListOffsetsRequest).accepted.last)
        while connection.usable:
            if connection.in_flight < UNANSWERED_MAX:
                began_ns = time.monotonic_ns()
                self._asked[node.id] += 1
                nursery.start_soon(self._note, node, began_ns, connection.submit(request, version))
            await trio.sleep(EVERY_S)

    async def _note(self, node: NodeSpec, began_ns: int, pending: Pending) -> None:
        try:
            response = await pending.wait()
        except EvenkeelError:
            return
        finally:
            self._settled[node.id] += 1
        ended_ns = time.monotonic_ns()
        assert isinstance(response, ListOffsetsResponse)
        process = f"probe-{node.id}"
        told: list[Record] = []
        for topic in response.topics:
            for one in topic.partitions:
                self.answers[node.id][one.error_code] += 1
                if one.error_code == ErrorCode.NONE:
                    key = Key(topic.name, one.partition_index)
                    times = began_ns, ended_ns
                    told.append(
                        Record(Op.LATEST, process, key, None, one.offset, Outcome.OK, *times)
                    )
        self.recorder.ended(told)
