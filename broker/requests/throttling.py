"""Requests of clients that have a quota: measured, answered with a throttle time, then not read.

Nothing is refused and nothing is delayed: the answer says for how long the client should rest, and
its connection is not read for as long (KIP-219), whatever the client makes of that. A Produce is
charged when it comes, with its size as in Kafka, so that acks=0 and requests that follow it in a
pipeline are held as well; a Fetch by its answer. Request time is what the event loop spends on a
request until its handler returns.

A request that is forwarded to another node is charged here only, where its client is connected.
"""

from collections.abc import Callable
from typing import Final

from broker.ports import Reply
from broker.requests.reply_around import ReplyAround
from broker.security.quotas import Bucket, ClientQuotas, Limits
from paxos.entry import Buffer
from paxos.ids import MS
from wire.apis import APIS, ApiKey, RequestHeader, decode_response, encode_response

_HEAD_BYTES: Final = 10
"""Key, version, correlation id, and the length of the client id."""
_CORRELATION_AT: Final = 4
_THROTTLE_MS_MAX: Final = 2**31 - 1


def measured(
    quotas: ClientQuotas, frame: memoryview, reply: Reply, now_ns: Callable[[], int]
) -> "ThrottledReply | None":
    """The reply of a request whose client has a quota; None if it has none."""
    if len(frame) < _HEAD_BYTES:
        return None
    key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
    end = _HEAD_BYTES + int.from_bytes(frame[_HEAD_BYTES - 2 : _HEAD_BYTES], "big", signed=True)
    client_id = str(frame[_HEAD_BYTES : max(end, _HEAD_BYTES)], "utf-8", "replace")
    limits = quotas.of(reply.connection.principal.name, client_id)
    if limits is None:
        return None
    correlation = int.from_bytes(frame[_CORRELATION_AT : _CORRELATION_AT + 4], "big", signed=True)
    header = RequestHeader(key, version, correlation, client_id, 0)
    one = ThrottledReply(quotas, limits, header, reply, now_ns)
    if key == ApiKey.PRODUCE:
        one.charge(limits.produce, len(frame))
    return one


class ThrottledReply(ReplyAround):
    """A broker.ports.Reply around that of the connection."""

    def __init__(
        self,
        quotas: ClientQuotas,
        limits: Limits,
        header: RequestHeader,
        reply: Reply,
        now_ns: Callable[[], int],
    ) -> None:
        super().__init__(reply)
        self._quotas, self.limits, self._header = quotas, limits, header
        self._now_ns = now_ns
        self._began_ns: int | None = None if limits.request is None else now_ns()
        """None: its time is not charged, or is already."""
        self._until_ns = 0

    def charge(self, bucket: Bucket | None, amount: float) -> None:
        """Charge it, and read no more of the connection until its client is not ahead."""
        wait = 0 if bucket is None else self._quotas.charge(bucket, amount)
        if wait:
            self._until_ns = max(self._until_ns, self._now_ns() + wait)
            self._reply.mute(self._until_ns)

    def served(self) -> None:
        """The handler has returned, or is answering."""
        began, self._began_ns = self._began_ns, None
        if began is not None:
            self.charge(self.limits.request, self._now_ns() - began)

    def complete(self, chunks: list[Buffer]) -> None:
        self.served()
        if self._header.api_key == ApiKey.FETCH:
            self.charge(self.limits.fetch, sum(map(len, chunks)))
        rest_ms = -(-(self._until_ns - self._now_ns()) // MS) if self._until_ns else 0
        if rest_ms > 0:
            chunks = with_throttle(self._header, chunks, min(rest_ms, _THROTTLE_MS_MAX))
        self._reply.complete(chunks)

    @property
    def room(self) -> int:
        return min(self._reply.room, self.limits.fetch_bytes)


def with_throttle(header: RequestHeader, chunks: list[Buffer], rest_ms: int) -> list[Buffer]:
    """The same answer with a throttle time, unless it has a longer one; as it is if this version of
    it has no place for one."""
    api = APIS.get(header.api_key)
    if api is None or not api.accepted.has(header.api_version):
        return chunks
    if header.api_key != ApiKey.FETCH:
        frame = memoryview(b"".join(chunks))[4:]
        answer = decode_response(header.api_key, header.api_version, frame)
        if not hasattr(answer, "throttle_time_ms"):
            return chunks
        answer.throttle_time_ms = max(answer.throttle_time_ms, rest_ms)
        return encode_response(header, answer)
    head = bytearray(chunks[0])  # large answers are not decoded: the time is their first field
    at = 9 if api.flexible(header.api_version) else 8
    before = int.from_bytes(head[at : at + 4], "big")
    head[at : at + 4] = max(before, rest_ms).to_bytes(4, "big")
    return [head, *chunks[1:]]
