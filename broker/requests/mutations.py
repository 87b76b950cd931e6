"""CreateTopics, DeleteTopics and CreatePartitions of clients with a quota for them (KIP-599).

A request is charged with the partitions it makes or deletes. If its client is ahead of its rate
already, newer versions of the protocol are refused with THROTTLING_QUOTA_EXCEEDED, and admin
clients try again by themselves; older ones are carried out, and wait. A request is refused or
served as a whole: Kafka, which counts topic by topic, may refuse the last ones of a request.
"""

from collections.abc import Callable
from typing import Final

from broker.requests.context import Broker
from broker.requests.refusals import refuse
from broker.requests.reply_around import ReplyAround
from broker.requests.request import Request
from broker.requests.throttling import ThrottledReply
from wire.apis import ApiKey
from wire.error_codes import ErrorCode
from wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

_STRICT_FROM: Final = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}


def limited(handler: Callable[[Broker, Request], None]) -> Callable[[Broker, Request], None]:
    def handle(broker: Broker, request: Request) -> None:
        reply = request.reply
        throttled = reply.layer(ThrottledReply) if isinstance(reply, ReplyAround) else None
        bucket = None if throttled is None else throttled.limits.mutation
        if throttled is not None and bucket is not None:
            now_ns = broker.groups.now().boot_ns
            key = ApiKey(request.header.api_key)
            if bucket.wait_ns(now_ns) and request.header.api_version >= _STRICT_FROM[key]:
                throttled.charge(bucket, 0)
                error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
                text = "the client's quota controller_mutation_rate is used up"
                refuse(broker, request, error, text, 1)
                return
            throttled.charge(bucket, _partitions(broker, request.message))
        handler(broker, request)

    return handle


def _partitions(broker: Broker, message: object) -> int:
    """How many are made or deleted; a guess where the request does not say."""
    registry = broker.registry
    if isinstance(message, CreateTopicsRequest):
        default = broker.config.default_partitions
        counts = (len(one.assignments) or one.num_partitions for one in message.topics)
        every = sum(count if count > 0 else default for count in counts)
        return 0 if message.validate_only else every
    if isinstance(message, CreatePartitionsRequest):
        named = [(registry.topic(one.name), one.count) for one in message.topics]
        added = (max(0, count - len(one.partitions)) for one, count in named if one is not None)
        return 0 if message.validate_only else sum(added)
    assert isinstance(message, DeleteTopicsRequest)
    gone = [registry.topic(name) for name in message.topic_names]
    for state in message.topics:
        by_id = registry.topic_by_id(state.topic_id)
        gone.append(by_id if state.name is None else registry.topic(state.name))
    return sum(len(one.partitions) for one in gone if one is not None)
