"""Steals between real processes, with failures and with real consumers (exam row R12)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition

from cluster import health, status
from cluster.launcher import Launcher
from cluster.status import ClusterView
from cluster.workload import CLIENT_LOG
from runtime.config.config import Address
from tests.cluster.conversation import Conversation
from tests.cluster.scenery import (
    FULL,
    PARTITIONS,
    STEP_S,
    TOPIC,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    three_nodes,
    until,
)
from tests.doses import ONLY_IN_FULL
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ProgressReport
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.cluster

FETCH_VERSION = 16
METADATA_VERSION = 12
CONSUMER = 4711


async def place(cluster: Launcher, via: int, placement: dict[str, object]) -> None:
    await health.place(cluster.spec.node(via).http, placement)


def all_home(view: ClusterView) -> bool:
    return view.all_at_ideal


async def steals_begin(cluster: Launcher, via: int, target: int) -> None:
    """Order all masters to one node, and wait until the first has moved."""
    before = (await status.collect(cluster.spec, cluster.now())).count_by_master()[target]
    await place(cluster, via, {"all_on": target})
    await until(
        cluster,
        lambda view: view.count_by_master()[target] > before,
        f"node {target} is stealing",
    )


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_R12_kills_and_pauses_while_steals_run(tmp_path: Path) -> None:
    """The thief is killed; then the node it steals from is stopped for longer than a lease, then
    killed. Nothing is lost or doubled, and in the end all masters are on their ideal nodes."""
    async with three_nodes(tmp_path) as cluster:
        async with load(cluster, "p", rate=500) as producer:
            await acknowledged(producer, 20)

            await steals_begin(cluster, 3, 1)
            await cluster.kill(1)
            await acknowledged(producer, 20)
            with_one_dead = await until(
                cluster,
                lambda view: all(row.master not in (None, 1) for row in view.groups),
                "the groups of the dead thief have masters",
            )
            assert with_one_dead.count_by_master()[1] == 0, (
                "nothing is moved to a node that is down"
            )
            await cluster.restart(1)
            await until(cluster, all_home, "node 1 has all masters")

            await place(cluster, 3, {"even": True})
            await cluster.pause(1)
            await until(  # its clients retry as long as they can: there is nothing to count
                cluster,
                lambda view: all(row.master not in (None, 1) for row in view.groups),
                "the groups of the paused node have masters",
            )
            await cluster.resume(1)
            await until(cluster, all_home, "the masters are even")

            await steals_begin(cluster, 3, 2)
            await cluster.kill(1)
            await acknowledged(producer, 20)
            await cluster.restart(1)
            await until(
                cluster,
                lambda view: everything_has_a_master(view) and view.all_at_ideal,
                "node 2 has all masters",
            )
            await acknowledged(producer, 20)
        await judge(cluster, producer)


class Member:
    """An ordinary member of a consumer group; runs in a thread."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.assigned: list[list[int]] = []
        self.revoked = 0
        self.read: list[str] = []
        self.errors: list[str] = []
        self.stop = False
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }

    def run(self) -> None:
        consumer = Consumer(self._settings, logger=CLIENT_LOG)
        consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self.stop:
            message = consumer.poll(0.1)
            if message is None:
                continue
            error, value = message.error(), message.value()
            if error is not None:
                self.errors.append(str(error))
            elif value is not None:
                self.read.append(value.decode())
                consumer.commit(message, asynchronous=len(self.read) % 100 != 0)
        consumer.close()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.append(sorted(one.partition for one in partitions))

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.revoked += not self.stop


async def wait_for(condition: Callable[[], bool], what: str) -> None:
    with trio.move_on_after(STEP_S):
        while not condition():  # noqa: ASYNC110 (threads of clients set no trio event)
            await trio.sleep(0.05)
        return
    pytest.fail(f"not within {STEP_S} s: {what}")


def knows_the_topic(address: Address) -> bool:
    conversation = Conversation(address)
    try:
        request = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
        return not conversation.ask(request, METADATA_VERSION).topics[0].error_code
    finally:
        conversation.close()


