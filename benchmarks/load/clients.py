"""What confluent-kafka (librdkafka) reaches: as many messages as it can produce, or consume.

No Python function is called per message. The producer asks for delivery reports of failures only;
it counts what it has handed over less what the client still holds (`len(producer)`), so that the
bus is measured rather than the interpreter. That count is checked against the topic at the end.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from benchmarks.load import login, usage
from benchmarks.load.generator import LoadFailed
from benchmarks.load.jobs import ConsumeJob, Measured, ProduceJob, TailJob
from benchmarks.load.samples import FETCH, PRODUCE, Samples, write_samples
from cluster.workload import WorkloadError, stored

CHUNK: Final = 500
"""Messages handed over between two looks at the clock and the delivery reports."""
FLUSH_S: Final = 20.0
CONSUME_MESSAGES_MAX: Final = 10_000
"""Taken at once; fewer if the whole run is short, or the window would be a single gulp."""
CONSUME_GULPS_MIN: Final = 50
TAKE_S: Final = 0.1
TAIL_MESSAGES_MAX: Final = 500
"""Fewer at once, because a tail's window must open and close on time."""
ERRORS_KEPT: Final = 5
PRODUCER_SETTINGS: Final = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "delivery.report.only.error": True,
}
CONSUMER_SETTINGS: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 128 * 1024,
    "fetch.message.max.bytes": 1024 * 1024,
}


class LoadingProducer:
    def __init__(self, job: ProduceJob) -> None:
        self._job = job
        self.errors: list[str] = []
        self.failed = 0
        self.sent = 0
        settings: dict[str, Any] = {
            **PRODUCER_SETTINGS,
            **login.for_confluent(),
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": job.idempotent,
            "on_delivery": self._on_failure,
            "error_cb": self._on_client_error,
        }
        self._producer = Producer(settings)
        self._value = b"x" * job.message_bytes
        self.samples = None if job.samples is None else Samples()
        self._looked_ns = time.monotonic_ns()
        self._told = self._told_failed = 0

    @property
    def acknowledged(self) -> int:
        return self.sent - self.failed - len(self._producer)

    def send_chunk(self, partition: int) -> None:
        produce, topic, value = self._producer.produce, self._job.topic, self._value
        for _ in range(CHUNK):
            try:
                produce(topic, value, partition=partition)
            except BufferError:
                self._producer.poll(0.005)
                return
            self.sent += 1
        self._producer.poll(0)

    def look(self) -> None:
        """Record what has been acknowledged since the last look."""
        if self.samples is None:
            return
        now, acknowledged = time.monotonic_ns(), self.acknowledged
        if (records := acknowledged - self._told) > 0:
            size = records * self._job.message_bytes
            self.samples.add_batch(PRODUCE, self._looked_ns, now, records, size)
            self._told = acknowledged
        if (failed := self.failed - self._told_failed) > 0:
            self.samples.add_failure(PRODUCE, now, failed, self.errors[-1])
            self._told_failed = self.failed
        self._looked_ns = now

    def flush(self) -> None:
        left = self._producer.flush(FLUSH_S)
        if left:
            self.errors.append(f"{left} messages without an answer after {FLUSH_S:.0f} s")
            if self.samples is not None:
                self.samples.add_failure(PRODUCE, time.monotonic_ns(), left, self.errors[-1])
        self.look()

    def _on_failure(self, error: KafkaError | None, _message: Message) -> None:
        self.failed += 1
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(f"not delivered: {error}")

    def _on_client_error(self, error: KafkaError) -> None:
        """Lost connections are the client's own affair, unless they cost a message."""
        if error.fatal():
            self.errors.append(f"fatal: {error}")


def produce(job: ProduceJob) -> Measured:
    """Load all partitions in turn, and count what is acknowledged inside the window.

    Raises:
        LoadFailed: if the cluster fails the load.
    """
    producer = LoadingProducer(job)
    stored_before = _stored(job)
    began = time.monotonic()
    edges = [began + job.warm_up_s, began + job.warm_up_s + job.window_s]
    passed: list[tuple[usage.Snapshot, int]] = []
    for number in count():
        producer.send_chunk(number % job.partitions)
        producer.look()
        if time.monotonic() >= edges[len(passed)]:
            passed.append((usage.snapshot(job.pids), producer.acknowledged))
        if len(passed) == len(edges) or (job.messages and producer.acknowledged >= job.messages):
            break
    if not passed:
        raise LoadFailed(f"all {job.messages} messages were acknowledged before the warm-up ended")
    if len(passed) < len(edges):
        passed.append((usage.snapshot(job.pids), producer.acknowledged))
    producer.flush()
    _check_stored(job, producer, _stored(job) - stored_before)
    (begin, acknowledged_before), (end, acknowledged) = passed
    spent = usage.between(begin, end)
    messages = acknowledged - acknowledged_before
    _keep(job, producer.samples, begin, end)
    return Measured(
        seconds=spent.seconds,
        count=messages,
        bytes=messages * job.message_bytes,
        usage=spent,
        errors=tuple(producer.errors),
    )


