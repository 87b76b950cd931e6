"""A compacted topic, its only producer, and a reader that reads it from the beginning repeatedly.

Acknowledged records are where the answer said. A reader finds records at their offsets as they were
sent, and when it has come to the end it knows the latest record of each key. Older records may be
gone, the latest may not; and a tombstone may not go before every reader that began while it was
there has come to it. The policy of the topic changes now and then.
"""

from typing import Final

import attrs

from paxos.ids import MS
from simulator.clients.kafka_client import Answered, AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.clock import EPOCH_NS
from simulator.environment.dice import between
from simulator.environment.violation import Violation
from wire.apis import Request
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.producer_ids import InitProducerIdRequest
from wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.records.batch import NO_PRODUCER_ID, PATCHED_BYTES, Record, iterate_records, split
from wire.records.batch_writer import build_batch

NAME: Final = "keyed"
KEYS: Final = 8
RECORDS_MAX: Final = 4
TOMBSTONES: Final = 0.2
SIZES: Final = (10, 400, 3_000)
TIMEOUT_NS: Final = 1_500 * MS
START_NS_MAX: Final = 400 * MS
THINK_NS_MAX: Final = 60 * MS
DEFAULT: Final = -1
TOPIC_CONFIG, SET = 2, 0
POLICY: Final = "cleanup.policy"
POLICIES: Final = ("compact", "compact", "delete", "compact,delete")
POLICY_CHANCE: Final = 0.01
TOMBSTONE_MS: Final = 8_000
"""How long tombstones stay once the records before them are gone."""
SETTINGS: Final = (
    (POLICY, "compact"),
    ("min.cleanable.dirty.ratio", "0"),
    ("max.compaction.lag.ms", "1000"),
    ("delete.retention.ms", str(TOMBSTONE_MS)),
)


@attrs.define(eq=False)
class _Scan:
    began_ns: int
    due: int
    """Where the topic ended when the scan began."""
    position: int = 0
    records: int = 0
    latest: dict[bytes, int] = attrs.Factory(dict)
    """For each key, the offset of its last record."""


