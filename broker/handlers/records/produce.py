"""Produce: one record batch for each partition goes into the log; the answer comes once it is
there.

Every partition is checked and submitted separately, and all are answered together. acks=1 waits for
the log like acks=all, because here nothing is "on the leader" that is not chosen. With acks=0 there
is no answer; as in Kafka an error closes the connection, which makes such a producer look for the
leader.

No answer ever says that a batch is not in the log when it may be (docs/protocol.md F2). An
unknown outcome is REQUEST_TIMED_OUT, which clients retry and count as "possibly persisted", while
NOT_LEADER_OR_FOLLOWER counts as "not persisted". A retry is recognized by its sequence.

A batch under a write token (`broker.state_machine.writer_state`) is handled the same way, forwarded
or not, with two differences: a batch that exists already is answered with
DUPLICATE_SEQUENCE_NUMBER, and acks=0 is refused, because a writer that wants every chunk exactly
once must learn the outcome.
"""

from functools import partial
from typing import Final

from balancer.registry.catalogue import INTERNAL_TOPICS
from balancer.registry.records import PartitionPlace, Topic
from broker.handlers.records.reading_aside import Aside, ReadBatch, another_codec, read_aside
from broker.handlers.records.replicas_in_sync import lacks_replicas
from broker.handlers.topics.known_names import denial
from broker.producers.batch_validation import check_on_loop, rules_of
from broker.proposals.commands import RECORDS_HEAD, RECORDS_RESULT, SMALL_BYTES, records
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome, Pending
from broker.requests.context import Broker
from broker.requests.guard import report_bug
from broker.requests.leader_hints import endpoints, other_leader
from broker.requests.request import Request
from broker.topic_configs import LOG_APPEND_TIME, TIMESTAMP_TYPE
from paxos.ids import MS
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch
from wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wire.records.batch import (
    COMPRESSION_MASK,
    TRANSACTIONAL_BIT,
    Batch,
    BatchError,
    BatchHeader,
    Compression,
    as_view,
    may_be_one,
    produced_batch,
    stamped,
    with_greatest_time,
)
from wire.records.validation import BadRecordsError
from wire.records.write_tokens import CHUNK_END, FIRST_ID, position_of

ACKS_ALL: Final = -1
ACKS: Final = (ACKS_ALL, 0, 1)
ZSTD_FROM: Final = 7
"""Version of Produce; earlier clients do not know the codec."""

_ERROR_OF: Final = {
    FailureReason.NOT_MASTER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    FailureReason.UNKNOWN: ErrorCode.REQUEST_TIMED_OUT,
    FailureReason.OVERLOADED: ErrorCode.NOT_ENOUGH_REPLICAS,  # retriable: not appended
}


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ProduceRequest)
    named = [data for topic in message.topic_data for data in topic.partition_data]
    broker.statistics.produce_requests += 1
    produce = Produce(broker, request, message.acks)
    refusal = _refusal(message)
    for topic in _each_once(message.topic_data, len(named)):
        known = broker.registry.topic(topic.name)
        answers: list[PartitionProduceResponse] = []
        produce.answers.append(TopicProduceResponse(topic.name, answers))
        for data in topic.partition_data:
            answer = PartitionProduceResponse(data.index, ErrorCode.NONE, -1)
            answers.append(answer)
            if refusal is not ErrorCode.NONE:
                answer.error_code = refusal
            elif known is None:
                produce.refuse_unknown(topic.name, answer)
            elif known.name in INTERNAL_TOPICS:  # every node reads it while applying it
                answer.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
                answer.error_message = "only the nodes write the cluster's own topics"
            else:
                produce.append(known, data, answer)
    produce.submitted(message.timeout_ms)


