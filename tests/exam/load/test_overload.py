"""Exam rows O1, O5 and O6, as far as one node shows them: more load than it can carry, topics and
members that come and go, and many who watch it. Beside each a quiet client sees no error, and in
the full dose a bounded p99."""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from tests.cluster.scenery import FULL
from tests.exam.load.flooded_node import (
    GIVE_UP_S,
    TOPIC,
    USUAL,
    Caller,
    Flooded,
    Quiet,
    compare,
    flooded,
)
from tests.runtime.test_node import Place
from wire.error_codes import ErrorCode
from wire.messages import topics
from wire.messages.assigned_groups import ConsumerGroupHeartbeatRequest

pytestmark = pytest.mark.cluster

LASTS_S: Final = 180.0 if FULL else 1.0
PRODUCERS: Final = 8
MEMBERS: Final = 500 if FULL else 30
CHURN: Final = "churn-{}"
SHORT_LINE: Final = {"queue.buffering.max.messages": 20_000, "linger.ms": 5}
GAP_S_MAX: Final = 0.05 + 0.02
"""The loop's lag, and the tick that notices it."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Shouting:
    """librdkafka producers that wait for nothing: a message that does not fit their queue is
    dropped. They end with the body, also with one that fails: the next test's node may get this
    port, and they would go on there."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.acknowledged = 0
        self.offered = 0
        self.errors: list[str] = []
        self._lock = threading.Lock()

    def __enter__(self) -> "Shouting":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, count: int) -> None:
        for _ in range(count):
            self._threads.append(threading.Thread(target=self._run, daemon=True))
            self._threads[-1].start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(GIVE_UP_S)
            assert not thread.is_alive()

    def rate(self, seconds: float) -> float:
        began, before = time.monotonic(), self.acknowledged
        self._stop.wait(seconds)
        return (self.acknowledged - before) / (time.monotonic() - began)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{self._port}", **SHORT_LINE})

        def told(error: object, _message: object) -> None:
            with self._lock:
                self.acknowledged += error is None
                if error is not None:
                    self.errors.append(str(error))

        while not self._stop.is_set():
            try:
                for _ in range(1_000):
                    self.offered += 1
                    producer.produce(TOPIC, bytes(1024), on_delivery=told)
            except BufferError:
                pass
            producer.poll(0.01)
        producer.flush(GIVE_UP_S)


def masters(node: Flooded) -> dict[int, Any]:
    """For each group, the ballot under which the node acts."""
    _, text = node.place.get("/status")
    return {one["group"]: (one["acting"], one["ballot"]) for one in json.loads(text)["groups"]}


def test_O1_more_than_it_can_do(place: Place) -> None:
    """Eight producers offer all they can. The node keeps its masters and its memory bounds, no
    message fails, and the full dose requires four fifths of what one producer alone reaches."""
    with (
        flooded(place) as node,
        Quiet(node.port) as quiet,
        Shouting(node.port) as crowd,
    ):
        usual, burned = quiet.until(USUAL), quiet.beside_burners(USUAL)
        before = masters(node)
        crowd.begin(1)
        alone = crowd.rate(LASTS_S / 6 + 1)
        crowd.begin(PRODUCERS - 1)
        together = crowd.rate(LASTS_S)
        compare("O1 saturation", usual, burned, quiet.until(USUAL))
        crowd.end()
        sys.stderr.write(
            f"O1: {alone:.0f} a second of one, {together:.0f} of eight, "
            f"{crowd.acknowledged} of {crowd.offered} offered\n"
        )
        assert crowd.acknowledged > 0
        assert not crowd.errors
        assert not quiet.errors
        assert masters(node) == before, "no group changed its master"
        assert node.metric("process_resident_memory_bytes") < 1 << 30
        if FULL:
            assert together >= 0.8 * alone


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Another task repeats this while the body runs; its failure is the test's."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001  raised again where the test is
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(GIVE_UP_S)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def topics_come_and_go(node: Flooded, made: list[str]) -> Callable[[threading.Event], None]:
    """A hundred a second, if the node can do it."""

    def work(stop: threading.Event) -> None:
        caller = node.caller("127.0.0.2")
        while not stop.wait(0.01):
            name = CHURN.format(len(made))
            created = caller.ask(
                topics.CreateTopicsRequest([topics.CreatableTopic(name, 1, 1)], 30_000), 5
            )
            assert created.topics[0].error_code == ErrorCode.NONE
            deleted = caller.ask(topics.DeleteTopicsRequest([name], [], 30_000), 5)
            assert deleted.responses[0].error_code == ErrorCode.NONE
            made.append(name)

    return work


