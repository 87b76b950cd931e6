"""Three nodes on machines of their own; one is master of everything and is cut off from the others.

Every kind of client that is installed runs all the time; the result is the longest time in which
one of them had no success. It is a program of its own, because it runs in another network namespace
than the tests: `python -m tests.exam.network.cut_off DIRECTORY HOW ROUNDS` prints its findings as
JSON in the last line.
"""

import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.machines.network import Network, network
from benchmarks.machines.nodes import on_machines
from cluster import health, workload
from cluster.launcher import Launcher, launch
from cluster.recorder import Recorder
from cluster.spec import plan
from cluster.status import ClusterView, collect
from cluster.workload import CLIENT_LOG, SteadyProducer
from evenkeel import Admin, EvenkeelError
from evenkeel import Consumer as OurConsumer
from evenkeel import Producer as OurProducer
from evenkeel import TopicPartition as OurTopicPartition
from pyspark_evenkeel.client.cluster import LATEST, Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import EvenkeelSparkError
from tests.cluster.scenery import GROUPS, PARTITIONS, QUICK, TOPIC, everything_has_a_master
from tests.exam.network.cut_off_others import installed

LEASE_S: Final = 2.0
"""As in QUICK."""
CUT: Final = 1
"""The node that is cut off."""
OTHERS: Final = (2, 3)
CUT_S: Final = 14.0
TASTE_CUT_S: Final = 9.0
CALM_S: Final = 4.0
STEP_S: Final = 60.0
EVERY_S: Final = 0.05
ANSWER_S: Final = 20.0
HOWS: Final = {
    "both": lambda net, do: [do(net, a, b) for other in OTHERS for a, b in _ways(other)],
    "in": lambda net, do: [do(net, other, CUT) for other in OTHERS],
    "out": lambda net, do: [do(net, CUT, other) for other in OTHERS],
}


def _ways(other: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (CUT, other), (other, CUT)


@attrs.define
class Watch:
    """The times of each client's successes, by the client's key (mostly a partition)."""

    times: dict[str, list[float]] = attrs.Factory(dict)
    lock: threading.Lock = attrs.Factory(threading.Lock)

    def success(self, client: str) -> None:
        with self.lock:
            self.times.setdefault(client, []).append(time.monotonic())

    def worst_s(self, began: float, ended: float) -> dict[str, float]:
        """The longest time without a success; it runs to the end if none came any more."""
        found = {}
        with self.lock:
            for client, times in sorted(self.times.items()):
                before = [one for one in times if one <= began][-1:] or [began]
                inside = [one for one in times if began < one <= ended]
                line = [*before, *inside, ended]
                found[client] = round(max(b - a for a, b in pairwise(line)), 2)
        return found


# -- clients with a thread each -------------------------------------------------------------------


def confluent_producer(bootstrap: str, watch: Watch, stop: threading.Event, acks: str) -> None:
    name = f"confluent producer acks={acks}"
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 5}, logger=CLIENT_LOG
    )

    def told(partition: int, error: object, _message: object) -> None:
        if error is None:
            watch.success(f"{name} {partition}")

    while not stop.is_set():
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"x", partition=partition, on_delivery=partial(told, partition))
        producer.poll(EVERY_S)
    producer.flush(5)


def confluent_consumer(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "cut-off",
        "auto.offset.reset": "latest",
    }
    consumer = ConfluentConsumer(settings, logger=CLIENT_LOG)
    consumer.subscribe([TOPIC])
    while not stop.is_set():
        for message in consumer.consume(500, timeout=EVERY_S):
            if message.error() is None:
                watch.success(f"confluent consumer {message.partition()}")
    consumer.close()


def confluent_admin(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=CLIENT_LOG)
    asked = {TopicPartition(TOPIC, number): OffsetSpec.latest() for number in range(PARTITIONS)}
    while not stop.is_set():
        try:
            for future in admin.list_offsets(asked, request_timeout=2).values():
                future.result(3)
            watch.success("confluent admin")
        except (KafkaException, TimeoutError):
            continue
        stop.wait(EVERY_S)


