"""APIs for things that Evenkeel does not have, answered as a Kafka without them answers.

Tools ask for them as a matter of course (Kafka Streams describes transactions), and some
guess a broker's version by the APIs it lists: one that is missing among the old ones makes it a
Kafka 0.9 (ADR 52). A listing is empty, what is named is not found or refused, with Kafka's own
error; nothing is ever pretended to be done.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.groups.topic_patterns import matching
from broker.requests.context import Broker
from broker.requests.named_items import NAMED
from broker.requests.refusals import BYTES_OF_A_THING, refuse, refuse_more_than
from broker.requests.request import Request
from wire.apis import APIS, ApiKey, encode_response
from wire.error_codes import ErrorCode
from wire.messages.transactions import ListTransactionsRequest, ListTransactionsResponse

Handler = Callable[[Broker, Request], None]

_STATES: Final = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    )
)
"""Of a transaction in Kafka."""
NAMED_MAX: Final = 1_000


def _refusing(error: ErrorCode, text: str) -> Handler:
    """Everything that is named gets this error; a request that names nothing an empty answer."""

    def handle(broker: Broker, request: Request) -> None:
        if _names_nothing(request):
            _empty(broker, request)
        else:
            refuse(broker, request, error, text, len(request.frame) // BYTES_OF_A_THING)

    return handle


def _names_nothing(request: Request) -> bool:
    rows = NAMED.get(request.header.api_key)
    return rows is not None and not any(row.named(request.message) for row in rows)


def _empty(broker: Broker, request: Request) -> None:
    answer: Any = APIS[request.header.api_key].response()
    request.reply.complete(encode_response(request.header, answer))


def _list_transactions(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ListTransactionsRequest)
    if refuse_more_than(NAMED_MAX, message.state_filters, broker, request):
        return
    unknown = [one for one in message.state_filters if one not in _STATES]
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        matching(message.transactional_id_pattern or "", ())
    except ValueError:
        response = ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    request.reply.complete(encode_response(request.header, response))


NO_AUTHORIZER: Final = _refusing(
    ErrorCode.SECURITY_DISABLED,
    "No Authorizer is configured: there are no ACLs here (security.authorizer)",
)
"""For `broker.handlers.security.acls`."""
_NO_TRANSACTIONS: Final = _refusing(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "there are no transactions here"
)
_NO_TOKENS: Final = _refusing(
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    "Delegation Token requests are not allowed on PLAINTEXT connections",
)
_NO_LOGIN: Final = _refusing(
    ErrorCode.ILLEGAL_SASL_STATE, "connections are not authenticated: connect without SASL"
)

HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.SASL_HANDSHAKE: _NO_LOGIN,
    ApiKey.ADD_PARTITIONS_TO_TXN: _NO_TRANSACTIONS,
    ApiKey.ADD_OFFSETS_TO_TXN: _NO_TRANSACTIONS,
    ApiKey.END_TXN: _NO_TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT: _NO_TRANSACTIONS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _refusing(
        ErrorCode.LOG_DIR_NOT_FOUND, "a node has one directory, and everything is in it"
    ),
    ApiKey.SASL_AUTHENTICATE: _NO_LOGIN,
    ApiKey.CREATE_DELEGATION_TOKEN: _NO_TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: _NO_TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _NO_TOKENS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _NO_TOKENS,
    ApiKey.UNREGISTER_BROKER: _refusing(
        ErrorCode.INVALID_REQUEST, "nodes are removed with `evenkeel node remove`"
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _refusing(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "there are no transactions here"
    ),
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
}
