"""The producer: `send` queues a record and returns a `Delivery` to await.

    async with Producer("localhost:9092") as producer:
        delivery = await producer.send("orders", b"...", key=b"42")
        metadata = await delivery          # when the broker has acknowledged it

Records wait in one `PartitionQueue` per partition, which decides about batches, order and
sequences. One task, the sender, loops: everything due at a leader leaves in one request with a
batch for each of its partitions. One task per request handles the answer, at most
`requests_in_flight_max` for each node. Requests take their place in a connection's queue in the
sender itself, so batches of a partition cannot overtake each other.
"""

import random
import time
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple

import attrs
import trio

from evenkeel.client import BOOTSTRAP, Purpose, backoff_s, open_client, raise_for
from evenkeel.config import Acks, ClientConfig, ProducerConfig
from evenkeel.connection import Connection, Pending
from evenkeel.errors import (
    AuthenticationError,
    BufferFullError,
    ConfigurationError,
    DeliveryError,
    EvenkeelError,
    UnsupportedError,
    refusal,
)
from evenkeel.lifetime import Scoped
from evenkeel.producer.partition_queue import NEVER, Appended, Batch, PartitionQueue
from evenkeel.producer.partitioner import StickyPartitions
from wire.cluster_view import TopicPartition
from wire.error_codes import ErrorCode
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from wire.murmur import partition_of_key
from wire.records.batch import HEADER_BYTES, NO_PRODUCER_ID, Record
from wire.records.batch_writer import record_bytes_max
from wire.records.compression import compress

Headers = Sequence[tuple[str, bytes | None]]

