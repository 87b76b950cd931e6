"""A consumer without a group: it reads partitions from end to end, and looks back now and then."""

from typing import TYPE_CHECKING, Final

from paxos.ids import MS, NodeId
from simulator.dice import between
from simulator.kafka import TOPIC, AnyResponse, KafkaClient
from wire.error_codes import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from simulator.world import World

FETCH_VERSION: Final = 12
TIMEOUT_NS: Final = 1_500 * MS
START_NS_MAX: Final = 200 * MS
LOOK_BACK_CHANCE: Final = 0.03


class Reader(KafkaClient):
    def __init__(self, world: "World", address: int) -> None:
        super().__init__(world, "reader", address, START_NS_MAX)
        self._positions = [0] * world.options.partitions
        self._targets = [self._anybody() for _ in self._positions]
        self._waiting = False

    def _act(self) -> None:
        if not self._waiting:
            self._waiting = True
            partition = self._chance.randrange(len(self._positions))
            if self._chance.random() < LOOK_BACK_CHANCE:
                self._positions[partition] = between(self._chance, 0, self._positions[partition])
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
        if data is None or data.error_code != ErrorCode.NONE:
            leader = None if data is None else data.current_leader
            self._targets[partition] = self._anybody() if leader is None else leader.leader_id
            return
        truth = self._world.partition_logs
        self._positions[partition] = truth.fetched(NodeId(target), position, floor, data)
        self.progress += 1