def _each_once(topics: list[TopicProduceData], named: int) -> list[TopicProduceData]:
    """Each partition once, in the place where it is first named. As in Kafka, whose broker keys a
    request by partition: only the last one that is a single batch is appended, and there is one
    answer. With two answers nobody could tell which was whose."""
    if named < 2:
        return topics
    chosen: dict[tuple[str, int], PartitionProduceData] = {}
    for topic in topics:
        for data in topic.partition_data:
            place = topic.name, data.index
            before = chosen.get(place)
            if before is None or may_be_one(data.records) or not may_be_one(before.records):
                chosen[place] = data
    if len(chosen) == named:
        return topics
    once: dict[str, TopicProduceData] = {}
    for (name, _), data in chosen.items():
        once.setdefault(name, TopicProduceData(name, [])).partition_data.append(data)
    return list(once.values())


def _refusal(message: ProduceRequest) -> ErrorCode:
    """Why nothing of the request is appended."""
    if message.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED  # clients give up on it immediately
    if message.acks not in ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS
    return ErrorCode.NONE


def _bytes_max(broker: Broker, topic: Topic) -> int:
    """The largest batch: the broker's limit, or the topic's own if that is lower."""
    limit = broker.config.batch_bytes_max
    if topic.configs:
        own = topic.configs.get("max.message.bytes")
        if own is not None:
            return min(limit, int(own))
    return limit


def _check_token(header: BatchHeader, acks: int) -> None:
    """
    Raises:
    BatchError: if a batch with a write token may not say this.
    """
    position = position_of(header.producer_epoch, header.base_sequence)
    if position.more and position.chunk == CHUNK_END - 1:
        raise BatchError(
            ErrorCode.INVALID_RECORD,
            f"chunk {position.chunk} of micro-batch {position.batch} is the last possible one, "
            "but it says that more follow",
        )
    if acks == 0:
        raise BatchError(
            ErrorCode.INVALID_REQUIRED_ACKS,
            "a write token needs an acknowledgement: acks=0 is not possible",
        )


def _blame(answer: PartitionProduceResponse, error: BatchError) -> None:
    answer.error_code, answer.error_message = error.code, str(error)
    if isinstance(error, BadRecordsError):  # KIP-467
        answer.record_errors = [BatchIndexAndErrorMessage(*one) for one in error.records]


