"""An idempotent producer: batches in flight, sent again until acknowledged, new epochs (KIP-360).

Each partition has a lane of its own. Batches go out in order, and unacknowledged ones go out again
in order. Now and then a lane is given up, as by a client's delivery timeout: then the fate of its
batches is unknown, and the producer continues under the next epoch, or a new id. Now and then it
lies when it asks for an id: it names one that is another's.
"""

from collections import deque
from typing import Final

import attrs

from paxos.ids import MS
from simulator.checkers.partition_logs import Sent
from simulator.checkers.times import time_of
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import between
from simulator.environment.violation import Violation
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.producer_ids import InitProducerIdRequest
from wire.records.batch import NO_PRODUCER_ID, Record
from wire.records.batch_writer import build_batch

PRODUCE_VERSION: Final = 10
INIT_VERSION: Final = 4
ACKS_ALL: Final = -1
TIMEOUT_NS: Final = 1_500 * MS
START_NS_MAX: Final = 200 * MS
PATIENCE_NS: Final = 4_000 * MS
"""An older batch may be given up."""
GIVE_UP_CHANCE: Final = 0.05
BUMP_CHANCE: Final = 0.8
"""Chance, after giving up, to continue with the next epoch without asking, as in Java."""
ANOTHER: Final = 1_000_000
"""Added to a producer's name when it begins again: no address is as large."""
BELIEVE_CHANCE: Final = 0.2
"""Chance to believe a definite refusal of a batch that was sent once, and is the latest."""
RECORDS_MAX: Final = 3
PAD_CHANCE: Final = 0.03
PAD: Final = bytes(9_000)
"""Makes a batch larger than what is joined into one buffer."""


@attrs.define(eq=False)
class _Batch:
    sent: Sent
    epoch: int
    data: bytes
    since_ns: int
    in_flight: bool = False
    attempts: int = 0


@attrs.define(eq=False)
class _Lane:
    partition: int
    target: int
    next_number: int = 1
    next_sequence: int = 0
    window: deque[_Batch] = attrs.Factory(deque)


