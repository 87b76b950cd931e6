"""What one node has acknowledged, every other node knows at once: real processes, asked on the
wire.

A user who creates a topic with an administration client and subscribes with a consumer has two
clients, each connected to a node of its own.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import pytest
import trio

from cluster.spec import ClusterSpec
from runtime.config.fields import Address
from tests.cluster.conversation import Conversation
from tests.cluster.scenery import STEP_S, TOPIC, in_thread, three_nodes
from tests.cluster.test_membership import evenkeel
from tests.doses import FULL, ONLY_IN_FULL
from wire.error_codes import ErrorCode
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)

pytestmark = pytest.mark.cluster
TOPICS = 30
TIMEOUT_MS = 10_000
PAUSE_S = 0.002
ENOUGH = 20
"""How many answers must know the topic: then the node has learned what exists."""


@contextmanager
def conversations(spec: ClusterSpec) -> Iterator[list[Conversation]]:
    talks = [Conversation(node.kafka) for node in spec.nodes]
    try:
        yield talks
    finally:
        for talk in talks:
            talk.close()


def described(talk: Conversation, name: str) -> MetadataResponseTopic:
    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    topic: MetadataResponseTopic = talk.ask(request, 8).topics[0]
    return topic


def create(talk: Conversation, name: str) -> ErrorCode:
    request = CreateTopicsRequest([CreatableTopic(name, 1, 3)], timeout_ms=TIMEOUT_MS)
    return ErrorCode(talk.ask(request, 5).topics[0].error_code)


def grow(talk: Conversation, name: str) -> ErrorCode:
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, 2)], timeout_ms=TIMEOUT_MS)
    return ErrorCode(talk.ask(request, 1).results[0].error_code)


def changes_and_looks(spec: ClusterSpec) -> str:
    """How often another node did not know what was just acknowledged, and for how long."""
    unknown, small, took_ms = 0, 0, []
    with conversations(spec) as talks:
        for number, talk in zip(range(TOPICS), cycle(talks), strict=False):
            name = f"t{number}"
            others = [one for one in talks if one is not talk]
            began = perf_counter()
            assert create(talk, name) == ErrorCode.NONE
            took_ms.append(1e3 * (perf_counter() - began))
            unknown += sum(described(one, name).error_code != 0 for one in others)
            assert grow(talk, name) == ErrorCode.NONE
            small += sum(len(described(one, name).partitions) != 2 for one in others)
    took = f"created in {median(took_ms):.1f} ms"
    return f"{unknown} unknown and {small} too small of {TOPICS * len(others)}, {took}"


async def test_a_topic_that_was_created_is_unknown_nowhere(tmp_path: Path) -> None:
    async with three_nodes(tmp_path) as cluster:
        told = await in_thread(partial(changes_and_looks, cluster.spec))
        assert told.startswith("0 unknown and 0 too small"), told


class Listener:
    """Asks one node for an existing topic all the time, from before the node can answer."""

    def __init__(self, address: Address, name: str) -> None:
        self._address, self._name = address, name
        self.denied = self.known = 0
        self.over = False

    def run(self) -> None:
        while not self.over:
            with suppress(OSError, AssertionError):  # refused, or closed
                talk = Conversation(self._address)
                try:
                    self._ask(talk)
                finally:
                    talk.close()
            sleep(PAUSE_S)

    def _ask(self, talk: Conversation) -> None:
        while not self.over:
            if described(talk, self._name).error_code == ErrorCode.NONE:
                self.known += 1
            else:
                self.denied += 1
            everything = talk.ask(MetadataRequest(None), 8)
            self.denied += self._name not in {one.name for one in everything.topics}


@asynccontextmanager
async def listening(address: Address, name: str) -> AsyncIterator[Listener]:
    listener = Listener(address, name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, listener.run)
        try:
            yield listener
        finally:
            listener.over = True


async def knows(listener: Listener) -> None:
    with trio.fail_after(STEP_S):
        while listener.known < ENOUGH:  # noqa: ASYNC110 (another thread counts)
            await trio.sleep(PAUSE_S)


async def test_a_node_that_missed_a_topic_while_it_was_down_denies_it_to_nobody(
    tmp_path: Path,
) -> None:
    async with three_nodes(tmp_path) as cluster:
        node = cluster.spec.node(3)
        with conversations(cluster.spec) as talks:
            await cluster.kill(3)
            assert await in_thread(partial(create, talks[0], "missed")) == ErrorCode.NONE
        async with listening(node.kafka, "missed") as listener:
            await cluster.restart(3)
            await knows(listener)
        assert listener.denied == 0


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_node_that_has_nothing_yet_denies_no_topic(tmp_path: Path) -> None:
    """An empty disk replaces a lost one. librdkafka's consumers stop if such a node answers that
    the topic does not exist."""
    async with three_nodes(tmp_path) as cluster:
        node = cluster.spec.node(3)
        await cluster.kill(3)
        async with listening(node.kafka, TOPIC) as listener:
            await evenkeel(cluster, "replace", "3")
            await knows(listener)
        assert listener.denied == 0
