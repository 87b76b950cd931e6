"""Record batches for the stories; their values tell them apart."""

from collections.abc import Sequence

from wire.records.batch import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    Batch,
    Compression,
    Record,
    iterate_records,
    parse_header,
    split,
)
from wire.records.batch_writer import build_batch
from wire.records.compression import compress, decompress
from wire.records.spans import rebuilt
from wire.records.write_tokens import FIRST_ID, Position, token_of

START_MS = 1_700_000_000_000


def batch(
    *values: str,
    at_ms: int = 0,
    pid: int = -1,
    epoch: int = 0,
    seq: int = 0,
    compression: Compression = Compression.NONE,
    pad: int = 0,
) -> bytes:
    """A batch as a producer sends it; with a `pid` it comes from an idempotent producer."""
    records = [
        Record(value.encode() + b"." * pad, timestamp_ms=START_MS + at_ms + number)
        for number, value in enumerate(values)
    ]
    producer = {} if pid < 0 else {"producer_id": pid, "producer_epoch": epoch}
    sequence = {} if pid < 0 else {"base_sequence": seq}
    return build_batch(records, compression=compression, **producer, **sequence)


def timed(
    times_ms: Sequence[int],
    *,
    compression: Compression = Compression.NONE,
    claim_ms: int | None = None,
    log_time: bool = False,
    pad: int = 0,
) -> bytes:
    """A batch of records at these times after START_MS, in this order, with any codec. `claim_ms`
    is the greatest time that its header claims; with `log_time` all records have that time."""
    records = [Record(str(ms).encode() + b"." * pad, timestamp_ms=START_MS + ms) for ms in times_ms]
    plain = build_batch(records)
    header = parse_header(memoryview(plain))
    attributes = header.attributes & ~COMPRESSION_MASK | compression
    header = header._replace(attributes=attributes | (LOG_APPEND_TIME_BIT if log_time else 0))
    if claim_ms is not None:
        header = header._replace(max_timestamp_ms=START_MS + claim_ms)
    return rebuilt(header, compress(bytearray(plain[HEADER_BYTES:]), compression))


def under(batch: int, chunk: int, *, more: bool = False, writer: int = FIRST_ID) -> dict[str, int]:
    """The attributes that put `batch` under a write token."""
    token = token_of(writer, Position(batch, chunk, more))
    return {"pid": token.producer_id, "epoch": token.epoch, "seq": token.sequence}


def contents(records: memoryview | None) -> list[tuple[int, str]]:
    """(offset, value) of all records of a fetch response; every batch must be intact."""
    return [
        (record.offset, (record.value or b"").decode().rstrip("."))
        for one in whole_batches(records)
        for record in iterate_records(one, decompress(one, DECOMPRESSED_BYTES_MAX))
    ]


def whole_batches(records: memoryview | None) -> list[Batch]:
    return split(memoryview(b"") if records is None else records)
