"""Reading and writing whole record batches of one partition, over the library's connections.

The library's consumer and producer handle records; a backup moves batches, compressed as they are.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

import attrs

from cli.backup.batch_files import why_unusable
from cli.clusters.kafka_commands import ClientError
from evenkeel import BrokerError, EvenkeelError, Isolation, UnreachableError
from evenkeel.client import Client, Purpose
from evenkeel.errors import refusal
from wire.cluster_view import TopicPartition
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.framing import MIB
from wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from wire.records.batch import Batch, BatchError, as_view, split

FETCH_BYTES: Final = 4 * MIB
FETCH_WAIT_MS: Final = 500
TOPIC_IDS_FROM: Final = 13
"""From this version on, a fetch names topics only by their ids."""
CONSUMER: Final = -1
SESSIONLESS: Final = -1
ALL: Final = -1
SEQUENCES: Final = 1 << 31
WINDOW: Final = 4
"""Batches of a partition under way; a broker remembers the last five of a producer (KIP-98)."""


class Sendable(Protocol):
    """A batch to be sent."""

    count: int

    def sealed(self, producer_id: int, epoch: int, sequence: int) -> bytes: ...


@attrs.define
class Fetched:
    """`gone`: the offset was not in the log any more, which begins at `log_start`."""

    batches: list[Batch]
    data: PartitionData
    gone: bool = False


@attrs.define
class Reader:
    """Fetches batches of committed records from the partitions of one topic."""

    client: Client
    topic: str
    topic_id: str
    timeout_s: float

    async def fetch(self, partition: int, offset: int, fetch_bytes: int = FETCH_BYTES) -> Fetched:
        """The batches from this offset on; none if nothing came for a while.

        Raises:
            TimedOutError: if the partition's leader does not answer in time.
            ClientError: if what it delivers is not intact.
        """
        place = TopicPartition(self.topic, partition)

        async def once() -> Fetched:
            return await self._once(place, offset, fetch_bytes)

        what = f"{place} cannot be read from offset {offset}"
        return await self.client.until_done(what, once, timeout_s=self.timeout_s)

    async def _once(self, place: TopicPartition, offset: int, fetch_bytes: int) -> Fetched:
        leader = await self.client.leader(place)
        view = self.client.view
        if view.topics[place.topic].topic_id.hex() != self.topic_id:
            raise ClientError(f"topic {place.topic} was deleted and created again meanwhile")
        topic_id = view.topics[place.topic].topic_id
        connection = await self.client.connection(leader, Purpose.FETCH)
        version = connection.version_for(FetchRequest)
        if version >= TOPIC_IDS_FROM and topic_id == UUID_ZERO:
            version = connection.version_for(FetchRequest, at_most=TOPIC_IDS_FROM - 1)
        row = FetchPartition(place.partition, -1, offset, partition_max_bytes=fetch_bytes)
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=fetch_bytes,
            isolation_level=Isolation.READ_COMMITTED.value,
            session_epoch=SESSIONLESS,
            topics=[FetchTopic(place.topic, topic_id, [row])],
        )
        answer = await connection.request(request, FetchResponse, version=version)
        if answer.error_code:
            raise refusal(f"{place} cannot be read", answer.error_code)
        data = answer.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return Fetched([], data, gone=True)
        if data.error_code:
            view.learn(place, data.current_leader, answer.node_endpoints)
            raise refusal(f"{place} cannot be read", data.error_code)
        return Fetched(_intact(place, data), data)


def _intact(place: TopicPartition, data: PartitionData) -> list[Batch]:
    try:
        found = split(as_view(data.records), partial_tail=True)
    except BatchError as error:
        raise ClientError(f"{place} has what cannot be exported: {error}") from None
    for batch in found:
        if wrong := why_unusable(batch):
            raise ClientError(f"{place} is damaged at offset {batch.header.base_offset}: {wrong}")
    return found


@attrs.define
class Writer:
    """Appends batches to the partitions of one topic, each once (KIP-98): a batch whose answer is
    lost is sent again with the same sequence, and the broker knows it."""

    client: Client
    topic: str
    timeout_s: float
    producer_id: int = -1
    epoch: int = -1
    _sequences: dict[int, int] = attrs.Factory(dict)

    async def open(self) -> None:
        async def once() -> InitProducerIdResponse:
            node = await self.client.controller()
            answer = await self.client.ask(node, InitProducerIdRequest(), InitProducerIdResponse)
            if answer.error_code:
                raise refusal("no producer id", answer.error_code)
            return answer

        answer = await self.client.until_done("no producer id", once, timeout_s=self.timeout_s)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def append(self, partition: int, batches: Sequence[Sendable]) -> list[int]:
        """Append these batches in order, at most WINDOW of them; returns their first offsets, -1
        for one whose offset the broker no longer knows.

        They are sent one behind the other, without waiting. From the first that is not acknowledged
        on, they are sent again one by one: what is there already is recognised by its sequence, and
        what came behind a gap was refused.

        Raises:
            TimedOutError: if one was not acknowledged in time; it may be there nevertheless.
            BrokerError: if one is refused.
        """
        assert 0 < len(batches) <= WINDOW
        place = TopicPartition(self.topic, partition)
        requests, sequence = [], self._sequences.get(partition, 0)
        for batch in batches:
            requests.append(
                self._request(partition, batch.sealed(self.producer_id, self.epoch, sequence))
            )
            sequence = (sequence + batch.count) % SEQUENCES
        offsets: list[int] = []
        if partition in self._sequences:  # a broker accepts any sequence as a producer's first
            offsets = await self._together(place, requests)
        for request in requests[len(offsets) :]:
            attempt = partial(self._once, place, request)
            what = f"{place} cannot be written"
            offset = await self.client.until_done(what, attempt, timeout_s=self.timeout_s)
            offsets.append(offset)
        self._sequences[partition] = sequence
        return offsets

    def _request(self, partition: int, data: bytes) -> ProduceRequest:
        row = PartitionProduceData(partition, memoryview(data))
        return ProduceRequest(
            acks=ALL,
            timeout_ms=max(1, self.client.config.request_timeout_ms * 3 // 4),
            topic_data=[TopicProduceData(self.topic, [row])],
        )

    async def _together(
        self, place: TopicPartition, requests: Sequence[ProduceRequest]
    ) -> list[int]:
        """The offsets of those before the first that was not acknowledged; all are answered, or
        will not be."""
        try:
            leader = await self.client.leader(place)
            connection = await self.client.connection(leader, Purpose.PRODUCE)
        except EvenkeelError as error:
            if error.retriable:
                return []
            raise
        version = connection.version_for(ProduceRequest)
        waiting = [connection.submit(one, version) for one in requests]
        offsets: list[int] = []
        failed = False
        for pending in waiting:
            try:
                answer = await pending.wait()
            except EvenkeelError:
                failed = True
                continue
            assert isinstance(answer, ProduceResponse)
            row = answer.responses[0].partition_responses[0]
            failed = failed or row.error_code != ErrorCode.NONE
            if not failed:
                offsets.append(row.base_offset)
        return offsets

    async def _once(self, place: TopicPartition, request: ProduceRequest) -> int:
        leader = await self.client.leader(place)
        try:
            answer = await self.client.ask(
                leader, request, ProduceResponse, purpose=Purpose.PRODUCE
            )
        except (UnreachableError, EvenkeelError) as error:
            if error.retriable:
                self.client.want_refresh()
            raise
        row: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return -1
        if row.error_code:
            self.client.view.learn(place, row.current_leader, answer.node_endpoints)
            raise _refused(place, row)
        return row.base_offset


def _refused(place: TopicPartition, row: PartitionProduceResponse) -> BrokerError:
    details = [one.batch_index_error_message for one in row.record_errors]
    why = row.error_message or next(filter(None, details), None)
    return refusal(f"{place} cannot be written", row.error_code, why)