def spark(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    settings = ClusterSettings(bootstrap=bootstrap, retry_ms=2_000, backoff_max_ms=200)
    asked = {Place(TOPIC, number): LATEST for number in range(PARTITIONS)}
    with Cluster(settings) as cluster:
        while not stop.is_set():
            try:
                cluster.offsets(asked)
                watch.success("pyspark_evenkeel")
            except EvenkeelSparkError:
                continue
            stop.wait(EVERY_S)


def ours(bootstrap: str, watch: Watch, stop: threading.Event) -> None:
    """Producer, consumer and administration of our own client."""

    async def produce(partition: int) -> None:
        async with OurProducer(bootstrap) as producer:
            while not stop.is_set():
                try:
                    delivery = await producer.send(TOPIC, b"y", partition=partition)
                    await delivery
                    watch.success(f"evenkeel producer {partition}")
                except EvenkeelError:
                    continue
                await trio.sleep(EVERY_S)

    async def consume() -> None:
        async with OurConsumer(bootstrap) as consumer:
            await consumer.assign([OurTopicPartition(TOPIC, one) for one in range(PARTITIONS)])
            while not stop.is_set():
                records = await consumer.poll(EVERY_S)
                if records is not None:
                    watch.success(f"evenkeel consumer {records.place.partition}")

    async def administer() -> None:
        async with Admin(bootstrap) as admin:
            while not stop.is_set():
                with trio.move_on_after(2):
                    try:
                        await admin.topic_settings(TOPIC)
                        found = await admin.describe_topic(TOPIC)
                        if found.partitions:
                            watch.success("evenkeel admin")
                    except EvenkeelError:
                        continue
                await trio.sleep(EVERY_S)

    async def all_of_them() -> None:
        async with trio.open_nursery() as nursery:
            for partition in range(PARTITIONS):
                nursery.start_soon(produce, partition)
            nursery.start_soon(consume)
            nursery.start_soon(administer)

    trio.run(all_of_them)


CLIENTS: Final[tuple[Callable[[str, Watch, threading.Event], None], ...]] = (
    partial(confluent_producer, acks="1"),
    confluent_consumer,
    confluent_admin,
    spark,
    ours,
)


# -- the cluster ----------------------------------------------------------------------------------


async def until(
    cluster: Launcher, condition: Callable[[ClusterView], bool], what: str
) -> ClusterView:
    with trio.move_on_after(STEP_S):
        while True:
            view = await collect(cluster.spec, cluster.now())
            if condition(view):
                return view
            await trio.sleep(0.1)
    raise AssertionError(f"not within {STEP_S} s: {what}")


async def all_on_the_one(cluster: Launcher) -> None:
    http = cluster.spec.node(OTHERS[0]).http
    await health.place(http, {"all_on": CUT})
    await until(cluster, lambda view: {one.master for one in view.groups} == {CUT}, "all on one")


@asynccontextmanager
async def running(net: Network, directory: Path) -> AsyncIterator[Launcher]:
    spec, _ = plan(directory, groups=GROUPS, fixed_ports=False, hosts=net.addresses)
    async with (
        on_machines(net, spec) as command,
        launch(spec, overrides=QUICK, command=command) as cluster,
    ):
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "masters")
        workload.create_topic(spec.bootstrap, TOPIC, partitions=PARTITIONS, replication=3)
        yield cluster


async def status_of(cluster: Launcher, node: int) -> dict[str, Any]:
    found: dict[str, Any] = await health.call_async(cluster.spec.node(node).http, "GET", "/status")
    return found


async def round_of(
    cluster: Launcher, net: Network, how: str, watch: Watch, steady: SteadyProducer, cut_s: float
) -> dict[str, object]:
    """Cut, watch, heal."""
    await all_on_the_one(cluster)
    calm_s = min(CALM_S, cut_s / 4)
    await trio.sleep(calm_s)
    calm_ended = time.monotonic()
    calm = watch.worst_s(calm_ended - calm_s, calm_ended)
    HOWS[how](net, Network.cut)
    began = time.monotonic()
    await trio.sleep(cut_s)
    ended = time.monotonic()
    shut = await status_of(cluster, CUT)
    for partition, acks in enumerate(steady.acks_ns):
        watch.times[f"confluent idempotent {partition}"] = [one / 1e9 for one in acks]
    HOWS[how](net, Network.heal)
    with trio.fail_after(STEP_S):
        while (await status_of(cluster, CUT))["clients"] != "served":  # noqa: ASYNC110 (no event)
            await trio.sleep(0.1)
    back_s = time.monotonic() - ended
    return {
        "calm_s": calm,
        "gap_s": watch.worst_s(began, ended),
        "clients": shut["clients"],
        "masters": sum(one["acting"] for one in shut["groups"]),
        "back_s": round(back_s, 2),
    }


async def main(
    directory: Path, how: str, rounds: int, cut_s: float, net: Network
) -> list[dict[str, object]]:
    watch, stop = Watch(), threading.Event()
    async with running(net, directory) as cluster:
        bootstrap = cluster.spec.bootstrap
        with Recorder(directory / "history-steady.jsonl") as recorder:
            steady = SteadyProducer(
                bootstrap,
                TOPIC,
                partitions=PARTITIONS,
                rate=100,
                name="steady",
                recorder=recorder,
            )
            threads = [threading.Thread(target=steady.run)]
            threads += [
                threading.Thread(target=run, args=(bootstrap, watch, stop))
                for run in (*CLIENTS, *installed())
            ]
            for thread in threads:
                thread.start()
            try:
                found = [
                    await round_of(cluster, net, how, watch, steady, cut_s) for _ in range(rounds)
                ]
            finally:
                stop.set()
                steady.stop()
                for thread in threads:
                    await trio.to_thread.run_sync(thread.join)
        await until(cluster, everything_has_a_master, "masters")
    return found


if __name__ == "__main__":
    with network(3) as made, made.clients.entered():
        directory, manner, times, seconds = sys.argv[1:]
        told = trio.run(main, Path(directory), manner, int(times), float(seconds), made)
    print(json.dumps(told))  # noqa: T201 (a program)