class KeyedTopic(KafkaClient):
    def __init__(self, world: Surroundings, address: int) -> None:
        super().__init__(world, "keyed", address, START_NS_MAX)
        self._producer_id, self._epoch, self._sequence = NO_PRODUCER_ID, -1, 0
        self._there = self._busy = False
        self._sent: list[Record] = []
        """Acknowledged records, by offset."""
        self._pending: tuple[list[Record], bytes] | None = None
        self._scan = _Scan(0, 0)
        self._leader = self._anybody_heard()

    @property
    def think_ns(self) -> int:
        return min(self._world.options.client_think_ns, THINK_NS_MAX)

    def _act(self) -> None:
        if self._busy:
            return
        if not self._there:
            self._create()
        elif self._producer_id == NO_PRODUCER_ID:
            self._init()
        elif self._chance.random() < POLICY_CHANCE:
            self._change_policy()
        elif self._chance.random() < 0.5:
            self._produce()
        else:
            self._read()

    def _ask(self, target: int, message: Request, version: int, answered: Answered) -> None:
        self._busy = True

        def done(response: AnyResponse) -> None:
            self._busy = False
            if response is None:
                self._silent.add(target)
                self._leader = self._anybody_heard()
            answered(response)

        self._caller.call(target, message, version, TIMEOUT_NS, done)

    # -- the topic ----------------------------------------------------------------------------

    def _create(self) -> None:
        def answered(response: AnyResponse) -> None:
            error = None if response is None else response.topics[0].error_code
            self._there = error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        configs = [CreatableTopicConfig(name, value) for name, value in SETTINGS]
        request = CreateTopicsRequest([CreatableTopic(NAME, 1, DEFAULT, configs=configs)], 1_000)
        self._ask(self._anybody_heard(), request, 7, answered)

    def _init(self) -> None:
        def answered(response: AnyResponse) -> None:
            if response is not None and response.error_code == ErrorCode.NONE:
                self._producer_id, self._epoch = response.producer_id, response.producer_epoch

        self._ask(self._anybody_heard(), InitProducerIdRequest(), 4, answered)

    def _change_policy(self) -> None:
        configs = [IncrementalAlterableConfig(POLICY, SET, self._chance.choice(POLICIES))]
        resource = IncrementalAlterConfigsResource(TOPIC_CONFIG, NAME, configs)
        request = IncrementalAlterConfigsRequest([resource])
        self._ask(self._anybody_heard(), request, 1, lambda _response: None)

    # -- records ------------------------------------------------------------------------------

    def _record(self) -> Record:
        key = b"key %d" % self._chance.randrange(KEYS)
        value = None
        if self._chance.random() >= TOMBSTONES:
            value = b"%d" % len(self._sent) + bytes(self._chance.choice(SIZES))
        now_ms = (EPOCH_NS + self._world.loop.now_ns) // MS
        return Record(value, key, now_ms)

    def _produce(self) -> None:
        if self._pending is None:
            records = [self._record() for _ in range(between(self._chance, 1, RECORDS_MAX))]
            data = build_batch(
                records,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=self._sequence,
            )
            self._sequence += len(records)
            self._pending = records, data
            self._world.partition_logs.elsewhere.add(data[PATCHED_BYTES:])
        records, data = self._pending
        part = TopicProduceData(NAME, [PartitionProduceData(0, memoryview(data))])
        request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[part])

        def answered(response: AnyResponse) -> None:
            answer = None if response is None else response.responses[0].partition_responses[0]
            if answer is None:
                return
            if answer.error_code != ErrorCode.NONE:
                self._look_elsewhere(answer)
                return
            if answer.base_offset != len(self._sent):
                raise Violation(f"keyed: at {answer.base_offset}, {len(self._sent)} are there")
            self._sent += records
            self._pending = None
            self.progress += 1

        self._ask(self._leader, request, 10, answered)

    def _look_elsewhere(self, answer: AnyResponse) -> None:
        hint = answer.current_leader
        self._leader = self._anybody_heard() if hint is None else int(hint.leader_id)

    def _read(self) -> None:
        scan, position = self._scan, self._scan.position
        floor = len(self._sent)
        wanted = FetchPartition(0, fetch_offset=position, partition_max_bytes=20_000)
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=NAME, partitions=[wanted])])

        def answered(response: AnyResponse) -> None:
            data = None if response is None else response.responses[0].partitions[0]
            if data is None:
                return
            if data.error_code != ErrorCode.NONE:
                self._look_elsewhere(data)
                return
            if self._world.fresh and data.high_watermark < floor:
                raise Violation(f"keyed: it ends at {data.high_watermark}, {floor} were there")
            records = b"" if data.records is None else bytes(data.records)
            if not records and position < data.high_watermark:
                raise Violation(f"keyed: nothing at {position} of {data.high_watermark}")
            self._take(scan, records)
            if scan.position >= scan.due:
                self._end_scan(scan)

        self._ask(self._leader, request, 12, answered)

    def _take(self, scan: _Scan, records: bytes) -> None:
        pending = [] if self._pending is None else self._pending[0]
        known = [*self._sent, *pending]
        for batch in split(memoryview(records)):
            last = batch.header.last_offset
            if last < scan.position:
                raise Violation(f"keyed: {last} comes after {scan.position}")
            for record in iterate_records(batch):
                if record.offset < scan.position:
                    continue
                sent = known[record.offset] if record.offset < len(known) else None
                if sent is None or (sent.key, sent.value) != (record.key, record.value):
                    raise Violation(f"keyed: at {record.offset} is {record}, sent was {sent}")
                assert record.key is not None
                scan.records += 1
                scan.latest[record.key] = record.offset
            scan.position = last + 1

    def _end_scan(self, scan: _Scan) -> None:
        now_ns = self._world.loop.now_ns
        self._scan = _Scan(now_ns, len(self._sent))
        self._world.statistics["compacted away"] += scan.position - scan.records
        if now_ns - scan.began_ns >= TOMBSTONE_MS * MS:
            return  # a tombstone that would have told it may have gone
        latest = {record.key: offset for offset, record in enumerate(self._sent)}
        on_its_way = set() if self._pending is None else {one.key for one in self._pending[0]}
        for offset, record in enumerate(self._sent[: scan.due]):
            key = record.key
            assert key is not None
            if latest[key] != offset or key in on_its_way:
                continue  # there is a later one, which it may or may not have seen
            seen = scan.latest.get(key)
            if seen == offset or (seen is None and record.value is None):
                continue
            raise Violation(f"keyed: {key!r} was last at {offset}, a reader found {seen}")
        self._world.statistics["compacted topic read"] += 1
