"""DescribeLogDirs (KIP-113, KIP-827): which partitions this node keeps, and where.

A node has one log for all partitions; the reported size of a partition is that of its record
batches.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from balancer.registry.records import Topic
from broker.requests.context import Broker
from broker.requests.refusals import answer_aside, refuse_more_than
from broker.requests.request import Request
from broker.requests.steps import STEP
from wire.error_codes import ErrorCode
from wire.messages.logs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

PARTITIONS_MAX: Final = 100_000
"""In one request."""


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeLogDirsRequest)
    wanted: Iterable[tuple[Topic, Iterable[int]]]
    if message.topics is None:
        wanted = [(one, range(len(one.partitions))) for one in broker.registry.topics.values()]
    else:
        named = [index for topic in message.topics for index in topic.partitions]
        if refuse_more_than(PARTITIONS_MAX, [*named, *message.topics], broker, request):
            return
        asked: dict[str, dict[int, None]] = {}  # each once
        for one in message.topics:
            asked.setdefault(one.topic, {}).update(dict.fromkeys(one.partitions))
        known = [(broker.registry.topic(name), indexes) for name, indexes in asked.items()]
        wanted = [(topic, indexes) for topic, indexes in known if topic is not None]
    result = DescribeLogDirsResult(log_dir=broker.log_dir.path)
    try:
        result.total_bytes, result.usable_bytes = broker.log_dir.volume()
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def answer() -> None:
        count = sum(len(topic.partitions) for topic in result.topics)
        answer_aside(broker, request, count, lambda: DescribeLogDirsResponse(results=[result]))

    broker.portions.in_steps(broker, request.reply, _look(broker, wanted, result), answer)


def _look(
    broker: Broker,
    wanted: Iterable[tuple[Topic, Iterable[int]]],
    result: DescribeLogDirsResult,
) -> Iterator[None]:
    """What this node keeps of each partition."""
    looked_at = 0
    for topic, indexes in wanted:
        kept: list[DescribeLogDirsPartition] = []
        for index in indexes:
            found = _kept(broker, topic, index)
            if found is not None:
                kept.append(found)
            looked_at += 1
            if looked_at % STEP == 0:
                yield
        if kept:
            result.topics.append(DescribeLogDirsTopic(topic.name, kept))


def _kept(broker: Broker, topic: Topic, index: int) -> DescribeLogDirsPartition | None:
    if not 0 <= index < len(topic.partitions):
        return None
    uid, group = topic.partitions[index]
    machine = broker.machines.get(group)
    if machine is None:
        return None
    state = machine.partitions.get(uid)
    return DescribeLogDirsPartition(index, 0 if state is None else state.bytes_held, 0)
