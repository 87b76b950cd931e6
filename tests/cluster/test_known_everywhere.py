"""What a node has answered for, every other node knows: real processes, asked at once, at the wire.

Who creates a topic with an administration client and subscribes to it with a consumer has two
clients, each with a node of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest

from cluster.spec import ClusterSpec
from tests.cluster.conversation import Conversation
from tests.cluster.scenery import in_thread, three_nodes
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
    """How often another node did not know of what was just answered, and how long that took."""
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
