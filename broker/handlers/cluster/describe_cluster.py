"""DescribeCluster (KIP-700): the nodes, without any topics."""

from typing import Final

from broker.handlers.cluster.metadata import controller
from broker.requests.access import cluster_operations
from broker.requests.context import Broker
from broker.requests.refusals import reached_by
from broker.requests.request import Request
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

ENDPOINT_BROKERS: Final = 1
ENDPOINT_CONTROLLERS: Final = 2


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeClusterRequest)
    request.reply.complete(encode_response(request.header, _response(broker, request, message)))


def _response(
    broker: Broker, request: Request, message: DescribeClusterRequest
) -> DescribeClusterResponse:
    if message.endpoint_type != ENDPOINT_BROKERS:
        known = message.endpoint_type == ENDPOINT_CONTROLLERS
        return DescribeClusterResponse(
            error_code=(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="this is a broker's endpoint: ask for endpoint type 1",
            endpoint_type=message.endpoint_type,
        )
    alive = broker.groups.alive()
    listener = request.reply.connection.listener.name
    return DescribeClusterResponse(
        endpoint_type=ENDPOINT_BROKERS,
        cluster_id=broker.config.cluster_id,
        controller_id=controller(broker, listener),
        brokers=[
            DescribeClusterBroker(
                node.node,
                *address,
                node.zone or None,
                message.include_fenced_brokers and node.node not in alive,
            )
            for node, address in reached_by(broker, listener)
        ],
        cluster_authorized_operations=cluster_operations(
            broker, request, asked=message.include_cluster_authorized_operations
        ),
    )
