"""Finding the first record of a batch at or after a time, and the record with the greatest time.

The results are exact for every codec and batch size: only the times and offsets of the records are
read, without creating objects. The greatest time in a header comes from the producer and is not
trusted, unless the log has put its own time there (LogAppendTime): that is the time of every
record.

A batch of 16 MB takes about a quarter of a second. A caller that cannot wait so long runs this in
another thread, with a `rest` that is called regularly to let other threads run.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from wire.error_codes import ErrorCode
from wire.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    LOG_APPEND_TIME_BIT,
    RECORD_BYTES_MIN,
    TIMESTAMP_END,
    Batch,
    BatchError,
    read_varint,
)
from wire.records.compression import decompress

REST_RECORDS: Final = 1_000
"""Records read between two calls of `rest`: they take less than a millisecond."""


class Timed(NamedTuple):
    """A record's offset and time."""

    offset: int
    timestamp_ms: int


def no_rest() -> None:
    """A `rest` for callers that can wait."""


def first_reaching(
    batch: Batch,
    timestamp_ms: int,
    since: int,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    rest: Callable[[], None] = no_rest,
) -> Timed | None:
    """The first record from offset `since` on with this time or a later one; None: there is none.

    Raises:
        BatchError: the records are not what the header says, cannot be decompressed, or are longer
            than `bytes_max` when decompressed.
    """
    if _has_log_time(batch) and batch.header.max_timestamp_ms < timestamp_ms:
        return None
    for record in _timed(batch, bytes_max, rest):
        if record[1] >= timestamp_ms and record[0] >= since:
            return Timed(*record)
    return None


def greatest(
    batch: Batch,
    since: int,
    *,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
    rest: Callable[[], None] = no_rest,
) -> Timed | None:
    """The record with the greatest time from offset `since` on, the first if there are several.

    Raises:
        BatchError: as `first_reaching`.
    """
    if _has_log_time(batch):
        return first_reaching(batch, -TIMESTAMP_END, since, bytes_max=bytes_max, rest=rest)
    best: tuple[int, int] | None = None
    for record in _timed(batch, bytes_max, rest):
        if record[0] >= since and (best is None or record[1] > best[1]):
            best = record
    return None if best is None else Timed(*best)


def _has_log_time(batch: Batch) -> bool:
    return bool(batch.header.attributes & LOG_APPEND_TIME_BIT)


def _timed(batch: Batch, bytes_max: int, rest: Callable[[], None]) -> Iterator[tuple[int, int]]:
    """Offset and time of each record, in order of offset."""
    header = batch.header
    if _has_log_time(batch) and header.last_offset_delta == header.record_count - 1:
        for offset in range(header.base_offset, header.base_offset + header.record_count):
            yield offset, header.max_timestamp_ms
        return
    if header.record_count == 0:
        return  # compaction has left an empty batch
    payload = decompress(batch, bytes_max)
    rest()
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(payload):
        raise _corrupt(f"{header.record_count} records in {len(payload)} bytes")
    log_time = header.max_timestamp_ms if _has_log_time(batch) else None
    before, pos = -1, 0
    for number in range(1, header.record_count + 1):
        try:
            size, pos = read_varint(payload, pos)
            time_delta, at = read_varint(payload, pos + 1)  # after the attributes: unused
            offset_delta, at = read_varint(payload, at)
        except IndexError as error:
            raise _corrupt(f"record {number} goes beyond the end") from error
        stop = pos + size
        if not at <= stop <= len(payload):
            raise _corrupt(f"record {number} has {size} bytes at byte {pos} of {len(payload)}")
        if not before < offset_delta <= header.last_offset_delta:
            raise _corrupt(f"offset delta {offset_delta} after {before}")
        time_ms = header.base_timestamp_ms + time_delta
        if not -TIMESTAMP_END <= time_ms < TIMESTAMP_END:
            raise _corrupt(f"timestamp {time_ms}")
        before, pos = offset_delta, stop
        yield header.base_offset + offset_delta, time_ms if log_time is None else log_time
        if number % REST_RECORDS == 0:
            rest()


def _corrupt(what: str) -> BatchError:
    return BatchError(ErrorCode.CORRUPT_MESSAGE, what)
