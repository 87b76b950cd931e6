"""The usual Produce request: one batch for one partition, and not the first on its connection.

Clients repeat themselves: from one request of a connection to the next only the correlation id, the
partition's index and the records change (librdkafka sends one partition per request). The rest of a
request is remembered per connection, as bytes and decoded; a request with the same bytes need not
be decoded, and its answer is a template with four numbers filled in. That saves about half of the
time that a request of 100 B takes here.

`produce.handle` is authoritative. Everything except plain success goes there: a request that
differs in anything is handled there from the start, and so is any outcome other than "appended".
"""

import struct
from typing import Final

from balancer.registry.catalogue import INTERNAL_TOPICS
from balancer.registry.records import PartitionPlace
from broker.handlers.records.produce import ZSTD_FROM, Produce
from broker.ports import Connection, Reply
from broker.producers.batch_validation import check_on_loop, rules_of
from broker.proposals.commands import RECORDS_HEAD, RECORDS_RESULT, SMALL_BYTES, records
from broker.proposals.intake import Done, Outcome, Pending
from broker.requests.context import Broker
from broker.requests.guard import report_bug
from broker.requests.request import Request
from wire.acls import Operation, ResourceType
from wire.apis import APIS, ApiKey, encode_response
from wire.codec.primitives import FAILURES, read_uvarint
from wire.error_codes import ErrorCode
from wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from wire.records.batch import Batch, BatchError, Compression, parse_header, plain_batch
from wire.records.write_tokens import FIRST_ID

HEAD_BYTES_MAX: Final = 512
"""A longer head (client id and topic name) is not remembered."""
REMEMBERED_MAX: Final = 8
"""Per connection: it may produce to several topics in turn."""
_KEY_AND_VERSION: Final = 4
_REST: Final = 8
"""Where a request continues after its correlation id."""
_INDEX: Final = struct.Struct(">i")
_INDEX_AND_SIZE: Final = struct.Struct(">ii")
_INDEX_AND_CODED: Final = struct.Struct(">iBB")
_CODED_MAX: Final = 0x7F
"""The largest value of a varint's last byte."""
_CORRELATION: Final = struct.Struct(">i")
_APPENDED: Final = struct.Struct(">ihqq")
_APPENDED_AND_START: Final = struct.Struct(">ihqqq")
"""In an answer: index, error, base offset, log append time, and from version 5 on the log start."""
_NO_TAGS: Final = b"\0\0\0"
"""How a flexible request ends: no tags for the partition, the topic and the request."""
_MARK: Final = 0x7A7B7C7D
"""An index that no topic's name looks like: it finds the index's place in an answer."""
_START_FROM: Final = 5
"""From this version on an answer has the log start."""


class FastPath:
    """What requests of one connection have in common."""

    __slots__ = (
        "_answer_around",
        "_answer_of",
        "_tells_start",
        "acks",
        "end",
        "flexible",
        "header",
        "key",
        "name",
        "rest",
        "timeout_ms",
    )

    def __init__(self, frame: memoryview, end: int, request: Request, topic: str) -> None:
        message, self.header = request.message, request.header
        assert isinstance(message, ProduceRequest)
        self.key, self.rest, self.end = (
            bytes(frame[:_KEY_AND_VERSION]),
            bytes(frame[_REST:end]),
            end,
        )
        self.flexible = APIS[ApiKey.PRODUCE].flexible(self.header.api_version)
        self.name, self.acks, self.timeout_ms = topic, message.acks, message.timeout_ms
        self._tells_start = self.header.api_version >= _START_FROM
        self._answer_of: struct.Struct | None = None
        self._answer_around = (b"", b"", b"")

    def answer(self, correlation: int, index: int, base: int, time: int, start: int) -> bytes:
        """The answer to a batch that was appended."""
        form = self._answer_of or self._learn_answer()
        before, between, behind = self._answer_around
        if self._tells_start:
            return form.pack(before, correlation, between, index, 0, base, time, start, behind)
        return form.pack(before, correlation, between, index, 0, base, time, behind)

    def _learn_answer(self) -> struct.Struct:
        """How an answer is packed, and the constant bytes around its numbers."""
        answer = PartitionProduceResponse(_MARK, ErrorCode.NONE, -1)
        response = ProduceResponse([TopicProduceResponse(self.name, [answer])], 0, [])
        data = b"".join(encode_response(self.header, response))
        numbers = _APPENDED_AND_START if self._tells_start else _APPENDED
        at = data.index(_INDEX.pack(_MARK))
        before, between = data[: _CORRELATION.size], data[2 * _CORRELATION.size : at]
        behind = data[at + numbers.size :]
        fields = numbers.format.removeprefix(">")
        self._answer_around = before, between, behind
        form = struct.Struct(f">{len(before)}si{len(between)}s{fields}{len(behind)}s")
        self._answer_of = form
        return form

    def records_in(self, frame: memoryview) -> tuple[int, int, int] | None:
        """Partition index, and where the records begin and end; None if the rest of the request
        differs from what is remembered. The frame has at least eight bytes more than the remembered
        head."""
        stop = len(frame)
        if not self.flexible:
            index, size = _INDEX_AND_SIZE.unpack_from(frame, self.end)
            first = self.end + _INDEX_AND_SIZE.size
            return (index, first, stop) if size == stop - first else None
        index, coded, more = _INDEX_AND_CODED.unpack_from(frame, self.end)
        first = self.end + _INDEX.size + 1
        if coded > _CODED_MAX:  # 128 bytes or more
            if more > _CODED_MAX:  # 16 KiB or more
                try:
                    coded, first = read_uvarint(frame, first - 1)
                except FAILURES:
                    return None
            else:
                coded, first = coded & _CODED_MAX | more << 7, first + 1
        stop -= len(_NO_TAGS)
        if coded - 1 != stop - first or bytes(frame[stop:]) != _NO_TAGS:
            return None
        return index, first, stop