LEADERLESS_LOOK_S: Final = 0.1
"""How often to look for the leader of a partition that has none."""
CLOSING: Final = DeliveryError("the producer was closed before the record was acknowledged")
OUT_OF_ORDER: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)
MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Refusals that say the partition is elsewhere: the batch was certainly not written."""
NOT_WRITTEN: Final = MOVED | {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CORRUPT_MESSAGE}


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 with acks NONE, or if a retry found it written before."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Delivery:
    """The fate of one record: await it, as often as you like, or never."""

    __slots__ = ("_batch", "_index", "_timestamp_ms")

    def __init__(self, batch: Batch, index: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp_ms = timestamp_ms

    @property
    def done(self) -> bool:
        return self._batch.outcome is not None

    def __await__(self) -> Generator[object, object, RecordMetadata]:
        return self._wait().__await__()

    async def _wait(self) -> RecordMetadata:
        await self._batch.done.wait()
        return self.result()

    def result(self) -> RecordMetadata:
        """The result of awaiting a delivery that is `done`.

        Raises:
            DeliveryError: if the record was not acknowledged.
        """
        outcome = self._batch.outcome
        assert outcome is not None, "not done yet: await it"
        if isinstance(outcome, DeliveryError):
            raise outcome.again() from outcome.__cause__
        offset = outcome.offset + self._index if outcome.offset >= 0 else -1
        appended_ms = outcome.log_append_time_ms
        timestamp_ms = appended_ms if appended_ms >= 0 else self._timestamp_ms
        return RecordMetadata(*self._batch.place, offset, timestamp_ms)


@attrs.frozen(kw_only=True)
class ProducerStatistics:
    """Totals since the start, except `buffered_bytes` and `records_waiting`, which are current."""

    records_sent: int
    records_acknowledged: int
    records_failed: int
    requests: int
    retries: int
    sequence_resets: int
    buffered_bytes: int
    records_waiting: int


@attrs.define
class _Counts:
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    requests: int = 0
    retries: int = 0


class Producer(Scoped["Producer"]):
    """Sends records; any number of tasks may use it at once.

    Leaving the `async with` waits until everything is acknowledged or has failed. Leaving it by an
    exception or by cancellation does not: everything in flight fails with a DeliveryError.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        config: ProducerConfig | None = None,
        *,
        client: ClientConfig | None = None,
    ) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._config = ProducerConfig() if config is None else config
        self._client_config = ClientConfig() if client is None else client
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._sticky = StickyPartitions(random.Random())
        self._counts = _Counts()
        self._buffered = 0
        self._room = trio.lowlevel.ParkingLot()
        self._wake = trio.Event()
        self._flushing = 0
        self._in_flight: dict[int, int] = {}
        """Requests in flight, by node."""
        self._connecting: set[int] = set()
        self._asking_id = False
        self._producer: tuple[int, int] | None = None
        """The newest producer id and its first epoch; each partition raises its own epoch."""
        self._dead: DeliveryError | None = None
        """Set when the cluster has refused us a producer id for good."""

    # -- for users --------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue a record; waits only until the topic is known and there is room in memory.

        Without `partition` the key decides, as in Java's producer; without a key the producer
        chooses. If this is cancelled or raises, the record was not queued.

        Raises:
            BufferFullError: if there was no room in time.
            TimedOutError, BrokerError: if the topic is not known in time, or never will be.
            DeliveryError: if the cluster does not let this producer send anything.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        headers = tuple(headers)
        size = record_bytes_max(value, key, headers)
        if size > self._config.record_bytes_max:
            raise ConfigurationError(
                f"a record of {size} bytes",
                why=f"record_bytes_max is {self._config.record_bytes_max}",
            )
        if self._dead is not None:
            raise self._dead.again()
        limit_s = self._config.send_timeout_ms / 1000
        count = len(self._client.view.partitions_of(topic))
        if not count:
            view = await self._client.topic(topic, timeout_s=limit_s)
            count = len(view.partitions)
        if self._buffered + size > self._config.buffer_bytes:
            await self._wait_for_room(size, limit_s)
        place = TopicPartition(topic, self._choose(topic, key, partition, count))
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        return self._put(place, Record(value, key, now_ms, headers), size)

    async def flush(self) -> None:
        """Wait until all records sent before are acknowledged or have failed; none lingers."""
        self._check_open()
        await self._flush()

    def statistics(self) -> ProducerStatistics:
        counts = self._counts
        batches = [one for queue in self._queues.values() for one in queue.unresolved]
        batches += [one for queue in self._queues.values() for one in queue.ready]
        return ProducerStatistics(
            records_sent=counts.sent,
            records_acknowledged=counts.acknowledged,
            records_failed=counts.failed,
            requests=counts.requests,
            retries=counts.retries,
            sequence_resets=sum(queue.resets for queue in self._queues.values()),
            buffered_bytes=self._buffered,
            records_waiting=sum(batch.writer.count for batch in batches),
        )

    # -- taking records ---------------------------------------------------------------------------

    def _choose(self, topic: str, key: bytes | None, partition: int | None, count: int) -> int:
        if partition is not None:
            if not 0 <= partition < count:
                raise ConfigurationError(f"{topic} has no partition {partition}", why=f"{count}")
            return partition
        if key is not None:
            return partition_of_key(key, count)
        return self._sticky.current(topic, count)

    async def _wait_for_room(self, size: int, limit_s: float) -> None:
        with trio.move_on_after(limit_s):
            while self._buffered + size > self._config.buffer_bytes:
                await self._room.park()
            return
        raise BufferFullError(
            "the producer's memory is full",
            why=f"{self._buffered} bytes are not acknowledged after {limit_s:g} s",
            advice="send more slowly, or raise buffer_bytes",
        )

    def _put(self, place: TopicPartition, record: Record, size: int) -> Delivery:
        queue = self._queues.get(place)
        if queue is None:
            queue = PartitionQueue(place, self._config.window, self._config.idempotent)
            self._queues[place] = queue
            if self._producer is not None:
                queue.use_producer_id(*self._producer)
        now = trio.current_time()
        batch, index, due = queue.append(
            record,
            size,
            now=now,
            deadline=now + self._config.delivery_timeout_ms / 1000,
            batch_bytes=self._config.batch_bytes,
        )
        self._buffered += size
        self._counts.sent += 1
        if due:
            self._wake.set()
            if batch.full and record.key is None:
                count = len(self._client.view.partitions_of(place.topic))
                if count:  # else the topic was deleted while we waited for room
                    self._sticky.move_on(place.topic, count)
        return Delivery(batch, index, record.timestamp_ms)

    def _settled(self, batch: Batch) -> None:
        """A batch has its outcome: free its memory and count it."""
        if batch.outcome is None or not batch.buffered:
            return
        self._buffered -= batch.buffered
        batch.buffered = 0
        if isinstance(batch.outcome, Appended):
            self._counts.acknowledged += batch.writer.count
        else:
            self._counts.failed += batch.writer.count
        batch.writer.payload = bytearray()
        self._room.unpark_all()

    # -- lifetime ---------------------------------------------------------------------------------

    def _lifetime(self) -> AbstractAsyncContextManager["Producer"]:
        return self._run()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator["Producer"]:
        opened = open_client(
            self._bootstrap,
            self._client_config,
            on_change=self._wake_up,
            on_denied=self._denied,
            auto_create=True,
        )
        try:
            async with opened as self._client:
                self._client.start(self._send_all)
                yield self
                await self._flush()
        finally:
            self._abandon(CLOSING)

    def _wake_up(self) -> None:
        self._wake.set()

    def _denied(self, error: AuthenticationError) -> None:
        """A node does not believe who we are: what waits would only wait until its deadline. What
        is sent later tries again."""
        failure = DeliveryError(error.what, why=error.why, advice=error.advice)
        failure.__cause__ = error
        self._abandon(failure)

    def _abandon(self, failure: DeliveryError) -> None:
        for queue in self._queues.values():
            for batch in queue.abandon(failure):
                self._settled(batch)

    async def _flush(self) -> None:
        waiting = [
            batch for queue in self._queues.values() for batch in (*queue.unresolved, *queue.ready)
        ]
        for batch in waiting:
            batch.full = True  # do not wait for records sent from now on
        self._flushing += 1
        self._wake.set()
        try:
            for batch in waiting:
                await batch.done.wait()
        finally:
            self._flushing -= 1

    # -- the sender -------------------------------------------------------------------------------

    async def _send_all(self) -> None:
        while True:
            self._wake = trio.Event()
            now = trio.current_time()
            linger = 0.0 if self._flushing else self._config.linger_ms / 1000
            until = self._start_requests(now, linger)
            with trio.move_on_at(until):
                await self._wake.wait()

    def _start_requests(self, now: float, linger: float) -> float:
        """Send what is due; returns when to try again unless woken before."""
        until = NEVER
        by_node: dict[int, list[PartitionQueue]] = {}
        for queue in self._queues.values():
            if queue.empty:
                continue
            if queue.deadline() <= now:
                for batch in queue.expire(now):
                    self._settled(batch)
            due_at = queue.due_at(linger)
            until = min(until, queue.deadline(), due_at if due_at > now else NEVER)
            if due_at > now:
                continue
            if queue.wants_producer_id():
                self._ask_producer_id()
            leader = self._client.view.leader(queue.place)
            if leader is None:
                self._client.follow([queue.place.topic])
                self._client.want_refresh()
                until = min(until, now + LEADERLESS_LOOK_S)
            else:
                by_node.setdefault(leader, []).append(queue)
        for node, queues in by_node.items():
            connection = self._client.ready(node, Purpose.PRODUCE)
            if connection is None:
                self._connect(node)
            else:
                until = min(until, self._send_to(node, connection, queues, now, linger))
        return until

    def _send_to(
        self,
        node: int,
        connection: Connection,
        queues: list[PartitionQueue],
        now: float,
        linger: float,
    ) -> float:
        """Send all requests due and allowed, each with at most one batch of a partition."""
        while self._in_flight.get(node, 0) < self._config.requests_in_flight_max:
            batches: list[Batch] = []
            room = self._config.request_bytes_max
            for queue in queues:
                if room < HEADER_BYTES + self._config.batch_bytes and batches:
                    break
                batch = queue.next(now, linger)
                if batch is not None:
                    batches.append(batch)
                    room -= batch.writer.size
            if not batches:
                return min(
                    (at for at in (one.due_at(linger) for one in queues) if at > now), default=NEVER
                )
            self._send_request(node, connection, batches)
            served = {batch.place for batch in batches}
            queues.sort(key=lambda queue: queue.place in served)  # the others come next
        return NEVER

    def _send_request(self, node: int, connection: Connection, batches: list[Batch]) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            self._counts.retries += batch.attempts > 1
            data = PartitionProduceData(batch.place.partition, memoryview(self._sealed(batch)))
            topics.setdefault(batch.place.topic, []).append(data)
        request = ProduceRequest(
            acks=self._config.acks.value,
            timeout_ms=self._client_config.request_timeout_ms,
            topic_data=[TopicProduceData(name, parts) for name, parts in topics.items()],
        )
        try:
            version = connection.version_for(ProduceRequest)
        except UnsupportedError as error:
            for batch in batches:
                self._refused(batch, error)
            return
        silent = self._config.acks is Acks.NONE
        pending = connection.submit(request, version, expect_answer=not silent)
        self._counts.requests += 1
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        self._client.start(lambda: self._finish(node, pending, batches))

    def _sealed(self, batch: Batch) -> bytes:
        writer, codec = batch.writer, self._config.compression
        if batch.payload is None:
            batch.payload = compress(writer.payload, codec)
        return writer.seal(
            batch.payload,
            producer_id=batch.producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            compression=codec,
        )

    def _connect(self, node: int) -> None:
        """Open a connection in the background; wakes the sender when done."""
        if node in self._connecting:
            return
        self._connecting.add(node)

        async def open_it() -> None:
            try:
                await self._client.connection(node, Purpose.PRODUCE)
            except EvenkeelError:
                self._client.want_refresh()  # another node may lead by now
            finally:
                self._connecting.discard(node)
                self._wake.set()

        self._client.start(open_it)

    # -- answers ----------------------------------------------------------------------------------

    async def _finish(self, node: int, pending: Pending, batches: list[Batch]) -> None:
        try:
            response = await pending.wait()
        except EvenkeelError:
            self._client.want_refresh()
            for batch in batches:
                self._again(batch, maybe_written=True)
        else:
            if response is None:
                for batch in batches:
                    self._queues[batch.place].acknowledged(batch, Appended(-1))
            else:
                assert isinstance(response, ProduceResponse)
                self._take_in(response, batches)
        finally:
            self._in_flight[node] -= 1
            for batch in batches:
                self._settled(batch)
            self._wake.set()

    def _take_in(self, response: ProduceResponse, batches: list[Batch]) -> None:
        answers = {
            TopicPartition(topic.name, one.index): one
            for topic in response.responses
            for one in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.place)
            if answer is None:  # the answer does not match the request: as good as none
                self._again(batch, maybe_written=True)
            else:
                self._take_one(batch, answer, response)

    def _take_one(
        self, batch: Batch, answer: PartitionProduceResponse, response: ProduceResponse
    ) -> None:
        queue, code = self._queues[batch.place], answer.error_code
        if code == ErrorCode.NONE:
            queue.acknowledged(batch, Appended(answer.base_offset, answer.log_append_time_ms))
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.acknowledged(batch, Appended(-1))
        elif code in OUT_OF_ORDER and self._config.idempotent:
            queue.out_of_order(batch, trio.current_time() + self._pause(batch))
        else:
            what = f"records for {batch.place} were refused"
            error = refusal(what, code, answer.error_message)
            if not error.retriable:
                self._refused(batch, error)
                return
            moved = self._client.view.learn(
                batch.place, answer.current_leader, response.node_endpoints
            )
            if code in MOVED and not moved:
                self._client.want_refresh()
            self._again(batch, maybe_written=code not in NOT_WRITTEN, at_once=moved)

    def _pause(self, batch: Batch) -> float:
        return backoff_s(self._client_config, batch.attempts - 1)

    def _again(self, batch: Batch, *, maybe_written: bool, at_once: bool = False) -> None:
        pause = 0.0 if at_once else self._pause(batch)
        queue = self._queues[batch.place]
        queue.again(batch, trio.current_time() + pause, maybe_written=maybe_written)

    def _refused(self, batch: Batch, error: EvenkeelError) -> None:
        failure = DeliveryError(
            error.what, why=error.why, advice=error.advice, maybe_written=batch.maybe_written
        )
        failure.__cause__ = error
        self._queues[batch.place].failed(batch, failure)
        self._settled(batch)

    # -- producer ids -----------------------------------------------------------------------------

    def _ask_producer_id(self) -> None:
        if not self._asking_id:
            self._asking_id = True
            self._client.start(self._get_producer_id)

    async def _get_producer_id(self) -> None:
        """Get an id for all partitions that need one: at the start, and when epochs are used up."""

        async def ask() -> InitProducerIdResponse:
            request = InitProducerIdRequest()
            answer = await self._client.ask(BOOTSTRAP, request, InitProducerIdResponse)
            raise_for("no producer id was given", answer.error_code)
            return answer

        try:
            answer = await self._client.until_done("no producer id was given", ask)
        except EvenkeelError as error:
            if not error.retriable and not isinstance(error, AuthenticationError):
                self._dead = DeliveryError(
                    error.what, why=error.why, advice="or set idempotent=False"
                )
                self._abandon(self._dead)
        else:
            self._producer = (answer.producer_id, answer.producer_epoch)
            for queue in self._queues.values():
                if queue.producer_id == NO_PRODUCER_ID:
                    queue.use_producer_id(*self._producer)
        finally:
            self._asking_id = False
            self._wake.set()
