"""An operator of the common topic: changes its retention, deletes its records."""

from typing import Final

from paxos.ids import MS
from simulator.clients.kafka_client import TOPIC, Answered, AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import between
from wire.apis import Request
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from wire.messages.logs import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

START_NS_MAX: Final = 8_000 * MS
THINK_NS: Final = 600 * MS
TIMEOUT_NS: Final = 2_000 * MS
TOPIC_CONFIG: Final = 2
SET: Final = 0
EVERYWHERE: Final = -1
"""No partition: of all nodes each can configure the topic."""
RETENTION_BYTES: Final = "retention.bytes"
SIZES: Final = (-1, 30_000, 80_000, 200_000)
"""What is kept of a partition; -1: all."""
SHARES: Final = 6
"""At most one part in this many goes at a time: the rest is for retention."""


class Trimmer(KafkaClient):
    def __init__(self, world: Surroundings, address: int) -> None:
        super().__init__(world, "trimmer", address, START_NS_MAX)
        self._busy = False
        self._targets: dict[int, int] = {}
        """Of each partition, who is asked to delete records of it, and who to configure the topic:
        the last one that did."""

    @property
    def think_ns(self) -> int:
        return THINK_NS

    def _act(self) -> None:
        if not self._busy:
            self._chance.choice((self._configure, self._delete_records))()

    def _configure(self) -> None:
        size = self._chance.choice(SIZES)
        if size >= 0:
            self._world.partition_logs.trims.keep(size)
        configs = [IncrementalAlterableConfig(RETENTION_BYTES, SET, str(size))]
        resource = IncrementalAlterConfigsResource(TOPIC_CONFIG, TOPIC, configs)
        request = IncrementalAlterConfigsRequest([resource])

        def answered(response: AnyResponse) -> None:
            error = None if response is None else response.responses[0].error_code
            self._done(EVERYWHERE, error)

        self._ask(EVERYWHERE, request, 1, answered)

    def _delete_records(self) -> None:
        partition = self._chance.randrange(self._world.options.partitions)
        logs = self._world.partition_logs
        start = logs.logs[partition].start if partition in logs.logs else 0
        before = between(self._chance, 0, start + (logs.floor(partition) - start) // SHARES)
        logs.trims.ask(partition, before)
        topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(partition, before)])
        request = DeleteRecordsRequest([topic], TIMEOUT_NS // MS)

        def answered(response: AnyResponse) -> None:
            row = None if response is None else response.topics[0].partitions[0]
            if row is not None and row.error_code == ErrorCode.NONE:
                logs.told_start(partition, before, row.low_watermark)
            self._done(partition, None if row is None else row.error_code)

        self._ask(partition, request, 2, answered)

    def _ask(self, partition: int, request: Request, version: int, answered: Answered) -> None:
        self._busy = True
        target = self._targets.get(partition) or self._anybody()
        self._targets[partition] = target
        self._caller.call(target, request, version, TIMEOUT_NS, answered)

    def _done(self, partition: int, error: int | None) -> None:
        self._busy = False
        if error == ErrorCode.NONE:
            self.progress += 1
        else:
            self._targets.pop(partition, None)
