"""One partition as its consumer sees it: its position, what was fetched, what was handed out.

Batches are kept as they came and decoded when they are handed out, one at a time, so a consumer
holds no more than it has fetched. The answer to a fetch that was in flight during a seek is
discarded, because it does not begin at the new position.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import attrs
from crc32c import crc32c

from evenkeel.config import OffsetReset
from evenkeel.errors import EvenkeelError, refusal
from wire.cluster_view import TopicPartition
from wire.codec.schema import UUID_ZERO
from wire.messages.fetch import PartitionData
from wire.records.batch import Batch, BatchError, as_view, iterate_records, split
from wire.records.compression import decompress
from wire.records.transactions import Transactions

CRC_COVERS_FROM: Final = 21


class ConsumerRecord(NamedTuple):
    """A record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@attrs.frozen
class Records:
    """Records of one partition, in order, as they were written together; at least one."""

    place: TopicPartition
    records: Sequence[ConsumerRecord]

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


class _Held(NamedTuple):
    batch: Batch
    skip: bool
    """For control batches, and for records of an aborted transaction."""
    size: int


@attrs.define(eq=False)
class FetchedPartition:
    """A partition that is assigned to the consumer."""

    place: TopicPartition
    position: int | None = None
    """The next offset to hand out; None until it is found."""
    fetch_from: int = 0
    processed: int | None = None
    """The position when the application last asked for more."""
    committed: int | None = None
    paused: bool = False
    settling: bool = False
    """Being assigned or revoked: nothing is fetched or handed out."""
    in_flight: bool = False
    not_before: float = 0.0
    failures: int = 0
    buffered: int = 0
    log_start: int = -1
    high_watermark: int = -1
    """From the last answer; -1 before the first, or if the broker does not say."""
    reset: OffsetReset | None = None
    """Requested by the user, or because the log no longer contains our position."""
    error: EvenkeelError | None = None
    """Raised when the application next asks for records."""
    leader_epoch: int = -1
    topic_id: bytes = UUID_ZERO
    """Id of the topic that the position belongs to; zero until it is known."""
    _held: deque[_Held] = attrs.Factory(deque)
    _transactions: Transactions = attrs.Factory(Transactions)

    @property
    def has_records(self) -> bool:
        return bool(self._held)

    @property
    def lag(self) -> int | None:
        """How far the position is behind the end, without deleted records: none can be read."""
        if self.position is None or self.high_watermark < 0:
            return None
        return max(0, self.high_watermark - max(self.log_start, self.position))

    def seek(self, offset: int) -> None:
        """Continue from this offset; drop fetched records."""
        self.drop()
        self.position = self.processed = self.fetch_from = offset
        self.reset = self.error = None
        self.topic_id = UUID_ZERO

    def seek_to(self, where: OffsetReset) -> None:
        """Continue from an end of the log, which has to be looked up first."""
        self.drop()
        self.position = self.processed = None
        self.reset, self.error = where, None

    def is_of(self, topic_id: bytes) -> bool:
        """Whether this is our topic. If another topic has its name now, our position is void: all
        that was read and committed was of the deleted topic."""
        if topic_id == UUID_ZERO or self.topic_id in (UUID_ZERO, topic_id):
            self.topic_id = self.topic_id if topic_id == UUID_ZERO else topic_id
            return True
        self.drop()
        self.position = self.processed = self.committed = None
        self.topic_id = UUID_ZERO
        return False

    def drop(self) -> None:
        self._held.clear()
        self._transactions.forget()
        self.buffered = 0

    # -- taking in --------------------------------------------------------------------------------

    def take(self, asked_from: int, answer: PartitionData, check_crcs: bool) -> None:
        """Take in an answer without an error.

        Raises:
            EvenkeelError: if the records are damaged or in an old format.
        """
        self.log_start, self.high_watermark = answer.log_start_offset, answer.high_watermark
        if self.position is None or asked_from != self.fetch_from:
            return
        self._transactions.set_aborted(answer.aborted_transactions)
        view = as_view(answer.records)
        try:
            batches = split(view, partial_tail=True)
        except BatchError as error:
            raise self._damaged(error) from error
        for batch in batches:
            if batch.header.last_offset < self.fetch_from:
                continue
            if check_crcs and crc32c(batch.data[CRC_COVERS_FROM:]) != batch.header.crc:
                raise self._damaged(None)
            held = _Held(batch, self._transactions.skips(batch), len(batch.data))
            self._held.append(held)
            self.buffered += held.size
            self.fetch_from = batch.header.last_offset + 1

    def _damaged(self, error: BatchError | None) -> EvenkeelError:
        code = 2 if error is None else int(error.code)
        return refusal(
            f"the records in {self.place} at offset {self.fetch_from} cannot be read",
            code,
            "the checksum is wrong" if error is None else str(error),
        )

    # -- handing out ------------------------------------------------------------------------------

    def hand_out(self, decompressed_bytes_max: int) -> Records | None:
        """The records of the next batch; None if there are none for the application in it.

        Raises:
            EvenkeelError: if they cannot be decoded; the position stays before them.
        """
        assert self.position is not None
        held = self._held[0]
        records: list[ConsumerRecord] = []
        if not held.skip:
            try:
                payload = decompress(held.batch, decompressed_bytes_max)
                records = [
                    ConsumerRecord(
                        *self.place, one.offset, one.timestamp_ms, one.key, one.value, one.headers
                    )
                    for one in iterate_records(held.batch, payload)
                    if one.offset >= self.position
                ]
            except BatchError as error:
                raise self._damaged(error) from error
        self._held.popleft()
        self.buffered -= held.size
        self.position = held.batch.header.last_offset + 1
        self.leader_epoch = held.batch.header.leader_epoch
        return Records(self.place, records) if records else None
