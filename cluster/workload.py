"""The programs of a user, with an unmodified Kafka client, and a record of what they saw.

confluent-kafka (librdkafka) blocks, so each of these runs in a thread of its own and is watched
from outside through plain numbers. They write a history for `history.checker`.
"""

import logging
import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import attrs
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka import admin as kafka_admin

from cluster.recorder import Recorder
from history.record import UNKNOWN, Key, Op, Outcome, Record

CLIENT_LOG: Final = logging.getLogger("cluster.workload.client")
"""What librdkafka tells of lost connections and the like; else it would write to stderr."""
MS: Final = 1_000_000
FLUSH_S: Final = 60.0
REQUEST_S: Final = 15.0
CATCH_UP_BURST_MAX: Final = 200
"""A producer that was held up sends at most this many at once, not all it has missed."""
CONSUME_BATCH: Final = 2000
GROUP_BATCH: Final = 100
POLL_S: Final = 0.1
PADDING: Final = " "
LOAD_CHUNK: Final = 500

Tell = Callable[[KafkaError | None, Message], None]


class WorkloadError(RuntimeError):
    """The cluster did not do what the workload needs; the message says what."""


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    replication: int,
    configs: Mapping[str, str] = MappingProxyType({}),
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Create a topic and wait until it exists. `settings`: more of the client's.

    Raises:
        WorkloadError: if it is refused.
    """
    admin = kafka_admin.AdminClient({"bootstrap.servers": bootstrap, **settings}, logger=CLIENT_LOG)
    # Documented there, but not re-exported for mypy.
    new = kafka_admin.NewTopic(  # type: ignore[attr-defined]
        topic, num_partitions=partitions, replication_factor=replication, config=dict(configs)
    )
    try:
        admin.create_topics([new], request_timeout=REQUEST_S)[topic].result(REQUEST_S)
    except (KafkaException, TimeoutError) as error:
        raise WorkloadError(f"topic {topic} was not created: {error}") from error


class SteadyProducer:
    """Sends small messages at a steady rate, over the partitions in turns, acks=all, idempotent.

    Every message is a record of the history from before it is sent. An error is an unknown outcome:
    librdkafka gives up on a message without knowing whether an attempt of it has been stored.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        rate: int,
        name: str,
        pad_bytes: int = 0,
        recorder: Recorder | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        turns: Sequence[int] = (),
    ) -> None:
        """`pad_bytes` make every message so much larger; they are no part of its value. The
        client is configured as here, or as `settings` say. `turns` are the partitions that get a
        message one after the other, over and over; without it all of them."""
        self.history: list[Record] = []
        self.acknowledged = 0
        self.errors: list[str] = []
        self.acks_ns: list[list[int]] = [[] for _ in range(partitions)]
        """When each partition's acknowledgements came, ascending (monotonic nanoseconds)."""
        self._topic, self._rate, self._name = topic, rate, name
        self._turns = tuple(turns) or tuple(range(partitions))
        self._recorder = recorder
        self._padding = PADDING * pad_bytes
        self._stop = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "error_cb": self._on_client_error,
            **settings,
        }

    def run(self) -> None:
        """Send until `stop`, then wait for what is still under way; the client ends with it."""
        producer = Producer(self._settings, logger=CLIENT_LOG)
        began = time.monotonic()
        sent = 0
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate) - sent
            if due > CATCH_UP_BURST_MAX:
                began += (due - CATCH_UP_BURST_MAX) / self._rate
                due = CATCH_UP_BURST_MAX
            for _ in range(due):
                self._send(producer, sent)
                sent += 1
            producer.poll(0.002)
        left = producer.flush(FLUSH_S)
        if left:
            self.errors.append(f"{left} messages without an answer after {FLUSH_S:.0f} s")

    def stop(self) -> None:
        self._stop.set()

    def _send(self, producer: Producer, number: int) -> None:
        partition = self._turns[number % len(self._turns)]
        value = f"{self._name}-{number}"
        record = Record(Op.SEND, self._name, Key(self._topic, partition), value)
        record.outcome = Outcome.INFO
        record.began_ns = time.monotonic_ns()
        self.history.append(record)
        if self._recorder is not None:
            self._recorder.began(record)
        while True:
            try:
                producer.produce(
                    self._topic,
                    value + self._padding,
                    partition=partition,
                    on_delivery=self._on_delivery(record),
                )
            except BufferError:
                producer.poll(0.01)
            else:
                return

    def _on_delivery(self, record: Record) -> Tell:
        def tell(error: KafkaError | None, message: Message) -> None:
            record.ended_ns = time.monotonic_ns()
            if error is not None:
                self.errors.append(str(error))
            else:
                record.outcome = Outcome.OK
                record.offset = max(UNKNOWN, _offset(message))
                self.acknowledged += 1
                self.acks_ns[record.key.partition].append(record.ended_ns)
            if self._recorder is not None:
                self._recorder.ended([record])

        return tell

    def _on_client_error(self, error: KafkaError) -> None:
        """Connection losses are the client's own business; it tells us of them all the same."""
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def longest_gap_ms(self, partition: int, from_ns: int, to_ns: int) -> float:
        """The longest time between two acknowledgements of a partition that touches the interval.

        Where none came since, the time until the end of the interval counts.
        """
        return longest_gap_ns(self.acks_ns[partition], from_ns, to_ns) / MS


