"""Produce requests that are encoded once and sent many times: only the correlation id changes."""

import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

import attrs

from benchmarks.load import login
from wire.apis import (
    ApiKey,
    RequestHeader,
    Response,
    decode_response,
    encode_request,
    encode_response,
    response_correlation_id,
)
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

PRODUCE_VERSION: Final = 9
"""The first flexible one (KIP-482); every broker of recent years supports it."""
METADATA_VERSION: Final = 9
CLIENT_ID: Final = "evenkeel-benchmarks"
ACKS_ALL: Final = -1
PRODUCE_TIMEOUT_MS: Final = 30_000
CORRELATION_AT: Final = 8
"""After length, API key and version."""
CORRELATION: Final = struct.Struct(">i")
ERROR: Final = struct.Struct(">h")
FRAME_BYTES_MAX: Final = 1024 * 1024
CONNECT_S: Final = 5.0
_UNLIKELY: Final = 0x7A5B


class TargetError(RuntimeError):
    """The brokers do not answer, or not as needed; the message says what is wrong."""


@attrs.frozen
class Leader:
    """A node and the partitions it leads."""

    host: str
    port: int
    partitions: tuple[int, ...]


def produce_frame(topic: str, partition: int, record_bytes: int, records: int = 1) -> bytearray:
    """A whole request with one batch, acks=all; its correlation id is filled in later."""
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([Record(b"x" * record_bytes, timestamp_ms=now_ms)] * records)
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id=None,
        acks=ACKS_ALL,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return bytearray(b"".join(encode_request(request, PRODUCE_VERSION, 0, CLIENT_ID)))


def error_code_at(topic: str) -> int:
    """The position of the error code in an answer to `produce_frame` (length prefix excluded).

    It is found in an example: the bytes before it have the same length in every such answer.
    """
    partition = PartitionProduceResponse(index=0, error_code=_UNLIKELY, base_offset=0)
    answer = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[partition])]
    )
    header = RequestHeader(ApiKey.PRODUCE, PRODUCE_VERSION, 0, None, 0)
    frame = b"".join(encode_response(header, answer))[4:]
    return frame.rindex(ERROR.pack(_UNLIKELY))


def describe_refusal(frame: memoryview) -> str:
    """What a produce answer refused, in words."""
    answer = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, frame)
    assert isinstance(answer, ProduceResponse)
    told = [
        f"partition {one.index}: {_error_name(one.error_code)} {one.error_message or ''}".strip()
        for topic in answer.responses
        for one in topic.partition_responses
    ]
    return "; ".join(told)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def leaders_of(bootstrap: str, topic: str) -> tuple[Leader, ...]:
    """The nodes that lead partitions of the topic, by id.

    Raises:
        TargetError: if no broker answers, or a partition has no leader.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    answer = ask_any(bootstrap, request)
    led: dict[int, list[int]] = {}
    for found in answer.topics:
        for partition in found.partitions:
            if partition.leader_id < 0:
                raise TargetError(f"{topic}-{partition.partition_index} has no leader")
            led.setdefault(partition.leader_id, []).append(partition.partition_index)
    if not led:
        raise TargetError(f"topic {topic} is not known to {bootstrap}")
    places = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    return tuple(Leader(*places[node], tuple(sorted(led[node]))) for node in sorted(led))


def ask_any(bootstrap: str, request: MetadataRequest) -> MetadataResponse:
    """The first answer from one of these servers.

    Raises:
        TargetError: if none answers.
    """
    failures: list[str] = []
    for place in bootstrap.split(","):
        host, _, port = place.strip().rpartition(":")
        try:
            with login.connected(host.strip("[]"), int(port), CONNECT_S) as connection:
                answer = _exchange(connection, encode_request(request, METADATA_VERSION, 1, None))
        except (OSError, ValueError, ProtocolError, login.LoginError) as error:
            failures.append(f"{place}: {error}")
            continue
        assert isinstance(answer, MetadataResponse)
        return answer
    raise TargetError("; ".join(failures))


def _exchange(
    connection: socket.socket, chunks: Sequence[bytes | bytearray | memoryview]
) -> Response:
    connection.sendall(b"".join(chunks))
    size = int.from_bytes(_receive(connection, 4), "big")
    if size > FRAME_BYTES_MAX:
        raise OSError(f"an answer of {size} bytes")
    frame = memoryview(_receive(connection, size))
    if response_correlation_id(frame) != 1:
        raise OSError("an answer to another request")
    return decode_response(ApiKey.METADATA, METADATA_VERSION, frame)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise OSError("the connection was closed")
        data += more
    return data
