"""DescribeQuorum (KIP-595): the registry's Paxos group in place of Kafka's metadata quorum.

It is the nearest thing there is: group 0 holds what `__cluster_metadata` holds in Kafka, its master
is called the controller, and its members are the voters. A slot stands for an offset. How far other
members are is not known here (-1).
"""

from typing import Final

from broker.requests.context import Broker
from broker.requests.refusals import refuse_more_than
from broker.requests.request import Request
from paxos.ids import REGISTRY_GROUP
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.metadata import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumReplica,
)

PROTOCOL: Final = "PLAINTEXT"
METADATA_TOPIC: Final = "__cluster_metadata"
PARTITIONS_MAX: Final = 10
"""In one request; clients ask for one."""


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeQuorumRequest)
    named = [one for topic in message.topics for one in topic.partitions]
    if refuse_more_than(PARTITIONS_MAX, [*named, *message.topics], broker, request):
        return
    topics = [
        DescribedQuorumTopic(
            topic.topic_name,
            [_described(broker, topic.topic_name, one.partition_index) for one in topic.partitions],
        )
        for topic in message.topics
    ]
    answered = any(one.error_code == ErrorCode.NONE for topic in topics for one in topic.partitions)
    nodes = [
        QuorumNode(node.node, [QuorumListener(PROTOCOL, node.kafka.host, node.kafka.port)])
        for node in broker.registry.nodes.values()
        if answered  # as in Kafka
    ]
    response = DescribeQuorumResponse(topics=topics, nodes=nodes)
    request.reply.complete(encode_response(request.header, response))


def _described(broker: Broker, topic: str, index: int) -> DescribedQuorumPartition:
    if topic != METADATA_TOPIC or index != 0:
        return DescribedQuorumPartition(
            index,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            leader_id=-1,
            leader_epoch=-1,
            high_watermark=-1,
        )
    leader, applied = broker.leaders.of(REGISTRY_GROUP), broker.registry.applied
    members = broker.groups.members(REGISTRY_GROUP)
    others = broker.registry.nodes.keys() - set(members)
    return DescribedQuorumPartition(
        index,
        leader_id=-1 if leader.node is None else leader.node,
        leader_epoch=leader.epoch,
        high_watermark=applied,
        current_voters=[_replica(broker, node, applied) for node in members],
        observers=[_replica(broker, node, applied) for node in sorted(others)],
    )


def _replica(broker: Broker, node: int, applied: int) -> QuorumReplica:
    return QuorumReplica(node, log_end_offset=applied if node == broker.me else -1)