def longest_gap_ns(acks_ns: Sequence[int], from_ns: int, to_ns: int) -> int:
    """The longest distance of neighbours that touches from_ns..to_ns; see `longest_gap_ms`."""
    first = max(0, bisect_right(acks_ns, from_ns) - 1)
    last = min(len(acks_ns), bisect_left(acks_ns, to_ns) + 1)
    touched = acks_ns[first:last]
    if not touched:
        return to_ns - from_ns
    gaps = [later - earlier for earlier, later in pairwise(touched)]
    return max([*gaps, to_ns - touched[-1], touched[0] - from_ns if first == 0 else 0])


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


@attrs.frozen
class LoadResult:
    acknowledged_per_s: float
    acknowledged: int
    """All of them, also those before and after the time that was measured."""
    errors: int


class LoadProducer:
    """As many acknowledged messages as the cluster takes: acks=all, idempotent, large batches."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, message_bytes: int) -> None:
        self.acknowledged = 0
        self.errors = 0
        self._topic, self._partitions = topic, partitions
        self._value = b"x" * message_bytes
        self._settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "error_cb": self._on_client_error,
        }

    def measure(self, warm_up_s: float, seconds: float) -> LoadResult:
        """Acknowledgements per second, after a warm-up, during continuous sending."""
        producer = Producer(self._settings, logger=CLIENT_LOG)
        begin = time.monotonic() + warm_up_s
        counted_from, counted_at = 0, 0.0
        number = 0
        while (now := time.monotonic()) < begin + seconds:
            if not counted_at and now >= begin:
                counted_from, counted_at = self.acknowledged, now
            self._send_chunk(producer, number % self._partitions)
            number += 1
        rate = (self.acknowledged - counted_from) / (now - counted_at) if counted_at else 0.0
        self.errors += producer.flush(FLUSH_S)
        return LoadResult(rate, self.acknowledged, self.errors)

    def _send_chunk(self, producer: Producer, partition: int) -> None:
        for _ in range(LOAD_CHUNK):
            try:
                producer.produce(
                    self._topic, self._value, partition=partition, on_delivery=self._tell
                )
            except BufferError:
                producer.poll(0.01)
                return
        producer.poll(0)

    def _tell(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors += 1

    def _on_client_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors += 1


MOVING_PAUSE_S: Final = 0.1
_MOVING: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
)


def stored(
    bootstrap: str,
    topic: str,
    partitions: int,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """How many messages the topic holds, by its partitions' watermarks. `settings`: more of the
    client's.

    Raises:
        WorkloadError: if the cluster does not say.
    """
    consumer = _consumer(bootstrap, "evenkeel-count", settings)
    try:
        marks = [_watermarks(consumer, topic, partition) for partition in range(partitions)]
    except KafkaException as error:
        raise WorkloadError(f"no watermarks of {topic}: {error}") from error
    finally:
        consumer.close()
    return sum(high - low for low, high in marks)


def _watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first and the next offset. While a master moves, librdkafka gives this call up with the
    retriable error that it would ride out in any other, so it is asked again for a while.

    Raises:
        KafkaException: an error that is not retriable, or for too long.
        WorkloadError: no answer in time.
    """
    deadline = time.monotonic() + REQUEST_S
    while True:
        place = TopicPartition(topic, partition)
        try:
            marks: tuple[int, int] | None = consumer.get_watermark_offsets(place, timeout=REQUEST_S)
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                raise
            time.sleep(MOVING_PAUSE_S)
            continue
        if marks is None:
            raise WorkloadError(f"no watermarks of {topic}-{partition} within {REQUEST_S:.0f} s")
        return marks


def read_everything(
    bootstrap: str, topic: str, *, partitions: int, name: str, seconds_max: float
) -> list[Record]:
    """A fresh consumer that reads each partition from the beginning to its end: its history.

    The end is asked for first, so everything that was acknowledged before this call is below it.

    Raises:
        WorkloadError: if it does not get there in time.
    """
    began_ns = time.monotonic_ns()
    consumer = _consumer(bootstrap, name)
    history: list[Record] = []
    try:
        ends = {}
        for partition in range(partitions):
            marks, ends[partition] = _read_ends(consumer, topic, partition, name)
            history += [*marks, Record(Op.ASSIGN, name, Key(topic, partition), offset=0)]
        places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends]
        consumer.assign(places)
        _read_to(consumer, topic, ends, name, history, time.monotonic() + seconds_max)
    except KafkaException as error:
        raise WorkloadError(f"{name} cannot read {topic}: {error}") from error
    finally:
        consumer.close()
    positions = _positions(history)
    for partition in ends:
        key = Key(topic, partition)
        drained = Record(Op.DRAINED, name, key, offset=positions.get(key, 0), began_ns=began_ns)
        history.append(drained)
    return history


