"""From a frame to its handler: the single entry point of requests.

What ApiVersions advertises, what is accepted and what is dispatched all come from two tables: the
handlers below and the rows of wire.apis. A malformed request, or one in a version that is not
advertised, closes its connection with a reason; so does a bug of ours in a handler. One connection
cannot harm another.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from broker.handlers.cluster import (
    absent,
    api_versions,
    client_quotas,
    metadata,
    quorum,
    topic_partitions,
)
from broker.handlers.cluster import describe_cluster as cluster
from broker.handlers.groups import assigned_groups, coordinators, group_admin, membership, offsets
from broker.handlers.records import (
    delete_records,
    describe_producers,
    fetch,
    leader_epochs,
    list_offsets,
    produce,
    producer_ids,
)
from broker.handlers.records import (
    produce_fast_path as produce_usual,
)
from broker.handlers.security import acls, by_hand, credentials
from broker.handlers.security.gate import gated
from broker.handlers.security.sasl_gate import AuthenticationGate
from broker.handlers.topics import (
    alter_configs,
    config_resources,
    configs,
    elections,
    log_dirs,
    reassignments,
    topics,
)
from broker.ports import Reply
from broker.requests.context import Broker
from broker.requests.guard import report_bug
from broker.requests.mutations import limited
from broker.requests.refusals import BYTES_OF_A_THING, refuse, whole_refusal
from broker.requests.request import Request
from broker.requests.throttling import measured
from wire.apis import (
    APIS,
    ApiKey,
    RequestHeader,
    UnsupportedVersion,
    decode_request,
    decode_request_prefix,
    encode_response,
    encode_unsupported,
    parse_request_header,
)
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.framing import OWNED_OVER_BYTES
from wire.messages.produce import ProduceRequest

Handler: TypeAlias = Callable[[Broker, Request], None]
"""Answers `request.reply` before it returns, or keeps it and answers from a callback."""

HANDLERS: Final[Mapping[int, Handler]] = {
    **absent.HANDLERS,
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.OFFSET_COMMIT: offsets.handle_commit,
    ApiKey.OFFSET_FETCH: offsets.handle_fetch,
    ApiKey.FIND_COORDINATOR: coordinators.handle,
    ApiKey.JOIN_GROUP: membership.handle_join,
    ApiKey.HEARTBEAT: membership.handle_heartbeat,
    ApiKey.LEAVE_GROUP: membership.handle_leave,
    ApiKey.SYNC_GROUP: membership.handle_sync,
    ApiKey.DESCRIBE_GROUPS: group_admin.handle_describe,
    ApiKey.LIST_GROUPS: group_admin.handle_list,
    ApiKey.DESCRIBE_ACLS: acls.handle_describe,
    ApiKey.CREATE_ACLS: acls.handle_create,
    ApiKey.DELETE_ACLS: acls.handle_delete,
    ApiKey.CREATE_TOPICS: limited(topics.handle_create),
    ApiKey.DELETE_TOPICS: limited(topics.handle_delete),
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.INIT_PRODUCER_ID: producer_ids.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: leader_epochs.handle,
    ApiKey.DESCRIBE_CONFIGS: configs.handle,
    ApiKey.ALTER_CONFIGS: alter_configs.handle_replace,
    ApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle,
    ApiKey.CREATE_PARTITIONS: limited(topics.handle_create_partitions),
    ApiKey.DELETE_GROUPS: group_admin.handle_delete,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs.handle_incremental,
    ApiKey.OFFSET_DELETE: offsets.handle_delete,
    ApiKey.ELECT_LEADERS: elections.handle_elect,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.handle_reassign,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.handle_reassignments,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: credentials.handle_describe,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: credentials.handle_alter,
    ApiKey.DESCRIBE_QUORUM: quorum.handle,
    ApiKey.DESCRIBE_CLUSTER: cluster.handle,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.handle,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: assigned_groups.handle_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: assigned_groups.handle_describe,
    ApiKey.LIST_CONFIG_RESOURCES: config_resources.handle,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic_partitions.handle,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.handle_describe,
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.handle_alter,
}
"""All but ApiVersions, which is made from the others."""


_PRODUCE: Final = int(ApiKey.PRODUCE)
ON_LOOP_BYTES: Final = 32 * 1024
"""Longer requests are decoded in the background: a megabyte may hold a quarter of a million items.
A Produce is decoded on the loop: most of it is records, which are not decoded, and the number of
its other items is limited (wire.messages.produce)."""


def _decoded(decode: Callable[[memoryview], object], frame: memoryview) -> object:
    """The request, or the error that decoding it raised."""
    try:
        return decode(frame)
    except ProtocolError as error:
        return error


def _freed(last: list[object]) -> None:
    """Freeing a quarter of a million objects takes a while: this thread does it."""
    last.clear()


class ApiTable:
    """`requests` counts dispatched requests by API key; `refused` counts frames that were not."""

    def __init__(self, broker: Broker, handlers: Mapping[int, Handler] = HANDLERS) -> None:
        self._broker = broker
        keys = sorted({int(key) for key in handlers} | {int(ApiKey.API_VERSIONS)})
        answer = api_versions.handler_for(keys)
        self._handlers = {int(key): handler for key, handler in handlers.items()}
        self._handlers[int(ApiKey.API_VERSIONS)] = answer
        if broker.authorizer is not None:
            self._handlers = gated(self._handlers, by_hand.CHECKS)
        self.requests: dict[int, int] = dict.fromkeys(keys, 0)
        self._gate = AuthenticationGate(broker, self._count)
        self.refused = 0

    def handle_frame(
        self,
        frame: memoryview,
        owned: bool,
        client_host: str,
        reply: Reply,
        metered: bool = False,
    ) -> None:
        """Answer one request, now or later, through `reply`; never raises, whatever the bytes.

        `frame` comes without its length prefix; unless `owned` it is valid only until this returns.
        `metered`: quotas have been asked about it already.
        """
        session = reply.connection.session
        if session is not None and not metered and self._gate.takes(session, frame, reply):
            return
        if self._broker.registry.security.quotas and not metered:
            self._measure(frame, owned, client_host, reply)
            return
        if produce_usual.handle(self._broker, frame, owned, client_host, reply):
            self.requests[_PRODUCE] += 1
            return
        try:
            header = parse_request_header(frame)
            if isinstance(header, UnsupportedVersion):
                self._refuse(header, reply)
                return
            handler = self._handlers.get(header.api_key)
            if handler is None:
                self._close(f"api key {header.api_key} is not served", reply)
                return
            if len(frame) > ON_LOOP_BYTES and header.api_key != _PRODUCE:
                self._handle_large(handler, header, frame, client_host, reply)
                return
            message = decode_request(header, frame)
        except ProtocolError as error:
            self._close(str(error), reply)
            return
        self._handle(handler, Request(header, message, frame, owned, client_host, reply))

    def _measure(self, frame: memoryview, owned: bool, client_host: str, reply: Reply) -> None:
        """There are quotas: one may hold for this client."""
        broker = self._broker
        one = measured(broker.quotas, frame, reply, lambda: broker.groups.now().boot_ns)
        if one is None:
            self.handle_frame(frame, owned, client_host, reply, True)
        else:
            self.handle_frame(frame, owned, client_host, one, True)
            one.served()

    def _handle_large(
        self,
        handler: Handler,
        header: RequestHeader,
        frame: memoryview,
        client_host: str,
        reply: Reply,
    ) -> None:
        def serve(message: object, kept: memoryview, end: Callable[[], None]) -> bool:
            request = Request(header, message, kept, True, client_host, reply)
            return self._handle(handler, request, end)

        self._decode_in_background(frame, partial(decode_request, header), reply, serve)

    def _decode_in_background(
        self,
        frame: memoryview,
        decode: Callable[[memoryview], object],
        reply: Reply,
        serve: Callable[[object, memoryview, Callable[[], None]], bool],
    ) -> None:
        """Have the helper thread decode a request that may hold very many items, once there is room
        for it. What follows on the connection waits. `serve` gets the message, the frame that it
        refers to, and a function to call at its end; it returns True if it is not done with the
        message yet."""
        broker = self._broker
        kept = frame if len(frame) > OWNED_OVER_BYTES else memoryview(bytes(frame))
        reply.stop_reading()
        end = partial(broker.request_memory.decoded_end, len(kept))

        def begin() -> None:
            if reply.has_hung_up():
                reply.read_on()
                reply.close("it has hung up")
                end()
            else:
                broker.background.submit(partial(_decoded, decode, kept), done)

        def done(message: object) -> None:
            reply.read_on()
            if isinstance(message, ProtocolError):
                self._close(str(message), reply)
                end()
            elif not serve(message, kept, end):
                broker.background.submit(partial(_freed, [message]), lambda _: end())

        broker.request_memory.decode(len(kept), begin)

    def handle_over(
        self, size: int, frame: memoryview, owned: bool, client_host: str, reply: Reply
    ) -> None:
        """Refuse a request that was too long to be kept. `frame` is its prefix, of a Produce all
        but the records. Where its API has no error for a whole request, what the prefix names is
        refused. As `handle_frame` otherwise."""
        session = reply.connection.session
        if session is not None and self._gate.takes(session, frame, reply):
            return
        try:
            header = parse_request_header(frame)
            if isinstance(header, UnsupportedVersion):
                self._refuse(header, reply)
                return
        except ProtocolError as error:
            self._close(str(error), reply)
            return
        self.refused += 1
        name = APIS[header.api_key].name
        text = f"{name} of {size} bytes is too large"
        code, listener = ErrorCode.INVALID_REQUEST, reply.connection.listener.name
        whole = whole_refusal(self._broker, header, code, text, listener)
        if whole is not None:
            reply.complete(encode_response(header, whole))
            return

        def serve(message: object, kept: memoryview, _: Callable[[], None]) -> bool:
            request = Request(header, message, kept, True, client_host, reply)
            code = ErrorCode.INVALID_REQUEST
            if isinstance(message, ProduceRequest):
                code = ErrorCode.MESSAGE_TOO_LARGE
                if message.acks == 0:
                    reply.close(f"{text}, and acks=0 leaves no answer to say so")
                    return False
            refuse(self._broker, request, code, text, len(kept) // BYTES_OF_A_THING)
            return False

        self._decode_in_background(frame, partial(decode_request_prefix, header), reply, serve)

    def _handle(
        self, handler: Handler, request: Request, end: Callable[[], None] | None = None
    ) -> bool:
        """Whether it is served in portions; `end` is called once they are done."""
        key = request.header.api_key
        self.requests[key] += 1
        try:
            if self._broker.portions.serve(self._broker, request, handler, end):
                return True
            handler(self._broker, request)
            if key == _PRODUCE:
                produce_usual.remember(request.reply.connection, request, request.frame)
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            report_bug(self._broker, request, error)
        return False

    def _count(self, key: int) -> None:
        self.requests[key] += 1

    def _refuse(self, header: UnsupportedVersion, reply: Reply) -> None:
        """Only ApiVersions has an answer that any client can read (KIP-511)."""
        chunks = encode_unsupported(header)
        if chunks is None:
            self._close(
                f"api key {header.api_key} is not served in version {header.api_version}", reply
            )
        else:
            self.refused += 1
            reply.complete(chunks)

    def _close(self, reason: str, reply: Reply) -> None:
        self.refused += 1
        reply.close(reason)
