"""DescribeProducers (KIP-664): the idempotent producers that a partition remembers.

As in Kafka the leader answers. A partition remembers thousands of them: they are looked at in
steps, and an answer holds a limited number; partitions for which there is no room are told to ask
again, by themselves. When a producer wrote last is not remembered (-1).
"""

from collections.abc import Iterator
from typing import Final

from balancer.registry.catalogue import name_problem
from broker.handlers.topics.known_names import denial
from broker.requests.context import Broker
from broker.requests.refusals import answer_aside, refuse_more_than
from broker.requests.request import Request
from broker.requests.steps import STEP
from wire.error_codes import ErrorCode
from wire.messages.producer_ids import (
    DescribedProducersPartition,
    DescribedProducersTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
)

PARTITIONS_MAX: Final = 100_000
"""In one request."""
PRODUCERS_MAX: Final = 100_000
"""In one answer: some 3 MB."""


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeProducersRequest)
    named = sum(1 + len(topic.partition_indexes) for topic in message.topics)
    if refuse_more_than(PARTITIONS_MAX, range(named), broker, request):
        return
    response = DescribeProducersResponse()

    def answer() -> None:
        rows = [one for topic in response.topics for one in topic.partitions]
        count = len(rows) + sum(len(one.active_producers) for one in rows)
        answer_aside(broker, request, count, lambda: response)

    work = _look(broker, message, response)
    broker.portions.in_steps(broker, request.reply, work, answer)


def _look(
    broker: Broker, message: DescribeProducersRequest, response: DescribeProducersResponse
) -> Iterator[None]:
    looked_at = found = 0
    for asked in message.topics:
        topic = DescribedProducersTopic(asked.name)
        response.topics.append(topic)
        for index in asked.partition_indexes:
            row = _described(broker, asked.name, index, PRODUCERS_MAX - found)
            topic.partitions.append(row)
            found += len(row.active_producers)
            looked_at += 1 + len(row.active_producers)
            if looked_at >= STEP:
                looked_at = 0
                yield


def _described(broker: Broker, name: str, index: int, room: int) -> DescribedProducersPartition:
    row = DescribedProducersPartition(index)
    wrong = name_problem(name)
    if wrong is not None:
        row.error_code, row.error_message = ErrorCode.INVALID_TOPIC_EXCEPTION, wrong
        return row
    topic = broker.registry.topic(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        row.error_code = denial(broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        row.error_message = "there is no such partition here"
        return row
    uid, group = topic.partitions[index]
    machine = broker.machines.get(group)
    if machine is None or not (broker.groups.acting(group) and broker.groups.caught_up(group)):
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return row
    state = machine.partitions.get(uid)
    if state is None:  # nothing was ever written to it
        return row
    if len(state.producers) > room:
        row.error_code = ErrorCode.REQUEST_TIMED_OUT
        row.error_message = f"more than {PRODUCERS_MAX} producers: ask for fewer partitions"
        return row
    row.active_producers = [
        ProducerState(one.producer_id, one.epoch, one.last) for one in state.producers.images()
    ]
    return row