def _keep(
    job: ProduceJob | ConsumeJob | TailJob,
    samples: Samples | None,
    begin: usage.Snapshot,
    end: usage.Snapshot,
) -> None:
    """Write the samples of a load; its window lies between the two snapshots."""
    if job.samples is not None and samples is not None:
        write_samples(
            job.samples,
            samples,
            window_ns=(begin.at_ns, end.at_ns),
            others_share=usage.between(begin, end).others_share,
        )


def _stored(job: ProduceJob) -> int:
    try:
        return stored(job.bootstrap, job.topic, job.partitions, login.for_confluent())
    except WorkloadError as error:
        raise LoadFailed(str(error)) from error


def _check_stored(job: ProduceJob, producer: LoadingProducer, now_stored: int) -> None:
    """Everything acknowledged must be stored: once with idempotence, else at least once."""
    acknowledged = producer.acknowledged
    missing = now_stored < acknowledged
    doubled = job.idempotent and not producer.failed and now_stored > acknowledged
    if missing or doubled:
        producer.errors.append(f"{acknowledged} acknowledged, but {now_stored} stored")


def consume(job: ConsumeJob) -> Measured:
    """Read from the beginning of all partitions; the window opens after a tenth of it.

    Raises:
        LoadFailed: if it does not finish in time.
    """
    with _consuming(job, OFFSET_BEGINNING) as consumer:
        return _consume(job, consumer)


def tail(job: TailJob) -> Measured:
    """Read what comes into all partitions, and count what comes inside the window.

    Raises:
        LoadFailed: if the cluster fails the load.
    """
    with _consuming(job, OFFSET_END) as consumer:
        return _tail(job, consumer)


@contextmanager
def _consuming(job: ConsumeJob | TailJob, offset: int) -> Iterator[Consumer]:
    """A consumer of all partitions from this offset on; its errors become LoadFailed."""
    settings: dict[str, Any] = {
        **CONSUMER_SETTINGS,
        **login.for_confluent(),
        "bootstrap.servers": job.bootstrap,
        "group.id": "evenkeel-benchmarks",
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(job.topic, one, offset) for one in range(job.partitions)])
        yield consumer
    except KafkaException as error:
        raise LoadFailed(f"cannot consume: {error}") from error
    finally:
        consumer.close()


def _take(consumer: Consumer, most: int) -> tuple[int, int]:
    """(messages, bytes) of what comes within a moment.

    Raises:
        KafkaException: if a partition cannot be read.
    """
    read = size = 0
    for message in consumer.consume(most, timeout=TAKE_S):
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        value = message.value()
        assert value is not None, "the producer sends no empty message"
        size += len(value)
        read += 1
    return read, size


def _tail(job: TailJob, consumer: Consumer) -> Measured:
    samples = None if job.samples is None else Samples()
    began = looked_ns = time.monotonic_ns()
    edges = [began + int(after * 1e9) for after in (job.warm_up_s, job.warm_up_s + job.window_s)]
    passed: list[tuple[usage.Snapshot, int, int]] = []
    read = size = 0
    while len(passed) < len(edges):
        taken, taken_size = _take(consumer, TAIL_MESSAGES_MAX)
        read, size, now = read + taken, size + taken_size, time.monotonic_ns()
        if samples is not None and taken:
            samples.add_batch(FETCH, looked_ns, now, taken, taken_size)
        looked_ns = now
        if now >= edges[len(passed)]:
            passed.append((usage.snapshot(job.pids), read, size))
    (begin, read_before, size_before), (end, _, _) = passed
    spent = usage.between(begin, end)
    _keep(job, samples, begin, end)
    return Measured(
        seconds=spent.seconds, count=read - read_before, bytes=size - size_before, usage=spent
    )


def _consume(job: ConsumeJob, consumer: Consumer) -> Measured:
    deadline = time.monotonic() + job.seconds_max
    gulp = min(CONSUME_MESSAGES_MAX, 1 + job.messages // CONSUME_GULPS_MIN)
    read = size = 0
    samples = None if job.samples is None else Samples()
    looked_ns = time.monotonic_ns()
    begin: usage.Snapshot | None = None
    read_before = size_before = 0
    while read < job.messages:
        if time.monotonic() > deadline:
            raise LoadFailed(f"{read} of {job.messages} messages read in {job.seconds_max:.0f} s")
        taken, taken_size = _take(consumer, gulp)
        read, size = read + taken, size + taken_size
        if samples is not None and taken:
            now = time.monotonic_ns()
            samples.add_batch(FETCH, looked_ns, now, taken, taken_size)
            looked_ns = now
        if begin is None and read >= job.messages // 10:
            begin = usage.snapshot(job.pids)
            read_before, size_before = read, size
    assert begin is not None
    end = usage.snapshot(job.pids)
    spent = usage.between(begin, end)
    _keep(job, samples, begin, end)
    return Measured(
        seconds=spent.seconds, count=read - read_before, bytes=size - size_before, usage=spent
    )
