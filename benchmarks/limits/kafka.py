"""Just enough of Kafka for the bare append: one leader of any topic that a client names.

Produce is parsed by hand, one partition per request, as the load generator and librdkafka send it;
everything else is rare and goes through `wire`. The common part of the answers is made once.
"""

import struct
from typing import Final, NamedTuple

from benchmarks.limits.streams import Closed
from wire.apis import (
    ApiKey,
    RequestHeader,
    UnsupportedVersion,
    advertised,
    decode_request,
    encode_response,
    encode_unsupported,
    parse_request_header,
)
from wire.codec.primitives import Buffer
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

NODES: Final = (1, 2, 3)
LEADER: Final = NODES[0]
TOPICS_MAX: Final = 256
PRODUCE_VERSIONS: Final = (9, 10)
"""Flexible versions, which differ only in fields that are not used here."""
ADVERTISED: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,  # not served, but without it librdkafka falls back to an older message format
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
)
START: Final = -2
"""The timestamp that asks for the first offset; any other gets the next one."""
_HEAD: Final = struct.Struct(">hhih")
_INDEX: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_LAST_OFFSET_DELTA_AT: Final = 23
_UNLIKELY: Final = 0x5A7B_5C7D


class Produced(NamedTuple):
    """One Produce request."""

    correlation: int
    topic: bytes
    partition: int
    records: memoryview


class Topic:
    """The next offset of each partition, and the common part of all answers to Produce."""

    def __init__(self, name: str, partitions: int) -> None:
        self.next_offsets = [0] * partitions
        partition = PartitionProduceResponse(_UNLIKELY, 0, _UNLIKELY)
        topic = TopicProduceResponse(name=name, partition_responses=[partition])
        header = RequestHeader(ApiKey.PRODUCE, PRODUCE_VERSIONS[0], 0, None, 0)
        self._answer = b"".join(encode_response(header, ProduceResponse(responses=[topic])))
        self._index_at = self._answer.index(_INDEX.pack(_UNLIKELY))
        self._offset_at = self._answer.index(_OFFSET.pack(_UNLIKELY))

    def take_offset(self, produced: Produced) -> int:
        """The first of as many offsets as the batch has records."""
        partition = produced.partition
        if partition >= len(self.next_offsets) or len(produced.records) <= _LAST_OFFSET_DELTA_AT:
            raise Closed
        base: int = self.next_offsets[partition]
        delta: int = _INDEX.unpack_from(produced.records, _LAST_OFFSET_DELTA_AT)[0]
        self.next_offsets[partition] = base + delta + 1
        return base

    def answer(self, correlation: int, partition: int, base_offset: int) -> bytearray:
        frame = bytearray(self._answer)
        _INDEX.pack_into(frame, 4, correlation)
        _INDEX.pack_into(frame, self._index_at, partition)
        _OFFSET.pack_into(frame, self._offset_at, base_offset)
        return frame


class Topics:
    """Topics are created when a client names them."""

    def __init__(self, port: int, partitions: int) -> None:
        self._port, self._partitions = port, partitions
        self._topics: dict[bytes, Topic] = {}

    def topic(self, name: bytes) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            if len(self._topics) == TOPICS_MAX:
                raise Closed
            topic = self._topics[name] = Topic(name.decode(), self._partitions)
        return topic

    def answer(self, frame: memoryview) -> list[Buffer]:
        """The answer to any request except Produce."""
        header = parse_request_header(frame)
        if isinstance(header, UnsupportedVersion):
            refusal = encode_unsupported(header)
            if refusal is None:
                raise Closed
            return refusal
        request = decode_request(header, frame)
        match request:
            case ApiVersionsRequest():
                keys = [one for one in advertised() if one.api_key in ADVERTISED]
                return encode_response(header, ApiVersionsResponse(api_keys=keys))
            case MetadataRequest():
                return encode_response(header, self._metadata(request))
            case ListOffsetsRequest():
                return encode_response(header, self._offsets(request))
            case _:
                raise Closed

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        asked = [one.name.encode() for one in request.topics or () if one.name is not None]
        for name in asked:
            self.topic(name)
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=LEADER,
                leader_epoch=1,
                replica_nodes=list(NODES),
                isr_nodes=list(NODES),
            )
            for index in range(self._partitions)
        ]
        names = self._topics if request.topics is None else asked
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=LEADER, host="127.0.0.1", port=self._port)],
            cluster_id="bare-append",
            controller_id=LEADER,
            topics=[
                MetadataResponseTopic(0, name.decode(), bytes(16), False, partitions)
                for name in names
            ],
        )

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=asked.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            offset=0
                            if one.timestamp == START
                            else self.topic(asked.name.encode()).next_offsets[one.partition_index],
                            leader_epoch=1,
                        )
                        for one in asked.partitions
                    ],
                )
                for asked in request.topics
            ]
        )


def read_produce(frame: memoryview) -> Produced | None:
    """None for another API.

    Raises:
        Closed: for a Produce that the measuring clients do not send: see above.
    """
    key, version, correlation, client_size = _HEAD.unpack_from(frame)
    if key != ApiKey.PRODUCE:
        return None
    at = _HEAD.size + max(client_size, 0)
    # No tags, no transactional id, (acks, timeout), one topic with a short name ...
    if version not in PRODUCE_VERSIONS or frame[at] or frame[at + 1] or frame[at + 8] != 2:
        raise Closed
    at += 9
    name_size = frame[at] - 1
    at += 1
    name = bytes(frame[at : at + name_size])
    at += name_size
    if name_size >= 0x7F or frame[at] != 2:  # ... and one partition
        raise Closed
    partition: int = _INDEX.unpack_from(frame, at + 1)[0]
    at += 1 + _INDEX.size
    size = shift = 0
    while True:
        byte = frame[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return Produced(correlation, name, partition, frame[at : at + size - 1])
