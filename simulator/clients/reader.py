"""A consumer without a group: it reads partitions from end to end, and looks back now and then.

It also asks for the offsets of times, and compares the answers with the chosen log.
"""

from typing import Final

from paxos.ids import MS, NodeId
from simulator.checkers.partition_logs import Log
from simulator.checkers.times import MAX_TIMESTAMP, TIMES_MS, listed
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import between
from wire.error_codes import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

FETCH_VERSION: Final = 12
TIMEOUT_NS: Final = 1_500 * MS
START_NS_MAX: Final = 200 * MS
LIST_VERSION: Final = 7
LOOK_BACK_CHANCE: Final = 0.03
LOOK_UP_CHANCE: Final = 0.15
MAX_CHANCE: Final = 0.2
CONSUMER: Final = -1


class Reader(KafkaClient):
    def __init__(self, world: Surroundings, address: int) -> None:
        super().__init__(world, "reader", address, START_NS_MAX)
        self._positions = [0] * world.options.partitions
        self._targets = [self._anybody() for _ in self._positions]
        self._waiting = False
        self._looks_up = world.options.operators > 0
        """If no client asks for anything unusual, it does not either."""

    def _act(self) -> None:
        if not self._waiting:
            self._waiting = True
            partition = self._chance.randrange(len(self._positions))
            if self._chance.random() < LOOK_BACK_CHANCE:
                self._positions[partition] = between(self._chance, 0, self._positions[partition])
            if self._looks_up and self._chance.random() < LOOK_UP_CHANCE:
                self._look_up(partition)
            else:
                self._fetch(partition)

    def _fetch(self, partition: int) -> None:
        position, target = self._positions[partition], self._targets[partition]
        floor = self._world.partition_logs.floor(partition)
        asked = FetchPartition(
            partition, fetch_offset=position, partition_max_bytes=self._chance.choice((1, 50_000))
        )
        request = FetchRequest(
            max_wait_ms=self._chance.choice((0, 100, 500)),
            min_bytes=1,
            topics=[FetchTopic(topic=TOPIC, partitions=[asked])],
        )

        def answered(response: AnyResponse) -> None:
            self._waiting = False
            self._on_answer(partition, position, floor, target, response)

        self._caller.call(target, request, FETCH_VERSION, TIMEOUT_NS, answered)

    def _on_answer(
        self, partition: int, position: int, floor: int, target: int, response: AnyResponse
    ) -> None:
        data = None if response is None else response.responses[0].partitions[0]
        if data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[partition] = self._world.partition_logs.out_of_range(
                NodeId(target), partition, position, floor
            )
            return
        if data is None or data.error_code != ErrorCode.NONE:
            leader = None if data is None else data.current_leader
            self._targets[partition] = self._anybody() if leader is None else leader.leader_id
            return
        truth = self._world.partition_logs
        self._positions[partition] = truth.fetched(NodeId(target), position, floor, data)
        self.progress += 1

    def _look_up(self, partition: int) -> None:
        """Ask for the offset of a time, or of the greatest; at times of one later than all."""
        time_ms = self._chance.randrange(TIMES_MS + 2)
        if self._chance.random() < MAX_CHANCE:
            time_ms = MAX_TIMESTAMP
        truth = self._world.partition_logs
        floor = truth.floor(partition)
        asked = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, timestamp=time_ms)])

        def answered(response: AnyResponse) -> None:
            self._waiting = False
            row = None if response is None else response.topics[0].partitions[0]
            if row is None or row.error_code != ErrorCode.NONE:
                self._targets[partition] = self._anybody()
                return
            self._world.statistics["times looked up"] += 1
            log = truth.logs.get(partition, Log(-1))
            if log.start:
                return  # it is not tracked what was deleted when
            listed(log, floor, time_ms, row, fresh=truth.fresh)
            self.progress += 1

        request = ListOffsetsRequest(CONSUMER, topics=[asked])
        self._caller.call(self._targets[partition], request, LIST_VERSION, TIMEOUT_NS, answered)
