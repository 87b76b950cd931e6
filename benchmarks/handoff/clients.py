"""The two real clients that watch a move: a producer at a steady rate, and a consumer behind it.

confluent-kafka (librdkafka) with its defaults, except for the batching delay: every message is a
request of its own, so that silence is seen to the millisecond. Both run in threads and record when
each acknowledgement and each message came; nothing is judged here.
"""

import threading
import time
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from cluster.workload import CLIENT_LOG

FLUSH_S: Final = 60.0
JOIN_S: Final = 30.0
POLL_S: Final = 0.002
READY_S: Final = 15.0
PARTITION: Final = 0
CATCH_UP_BURST_MAX: Final = 50
"""After a delay the sender sends at most this many at once, not all that it has missed."""


class Probe:
    """The producer: sends numbers 0, 1, 2..., and records when each is sent and acknowledged."""

    def __init__(self, bootstrap: str, topic: str, rate: int, *, idempotent: bool) -> None:
        self.sent_ns: list[int] = []
        self.due_ns: list[int] = []
        """By message: when it was due by the rate."""
        self.failed: list[tuple[int, int, str]] = []
        """(when, which message, why)."""
        self.acked: list[tuple[int, int]] = []
        """(when, which message), in the order in which the acknowledgements came."""
        self.errors: list[str] = []
        self._topic, self._rate = topic, rate
        self._stop = threading.Event()
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": idempotent,
            "linger.ms": 0,
            "error_cb": self._on_error,
        }
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait for every answer."""
        self._stop.set()
        self._thread.join(FLUSH_S + JOIN_S)

    def _run(self) -> None:
        producer = Producer(self._settings, logger=CLIENT_LOG)
        began = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate) - len(self.sent_ns)
            if due > CATCH_UP_BURST_MAX:
                began += (due - CATCH_UP_BURST_MAX) / self._rate
                due = CATCH_UP_BURST_MAX
            for _ in range(due):
                due_s = began + (1 + len(self.sent_ns)) / self._rate
                self._send(producer, int(due_s * 1e9))
            producer.poll(POLL_S)
        left = producer.flush(FLUSH_S)
        if left:
            self.errors.append(f"{left} messages without an answer")

    def _send(self, producer: Producer, due_ns: int) -> None:
        number = len(self.sent_ns)

        def tell(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acked.append((time.monotonic_ns(), number))
            else:
                self.errors.append(f"message {number}: {error}")
                self.failed.append((time.monotonic_ns(), number, str(error)))

        self.due_ns.append(due_ns)
        self.sent_ns.append(time.monotonic_ns())
        producer.produce(self._topic, str(number), partition=PARTITION, on_delivery=tell)

    def _on_error(self, error: KafkaError) -> None:
        """Lost connections are the client's own affair, although it reports them."""
        if error.fatal():
            self.errors.append(f"fatal: {error}")


class Follower:
    """The consumer: reads the probe's partition from the beginning."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.got: list[tuple[int, int]] = []
        """(when, which message), in the order of arrival."""
        self.errors: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "handoff",
            "enable.auto.commit": False,
            "error_cb": self._on_error,
        }
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop_after(self, number: int) -> None:
        """Read up to that message, then end; if it does not come within a while, it is lost."""
        deadline = time.monotonic() + READY_S
        while not (self.got and self.got[-1][1] >= number) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._stop.set()
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        consumer = Consumer(self._settings, logger=CLIENT_LOG)
        consumer.assign([TopicPartition(self._topic, PARTITION, OFFSET_BEGINNING)])
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error, value = message.error(), message.value()
            if error is not None:
                self.errors.append(str(error))
            elif value is not None:
                self.got.append((time.monotonic_ns(), int(value)))
        consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"fatal: {error}")
