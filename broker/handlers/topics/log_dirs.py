"""DescribeLogDirs (KIP-113, KIP-827): which partitions this node keeps, and where.

A node has one log for all partitions; the reported size of a partition is that of its record
batches.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from balancer.registry.records import Topic
from broker.requests.context import Broker
from broker.requests.refusals import refuse_more_than
from broker.requests.request import Request
from wire.apis import encode_response
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
        known = [(broker.registry.topic(one.topic), one.partitions) for one in message.topics]
        wanted = [(topic, indexes) for topic, indexes in known if topic is not None]
    result = DescribeLogDirsResult(log_dir=broker.log_dir.path)
    try:
        result.total_bytes, result.usable_bytes = broker.log_dir.volume()
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    for topic, indexes in wanted:
        kept = list(_kept(broker, topic, indexes))
        if kept:
            result.topics.append(DescribeLogDirsTopic(topic.name, kept))
    response = DescribeLogDirsResponse(results=[result])
    request.reply.complete(encode_response(request.header, response))


def _kept(
    broker: Broker, topic: Topic, indexes: Iterable[int]
) -> Iterator[DescribeLogDirsPartition]:
    for index in indexes:
        if not 0 <= index < len(topic.partitions):
            continue
        uid, group = topic.partitions[index]
        machine = broker.machines.get(group)
        if machine is None:
            continue
        state = machine.partitions.get(uid)
        yield DescribeLogDirsPartition(index, 0 if state is None else state.bytes_held, 0)
