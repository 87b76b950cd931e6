"""A client that produces under the ids of others, with numbers that cannot be.

Who knows an id and its next number is that producer, as far as anybody can tell; so what it says
is wrong in the numbers: sequences far ahead, epochs that are over. None of it may be acknowledged,
or come to be in the log.
"""

from typing import Final

from paxos.ids import MS
from simulator.checkers.partition_logs import Sent
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.environment.violation import Violation
from simulator.whole.clients.surroundings import WholeSurroundings
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

START_NS_MAX: Final = 1_000 * MS
TIMEOUT_NS: Final = 1_500 * MS
PRODUCE_VERSION: Final = 10
GAP: Final = 1_000
"""Nobody has so much under way."""
ELSEWHERE: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Liar(KafkaClient):
    def __init__(self, world: WholeSurroundings, address: int) -> None:
        super().__init__(world, "liar", address, START_NS_MAX)
        self.world = world
        self._lies = 0
        self._targets = {number: self._anybody() for number in range(world.options.partitions)}
        self._busy = False

    def _act(self) -> None:
        if self._busy:
            return
        if not self.world.proofs:  # no producer of this world has an id
            self.progress += 1
            return
        partition = self._chance.choice(sorted(self.world.proofs))
        producer_id, epoch, sequence = self.world.proofs[partition]
        if epoch and self._chance.random() < 0.3:
            epoch -= 1
        sequence += GAP + self._chance.randrange(GAP)
        self._lies += 1
        sent = Sent(self.address, partition, self._lies, 1)
        data = build_batch(
            [Record(b"a lie: %d" % self._lies)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        truth = self.world.partition_logs
        truth.produced(sent, data)
        truth.failed(sent)  # whatever the answer is
        one = PartitionProduceData(partition, memoryview(data))
        request = ProduceRequest(None, -1, 1_000, [TopicProduceData(TOPIC, [one])])
        self._busy = True

        def answered(response: AnyResponse) -> None:
            self._busy = False
            answer = None if response is None else response.responses[0].partition_responses[0]
            if answer is not None and answer.error_code == ErrorCode.NONE:
                raise Violation(f"owner: a batch out of all order is acknowledged: {sent}")
            if answer is None or answer.error_code in ELSEWHERE:
                self._targets[partition] = self._anybody()
                return
            self.world.statistics["lies refused"] += 1
            self.progress += 1

        target = self._targets[partition]
        self._caller.call(target, request, PRODUCE_VERSION, TIMEOUT_NS, answered)
