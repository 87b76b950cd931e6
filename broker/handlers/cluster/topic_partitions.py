"""DescribeTopicPartitions (KIP-966): topics with their partitions, page by page.

Topics come in the order of their names, from the cursor on, and an answer holds a limited number of
partitions; a topic that is described without any, because it is unknown, counts as one. As Metadata
the answer waits for a moment for what may only be unknown to this node.

What many names cost is paid elsewhere: they are sorted in the background, and pages are made in
steps.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import nsmallest
from typing import Final

from balancer.registry.catalogue import INTERNAL_TOPICS, name_problem
from balancer.registry.records import Topic
from broker.handlers.cluster.partition_views import View, view_of
from broker.handlers.topics.known_names import (
    before_denying,
    is_unknown,
    knows_a_part,
    may_deny,
)
from broker.requests.access import operations, visible_topics
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.refusals import BACKGROUND_FROM, answer_aside, refuse, refuse_more_than
from broker.requests.request import Request
from broker.requests.steps import STEP
from broker.security.authorizer import EVERYTHING
from paxos.ids import GroupId
from wire.acls import ResourceType
from wire.error_codes import ErrorCode
from wire.messages.metadata import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionCursor,
    PartitionsOfTopic,
)

PAGE_MAX: Final = 2_000
"""Kafka's max.request.partition.size.limit."""
NAMES_MAX: Final = 100_000


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeTopicPartitionsRequest)
    if refuse_more_than(NAMES_MAX, message.topics, broker, request):
        return
    cursor, text = message.cursor, ""
    if cursor is not None and cursor.partition_index < 0:
        text = f"the cursor's partition {cursor.partition_index} is not a partition"
    elif cursor is not None and message.topics and not _names(message, cursor.topic_name):
        text = "the cursor's topic is not among those asked for"
    if text:
        refuse(broker, request, ErrorCode.INVALID_REQUEST, text, len(message.topics))
        return
    find = partial(_find_names, broker, request, message)
    before_denying(broker, request, partial(_may_be_unknown, broker, message), find)


def _names(message: DescribeTopicPartitionsRequest, name: str) -> bool:
    return any(one.name == name for one in message.topics)


def _may_be_unknown(broker: Broker, message: DescribeTopicPartitionsRequest) -> bool:
    topics = message.topics
    if not 0 < len(topics) < BACKGROUND_FROM:
        return True  # too many to look up
    return is_unknown(broker, (one.name for one in topics))


def _find_names(broker: Broker, request: Request, message: DescribeTopicPartitionsRequest) -> None:
    if not message.topics and knows_a_part(broker):
        request.reply.close("topics are not known here: this node is still catching up")
        return
    start = "" if message.cursor is None else message.cursor.topic_name
    limit = max(1, min(PAGE_MAX, message.response_partition_limit))
    named: Sequence[PartitionsOfTopic | str] = message.topics
    sees: Callable[[str], bool] = EVERYTHING  # the gate has judged those that are named
    if not named:
        named, sees = [*broker.registry.topics], visible_topics(broker, request)
    find = partial(_first, named, sees, start, limit)
    page = guarded(broker, request, partial(_page, broker, request, message, limit))
    if len(named) < BACKGROUND_FROM:
        page(find())
    else:
        broker.background.submit(find, page)


def _first(
    named: Sequence[PartitionsOfTopic | str],
    sees: Callable[[str], bool],
    start: str,
    limit: int,
) -> list[str]:
    """One more than can be on a page: the next page begins with it."""
    names = {one if isinstance(one, str) else one.name for one in named}
    return nsmallest(limit + 1, (name for name in names if name >= start and sees(name)))


def _page(
    broker: Broker,
    request: Request,
    message: DescribeTopicPartitionsRequest,
    limit: int,
    names: Sequence[str],
) -> None:
    if message.topics and not may_deny(broker) and is_unknown(broker, names):
        request.reply.close("a topic is not known here: this node is still catching up")
        return
    response = DescribeTopicPartitionsResponse()

    def answer() -> None:
        count = sum(1 + len(topic.partitions) for topic in response.topics)
        answer_aside(broker, request, count, lambda: response)

    work = _look(broker, request, message, limit, names, response)
    broker.portions.in_steps(broker, request.reply, work, answer)


def _look(
    broker: Broker,
    request: Request,
    message: DescribeTopicPartitionsRequest,
    limit: int,
    names: Sequence[str],
    response: DescribeTopicPartitionsResponse,
) -> Iterator[None]:
    """Fill a page, and say where the next one begins."""
    left, looked_at = limit, 0
    listener = request.reply.connection.listener.name
    views: dict[GroupId, View] = {}
    for name in names:
        if left <= 0:
            response.next_cursor = PartitionCursor(name, 0)
            return
        topic = broker.registry.topic(name)
        if topic is None:
            if message.topics:  # else it has been deleted meanwhile
                response.topics.append(_unknown(name, _operations(broker, request, name)))
                left -= 1
            continue
        cursor = message.cursor
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        described = _described(topic, _operations(broker, request, name))
        response.topics.append(described)
        for index in range(first, len(topic.partitions)):
            if left <= 0:
                response.next_cursor = PartitionCursor(name, index)
                return
            described.partitions.append(_partition(broker, topic, index, views, listener))
            left -= 1
            looked_at += 1
            if looked_at % STEP == 0:
                views.clear()
                yield
        left -= first >= len(topic.partitions)


def _operations(broker: Broker, request: Request, name: str) -> int:
    return operations(broker, request, ResourceType.TOPIC, name)


def _described(topic: Topic, authorized: int) -> DescribedTopic:
    return DescribedTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=authorized,
    )


def _unknown(name: str, authorized: int) -> DescribedTopic:
    wrong = name_problem(name) is not None
    error = ErrorCode.INVALID_TOPIC_EXCEPTION if wrong else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribedTopic(error, name, topic_authorized_operations=authorized)


def _partition(
    broker: Broker, topic: Topic, index: int, views: dict[GroupId, View], listener: str
) -> DescribedPartition:
    """As Kafka: a partition without a leader is no error here."""
    group = topic.partitions[index].group
    view = views.get(group)
    if view is None:
        view = views[group] = view_of(broker, group, listener)
    return DescribedPartition(
        ErrorCode.NONE,
        index,
        view.leader,
        view.epoch + topic.epoch_base(index),
        view.replicas,
        view.in_sync,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=view.offline,
    )