class Produce:
    """One request under way. `waiting` counts its partitions and, at first, the handler itself."""

    __slots__ = (
        "acks",
        "answered",
        "answers",
        "broker",
        "hints",
        "reading",
        "request",
        "since_boot_ns",
        "waiting",
    )

    def __init__(self, broker: Broker, request: Request, acks: int) -> None:
        self.broker = broker
        self.request = request
        self.acks = acks
        self.answers: list[TopicProduceResponse] = []
        self.hints: list[LeaderIdAndEpoch] = []
        self.waiting = 1
        self.reading = 0
        """Batches being read in another thread: those behind them follow, to stay behind them."""
        self.answered = False
        self.since_boot_ns = broker.groups.now().boot_ns if broker.traffic.samples() else 0

    def append(
        self, topic: Topic, data: PartitionProduceData, answer: PartitionProduceResponse
    ) -> None:
        """Check one partition's batch and submit it."""
        if not 0 <= data.index < len(topic.partitions):
            self.refuse_unknown(topic.name, answer)
            return
        place = topic.partitions[data.index]
        broker, view, limit = self.broker, as_view(data.records), _bytes_max(self.broker, topic)
        if self.acks == ACKS_ALL and lacks_replicas(
            broker, topic, place.group, self.request.reply.connection, moves=self.moves_after
        ):
            answer.error_message = "fewer replicas are in sync than min.insync.replicas"
            self.refuse_for_now(topic.name, answer, ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        try:
            if len(view) > limit:
                raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, "the batch is too large")
            batch = produced_batch(view)
            header = batch.header
            if header.producer_id >= FIRST_ID:
                _check_token(header, self.acks)
            if (
                header.attributes & COMPRESSION_MASK == Compression.ZSTD
                and self.request.header.api_version < ZSTD_FROM
            ):
                raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd before version 7")
            if header.attributes & TRANSACTIONAL_BIT:
                answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                return
            rules = rules_of(topic.configs, broker.groups.now())
            changes = another_codec(topic.configs, header)
            latest_ms = check_on_loop(batch, rules) if changes is None else None
        except BatchError as error:
            self._refuse(place, answer, error)
            return
        if latest_ms is None or self.reading:
            self._read(topic, place, batch, Aside(rules, changes, limit), answer)
        else:
            self._submit(topic, place, batch, latest_ms, answer)

    def _refuse(
        self, place: PartitionPlace, answer: PartitionProduceResponse, error: BatchError
    ) -> None:
        _blame(answer, error)
        self.broker.sequence_gaps.refused(place.uid, self.broker.groups.now().boot_ns)

    def _read(
        self,
        topic: Topic,
        place: PartitionPlace,
        batch: Batch,
        aside: Aside,
        answer: PartitionProduceResponse,
    ) -> None:
        """Have its records read in another thread, and until then read nothing more of the
        connection: what the client sent later must not overtake it."""
        if not self.request.owned:
            batch = Batch(batch.header, memoryview(bytes(batch.data)))
        self.waiting += 1
        self.reading += 1
        answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self.request.reply.stop_reading()
        broker = self.broker
        background = broker.background
        broker.statistics.produce_read_aside += 1
        background.submit(
            partial(read_aside, batch, aside, broker),
            partial(self._was_read, topic, place, answer),
        )

    def _was_read(
        self,
        topic: Topic,
        place: PartitionPlace,
        answer: PartitionProduceResponse,
        outcome: ReadBatch | Exception,
    ) -> None:
        """Our bugs must not reach the caller."""
        try:
            self.reading -= 1
            self.request.reply.read_on()
            if self.answered:
                return  # its client has given up: do not append
            if isinstance(outcome, ReadBatch):
                self._submit(topic, place, outcome.batch, outcome.latest_ms, answer)
            elif isinstance(outcome, BatchError):
                self._refuse(place, answer, outcome)
            else:
                raise outcome
            self.waiting -= 1
            if not self.waiting:
                self.broker.delayed_produces.remove(self)
                self._answer()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self._give_up(error)

    def _submit(
        self,
        topic: Topic,
        place: PartitionPlace,
        batch: Batch,
        latest_ms: int,
        answer: PartitionProduceResponse,
    ) -> None:
        """Its records were read; `latest_ms` is the greatest of their times."""
        broker, header, size = self.broker, batch.header, len(batch.data)
        if self.request.reply.connection.is_blocked(topic.name, answer.index):
            self._overtakes(topic.name, place, answer)
            return
        statistics = broker.statistics
        statistics.produce_batches += 1
        statistics.produce_records += header.record_count
        statistics.produce_bytes += size
        broker.traffic.produced(place.group, size)
        if topic.configs and topic.configs.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME:
            view = stamped(batch, self._append_time_ms(place))
        else:
            view = with_greatest_time(batch, latest_ms)
            if view is batch.data and size > SMALL_BYTES and not self.request.owned:
                view = memoryview(bytes(view))
        self.waiting += 1
        if header.producer_id >= 0:
            self.request.reply.produces(header.producer_id)
        answer.error_code = ErrorCode.REQUEST_TIMED_OUT  # unless a better answer comes
        part = self._part(topic.name, place, header, answer)
        part.chunks, part.size = records(place.uid, view), RECORDS_HEAD.size + len(view)
        if broker.groups.take(place.group, part):
            self.request.reply.hold_back(place.group)

    def _part(
        self,
        topic: str,
        place: PartitionPlace,
        header: BatchHeader,
        answer: PartitionProduceResponse,
    ) -> "_Part":
        if (
            header.base_sequence > 0
            and 0 <= header.producer_id < FIRST_ID
            and self.broker.unknown_producers.is_unknown(place, header.producer_id)
        ):
            return _First(self, topic, place, header, answer)
        return _Part(self, topic, place, header.producer_id, answer)

    def refuse_unknown(self, topic: str, answer: PartitionProduceResponse) -> None:
        code = denial(self.broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.refuse_for_now(topic, answer, code)

    def refuse_for_now(self, topic: str, answer: PartitionProduceResponse, code: ErrorCode) -> None:
        """It is not appended, and the client will retry: nothing may overtake it."""
        answer.error_code = code
        self.request.reply.refused(topic, answer.index)

    def _overtakes(
        self, topic: str, place: PartitionPlace, answer: PartitionProduceResponse
    ) -> None:
        """An earlier batch was refused, and the client could not know that when it sent this
        one."""
        answer.error_message = "an earlier batch on this connection was refused"
        self.broker.statistics.produce_behind_refusal += 1
        if self.broker.groups.acting(place.group):
            self.refuse_for_now(topic, answer, ErrorCode.NOT_ENOUGH_REPLICAS)
        else:
            self.refuse_for_now(topic, answer, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._hint(place, answer)

    def _append_time_ms(self, place: PartitionPlace) -> int:
        """Now, but never before the partition's latest time: masters' clocks differ a little."""
        machine = self.broker.machines.get(place.group)
        state = None if machine is None else machine.partitions.get(place.uid)
        now_ms = self.broker.groups.now().wall_ns // MS
        return now_ms if state is None else max(now_ms, state.append_time_ms)

    def submitted(self, timeout_ms: int) -> None:
        """All partitions were submitted; some may be answered already."""
        self.waiting -= 1
        if self.waiting:
            self.broker.delayed_produces.add(self, timeout_ms)
        else:
            self._answer()

    def done(
        self,
        topic: str,
        place: PartitionPlace,
        producer_id: int,
        answer: PartitionProduceResponse,
        outcome: Outcome,
    ) -> None:
        """The outcome of one partition. Our bugs must not reach the caller."""
        if self.answered:
            return
        try:
            if isinstance(outcome, Done):
                self._judged(place, producer_id, answer, outcome.result)
                if outcome.at_home and self.request.reply.connection.software.beside_success:
                    self._hint(place, answer)
            else:
                self._not_done(topic, place, answer, outcome)
            self.waiting -= 1
            if not self.waiting:
                self.broker.delayed_produces.remove(self)
                self._answer()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self._give_up(error)

    def timed_out(self) -> None:
        """The producer waits no longer; what was proposed may still be chosen."""
        self.broker.statistics.produce_timeouts += 1
        try:
            for topic in self.answers:
                for answer in topic.partition_responses:
                    if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
                        self.refuse_for_now(topic.name, answer, ErrorCode.REQUEST_TIMED_OUT)
            self._answer()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self._give_up(error)

    def _judged(
        self,
        place: PartitionPlace,
        producer_id: int,
        answer: PartitionProduceResponse,
        result: bytes,
    ) -> None:
        """The log's verdict: appended, or why not."""
        answer.error_code, answer.base_offset, answer.log_append_time_ms = RECORDS_RESULT.unpack(
            result
        )
        if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._judged_too_early(place, producer_id, answer)
        machine = self.broker.machines.get(place.group)
        state = None if machine is None else machine.partitions.get(place.uid)
        if state is not None:
            answer.log_start_offset = state.log_start

    def _judged_too_early(
        self, place: PartitionPlace, producer_id: int, answer: PartitionProduceResponse
    ) -> None:
        """Its predecessor may still come, or its producer may yet be admitted: by the master only.
        Here, where the batch was forwarded from, it would be tried for as long as clients are stood
        in for (ADR 50)."""
        broker = self.broker
        if broker.sequence_gaps.may_close(producer_id, place.uid, broker.groups.now().boot_ns):
            answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS  # retriable, and not appended
        elif producer_id < FIRST_ID and broker.unknown_producers.is_unknown(place, producer_id):
            if broker.groups.acting(place.group):
                answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
            else:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self._hint(place, answer)

    def _not_done(
        self,
        topic: str,
        place: PartitionPlace,
        answer: PartitionProduceResponse,
        outcome: NotDone,
    ) -> None:
        self.refuse_for_now(topic, answer, _ERROR_OF[outcome.why])
        if outcome.why is FailureReason.NOT_MASTER:
            self._hint(place, answer)

    @property
    def moves_after(self) -> bool:
        """Whether its client acts on a leader that the answer names."""
        software = self.request.reply.connection.software
        return software.moves_after_produce(self.request.header.api_version)

    def _hint(self, place: PartitionPlace, answer: PartitionProduceResponse) -> None:
        if not self.moves_after:
            return
        answer.current_leader = other_leader(self.broker, place.group, place.uid)
        if answer.current_leader is not None:
            self.hints.append(answer.current_leader)

    def _answer(self) -> None:
        self.answered = True
        if self.since_boot_ns:
            self.broker.traffic.waited(self.broker.groups.now().boot_ns - self.since_boot_ns)
        count_error = self.broker.statistics.count_error
        failed = ErrorCode.NONE
        for topic in self.answers:
            for answer in topic.partition_responses:
                if answer.error_code != ErrorCode.NONE:
                    failed = ErrorCode(answer.error_code)
                    count_error(failed)
        reply = self.request.reply
        if self.acks != 0:
            addresses = endpoints(self.broker, reply, self.hints) if self.hints else []
            response = ProduceResponse(self.answers, 0, addresses)
            reply.complete(encode_response(self.request.header, response))
        elif failed is ErrorCode.NONE:
            reply.nothing()
        else:
            reply.close(f"a batch produced with acks=0 failed: {failed.name}")

    def _give_up(self, error: Exception) -> None:
        self.answered = True
        self.broker.delayed_produces.remove(self)
        report_bug(self.broker, self.request, error)


class _Part(Pending):
    """The batch of one partition under way."""

    __slots__ = ("_answer", "_place", "_producer_id", "_request", "_since", "_topic")

    ordered = True

    def __init__(
        self,
        request: Produce,
        topic: str,
        place: PartitionPlace,
        producer_id: int,
        answer: PartitionProduceResponse,
    ) -> None:
        self._request, self._topic, self._place = request, topic, place
        self._producer_id, self._answer = producer_id, answer
        self._since = request.request.reply.connection.refusals
        self.anywhere = request.acks == 0
        """A client without an answer never learns of another leader: forward for ever."""

    def misses_move(self, moved_ns: int, now_ns: int) -> bool:
        request = self._request
        connection = request.request.reply.connection
        return not request.moves_after and connection.misses_move(self._topic, moved_ns, now_ns)

    def overtakes(self) -> bool:
        connection = self._request.request.reply.connection
        return connection.would_overtake(self._topic, self._answer.index, self._since)

    def done(self, outcome: Outcome) -> None:
        request = self._request
        request.done(self._topic, self._place, self._producer_id, self._answer, outcome)

    def again(self) -> "_Part":
        """The same command, to be proposed again."""
        one = _Part(self._request, self._topic, self._place, self._producer_id, self._answer)
        one._since = self._since
        one.chunks, one.size = self.chunks, self.size
        return one


class _First(_Part):
    """A batch that may be its producer's first in this partition, but does not have number 0."""

    __slots__ = ("_header",)

    def __init__(
        self,
        request: Produce,
        topic: str,
        place: PartitionPlace,
        header: BatchHeader,
        answer: PartitionProduceResponse,
    ) -> None:
        super().__init__(request, topic, place, header.producer_id, answer)
        self._header = header

    def done(self, outcome: Outcome) -> None:
        broker, place = self._request.broker, self._place
        refused = (
            type(outcome) is Done
            and RECORDS_RESULT.unpack(outcome.result)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        if refused and broker.unknown_producers.may_begin(place, self._header):
            broker.groups.take(place.group, self.again())
        else:
            super().done(outcome)
