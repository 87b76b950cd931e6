"""FindCoordinator: the master of the Paxos group that a consumer group's name hashes to.

While it has none the answer is held for a moment, as for Metadata.

There are no transactions, and this is where every client with a transactional id asks first. The
answer is to end it at once and to tell why (ADR 58). librdkafka asks in version 2 at most; it gives
up on TRANSACTIONAL_ID_AUTHORIZATION_FAILED only, and shows the text of the answer. Later versions
are those of clients that end on any error that is not temporary: Java's and kafka-python's read the
text of an authorization error from their own table, but that of an unexpected one from the answer.
"""

from functools import partial
from typing import Final

from broker.groups.consumer_groups import paxos_group_of
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.request import Request
from paxos.ids import MS
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.membership import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

KEY_GROUP: Final = 0
KEY_TRANSACTION: Final = 1
BATCHED_FROM: Final = 4
"""The first version that names several keys (KIP-699)."""
UNSUPPORTED_FROM: Final = 3
"""Transactional ids: librdkafka does not ask in this version."""

NO_TRANSACTIONS: Final = "transactions are not supported: use an idempotent producer"


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, FindCoordinatorRequest)
    keys = message.coordinator_keys if request.header.api_version >= BATCHED_FROM else [message.key]
    act = guarded(broker, request, partial(_answer, broker, request, message.key_type, keys))
    if message.key_type != KEY_GROUP:
        act()
        return
    deadline = broker.groups.now().boot_ns + broker.config.no_coordinator_wait_ms * MS
    broker.delayed_operations.until(
        partial(_settled, broker, keys, _listener(request)), deadline, act
    )


def _listener(request: Request) -> str:
    return request.reply.connection.listener.name


def _settled(broker: Broker, keys: list[str], listener: str) -> bool:
    return all(_group(broker, key, listener).error_code == ErrorCode.NONE for key in keys)


def _answer(broker: Broker, request: Request, key_type: int, keys: list[str]) -> None:
    version = request.header.api_version
    listener = _listener(request)
    found = [_coordinator(broker, key_type, key, version, listener) for key in keys]
    if request.header.api_version >= BATCHED_FROM:
        response = FindCoordinatorResponse(coordinators=found)
    else:
        one = found[0]
        response = FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    request.reply.complete(encode_response(request.header, response))


def _coordinator(
    broker: Broker, key_type: int, key: str, version: int, listener: str
) -> Coordinator:
    if key_type == KEY_GROUP:
        return _group(broker, key, listener)
    if key_type == KEY_TRANSACTION:
        error = ErrorCode.UNSUPPORTED_VERSION
        if version < UNSUPPORTED_FROM:
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return Coordinator(key, -1, "", -1, error, NO_TRANSACTIONS)
    error = ErrorCode.INVALID_REQUEST
    return Coordinator(key, -1, "", -1, error, f"there are no coordinators of type {key_type}")


def _group(broker: Broker, key: str, listener: str) -> Coordinator:
    group = paxos_group_of(broker.registry, key)
    master = broker.leaders.of(group).node if group is not None else None
    address = None if master is None else broker.registry.address(master, listener)
    if master is None or address is None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(
            key, -1, "", -1, error, "the consumer group has no coordinator at the moment"
        )
    return Coordinator(key, master, *address)
