"""confluent-kafka at a steady rate: an open loop through a real client.

A message is due by the rate, whatever happened to those before it. Its latency counts from when it
was due until the client reports it delivered, including the client's queue and batching delay. One
thread sends and sleeps until the next message is due; another waits for reports, so that none of
them is noticed late because the first thread sleeps.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.load import login, usage
from benchmarks.load.generator import LoadFailed
from benchmarks.load.histogram import Histogram
from benchmarks.load.jobs import Measured, PacedJob
from benchmarks.load.samples import PRODUCE, Samples, write_samples
from cluster.workload import CLIENT_LOG

NS: Final = 1_000_000_000
POLL_S: Final = 0.05
FULL_S: Final = 0.001
FLUSH_S: Final = 60.0
ERRORS_KEPT: Final = 5

Delivered = Callable[[int, int, int], None]
"""(when it was due, when it was sent, now)."""


class PacedProducer:
    """Sends one message after the other to the partitions in turn."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        message: bytes,
        per_second: float,
        settings: Mapping[str, Any],
        delivered: Delivered,
    ) -> None:
        self._per_second = per_second
        self._anew = False
        self.sent = 0
        self.acknowledged = 0
        self.failed = 0
        self.errors: list[str] = []
        """Why messages were not delivered: the first of them."""
        self._topic, self._partitions, self._message = topic, partitions, message
        self._delivered = delivered
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, **login.for_confluent(), **settings}, logger=CLIENT_LOG
        )
        self._sending = True

    @property
    def outstanding(self) -> int:
        """Messages handed to the client whose outcome it has not reported yet."""
        return self.sent - self.acknowledged - self.failed

    def change_rate(self, per_second: float) -> None:
        """Use another rate from now on; messages late by the old rate are not made up for."""
        self._per_second = per_second
        self._anew = True

    def run(self, goes_on: Callable[[int], bool]) -> None:
        """Send while `goes_on` returns True for the time when the next message is due; then wait
        for all.

        It is called before every message. Late messages are sent as well: what was due is never
        left out.
        """
        reports = threading.Thread(target=self._take_reports)
        reports.start()
        try:
            due = time.monotonic_ns()
            while goes_on(due):
                if self._anew:
                    self._anew, due = False, time.monotonic_ns()
                if (wait_ns := due - time.monotonic_ns()) > 0:
                    time.sleep(wait_ns / NS)
                self._send(due)
                due += round(NS / self._per_second)
        finally:
            self._sending = False
            reports.join()
        left = self._producer.flush(FLUSH_S)
        if left:
            self._not_delivered(left, f"{left} messages without an answer after {FLUSH_S:.0f} s")

    def _take_reports(self) -> None:
        while self._sending:
            self._producer.poll(POLL_S)

    def _send(self, due: int) -> None:
        now = time.monotonic_ns()

        def tell(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acknowledged += 1
                self._delivered(due, now, time.monotonic_ns())
            else:
                self._not_delivered(1, f"not delivered: {error}")

        partition = self.sent % self._partitions
        while True:
            try:
                self._producer.produce(
                    self._topic, self._message, partition=partition, on_delivery=tell
                )
            except BufferError:  # it keeps its due time
                time.sleep(FULL_S)
            else:
                self.sent += 1
                return

    def _not_delivered(self, messages: int, why: str) -> None:
        self.failed += messages
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(why)


def produce(job: PacedJob) -> Measured:
    """Warm up, measure, wait for what is outstanding.

    Raises:
        LoadFailed: if a message was not delivered.
    """
    began = time.monotonic_ns()
    from_ns = began + int(job.warm_up_s * NS)
    to_ns = from_ns + int(job.window_s * NS)
    snapshots: list[usage.Snapshot] = []
    latencies: list[int] = []
    counted = 0
    samples = None if job.samples is None else Samples()

    def delivered(due: int, sent: int, now: int) -> None:
        nonlocal counted
        counted += from_ns <= now < to_ns
        if from_ns <= due < to_ns:
            latencies.append(now - due)
        if samples is not None:
            samples.add(PRODUCE, 0, due, sent, now, job.message_bytes)

    def goes_on(due: int) -> bool:
        if due >= (from_ns, to_ns)[len(snapshots)]:
            snapshots.append(usage.snapshot(job.pids))
        return len(snapshots) < 2

    producer = PacedProducer(
        job.bootstrap,
        job.topic,
        partitions=job.partitions,
        message=b"x" * job.message_bytes,
        per_second=job.rate,
        settings={"acks": "all", "enable.idempotence": job.idempotent},
        delivered=delivered,
    )
    producer.run(goes_on)
    if producer.errors:
        raise LoadFailed("; ".join(producer.errors))
    spent = usage.between(*snapshots)
    if job.samples is not None and samples is not None:
        share = spent.others_share
        write_samples(job.samples, samples, window_ns=(from_ns, to_ns), others_share=share)
    return Measured(
        seconds=job.window_s,
        count=counted,
        bytes=counted * job.message_bytes,
        usage=spent,
        latency_ns=Histogram(latencies),
    )
