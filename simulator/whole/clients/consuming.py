"""Consumers without a group, one of each family: who leads, where a log begins, what is in it.

They read from the beginning on; what they are given is compared with the chosen log
(`PartitionLogs.fetched`). One whose offset is gone asks for the earliest one, in its own version of
ListOffsets. One that wants a fetch session (KIP-227) asks for it in every request, as Java does
of a node that has none to give; ours have none.
"""

from typing import Final, NamedTuple

from paxos.ids import MS, NodeId
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.environment.violation import Violation
from simulator.whole.calls import StreamCalls
from simulator.whole.clients.families import FAMILIES
from simulator.whole.clients.surroundings import WholeSurroundings
from simulator.whole.clients.view import View
from wire.error_codes import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

START_NS_MAX: Final = 500 * MS
BOOTSTRAP_MAX: Final = 3
WAIT_MS: Final = (0, 100, 500)
BYTES: Final = (1, 50_000)
ALL_BYTES: Final = 1 << 20
"""Of each of several partitions: only the first one has a batch that is larger than its limit."""
BY_ID_FROM: Final = 13
"""From this version of Fetch on a topic is named by its id."""
CONSUMER, EARLIEST = -1, -2
NO_SESSION: Final = -1
"""The epoch of a request that wants none; 0 asks for a new one."""


class _Asked(NamedTuple):
    partition: int
    position: int
    floor: int


class FamilyConsumer(KafkaClient):
    def __init__(self, world: WholeSurroundings, address: int, family: str) -> None:
        super().__init__(world, "consumer", address, START_NS_MAX)
        self.world, self.name = world, f"{family} consumer {address}"
        self.family = FAMILIES[family]
        self._calls = StreamCalls(
            world.loop,
            world.lan,
            world.trace,
            address,
            keeps=self.family.keeps,
            software=self.family.software,
        )
        count = min(len(world.addresses), BOOTSTRAP_MAX)
        bootstrap = self._chance.sample(world.addresses, count)
        self.view = View(
            self._calls, world.loop, self.family, bootstrap, self._chance, lambda: None
        )
        self._calls.ended = self.view.lost
        self._positions: dict[int, int | None] = dict.fromkeys(range(world.options.partitions))
        """None: where the log begins is not known, and asked for."""
        self._asking: set[int] = set()
        """Nodes that owe an answer."""

    def _act(self) -> None:
        self.view.tick()
        led: dict[int, list[int]] = {}
        for partition in self._positions:
            node = self.view.leader(partition)
            if node is not None and node not in self._asking:
                led.setdefault(node, []).append(partition)
        for node, partitions in led.items():
            lost = [one for one in partitions if self._positions[one] is None]
            if lost:
                self._ask_where_it_begins(node, lost[0])
            else:
                some = partitions if self.family.many_partitions else partitions[:1]
                self._fetch(node, some if len(some) > 1 else [self._chance.choice(partitions)])

    def _failed(self, node: int, error: int | None) -> None:
        if error is None:
            self.view.lost(node)
        else:
            self.world.statistics[f"consumers: {ErrorCode(error).name}"] += 1
            self.view.failed(error)

    # -- fetches ------------------------------------------------------------------------------

    def _fetch(self, node: int, partitions: list[int]) -> None:
        family, truth = self.family, self.world.partition_logs
        asked = [_Asked(one, self._positions[one] or 0, truth.floor(one)) for one in partitions]
        most = self._chance.choice(BYTES)
        rows = [
            FetchPartition(
                one.partition,
                current_leader_epoch=self.view.epoch(one.partition) if family.takes_hints else -1,
                fetch_offset=one.position,
                partition_max_bytes=most if len(asked) == 1 else ALL_BYTES,
            )
            for one in asked
        ]
        topic = FetchTopic(TOPIC, partitions=rows)
        if family.fetch_version >= BY_ID_FROM:
            topic = FetchTopic(topic_id=self.view.topic_id, partitions=rows)
        request = FetchRequest(
            max_wait_ms=self._chance.choice(WAIT_MS),
            min_bytes=1,
            session_epoch=0 if family.sessions else NO_SESSION,
            topics=[topic],
        )
        self._asking.add(node)

        def answered(response: AnyResponse) -> None:
            self._asking.discard(node)
            self._fetched(node, asked, response)

        self._calls.call(node, request, family.fetch_version, family.timeout_ns, answered)

    def _fetched(self, node: int, asked: list[_Asked], response: AnyResponse) -> None:
        if response is None or response.error_code != ErrorCode.NONE:
            self._failed(node, None if response is None else response.error_code)
            return
        if response.session_id:
            raise Violation(f"sessions: node {node} gives out fetch session {response.session_id}")
        rows = {row.partition_index: row for one in response.responses for row in one.partitions}
        for one in asked:
            row = rows.get(one.partition)
            if row is None:
                raise Violation(f"answers: partition {one.partition} was asked for, not answered")
            self._take(node, one, row)

    def _take(self, node: int, asked: _Asked, row: PartitionData) -> None:
        truth, (partition, position, floor) = self.world.partition_logs, asked
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            truth.out_of_range(NodeId(node), partition, position, floor)
            self._positions[partition] = None
            self.progress += 1  # records are deleted faster than it reads them (585)
        elif row.error_code != ErrorCode.NONE:
            self._failed(node, row.error_code)
            self.view.hinted(partition, row.current_leader)
        else:
            # A partition is left for later if the disk is slow, another one has something to say, a
            # request behind this one is in a hurry, or there is no room for answers (ADR 47).
            reached = truth.fetched(NodeId(node), position, floor, row, hurried=True)
            self._positions[partition] = reached
            if reached == position < row.high_watermark:
                self.world.statistics["consumers: left for later"] += 1
            else:
                self.progress += 1

    # -- where a log begins -------------------------------------------------------------------

    def _ask_where_it_begins(self, node: int, partition: int) -> None:
        family = self.family
        topic = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, timestamp=EARLIEST)])
        self._asking.add(node)

        def answered(response: AnyResponse) -> None:
            self._asking.discard(node)
            row = None if response is None else response.topics[0].partitions[0]
            if row is None or row.error_code != ErrorCode.NONE:
                self._failed(node, None if row is None else row.error_code)
                return
            log = self.world.partition_logs.logs.get(partition)
            if row.offset > (0 if log is None else log.start):
                raise Violation(f"trim: node {node} says that {partition} begins at {row.offset}")
            self._positions[partition] = row.offset

        request = ListOffsetsRequest(CONSUMER, topics=[topic])
        self._calls.call(node, request, family.list_version, family.timeout_ns, answered)
