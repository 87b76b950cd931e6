"""Compaction of a partition, as a function of its batches: the last record of each key survives.

A round has two passes, as in Kafka's cleaner. The first (`Survey`) reads the part that no round has
surveyed yet and notes the offset of each key's last record: a hash of 16 bytes and an offset per
key, at most `keys_max` of them. When they are full, the survey ends there, even within a batch, and
the rest waits for the next round. The second (`Rewriter`) reads everything from the beginning up to
that offset and rewrites it without the records that a later one replaces.

    below `begin`              `begin` .. `until`           from `until` on
    surveyed by earlier rounds surveyed by this round       waits; copied where a file is shared

Offsets never change, nor does the span of offsets of a batch: a batch that loses records keeps its
header; one that loses all of them is removed, or stays as an empty one where `keep` says that its
place must be held (the last of a file). The producer's sequences stay in the header.

A tombstone (no value) is the last record of its key, and has to stay until every reader has had
time to see it. When a round first meets it, everything older of its key is removed; then the batch
is stamped with the time at which it may go, `delete.retention.ms` from now, in the field that
KIP-534 has for it. So the deadline of a tombstone is in the data, survives restarts, and is copied
with it. A batch that cannot be read (another codec, damage) is kept whole, and no later tombstone
is ever removed: the batch may contain what the tombstone deletes.

Records without a key, from before the topic was compacted, are dropped, as Kafka does.
"""

from hashlib import blake2b
from typing import Final

import attrs

from wire.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    TIMESTAMP_END,
    Batch,
    BatchError,
    BatchHeader,
    Compression,
)
from wire.records.batch_writer import put_varint
from wire.records.compression import compress, decompress
from wire.records.spans import RecordSpan, rebuilt, record_spans

KEYS_MAX: Final = 250_000
"""Keys surveyed in one round: 133 bytes each were measured on CPython 3.11, so about 35 MB."""
RECORDS_MAX: Final = 100_000
"""Records of one batch; batches with more are neither accepted nor examined: they would block the
node for long, and take hundreds of bytes per record. Java's producer splits a batch that is refused
as too large."""
UNPACKED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Size of one batch's records when decompressed."""
KEY_HASH_BYTES: Final = 16


@attrs.define
class CompactionStatistics:
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    tombstones_dropped: int = 0
    unreadable_batches: int = 0


class Survey:
    """The first pass: batches in order from the one that contains `begin` on."""

    def __init__(self, begin: int, keys_max: int = KEYS_MAX) -> None:
        assert keys_max > 0
        self.begin = begin
        self.until = begin
        """All records below this offset are surveyed."""
        self.full = False
        self._keys: dict[bytes, int] = {}
        self._keys_max = keys_max

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, batch: Batch) -> bool:
        """Take in the next batch; False if it did not fit completely: the survey ends here."""
        assert not self.full
        header = batch.header
        if header.last_offset < self.begin:
            return True
        records = _records(batch)
        for span in records[1] if records is not None else ():
            offset = header.base_offset + span.offset_delta
            if span.key is None or offset < self.begin:
                continue
            name = _hashed(span.key)
            if len(self._keys) >= self._keys_max and name not in self._keys:
                self.until = offset
                self.full = True
                return False
            self._keys[name] = offset
        self.until = header.last_offset + 1
        return True

    def reached(self, offset: int) -> None:
        """There is nothing more below this offset."""
        assert not self.full
        self.until = max(self.until, offset)

    def replaced(self, key: bytes, offset: int) -> bool:
        """Whether the key has a later record."""
        return self._keys.get(_hashed(key), -1) > offset


