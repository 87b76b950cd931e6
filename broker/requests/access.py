"""What the client behind one request may do: the authorizer, asked in the client's name."""

from collections.abc import Callable
from typing import Final

from broker.requests.context import Broker
from broker.requests.request import Request
from broker.security.authorizer import EVERYTHING, Authorizer
from broker.security.decisions import Decision
from wire.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from wire.apis import APIS
from wire.error_codes import ErrorCode

DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
TEXTS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
}
"""Kafka's own. They say nothing about what there is."""
_EVERY: Final = {kind: sum(1 << one for one in some) for kind, some in OPERATIONS.items()}
NOT_ASKED: Final = -(2**31)
"""`authorized_operations` of a client that has not asked."""


class Access:
    """`may` counts as an attempt, which is written down if it is denied; `quietly` does not."""

    __slots__ = ("_authorizer", "api", "host", "principal")

    def __init__(self, authorizer: Authorizer, request: Request) -> None:
        self._authorizer = authorizer
        self.principal = request.reply.connection.principal
        self.host = request.client_host
        self.api = APIS[request.header.api_key].name

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return self._authorizer.may(self.principal, self.host, operation, kind, name, self.api)

    def quietly(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return self._authorizer.decide(self.principal, self.host, operation, kind, name).allowed

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> Decision:
        """For some resource of the type (KIP-679)."""
        decisions = self._authorizer.decisions
        return decisions.somewhere(str(self.principal), self.host, operation, kind)

    def sees(self, operation: Operation, kind: ResourceType) -> Callable[[str], bool]:
        """A filter for listings; EVERYTHING if nothing would be left out."""
        return self._authorizer.sees(self.principal, self.host, operation, kind)


def access_of(broker: Broker, request: Request) -> Access | None:
    """None: everybody may do everything."""
    authorizer = broker.authorizer
    return None if authorizer is None else Access(authorizer, request)


def visible_topics(broker: Broker, request: Request) -> Callable[[str], bool]:
    """Which topics a listing may name."""
    access = access_of(broker, request)
    return EVERYTHING if access is None else access.sees(Operation.DESCRIBE, ResourceType.TOPIC)


def operations(
    broker: Broker, request: Request, kind: ResourceType, name: str, *, asked: bool = True
) -> int:
    """The bits of what the client may do with a resource (KIP-430): without an authorizer, all
    that Kafka has for it."""
    if not asked:
        return NOT_ASKED
    access = access_of(broker, request)
    if access is None:
        return _EVERY[kind]
    allowed = (one for one in OPERATIONS[kind] if access.quietly(one, kind, name))
    return sum(1 << one for one in allowed)


def cluster_operations(broker: Broker, request: Request, *, asked: bool) -> int:
    """None at all for a client that may not describe the cluster, as in Kafka."""
    access = access_of(broker, request)
    describes = access is None or access.quietly(Operation.DESCRIBE, ResourceType.CLUSTER)
    if asked and not describes:
        return 0
    return operations(broker, request, ResourceType.CLUSTER, CLUSTER_NAME, asked=asked)
