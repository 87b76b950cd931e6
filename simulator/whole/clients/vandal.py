"""A client whose batches have a right checksum and cannot be read, or say what is not so.

None may be acknowledged, or come to be in the log: whoever reads that partition would stop there.
"""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

from crc32c import crc32c

from paxos.ids import MS
from simulator.checkers.partition_logs import Sent
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.environment.violation import Violation
from simulator.whole.clients.surroundings import WholeSurroundings
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records.batch import HEADER_BYTES, Compression, Record
from wire.records.batch_writer import build_batch

START_NS_MAX: Final = 1_000 * MS
TIMEOUT_NS: Final = 1_500 * MS
PRODUCE_VERSION: Final = 10
ELSEWHERE: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_LENGTH_AT, _CRC_AT, _COVERED_FROM, _LAST_DELTA_AT, _COUNT_AT = 8, 17, 21, 23, 57
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")


def _sealed(data: bytearray) -> bytes:
    """With the length and the checksum that it should have."""
    _LENGTH.pack_into(data, _LENGTH_AT, len(data) - 12)
    _CRC.pack_into(data, _CRC_AT, crc32c(bytes(data[_COVERED_FROM:])))
    return bytes(data)


def _garbage(chance: random.Random, data: bytearray) -> None:
    data[HEADER_BYTES:] = chance.randbytes(len(data) - HEADER_BYTES)


def _trailing(chance: random.Random, data: bytearray) -> None:
    data += chance.randbytes(7)


def _more_records(_chance: random.Random, data: bytearray) -> None:
    (count,) = _LENGTH.unpack_from(data, _COUNT_AT)
    _LENGTH.pack_into(data, _COUNT_AT, count + 5)
    _LENGTH.pack_into(data, _LAST_DELTA_AT, count + 4)


def _cut_short(chance: random.Random, data: bytearray) -> None:
    del data[-chance.randrange(1, 9) :]


def _undecodable(chance: random.Random, data: bytearray) -> None:
    _garbage(chance, data)
    data[22] = chance.choice((Compression.GZIP, Compression.LZ4, Compression.SNAPPY))


DEEDS: Final[Sequence[Callable[[random.Random, bytearray], None]]] = (
    _garbage,
    _trailing,
    _more_records,
    _cut_short,
    _undecodable,
)


class Vandal(KafkaClient):
    def __init__(self, world: WholeSurroundings, address: int) -> None:
        super().__init__(world, "vandal", address, START_NS_MAX)
        self.world = world
        self._batches = 0
        self._targets = {number: self._anybody() for number in range(world.options.partitions)}
        self._busy = False

    def _act(self) -> None:
        if self._busy:
            return
        self._busy = True
        partition = self._chance.choice(sorted(self._targets))
        self._batches += 1
        values = [b"%d/%d" % (self.address, self._batches), bytes(20)]
        data = bytearray(build_batch([Record(value) for value in values]))
        deed = self._chance.choice(DEEDS)
        deed(self._chance, data)
        batch = _sealed(data)
        sent = Sent(self.address, partition, self._batches, 1)
        truth = self.world.partition_logs
        truth.produced(sent, batch)
        truth.failed(sent)  # whatever the answer is
        one = PartitionProduceData(partition, memoryview(batch))
        request = ProduceRequest(None, -1, 1_000, [TopicProduceData(TOPIC, [one])])

        def answered(response: AnyResponse) -> None:
            self._busy = False
            answer = None if response is None else response.responses[0].partition_responses[0]
            if answer is not None and answer.error_code == ErrorCode.NONE:
                raise Violation(f"unreadable: it is acknowledged: {deed.__name__}")
            if answer is None or answer.error_code in ELSEWHERE:
                self._targets[partition] = self._anybody()
                return
            self.world.statistics["unreadable batches refused"] += 1
            self.progress += 1

        target = self._targets[partition]
        self._caller.call(target, request, PRODUCE_VERSION, TIMEOUT_NS, answered)