def beat(caller: Caller, group: str, member: str, epoch: int) -> Any:
    """One heartbeat of a member (KIP-848); epoch 0 joins, -1 leaves."""
    joins = epoch == 0
    return caller.ask(
        ConsumerGroupHeartbeatRequest(
            group,
            member,
            epoch,
            rebalance_timeout_ms=30_000 if joins else -1,
            subscribed_topic_names=[TOPIC] if joins else None,
            topic_partitions=[] if joins else None,
        ),
        0,
    )


def test_O5_topics_and_members_come_and_go(place: Place) -> None:
    """Another consumer group does not notice: its member keeps its epoch. In the group in which all
    others came and went, the last member gets the partition within 10 s."""
    made: list[str] = []
    with flooded(place) as node, Quiet(node.port) as quiet:
        usual, burned = quiet.until(USUAL), quiet.beside_burners(USUAL)
        calm, crowd = node.caller("127.0.0.3"), node.caller("127.0.0.4")
        epoch = beat(calm, "calm", "only", 0).member_epoch
        ends = time.monotonic() + LASTS_S
        with beside(topics_come_and_go(node, made)):
            while time.monotonic() < ends or len(made) < 5:
                for come in (0, -1):
                    for number in range(MEMBERS):
                        told = beat(crowd, "crowd", f"m{number}", come)
                        assert told.error_code == ErrorCode.NONE
                        if number % 20 == 0:  # within its session, however slow the machine is
                            told = beat(calm, "calm", "only", epoch)
                            assert (told.error_code, told.member_epoch) == (ErrorCode.NONE, epoch)
            compare("O5 coming and going", usual, burned, quiet.until(USUAL))
            began = time.monotonic()
            told = beat(crowd, "crowd", "last", 0)
            while not (told.assignment and told.assignment.topic_partitions):
                assert time.monotonic() < began + 10, "the rebalance has no end"
                time.sleep(0.05)
                told = beat(crowd, "crowd", "last", told.member_epoch)
        sys.stderr.write(
            f"O5: {len(made)} topics, last member served after {time.monotonic() - began:.2f} s\n"
        )
        assert not quiet.errors
        assert node.metadata() == 1


class SilentPlace(Place):
    """A node whose log goes to a full disk."""

    @property
    def command(self) -> list[str]:
        return ["sh", "-c", 'exec "$@" 2>/dev/full', "sh", *super().command]


def test_O6_many_watch_it_and_its_log_is_full(tmp_path: Path) -> None:
    """Metrics ten times a second, open consoles, and a log that cannot be written."""
    place = SilentPlace(tmp_path)
    scraped: list[int] = []

    def scrape(stop: threading.Event) -> None:
        while not stop.wait(0.1):
            code, text = place.get("/metrics")
            assert code == 200
            scraped.append(len(text))

    with flooded(place, talks=False) as node, Quiet(node.port) as quiet:
        usual, burned = quiet.until(USUAL), quiet.beside_burners(USUAL)
        consoles = [
            http.client.HTTPConnection("127.0.0.1", node.port + 2, timeout=GIVE_UP_S)
            for _ in range(3)
        ]
        try:
            for one in consoles:
                one.request("GET", "/console/events")
            streams = [one.getresponse() for one in consoles]
            assert {one.status for one in streams} == {200}
            with beside(scrape):
                compare("O6 watched", usual, burned, quiet.until(USUAL))
                assert all(one.read(1) for one in streams)
                ends = time.monotonic() + LASTS_S
                while time.monotonic() < ends or len(scraped) < 5:
                    quiet.until(1)
            gap_s = node.metric("evenkeel_tick_gap_seconds")
        finally:
            for one in consoles:
                one.close()
        sys.stderr.write(f"O6: {len(scraped)} scrapes, longest gap {gap_s * 1e3:.0f} ms\n")
        assert not quiet.errors
        assert node.alive
        if FULL:
            assert gap_s < GAP_S_MAX