def remember(connection: Connection, request: Request, frame: memoryview) -> None:
    """Remember what a fully decoded request looked like, if it is a usual one."""
    message = request.message
    assert isinstance(message, ProduceRequest)
    if message.acks == 0 or message.transactional_id is not None or len(message.topic_data) != 1:
        return
    (topic,) = message.topic_data
    if len(topic.partition_data) != 1 or topic.name in INTERNAL_TOPICS:
        return
    data = topic.partition_data[0]
    flexible = APIS[ApiKey.PRODUCE].flexible(request.header.api_version)
    size = 0 if data.records is None else len(data.records)
    behind = len(_NO_TAGS) if flexible else 0
    length_bytes = -(-(size + 1).bit_length() // 7) if flexible else _INDEX.size
    end = len(frame) - behind - size - length_bytes - _INDEX.size
    if not size or not _REST < end <= HEAD_BYTES_MAX:
        return
    known: list[FastPath] = connection.fast_paths
    usual = FastPath(frame, end, request, topic.name)
    if any(one.rest == usual.rest and one.key == usual.key for one in known):
        return  # it was unusual in some other way
    found = usual.records_in(frame)
    if found is not None and found[0] == data.index and found[2] - found[1] == size:
        known.append(usual)
        del known[:-REMEMBERED_MAX]


def handle(broker: Broker, frame: memoryview, owned: bool, client_host: str, reply: Reply) -> bool:
    """Whether the request was like an earlier one of its connection and has been accepted; False:
    nothing has happened."""
    connection = reply.connection
    if connection.barriers is not None:
        return False
    known: list[FastPath] = connection.fast_paths
    for usual in known:
        if (
            frame[_REST : usual.end] == usual.rest
            and frame[:_KEY_AND_VERSION] == usual.key
            and len(frame) >= usual.end + _INDEX_AND_SIZE.size
        ):
            return _take(broker, usual, frame, owned, client_host, reply)
    return False


def _take(
    broker: Broker, usual: FastPath, frame: memoryview, owned: bool, client_host: str, reply: Reply
) -> bool:
    found = usual.records_in(frame)
    topic = broker.registry.topic(usual.name)
    if found is None or topic is None or topic.configs:
        return False
    authorizer = broker.authorizer
    if authorizer is not None and not authorizer.may_quickly(
        reply.connection.principal, client_host, Operation.WRITE, ResourceType.TOPIC, usual.name
    ):
        return False  # the gate says no, and why
    index, first, stop = found
    size = stop - first
    if not 0 <= index < len(topic.partitions) or size > broker.config.batch_bytes_max:
        return False
    batch = frame[first:stop]
    fields = plain_batch(batch)
    if fields is None or fields[0] >= FIRST_ID or not _is_sound(broker, usual, batch):
        return False
    producer_id, record_count = fields
    place = topic.partitions[index]
    if producer_id >= 0 and broker.unknown_producers.is_unknown(place, producer_id):
        return False  # it may be unknown, and has to be admitted first
    statistics = broker.statistics
    statistics.produce_requests += 1
    statistics.produce_batches += 1
    statistics.produce_records += record_count
    statistics.produce_bytes += size
    broker.traffic.produced(place.group, size)
    if producer_id >= 0:
        reply.produces(producer_id)
    if size > SMALL_BYTES and not owned:
        batch = memoryview(bytes(batch))
    one = _One(broker, usual, client_host, reply, index, place, producer_id)
    (one.correlation,) = _CORRELATION.unpack_from(frame, _KEY_AND_VERSION)
    one.chunks, one.size = records(place.uid, batch), RECORDS_HEAD.size + size
    try:
        if broker.groups.take(place.group, one):
            reply.hold_back(place.group)
        if not one.answered:
            broker.delayed_produces.add(one, usual.timeout_ms)
    except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
        report_bug(broker, one.request(), error)
    return True


def _is_sound(broker: Broker, usual: FastPath, data: memoryview) -> bool:
    """Whether the records are valid, as far as can be checked on the loop, and the header describes
    them truthfully."""
    batch = Batch(parse_header(data), data)
    header = batch.header
    if header.attributes == Compression.ZSTD and usual.header.api_version < ZSTD_FROM:
        return False
    try:
        latest_ms = check_on_loop(batch, rules_of({}, broker.groups.now()))
    except BatchError:
        return False
    return latest_ms == header.max_timestamp_ms


class _One(Pending):
    """One such request under way: the command itself, and the receiver of its outcome
    (broker.delayed.delayed_produces.DelayedProduce)."""

    __slots__ = (
        "_broker",
        "_fast_path",
        "_host",
        "_index",
        "_place",
        "_producer_id",
        "_reply",
        "_since",
        "_timed_boot_ns",
        "answered",
        "correlation",
    )

    ordered = True
    anywhere = False

    def __init__(
        self,
        broker: Broker,
        usual: FastPath,
        host: str,
        reply: Reply,
        index: int,
        place: PartitionPlace,
        producer_id: int,
    ) -> None:
        self._broker, self._fast_path, self._host, self._reply = broker, usual, host, reply
        self._index, self._place, self._producer_id = index, place, producer_id
        self.correlation, self.answered = 0, False
        self._since = reply.connection.refusals
        self._timed_boot_ns = broker.groups.now().boot_ns if broker.traffic.samples() else 0

    def overtakes(self) -> bool:
        return self._reply.connection.would_overtake(self._fast_path.name, self._index, self._since)

    def misses_move(self, moved_ns: int, now_ns: int) -> bool:
        connection, usual = self._reply.connection, self._fast_path
        if connection.software.moves_after_produce(usual.header.api_version):
            return False
        return connection.misses_move(usual.name, moved_ns, now_ns)

    def done(self, outcome: Outcome) -> None:
        """Our bugs must not reach the caller."""
        if self.answered:
            return
        self.answered = True
        broker = self._broker
        try:
            broker.delayed_produces.remove(self)
            if type(outcome) is Done and not outcome.at_home:
                error, base, time_ms = RECORDS_RESULT.unpack(outcome.result)
                if error == ErrorCode.NONE:
                    self._appended(base, time_ms)
                    return
            request, answer = self._in_full()
            request.done(self._fast_path.name, self._place, self._producer_id, answer, outcome)
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(broker, self.request(), error)

    def _appended(self, base_offset: int, time_ms: int) -> None:
        broker, place = self._broker, self._place
        if self._timed_boot_ns:
            broker.traffic.waited(broker.groups.now().boot_ns - self._timed_boot_ns)
        machine = broker.machines.get(place.group)
        state = None if machine is None else machine.partitions.get(place.uid)
        start = -1 if state is None else state.log_start
        answer = self._fast_path.answer(self.correlation, self._index, base_offset, time_ms, start)
        self._reply.complete([answer])

    def timed_out(self) -> None:
        """The producer waits no longer; what was proposed may still be chosen."""
        self.answered = True
        self._in_full()[0].timed_out()

    def _in_full(self) -> tuple[Produce, PartitionProduceResponse]:
        """The same request as `produce` represents it, and its partition's answer."""
        answer = PartitionProduceResponse(self._index, ErrorCode.REQUEST_TIMED_OUT, -1)
        request = Produce(self._broker, self.request(), self._fast_path.acks)
        request.answers.append(TopicProduceResponse(self._fast_path.name, [answer]))
        request.since_boot_ns = self._timed_boot_ns
        return request, answer

    def request(self) -> Request:
        return Request(
            header=self._fast_path.header._replace(correlation_id=self.correlation),
            message=None,
            frame=memoryview(b""),
            owned=True,
            client_host=self._host,
            reply=self._reply,
        )
