"""Thousands of topics and a client that may see half of them: no listing, no pattern and no long
list of names holds the loop. Measured as in test_stretches."""

from typing import Any, Final

import pytest

from balancer.registry.codec import encode_command
from balancer.registry.commands import Command, CreateTopic
from broker.proposals.commands import CommandKind, opaque
from paxos.ids import REGISTRY_GROUP, NodeId
from tests.broker.fakes import FakeReply
from tests.broker.hostile_list import Dear, _frame
from tests.broker.requests.test_stretches import Measured, holds_nobody_up
from tests.broker.requests.test_stretches import (
    _collects_as_a_node as _collects_as_a_node,  # a fixture
)
from tests.broker.security.rulings import ALICE, Ruled, rule
from tests.broker.world import CLIENT_HOST
from tests.doses import FULL
from wire.acls import Operation, PatternType, Permission, ResourceType
from wire.apis import APIS, ApiKey, decode_response
from wire.error_codes import ErrorCode
from wire.messages.assigned_groups import ConsumerGroupHeartbeatRequest
from wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    PartitionsOfTopic,
)
from wire.messages.topics import DeleteTopicsRequest

STRETCH_MS_MAX: Final = 8.0
TOPICS: Final = 10_000 if FULL else 3_000
"""In one piece, three thousand decisions alone take longer than a stretch may."""
NAMED: Final = TOPICS // 2
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def submit(measured: Measured, command: Command) -> None:
    """As World.run, without the wait after each."""
    chunks = opaque(CommandKind.REGISTRY, encode_command(command))
    master = measured.world.cluster.nodes[NodeId(1)]
    master.submit(REGISTRY_GROUP, chunks, lambda _: None, anywhere=True)


@pytest.fixture(scope="module")
def measured() -> Measured:
    made = Measured()
    for one in range(TOPICS):
        name = f"{'mine' if one % 2 else 'their'}-{one}"
        submit(made, CreateTopic(name, (1_000 + one).to_bytes(16), 1, 1, {}))
    made.world.cluster.settle()
    for group in range(1, 5):
        made.world.cluster.install(group, 1)
    ruled = Ruled(made.world)
    kind, prefixed = ResourceType.TOPIC, PatternType.PREFIXED
    ruled.allow(
        rule(Operation.DESCRIBE, kind, "mine", pattern_type=prefixed),
        rule(Operation.READ, ResourceType.GROUP, "g"),
        rule(Operation.DESCRIBE, kind, "mine-1", permission=Permission.DENY),
    )
    return made


def ask(measured: Measured, key: ApiKey, request: Any, version: int) -> Any:
    """The answer, after no stretch was too long: alice is who asks."""
    dear = Dear(APIS[key].name, APIS[key], version, _frame(request, version))
    reply, node = FakeReply(), measured.world[1]
    reply.connection.principal = ALICE
    frame = bytearray(dear.frame)
    node.api.handle_frame(memoryview(frame), False, CLIENT_HOST, reply)
    frame[:] = bytes(len(frame))  # the next request takes its place
    while not reply.settled:
        while measured.background.done:
            measured.background.done.pop(0)()
        measured.world.cluster.advance(1, step_ms=1)
    assert reply.frame is not None, reply.closed
    holds_nobody_up(measured, dear, STRETCH_MS_MAX, ALICE)
    return decode_response(key, version, memoryview(reply.frame)[4:])


@pytest.mark.parametrize("told", [False, True])
def test_metadata_of_all_topics(measured: Measured, told: bool) -> None:
    request = MetadataRequest(None, include_topic_authorized_operations=told)
    answer = ask(measured, ApiKey.METADATA, request, 12)
    names = {one.name for one in answer.topics}
    assert len(names) == len(answer.topics) == TOPICS // 2 - 1
    assert all(name.startswith("mine-") for name in names)
    operations = {one.topic_authorized_operations for one in answer.topics}
    assert operations == {1 << Operation.DESCRIBE if told else -(2**31)}


def test_partitions_of_all_topics(measured: Measured) -> None:
    answer = ask(
        measured,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        DescribeTopicPartitionsRequest([], response_partition_limit=10),
        0,
    )
    seen = sorted(f"mine-{one}" for one in range(3, TOPICS, 2))
    assert [one.name for one in answer.topics] == seen[:10]


def test_many_named_topics_that_are_denied(measured: Measured) -> None:
    names = [f"their-{one}" for one in range(NAMED)] + ["mine-3"]
    topics = [PartitionsOfTopic(name) for name in names]
    request = DescribeTopicPartitionsRequest(topics, response_partition_limit=10)
    answer = ask(measured, ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
    errors = {one.name: one.error_code for one in answer.topics}
    assert errors == {**dict.fromkeys(names, DENIED), "mine-3": ErrorCode.NONE}


def test_many_topics_to_be_deleted_are_all_denied(measured: Measured) -> None:
    names = [f"mine-{one}" for one in range(NAMED)]
    request = DeleteTopicsRequest(topic_names=names, timeout_ms=1_000)
    answer = ask(measured, ApiKey.DELETE_TOPICS, request, 5)
    assert [one.error_code for one in answer.responses] == [DENIED] * NAMED


@pytest.mark.parametrize(
    ("pattern", "error"), [("mine-29[0-9]", 0), (".*-2998", DENIED), ("mine-1", DENIED)]
)
def test_a_pattern_of_topics(measured: Measured, pattern: str, error: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        "g",
        "m",
        0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    answer = ask(measured, ApiKey.CONSUMER_GROUP_HEARTBEAT, request, 1)
    assert answer.error_code == error
