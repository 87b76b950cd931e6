"""A client whose topic is deleted and created again, repeatedly, while it continues.

It is an idempotent producer that numbers its batches as if nothing had happened, a reader, and a
group that commits without members; it does one thing at a time. For every answer it knows which
topic it must be about: records and offsets of an earlier topic never come back, nothing of the new
one is refused for good, and leader epochs do not fall.

It makes progress when records are acknowledged: a producer that is put off for ever makes none.

It asks only nodes that know of the present topic, like a client that has this topic's id from the
node's metadata; and an answer counts only if the node is in the same life when it comes.
"""

from typing import Final

from paxos.ids import MS, NodeId
from simulator.checkers.groups import MEMBERLESS
from simulator.clients.kafka_client import Answered, AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.violation import Violation
from wire.apis import Request
from wire.error_codes import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.producer_ids import InitProducerIdRequest
from wire.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from wire.records.batch import NO_PRODUCER_ID, PATCHED_BYTES, Record, iterate_records, split
from wire.records.batch_writer import build_batch

NAME: Final = "reborn"
TIMEOUT_NS: Final = 1_500 * MS
TOPIC_TIMEOUT_MS: Final = 1_000
START_NS_MAX: Final = 400 * MS
THINK_NS_MAX: Final = 100 * MS
"""It asks random nodes for the coordinator, and must get somewhere once everything has healed."""
DEFAULT: Final = -1
RECORDS_MIN: Final = 3
"""A topic lives at least until this many records are acknowledged."""
DELETE_CHANCE: Final = 0.2
AGAIN_CHANCE: Final = 0.7
"""An unacknowledged record is sent again before anything else, as clients do, once the leader is
known: with seven nodes, of which three may lead, random asking got nowhere for a minute (589)."""
REFUSED: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
)