class Producer(KafkaClient):
    """`timeout_ns`: how long it waits for the outcome of a batch."""

    def __init__(self, world: Surroundings, address: int, *, timeout_ns: int = TIMEOUT_NS) -> None:
        super().__init__(world, "producer", address, START_NS_MAX)
        self._lanes = [_Lane(p, self._anybody()) for p in range(world.options.partitions)]
        self._who = address
        """Changes when it begins again under another id, as a restarted application does."""
        self._timeout_ns = timeout_ns
        self._producer_id, self._epoch = NO_PRODUCER_ID, -1
        self._asking = self._ready = False

    def _act(self) -> None:
        if not self._ready:
            self._ask_for_epoch()
            return
        for lane in self._lanes:
            if len(lane.window) < self._world.options.client_window:
                self._make_batch(lane)
            self._send(lane)
        if self._chance.random() < GIVE_UP_CHANCE:
            self._give_up()

    # -- ids and epochs -----------------------------------------------------------------------

    def _ask_for_epoch(self) -> None:
        if not self._asking:
            self._asking = True
            named = self._chance.choice([(NO_PRODUCER_ID, -1), *self._world.producer_ids])
            request = InitProducerIdRequest(producer_id=named[0], producer_epoch=named[1])
            target = self._anybody()
            self._caller.call(target, request, INIT_VERSION, TIMEOUT_NS, self._on_epoch)

    def _on_epoch(self, response: AnyResponse) -> None:
        self._asking = False
        if response is not None and response.error_code == ErrorCode.NONE:
            self._use(response.producer_id, response.producer_epoch)

    def _use(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._world.producer_ids.append((producer_id, epoch))
        self._ready = True
        for lane in self._lanes:
            lane.next_sequence = 0

    def _give_up(self) -> None:
        """If a batch has waited too long: forget what is in flight, and take the next epoch."""
        now_ns, truth = self._world.loop.now_ns, self._world.partition_logs
        oldest = min(
            (lane.window[0].since_ns for lane in self._lanes if lane.window), default=now_ns
        )
        if now_ns - oldest < PATIENCE_NS:
            return
        self._world.statistics["epoch bumps"] += 1
        self._ready = False
        for lane in self._lanes:
            for batch in lane.window:
                truth.gave_up(batch.sent)
            lane.window.clear()
        if self._chance.random() < BUMP_CHANCE:
            self._use(self._producer_id, self._epoch + 1)
        else:
            self._who += ANOTHER
            for lane in self._lanes:
                lane.next_number = 1

    # -- batches ------------------------------------------------------------------------------

    def _make_batch(self, lane: _Lane) -> None:
        records = between(self._chance, 1, RECORDS_MAX)
        sent = Sent(self._who, lane.partition, lane.next_number, records)
        pad = PAD if self._chance.random() < PAD_CHANCE else b""
        data = build_batch(
            [
                Record(
                    b"%d/%d/%d" % (self._who, lane.partition, number) + pad,
                    timestamp_ms=time_of(number),
                )
                for number in range(sent.first, sent.first + records)
            ],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=lane.next_sequence,
        )
        lane.next_number += records
        lane.next_sequence += records
        lane.window.append(_Batch(sent, self._epoch, data, self._world.loop.now_ns))
        self._world.partition_logs.produced(sent, data)

    def _send(self, lane: _Lane) -> None:
        """Send all that is not in flight, in order: a client must never cause a gap."""
        for batch in lane.window:
            if not batch.in_flight:
                batch.in_flight = True
                batch.attempts += 1
                is_first = batch is lane.window[0]
                data = PartitionProduceData(lane.partition, memoryview(batch.data))
                request = ProduceRequest(
                    acks=ACKS_ALL, timeout_ms=1_000, topic_data=[TopicProduceData(TOPIC, [data])]
                )

                def answered(
                    response: AnyResponse, batch: _Batch = batch, is_first: bool = is_first
                ) -> None:
                    self._on_answer(lane, batch, response, is_first=is_first)

                self._caller.call(lane.target, request, PRODUCE_VERSION, self._timeout_ns, answered)

    def _on_answer(
        self, lane: _Lane, batch: _Batch, response: AnyResponse, *, is_first: bool
    ) -> None:
        batch.in_flight = False
        answer = None if response is None else response.responses[0].partition_responses[0]
        if answer is None:
            lane.target = self._anybody()
        elif answer.error_code == ErrorCode.NONE:
            self._world.partition_logs.acked(batch.sent, answer.base_offset)
            self._done(lane, batch)
        elif answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._world.partition_logs.known(batch.sent)
            self._done(lane, batch)
        elif batch not in lane.window:
            pass  # given up: any answer is right
        elif answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_first:
            raise Violation(f"lost-write: all before {batch.sent} was acknowledged, and is missed")
        elif answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            raise Violation(f"fenced: {batch.sent} was sent in the latest epoch")
        else:
            self._world.trace.note(
                self._world.loop.now_ns, "refused", answer.error_code, batch.sent
            )
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._refused(lane, batch)
            leader = answer.current_leader
            lane.target = self._anybody() if leader is None else leader.leader_id

    def _refused(self, lane: _Lane, batch: _Batch) -> None:
        """Now and then believe that a batch is not in the log, and use its number again."""
        is_last = batch is lane.window[-1]
        if batch.attempts == 1 and is_last and self._chance.random() < BELIEVE_CHANCE:
            self._world.partition_logs.failed(batch.sent)
            lane.window.pop()
            lane.next_sequence -= batch.sent.records

    def _done(self, lane: _Lane, batch: _Batch) -> None:
        if batch in lane.window:
            lane.window.remove(batch)
            self.progress += 1