def _read_ends(
    consumer: Consumer, topic: str, partition: int, name: str
) -> tuple[list[Record], int]:
    """What a reader learned about both ends of a partition, and the latter of them."""
    began_ns = time.monotonic_ns()
    marks = _watermarks(consumer, topic, partition)
    ended_ns = time.monotonic_ns()
    key = Key(topic, partition)
    records = [
        Record(op, name, key, None, offset, Outcome.OK, began_ns, ended_ns)
        for op, offset in zip((Op.EARLIEST, Op.LATEST), marks, strict=True)
    ]
    return records, marks[1]


def _read_to(
    consumer: Consumer,
    topic: str,
    ends: Mapping[int, int],
    name: str,
    history: list[Record],
    deadline: float,
) -> None:
    missing = {partition for partition, end in ends.items() if end > 0}
    while missing:
        if time.monotonic() > deadline:
            raise WorkloadError(
                f"{name} did not reach the end of {topic} in time; missing {sorted(missing)}"
            )
        for record in _poll(consumer, CONSUME_BATCH, name):
            history.append(record)
            if record.offset >= ends[record.key.partition] - 1:
                missing.discard(record.key.partition)


def read_as_group(
    bootstrap: str, topic: str, *, group: str, count: int, seconds_max: float
) -> list[Record]:
    """A member of a consumer group that subscribes, reads `count` messages and commits.

    Raises:
        WorkloadError: if it does not get them in time.
    """
    consumer = _consumer(bootstrap, group)
    history: list[Record] = []
    deadline = time.monotonic() + seconds_max
    try:
        consumer.subscribe([topic])
        while len(history) < count:
            if time.monotonic() > deadline:
                got = f"got {len(history)} of {count} messages in time"
                raise WorkloadError(f"consumer group {group} {got}")
            history += _poll(consumer, GROUP_BATCH, group)
        commits = _commit(consumer, topic, group)
    except KafkaException as error:
        raise WorkloadError(f"consumer group {group} cannot read {topic}: {error}") from error
    finally:
        consumer.close()
    keys = sorted({one.key for one in history})
    return [*(Record(Op.SUBSCRIBE, group, key) for key in keys), *history, *commits]


def _commit(consumer: Consumer, topic: str, group: str) -> list[Record]:
    """Commit where the member is."""
    began_ns = time.monotonic_ns()
    places: list[TopicPartition] = consumer.commit(asynchronous=False)  # documented to return it
    ended_ns = time.monotonic_ns()
    done = [(place.partition, place.offset) for place in places if place.offset >= 0]
    return [
        Record(
            Op.COMMIT, group, Key(topic, partition), group, offset, Outcome.OK, began_ns, ended_ns
        )
        for partition, offset in done
    ]


def committed(bootstrap: str, topic: str, *, partitions: int, group: str) -> list[Record]:
    """What the cluster says a consumer group has committed.

    Raises:
        WorkloadError: if it does not say.
    """
    consumer = _consumer(bootstrap, group)
    began_ns = time.monotonic_ns()
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        places = consumer.committed(wanted, timeout=REQUEST_S)
    except KafkaException as error:
        raise WorkloadError(f"no committed offsets of consumer group {group}: {error}") from error
    finally:
        consumer.close()
    ended_ns = time.monotonic_ns()
    return [
        Record(
            Op.COMMITTED,
            group,
            Key(topic, place.partition),
            group,
            max(UNKNOWN, place.offset),
            Outcome.OK,
            began_ns,
            ended_ns,
        )
        for place in places
    ]


def _consumer(
    bootstrap: str, group: str, more: Mapping[str, Any] = MappingProxyType({})
) -> Consumer:
    settings: dict[str, Any] = {
        **more,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return Consumer(settings, logger=CLIENT_LOG)


def _poll(consumer: Consumer, most: int, name: str) -> list[Record]:
    """One poll: what it brought, all with the same times."""
    began_ns = time.monotonic_ns()
    messages = consumer.consume(most, timeout=POLL_S)
    ended_ns = time.monotonic_ns()
    return [_polled(one, name, began_ns, ended_ns) for one in messages]


def _polled(message: Message, name: str, began_ns: int, ended_ns: int) -> Record:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    value, topic, partition = message.value(), message.topic(), message.partition()
    assert value is not None, "this workload sends no empty message"
    assert topic is not None
    assert partition is not None
    key, offset = Key(topic, partition), _offset(message)
    return Record(
        Op.POLL, name, key, value.decode().rstrip(PADDING), offset, Outcome.OK, began_ns, ended_ns
    )


def _positions(history: Sequence[Record]) -> dict[Key, int]:
    positions: dict[Key, int] = defaultdict(int)
    for record in history:
        if record.op == Op.POLL:
            positions[record.key] = max(positions[record.key], record.offset + 1)
    return positions