class Rewriter:
    """The second pass: all batches of the partition in order, from the first one on."""

    def __init__(self, survey: Survey, *, now_ms: int, delete_retention_ms: int) -> None:
        self.statistics = CompactionStatistics()
        self._survey = survey
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, TIMESTAMP_END - 1)
        self._unreadable = False

    def rewrite(self, batch: Batch, *, keep: bool) -> memoryview | None:
        """What is left of the batch: itself, a smaller one, or None.

        With `keep` there is always one, an empty one if need be.
        """
        statistics = self.statistics
        statistics.bytes_read += len(batch.data)
        left = self._left_of(batch, keep)
        if left is not None:
            statistics.bytes_written += len(left)
        return left

    def _left_of(self, batch: Batch, keep: bool) -> memoryview | None:
        header = batch.header
        records = _records(batch)
        if records is None:
            self._unreadable = True
            self.statistics.unreadable_batches += 1
            return batch.data
        payload, spans = records
        expired = (
            header.attributes & DELETE_HORIZON_BIT
            and header.base_timestamp_ms <= self._now_ms
            and header.last_offset < self._survey.until  # else older records may still be there
            and not self._unreadable
        )
        kept = [span for span in spans if self._stays(header.base_offset, span, bool(expired))]
        tombstones = sum(span.is_tombstone for span in kept)
        self.statistics.records_read += len(spans)
        self.statistics.records_kept += len(kept)
        stamp = (
            tombstones > 0
            and not header.attributes & DELETE_HORIZON_BIT
            and header.last_offset < self._survey.until
            and _fits(header, kept, self._horizon_ms)
        )
        if len(kept) == len(spans) and not stamp:
            return batch.data if spans or keep else None
        if not kept:
            return memoryview(_emptied(header)) if keep else None
        return memoryview(_smaller(header, payload, kept, self._horizon_ms if stamp else None))

    def _stays(self, base_offset: int, span: RecordSpan, expired: bool) -> bool:
        if span.key is None or self._survey.replaced(span.key, base_offset + span.offset_delta):
            return False
        if span.is_tombstone and expired:
            self.statistics.tombstones_dropped += 1
            return False
        return True


def _records(batch: Batch) -> tuple[bytes, list[RecordSpan]] | None:
    """The batch's records and their payload; None if the batch cannot be read."""
    if batch.header.attributes & CONTROL_BIT or batch.header.record_count > RECORDS_MAX:
        return None
    if not batch.header.record_count and len(batch.data) == batch.header.size:
        return b"", []  # emptied by an earlier round
    try:
        payload = decompress(batch, UNPACKED_BYTES_MAX)
        return payload, list(record_spans(batch.header, payload))
    except BatchError:
        return None


def _hashed(key: bytes) -> bytes:
    return blake2b(key, digest_size=KEY_HASH_BYTES).digest()


def _fits(header: BatchHeader, kept: list[RecordSpan], base_ms: int) -> bool:
    """Whether all timestamps can be encoded relative to another base; only absurd ones cannot."""
    return all(
        -TIMESTAMP_END <= header.base_timestamp_ms + span.timestamp_delta - base_ms < TIMESTAMP_END
        for span in kept
    )


def _emptied(header: BatchHeader) -> bytes:
    """An empty batch in place of this one; uncompressed, since there is nothing to compress."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return rebuilt(header._replace(attributes=attributes, record_count=0), b"")


def _smaller(
    header: BatchHeader, payload: bytes, kept: list[RecordSpan], horizon_ms: int | None
) -> bytes:
    """The batch with these records only; their times are relative to the horizon if there is one.

    As in Kafka the greatest timestamp becomes that of the remaining records, so that a search by
    time finds a record where the header promises one; a log append time stays.
    """
    out = bytearray()
    view = memoryview(payload)
    if horizon_ms is None:
        for span in kept:
            out += view[span.start : span.stop]
    else:
        for span in kept:
            record = bytearray(view[span.timestamp_at - 1 : span.timestamp_at])
            put_varint(record, header.base_timestamp_ms + span.timestamp_delta - horizon_ms)
            record += view[span.offset_at : span.stop]
            put_varint(out, len(record))
            out += record
    latest_ms = header.max_timestamp_ms
    if not header.attributes & LOG_APPEND_TIME_BIT:
        latest_ms = header.base_timestamp_ms + max(span.timestamp_delta for span in kept)
    changed = header._replace(max_timestamp_ms=latest_ms, record_count=len(kept))
    if horizon_ms is not None:
        changed = changed._replace(
            attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp_ms=horizon_ms
        )
    codec = Compression(header.attributes & COMPRESSION_MASK)
    return rebuilt(changed, compress(out, codec))