async def test_consumer_groups_go_on_through_steals_without_a_rebalance(tmp_path: Path) -> None:
    """Every group moves, including the one that stores the consumer group's offsets. Members,
    generation and assignment stay, commits go on, and every message is read once."""
    async with three_nodes(tmp_path) as cluster:
        for node in cluster.spec.nodes:  # a node that has not heard of the topic yet says so
            await wait_for(partial(knows_the_topic, node.kafka), f"node {node.id} knows {TOPIC}")
        members = [Member(cluster.spec.bootstrap, f"m{number}") for number in (1, 2)]
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(in_thread, member.run)
            try:
                async with load(cluster, "p", rate=200) as producer:
                    await wait_for(
                        lambda: all(
                            member.assigned and len(member.assigned[-1]) == PARTITIONS // 2
                            for member in members
                        ),
                        "both members have their shares",
                    )
                    before = [(len(member.assigned), member.revoked) for member in members]
                    for placement in ({"all_on": 1}, {"all_on": 2}, {"even": True}):
                        await acknowledged(producer, 10)
                        await place(cluster, 1, placement)
                        await until(cluster, all_home, f"masters are as in {placement}")
                    await acknowledged(producer, 10)
                await wait_for(
                    lambda: sum(len(member.read) for member in members) >= producer.acknowledged,
                    "everything is read",
                )
            finally:
                for member in members:
                    member.stop = True
        assert [(len(member.assigned), member.revoked) for member in members] == before
        assert [member.errors for member in members] == [[], []]
        read = sorted(value for member in members for value in member.read)
        assert read == sorted(set(read)), "nothing twice"
        assert len(read) == producer.acknowledged
        committed = await in_thread(partial(committed_offsets, cluster.spec.bootstrap))
        assert sum(committed) == producer.acknowledged, "the last commits are there, too"


def committed_offsets(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"}, logger=CLIENT_LOG)
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    try:
        return [one.offset for one in consumer.committed(places, timeout=STEP_S)]
    finally:
        consumer.close()


class Reader:
    """A consumer of one partition that can be asked for its progress, on the wire."""

    def __init__(self, address: Address) -> None:
        self.conversation = Conversation(address)
        metadata = self.conversation.ask(
            MetadataRequest([MetadataRequestTopic(name=TOPIC)]), METADATA_VERSION
        )
        self.topic_id: bytes = metadata.topics[0].topic_id
        self.leaders = {one.partition_index: one.leader_id for one in metadata.topics[0].partitions}

    def fetch(self, partition: int, *, reported: int, wait_ms: int = 20_000) -> Any:
        """Wait in a delayed fetch at the end of an empty partition; returns the answer."""
        wanted = FetchPartition(partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            topics=[FetchTopic(TOPIC, self.topic_id, [wanted])],
            progress=ProgressReport(CONSUMER, reported),
        )
        return self.conversation.ask(request, FETCH_VERSION).responses[0].partitions[0]


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_E12_a_parked_consumer_is_asked_and_waited_for(tmp_path: Path) -> None:
    """Over real sockets: its fetch returns at once with the question, the master waits for the
    answer in the next fetch, and only then the group moves."""
    patient = "balancer.progress_wait_ms=8000"
    async with three_nodes(tmp_path, patient) as cluster:
        view = await until(cluster, all_home, "masters are where they belong")
        reader = Reader(cluster.spec.node(1).kafka)
        partition, source = next(
            (number, node) for number, node in reader.leaders.items() if node == 1
        )
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:

            async def park(reported: int) -> None:
                answers.append(await in_thread(partial(reader.fetch, partition, reported=reported)))

            nursery.start_soon(park, 0)
            await trio.sleep(0.2)
            assert answers == []
            moved = await group_of(cluster, view, partition)
            await place(cluster, 2, {"placement": {str(moved): 2}})
            await wait_for(lambda: bool(answers), "the parked fetch is answered")
            question = answers[0].report_progress
            assert (answers[0].error_code, bytes(answers[0].records or b"")) == (0, b"")
            assert question.wait_ms == 8_000
            nursery.start_soon(park, question.request)
            await until(cluster, lambda view: view.masters()[moved] == 2, "the group has moved")
            await wait_for(lambda: len(answers) == 2, "the second fetch is sent away")
        reader.conversation.close()
        status_of = await health.call_async(cluster.spec.node(source).http, "GET", "/status")
        (done,) = [one for one in status_of["handovers"] if one["group"] == moved]
        assert (done["outcome"], done["asked"], done["reported"]) == ("handed-over", 1, 1)
        assert done["phases_ms"]["collect"] < 7_000, "not its time-out"


async def group_of(cluster: Launcher, view: ClusterView, partition: int) -> int:
    """Partitions are assigned to groups in order, so in an empty cluster partition i is in group i
    + 1. The client learns that group's master as the partition's leader."""
    fresh = await status.collect(cluster.spec, cluster.now())
    assert fresh.masters() == view.masters()
    assert fresh.masters()[partition + 1] == 1
    return partition + 1
