"""A streaming job that writes under write tokens: it dies at any moment and repeats a micro-batch.

The content of a micro-batch follows from its number, as with a source that can be read again. A run
writes its chunks to all partitions, in order, with some in flight together; when all are there that
is recorded, and the next micro-batch begins. When a run dies, another one begins with the same
micro-batch, even if that was complete. It has connections of its own, so what the dead run had in
flight arrives at any time. Now and then the old run is not dead, and continues beside the new one
for a while.
"""

from collections import deque
from typing import Final

import attrs

from paxos.ids import MS
from simulator.checkers.partition_logs import Sent
from simulator.checkers.times import time_of
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.clients.surroundings import Calls, Surroundings
from simulator.environment.dice import between, dice
from simulator.environment.violation import Violation
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records.batch import Record
from wire.records.batch_writer import build_batch
from wire.records.write_tokens import Position, token_of, writer_id

PRODUCE_VERSION: Final = 10
ACKS_ALL: Final = -1
TIMEOUT_NS: Final = 1_500 * MS
START_NS_MAX: Final = 400 * MS
DIE_CHANCE: Final = 0.06
UNNOTED_CHANCE: Final = 0.2
"""Chance to die after everything is written, before that is recorded."""
GHOST_CHANCE: Final = 0.3
GHOST_NS_MAX: Final = 6_000 * MS
CHUNKS: Final = (0, 1, 1, 1, 2, 3, 7)
"""Chunks in a partition; the last number is more than what is remembered by offsets."""
RECORDS_MAX: Final = 3


@attrs.define(eq=False)
class _Chunk:
    sent: Sent
    data: bytes


@attrs.define(eq=False)
class _Lane:
    """What a run still has to write to a partition."""

    partition: int
    target: int
    left: deque[_Chunk]
    in_flight: set[_Chunk] = attrs.Factory(set)


@attrs.define(eq=False)
class _Run:
    caller: Calls
    lanes: list[_Lane]
    until_ns: int | None = None
    """When it ends, if it is a ghost: a run that was given up and does not know it."""

    @property
    def done(self) -> bool:
        return not any(lane.left for lane in self.lanes)


class Writer(KafkaClient):
    """It has two addresses: its own and the next."""

    def __init__(self, world: Surroundings, address: int) -> None:
        super().__init__(world, "writer", address, START_NS_MAX)
        self._callers = deque([self._caller, world.caller(address + 1)])
        self._partitions = world.options.partitions
        self._batch = 0
        self._made: dict[int, list[list[_Chunk]]] = {}
        """Micro-batches by number; for each partition its chunks."""
        self._next_numbers = [1] * self._partitions
        self._run: _Run | None = None
        self._ghosts: list[_Run] = []

    def _act(self) -> None:
        if self._run is None:
            self._run = self._begin()
        elif self._chance.random() < DIE_CHANCE:
            self._die(self._run)
            return
        now_ns = self._world.loop.now_ns
        self._ghosts = [one for one in self._ghosts if (one.until_ns or 0) > now_ns]
        for run in (*self._ghosts, self._run):
            for lane in run.lanes:
                self._send(run, lane)
        if self._run.done and self._chance.random() < UNNOTED_CHANCE:
            self._die(self._run)
        elif self._run.done:
            self._world.statistics["micro-batches"] += 1
            self._batch += 1
            self._run = None

    def _begin(self) -> _Run:
        lanes = [
            _Lane(partition, self._anybody(), deque(chunks))
            for partition, chunks in enumerate(self._chunks(self._batch))
        ]
        return _Run(self._callers[0], lanes)

    def _die(self, run: _Run) -> None:
        """No run waits for the answers of a dead one: only their effects are left."""
        self._world.statistics["micro-batches run again"] += 1
        self._callers.rotate()
        self._run = None
        if self._chance.random() < GHOST_CHANCE:
            run.until_ns = self._world.loop.now_ns + between(self._chance, 0, GHOST_NS_MAX)
            self._ghosts.append(run)

    # -- what there is to write ---------------------------------------------------------------

    def _chunks(self, batch: int) -> list[list[_Chunk]]:
        """The same whenever it is asked."""
        made = self._made.get(batch)
        if made is None:
            d = dice(self._world.options.seed, "micro-batch", self.address, batch)
            made = self._made[batch] = [
                [
                    self._make(partition, Position(batch, chunk, chunk + 1 < count), d.random())
                    for count in [d.choice(CHUNKS)]
                    for chunk in range(count)
                ]
                for partition in range(self._partitions)
            ]
        return made

    def _make(self, partition: int, position: Position, luck: float) -> _Chunk:
        first, count = self._next_numbers[partition], 1 + int(luck * RECORDS_MAX)
        self._next_numbers[partition] += count
        token = token_of(writer_id("simulated", self.address), position)
        sent = Sent(self.address, partition, first, count)
        data = build_batch(
            [
                Record(
                    b"%d/%d/%d" % (self.address, partition, number), timestamp_ms=time_of(number)
                )
                for number in range(first, first + count)
            ],
            producer_id=token.producer_id,
            producer_epoch=token.epoch,
            base_sequence=token.sequence,
        )
        self._world.partition_logs.produced(sent, data)
        return _Chunk(sent, data)

    # -- writing it ---------------------------------------------------------------------------

    def _send(self, run: _Run, lane: _Lane) -> None:
        for chunk in list(lane.left)[: self._world.options.client_window]:
            if chunk in lane.in_flight:
                continue
            lane.in_flight.add(chunk)
            is_first = chunk is lane.left[0]
            data = PartitionProduceData(lane.partition, memoryview(chunk.data))
            request = ProduceRequest(
                acks=ACKS_ALL, timeout_ms=1_000, topic_data=[TopicProduceData(TOPIC, [data])]
            )

            def answered(
                response: AnyResponse, chunk: _Chunk = chunk, is_first: bool = is_first
            ) -> None:
                self._on_answer(run, lane, chunk, response, is_first=is_first)

            run.caller.call(lane.target, request, PRODUCE_VERSION, TIMEOUT_NS, answered)

    def _on_answer(
        self, run: _Run, lane: _Lane, chunk: _Chunk, response: AnyResponse, *, is_first: bool
    ) -> None:
        lane.in_flight.discard(chunk)
        truth = self._world.partition_logs
        answer = None if response is None else response.responses[0].partition_responses[0]
        if answer is None:
            lane.target = self._anybody()
            return
        code = answer.error_code
        there = code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if code == ErrorCode.NONE or (there and answer.base_offset >= 0):
            truth.acked(chunk.sent, answer.base_offset)
        elif there:
            truth.known(chunk.sent)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_first:
            raise Violation(f"lost-write: all before {chunk.sent} is there, and is missed")
        else:
            self._world.trace.note(self._world.loop.now_ns, "refused", code, chunk.sent)
            leader = answer.current_leader
            lane.target = self._anybody() if leader is None else leader.leader_id
            return
        lane.left.remove(chunk)
        self._world.statistics["chunks that were there"] += there
        self.progress += run is self._run
