"""From the batches of an export to batches that a broker accepts from a producer.

A batch is sent as it is, compressed or not, under a new header, where that is possible. It is
decoded and written again if it has gaps (compaction), the log's append time, which no producer may
send, or if a part of it is there already. Small ones in a row become one: each costs a round trip.
Records keep key, value, headers and time; their offsets become consecutive.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from wire.codec.primitives import Buffer
from wire.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Batch,
    Compression,
    Record,
    iterate_records,
    parse_header,
)
from wire.records.batch_writer import BatchWriter
from wire.records.compression import compress, decompress
from wire.records.spans import rebuilt, record_spans

SMALL_BYTES: Final = 32 * 1024
JOINED_BYTES: Final = 256 * 1024
JOINED_RECORDS_MAX: Final = 2_000
UNPACKED_BYTES_MAX: Final = 512 * 1024 * 1024


@attrs.define
class Piece:
    """One batch to send: `count` records, the first of which has number `first` in its partition
    (counted from 0)."""

    first: int
    count: int
    batch: Batch | None = None
    records: list[Record] = attrs.Factory(list)
    codec: Compression = Compression.NONE
    size: int = 0

    def sealed(self, producer_id: int, epoch: int, sequence: int) -> bytes:
        if self.batch is not None:
            header = self.batch.header
            clean = header.attributes & ~(TRANSACTIONAL_BIT | DELETE_HORIZON_BIT)
            header = header._replace(
                base_offset=0,
                leader_epoch=-1,
                attributes=clean,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            return rebuilt(header, self.batch.data[HEADER_BYTES:])
        writer = BatchWriter()
        for record in self.records:
            writer.append(record)
        payload: Buffer = compress(bytes(writer.payload), self.codec)
        return writer.seal(
            payload,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            compression=self.codec,
        )


def records_of(batch: Batch) -> list[Record]:
    payload = decompress(batch, UNPACKED_BYTES_MAX)
    return list(iterate_records(batch, payload))


def within(batch: Batch, first: int, end: int) -> Batch | None:
    """The batch with only the records of these offsets, at their places; None if there are none. A
    topic may have been trimmed in the middle of a batch, which brokers deliver whole."""
    header = batch.header
    if first <= header.base_offset and header.last_offset < end:
        return batch
    payload = decompress(batch, UNPACKED_BYTES_MAX)
    kept = [
        span
        for span in record_spans(header, payload)
        if first <= header.base_offset + span.offset_delta < end
    ]
    if not kept:
        return None
    codec = Compression(header.attributes & COMPRESSION_MASK)
    records = compress(b"".join(payload[one.start : one.stop] for one in kept), codec)
    newest_ms = header.base_timestamp_ms + max(one.timestamp_delta for one in kept)
    if header.attributes & LOG_APPEND_TIME_BIT:
        newest_ms = header.max_timestamp_ms
    header = header._replace(record_count=len(kept), max_timestamp_ms=newest_ms)
    data = memoryview(rebuilt(header, records))
    return Batch(parse_header(data), data)


def as_it_is(batch: Batch) -> bool:
    """Whether a producer could have sent these records."""
    header = batch.header
    return (
        header.record_count == header.last_offset_delta + 1
        and not header.attributes & LOG_APPEND_TIME_BIT
    )


def pieces(
    batches: Iterable[Batch], skip: int = 0, bytes_max: int = JOINED_BYTES
) -> Iterator[Piece]:
    """What is to be sent for these batches, without their first `skip` records. Small batches are
    joined up to `bytes_max`."""
    number = 0
    joined: Piece | None = None
    for batch in batches:
        header = batch.header
        if header.attributes & CONTROL_BIT or not header.record_count:
            continue
        first, number = number, number + header.record_count
        if number <= skip:
            continue
        size = len(batch.data)
        whole = first >= skip
        alone = whole and as_it_is(batch) and size > min(SMALL_BYTES, bytes_max)
        if joined is not None and (alone or not _fits(joined, batch, bytes_max)):
            yield joined
            joined = None
        if alone:
            yield Piece(first, header.record_count, batch, size=size)
            continue
        if joined is None:
            codec = Compression(header.attributes & COMPRESSION_MASK)
            joined = Piece(max(first, skip), 0, codec=codec)
            if whole and as_it_is(batch):
                joined.batch = batch  # unless another joins it
                joined.count, joined.size = header.record_count, size
                continue
        elif joined.batch is not None:
            joined.records, joined.batch = records_of(joined.batch), None
        joined.records += records_of(batch)[max(0, skip - first) :]
        joined.count = len(joined.records)
        joined.size += size
    if joined is not None:
        yield joined


def _fits(joined: Piece, batch: Batch, bytes_max: int) -> bool:
    header = batch.header
    return (
        joined.codec == header.attributes & COMPRESSION_MASK
        and joined.size + len(batch.data) <= bytes_max
        and joined.count + header.record_count <= JOINED_RECORDS_MAX
    )


def record_number(batches: Iterable[Batch], offsets: Iterable[int]) -> dict[int, int]:
    """For each offset of the source, how many exported records come before it."""
    left = sorted(set(offsets), reverse=True)
    numbers: dict[int, int] = {}
    number = 0
    for batch in batches:
        header = batch.header
        if header.attributes & CONTROL_BIT:
            continue
        while left and left[-1] <= header.last_offset:
            offset = left.pop()
            numbers[offset] = number + _before(batch, offset)
        number += header.record_count
        if not left:
            break
    return numbers | dict.fromkeys(left, number)


def _before(batch: Batch, offset: int) -> int:
    """How many records of the batch have a smaller offset."""
    header = batch.header
    if offset <= header.base_offset:
        return 0
    if header.record_count == header.last_offset_delta + 1:
        return offset - header.base_offset
    return sum(record.offset < offset for record in records_of(batch))