class RecreatedTopic(KafkaClient):
    """`late_ns`: how long an unanswered request may still reach a node. Requests name the topic
    only by its name, so the topic is not deleted before that."""

    def __init__(self, world: Surroundings, address: int, late_ns: int = 0) -> None:
        super().__init__(world, "reborn", address, START_NS_MAX)
        self._late_ns, self._sure_at_ns = late_ns, 0
        self._producer_id, self._epoch = NO_PRODUCER_ID, -1
        self._sequence = 0
        self._busy = False
        self._life = 0
        """Number of the topic, which its records contain; the first is 1."""
        self._topic_id: bytes | None = None
        self._ending = False
        self._gone: set[bytes] = set()
        self._records: list[bytes] = []
        """Acknowledged records of the topic."""
        self._pending: tuple[bytes, bytes] | None = None
        """The value and the batch that are not acknowledged yet."""
        self._committed = self._attempted = 0
        self._epoch_told = self._epoch_before = 0
        """The highest leader epoch of this topic, and of those before it."""
        self._leader = self._coordinator = self._anybody_heard()

    @property
    def think_ns(self) -> int:
        return min(self._world.options.client_think_ns, THINK_NS_MAX)

    def _act(self) -> None:
        if self._busy:
            return
        if self._producer_id == NO_PRODUCER_ID:
            self._init()
        elif self._topic_id is None:
            self._create()
        elif self._ending or (
            len(self._records) >= RECORDS_MIN
            and self._chance.random() < DELETE_CHANCE
            and self._world.loop.now_ns >= self._sure_at_ns
        ):
            self._delete(self._topic_id)
        elif self._pending is not None and self._chance.random() < AGAIN_CHANCE:
            self._chance.choice((self._produce, self._look))()
        else:
            self._chance.choice(
                (self._produce, self._produce, self._commit, self._offsets, self._read, self._look)
            )()

    def _knows(self, target: int) -> bool:
        known = self._world.topic_id(NodeId(target), NAME)
        return known is not None and known == self._topic_id

    # -- the topic ----------------------------------------------------------------------------

    def _init(self) -> None:
        def answered(response: AnyResponse) -> None:
            if response is not None and response.error_code == ErrorCode.NONE:
                self._producer_id, self._epoch = response.producer_id, response.producer_epoch

        self._ask(self._anybody_heard(), InitProducerIdRequest(), 4, answered)

    def _create(self) -> None:
        def answered(response: AnyResponse) -> None:
            topic = None if response is None else response.topics[0]
            if topic is None:
                return
            if topic.error_code == ErrorCode.NONE:
                self._begin(topic.topic_id)
            elif topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                self._adopt()

        request = CreateTopicsRequest([CreatableTopic(NAME, 1, DEFAULT)], TOPIC_TIMEOUT_MS)
        self._ask(self._anybody_heard(), request, 7, answered)

    def _adopt(self) -> None:
        """It exists, from an earlier attempt of ours, or a node does not know of its end yet."""

        def answered(response: AnyResponse) -> None:
            topic = None if response is None else response.topics[0]
            if topic is None or topic.error_code != ErrorCode.NONE:
                return
            if topic.topic_id in self._gone:  # or a node that did not know yet reported it
                self._topic_id, self._ending = topic.topic_id, True
            else:
                self._begin(topic.topic_id)

        request = MetadataRequest([MetadataRequestTopic(name=NAME)])
        self._ask(self._anybody_heard(), request, 12, answered)

    def _begin(self, topic_id: bytes) -> None:
        self._life += 1
        self._topic_id, self._ending = topic_id, False
        self._records, self._pending = [], None
        self._committed = self._attempted = 0
        self._epoch_before, self._epoch_told = max(self._epoch_before, self._epoch_told), 0
        self._world.statistics["topics made anew"] += self._life > 1

    def _delete(self, topic_id: bytes) -> None:
        self._ending = True

        def answered(response: AnyResponse) -> None:
            error = None if response is None else response.responses[0].error_code
            if error in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                self._gone.add(topic_id)
                self._topic_id = None

        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(None, topic_id)], timeout_ms=TOPIC_TIMEOUT_MS
        )
        self._ask(self._anybody_heard(), request, 6, answered)

    # -- records ------------------------------------------------------------------------------

    def _produce(self) -> None:
        if self._pending is None:
            value = b"%d/%d" % (self._life, len(self._records))
            data = build_batch(
                [Record(value)],
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=self._sequence,
            )
            self._sequence += 1
            self._pending = value, data
            self._world.partition_logs.elsewhere.add(data[PATCHED_BYTES:])
        value, data = self._pending
        part = TopicProduceData(NAME, [PartitionProduceData(0, memoryview(data))])
        request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[part])

        def answered(response: AnyResponse) -> None:
            answer = None if response is None else response.responses[0].partition_responses[0]
            self._leader = self._next_leader(answer)
            if answer is None:
                return
            if answer.error_code in REFUSED:
                raise Violation(f"reborn-refused: {value!r} gets {answer.error_code}")
            if answer.error_code == ErrorCode.NONE:
                if answer.base_offset != len(self._records):
                    raise Violation(f"reborn-record: {value!r} is put at {answer.base_offset}")
                self._records.append(value)
                self._pending = None
                self.progress += 1

        self._ask(self._leader, request, 10, answered, if_known=True)

    def _read(self) -> None:
        position = self._chance.randrange(len(self._records) + 1)
        wanted = FetchPartition(0, fetch_offset=position, partition_max_bytes=1_000_000)
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=NAME, partitions=[wanted])])
        least = len(self._records)

        def answered(response: AnyResponse) -> None:
            data = None if response is None else response.responses[0].partitions[0]
            self._leader = self._next_leader(data)
            if data is None or data.error_code != ErrorCode.NONE:
                return
            records = b"" if data.records is None else bytes(data.records)
            there = [one.value for b in split(memoryview(records)) for one in iterate_records(b)]
            known = [*self._records, *([self._pending[0]] if self._pending else [])]
            fresh = self._world.partition_logs.fresh
            if there != known[position : position + len(there)]:
                raise Violation(f"reborn-record: {there} are read of {known} at {position}")
            if (fresh and data.high_watermark < least) or data.high_watermark > len(known):
                raise Violation(f"reborn-record: {data.high_watermark} is the end of {known}")

        self._ask(self._leader, request, 12, answered, if_known=True)

    def _next_leader(self, answer: AnyResponse) -> int:
        if answer is not None and answer.error_code == ErrorCode.NONE:
            return self._leader
        hint = None if answer is None else answer.current_leader
        return self._anybody_heard() if hint is None else int(hint.leader_id)

    def _look(self) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=NAME)])
        target = self._anybody_heard()

        def answered(response: AnyResponse) -> None:
            topic = None if response is None else response.topics[0]
            if topic is None or topic.topic_id != self._topic_id:
                return
            one = topic.partitions[0]
            if self._pending is not None and one.leader_id >= 0:
                self._leader = one.leader_id  # as clients do after a refusal
            if one.leader_id != target or not self._world.partition_logs.fresh:
                return  # only the leader itself knows for sure
            if one.leader_epoch <= self._epoch_before:
                raise Violation(f"reborn-epoch: {one.leader_epoch} after {self._epoch_before}")
            self._epoch_told = max(self._epoch_told, one.leader_epoch)

        self._ask(target, request, 12, answered, if_known=True)

    # -- offsets ------------------------------------------------------------------------------

    def _commit(self) -> None:
        offset = len(self._records)
        self._attempted = max(self._attempted, offset)
        part = OffsetCommitRequestTopic(NAME, [OffsetCommitRequestPartition(0, offset)])

        def answered(response: AnyResponse) -> None:
            error = None if response is None else response.topics[0].partitions[0].error_code
            if error == ErrorCode.NONE:
                self._committed = max(self._committed, offset)
            else:
                self._coordinator = self._anybody_heard()
            if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise Violation("reborn-refused: a commit for a topic that is there")

        request = OffsetCommitRequest(MEMBERLESS, -1, "", topics=[part])
        self._ask(self._coordinator, request, 8, answered, if_known=True)

    def _offsets(self) -> None:
        topic = OffsetFetchRequestTopic(NAME, [0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(MEMBERLESS, topics=[topic])])
        least = self._committed

        def answered(response: AnyResponse) -> None:
            group = None if response is None else response.groups[0]
            if group is None or group.error_code != ErrorCode.NONE:
                self._coordinator = self._anybody_heard()
                return
            offset = max(0, group.topics[0].partitions[0].committed_offset)
            fresh = self._world.partition_logs.fresh
            if offset > self._attempted or (fresh and offset < least):
                raise Violation(
                    f"reborn-offset: {offset} of topic {self._life}, {least} to {self._attempted} "
                    "were committed"
                )

        self._ask(self._coordinator, request, 8, answered, if_known=True)

    # -- asking -------------------------------------------------------------------------------

    def _ask(
        self,
        target: int,
        message: Request,
        version: int,
        answered: Answered,
        *,
        if_known: bool = False,
    ) -> None:
        """One question at a time; `if_known`: only to a node that knows the present topic."""
        if if_known and not self._knows(target):
            self._leader, self._coordinator = self._anybody_heard(), self._anybody_heard()
            return
        self._busy = True
        life = self._world.nodes[NodeId(target)].life

        def done(response: AnyResponse) -> None:
            self._busy = False
            if response is None:
                self._silent.add(target)
                if isinstance(message, ProduceRequest | OffsetCommitRequest):
                    self._sure_at_ns = self._world.loop.now_ns + self._late_ns
            same = life == self._world.nodes[NodeId(target)].life
            answered(response if same or not if_known else None)

        self._caller.call(target, message, version, TIMEOUT_NS, done)
