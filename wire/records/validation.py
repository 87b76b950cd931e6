"""Validating the records that a producer sends before they are stored: entries stay for ever.

A checksum proves that bytes arrived as they were sent, not that they are records. Every consumer of
the partition would meet bad records at every start: garbage stops consumers for ever, and a false
count or offset makes them read records twice, backwards, or past the end. So a batch is read in
full before it is appended. Whatever a reader could not handle is refused, as Kafka does (its
`LogValidator`); that includes what Kafka's brokers accept but its consumers cannot read.

    length varint | attributes | time delta varlong | offset delta varint
    | key length varint (-1: null) | key | value length varint | value
    | number of headers varint, then for each: name length | name | content length | content

Lengths and offsets are varints of at most five bytes, times of at most ten: Java reads no more. No
objects are created: with a few Python steps per varint, most of which are one byte, a record takes
less than a microsecond. If readable records break a rule (their time, a missing key), each of them
is named in the response (KIP-467); a second pass finds them, and is only made in that case.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    RECORD_BYTES_MIN,
    TIMESTAMP_END,
    Batch,
    BatchError,
    BatchHeader,
    Compression,
    TooMuchError,
    read_varint,
)
from wire.records.compression import unpack
from wire.records.lz4_frame import check_frame
from wire.records.times import REST_RECORDS, no_rest

NO_TIMESTAMP: Final = -1
"""The time of a record whose producer gave none; no limit applies to it."""
NAMED_MAX: Final = 10_000
"""Records of one batch that a response names: a million would make a large response."""
COPIED_BELOW: Final = 4_096
"""Average bytes of a record below which the records are copied to `bytes`, which is read faster
than a memoryview."""


class Rules(NamedTuple):
    """What a topic requires of records, besides being readable."""

    earliest_ms: int = -TIMESTAMP_END
    latest_ms: int = TIMESTAMP_END - 1
    keyed: bool = False


READABLE: Final = Rules()
"""The records only have to be readable."""


class BadRecordsError(BatchError):
    """Some records of a batch are refused, and therefore the whole batch is."""

    def __init__(self, code: ErrorCode, what: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, what)
        self.records = records
        """The index of each refused record in the batch, and what is wrong with it."""


def check_records(
    batch: Batch,
    rules: Rules,
    *,
    bytes_max: int,
    rest: Callable[[], None] = no_rest,
) -> int:
    """Check all records of a batch whose header is valid; returns their greatest timestamp.

    `rest` is called regularly, to let other threads run.

    Raises:
        BadRecordsError: INVALID_RECORD or INVALID_TIMESTAMP, with the bad records.
        TooMuchError: MESSAGE_TOO_LARGE if they are longer than `bytes_max` when decompressed.
        BatchError: INVALID_RECORD if they cannot be decompressed.
    """
    header = batch.header
    payload = _payload(batch, bytes_max)
    count = header.record_count
    if count * RECORD_BYTES_MIN > len(payload):
        raise BatchError(ErrorCode.INVALID_RECORD, f"{count} records in {len(payload)} bytes")
    pos = low = high = 0
    keyless = False
    for first in range(0, count, REST_RECORDS):
        if first:
            rest()
        until = min(count, first + REST_RECORDS)
        try:
            pos, least, most, some_keyless = _walk(payload, pos, first, until)
        except (IndexError, _Unreadable):
            raise _name_malformed(header, payload) from None
        low, high = (min(low, least), max(high, most)) if first else (least, most)
        keyless = keyless or some_keyless
    if pos != len(payload):
        what = f"the batch has {len(payload) - pos} bytes after its last record"
        if pos > len(payload):
            what = f"record {count - 1} goes beyond the end"
        raise BadRecordsError(ErrorCode.INVALID_RECORD, what, [(count - 1, what)])
    base = header.base_timestamp_ms
    if base + low < rules.earliest_ms or base + high > rules.latest_ms or (keyless and rules.keyed):
        _name_bad_records(header, payload, rules, rest)
    return max(NO_TIMESTAMP, base + high)


def _payload(batch: Batch, bytes_max: int) -> Buffer:
    header, data = batch
    codec = header.attributes & COMPRESSION_MASK
    if not codec:
        payload = data[HEADER_BYTES:]
        small = len(payload) < COPIED_BELOW * header.record_count
        return bytes(payload) if small else payload
    if codec == Compression.LZ4:
        check_frame(data[HEADER_BYTES:])
    try:
        return unpack(batch, bytes_max)
    except TooMuchError as error:
        raise TooMuchError(ErrorCode.MESSAGE_TOO_LARGE, error.what) from error
    except BatchError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        # Not CORRUPT_MESSAGE: the batch arrived as it was sent, and clients would send it again.
        raise BatchError(ErrorCode.INVALID_RECORD, error.what) from error


class _Walked(NamedTuple):
    """Where records end, their least and greatest time deltas, and whether one has no key."""

    pos: int
    low: int
    high: int
    keyless: bool


def _walk(payload: Buffer, pos: int, first: int, until: int) -> _Walked:  # noqa: C901
    """Check the records from `first`, at `pos`, to before `until`. For the reason of an IndexError
    or _Unreadable call `_name_malformed`."""
    # One loop without calls in the usual case: it runs for every record of every producer.
    keyless, low, high, last_time = False, 0, 0, -1
    expected = first << 1  # as a zig-zag varint
    for _ in range(first, until):
        size = payload[pos]
        pos += 1
        if size > 0x7F:
            more = payload[pos]
            pos += 1
            if more > 0x7F:
                size, pos = _raw_varint(payload, pos - 2)
            else:
                size = size & 0x7F | more << 7
        stop = pos + (size >> 1)
        wrong = size & 1
        time = payload[pos + 1]  # after the attributes, which no record uses
        pos += 2
        if time > 0x7F:
            time, pos = _raw_varlong(payload, pos - 1)
        if time != last_time:
            delta = (time >> 1) ^ -(time & 1)
            if last_time < 0:
                low = high = delta
            elif delta > high:
                high = delta
            elif delta < low:
                low = delta
            last_time = time
        offset = payload[pos]
        pos += 1
        if offset > 0x7F:
            more = payload[pos]
            pos += 1
            if more > 0x7F:
                offset, pos = _raw_varint(payload, pos - 2)
            else:
                offset = offset & 0x7F | more << 7
        size = payload[pos]
        pos += 1
        if size > 0x7F:
            size, pos = _raw_varint(payload, pos - 1)
        if size & 1:
            wrong |= size - 1
            keyless = True
        else:
            pos += size >> 1
        size = payload[pos]
        pos += 1
        if size > 0x7F:
            more = payload[pos]
            pos += 1
            if more > 0x7F:
                size, pos = _raw_varint(payload, pos - 2)
            else:
                size = size & 0x7F | more << 7
        if size & 1:
            wrong |= size - 1
        else:
            pos += size >> 1
        if payload[pos]:
            pos = _behind_headers(payload, pos, stop)
        else:
            pos += 1
        if pos != stop or offset != expected or wrong:
            raise _Unreadable
        expected += 2
    return _Walked(pos, low, high, keyless)


def _name_malformed(header: BatchHeader, payload: Buffer) -> BadRecordsError:
    """The error that names the first unreadable record, and what is wrong with it."""
    pos = 0
    for index in range(header.record_count):
        start = pos
        try:
            pos = _behind_record(payload, pos, index)
        except (IndexError, _Unreadable) as error:
            what = str(error) if type(error) is _Unreadable else "it goes beyond the end"
            what = f"record {index} of the batch, at byte {start} of the records: {what}"
            return BadRecordsError(ErrorCode.INVALID_RECORD, what, [(index, what)])
    raise AssertionError("records that can be read were found unreadable")


def _behind_record(payload: Buffer, start: int, index: int) -> int:
    """Check one record; returns where it ends."""
    size, pos = _raw_varint(payload, start)
    if size & 1:
        raise _Unreadable("its length is negative")
    stop = pos + (size >> 1)
    _, pos = _raw_varlong(payload, pos + 1)
    offset, pos = _raw_varint(payload, pos)
    if offset != index << 1:
        raise _Unreadable(f"its offset delta is {(offset >> 1) ^ -(offset & 1)}")
    for name in ("key", "value"):
        size, pos = _raw_varint(payload, pos)
        if not size & 1:
            pos += size >> 1
        elif size != 1:
            raise _Unreadable(f"its {name} has a negative length")
    pos = _behind_headers(payload, pos, stop)
    if pos != stop:
        raise _Unreadable(f"it ends at byte {pos} instead of {stop}")
    return pos


class _Unreadable(Exception):
    """The current record cannot be read; the message says why."""


def _raw_varint(payload: Buffer, pos: int) -> tuple[int, int]:
    """A varint of up to 32 bits, still zig-zag encoded, and where it ends."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = payload[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 32:
                break
            return value, pos
    raise _Unreadable("a length or an offset in it is longer than 32 bits")


def _raw_varlong(payload: Buffer, pos: int) -> tuple[int, int]:
    """The same for up to 64 bits."""
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                break
            return value, pos
    raise _Unreadable("its time is longer than 64 bits")


def _behind_headers(payload: Buffer, pos: int, stop: int) -> int:
    """Check the headers of a record, whose number is at `pos`; returns where they end."""
    count, pos = _raw_varint(payload, pos)
    if count & 1:
        raise _Unreadable("it has a negative number of headers")
    if count and count > stop - pos:  # two bytes each, and the number is written doubled
        raise _Unreadable(f"{count >> 1} headers in {stop - pos} bytes")
    for _ in range(count >> 1):
        size, pos = _raw_varint(payload, pos)
        if size & 1:
            raise _Unreadable("a header has no name")
        size, pos = _raw_varint(payload, pos + (size >> 1))
        if not size & 1:
            pos += size >> 1
        elif size != 1:
            raise _Unreadable("a header has a negative length")
        if pos > stop:
            raise _Unreadable("its headers go beyond its end")
    return pos


def _name_bad_records(
    header: BatchHeader, payload: Buffer, rules: Rules, rest: Callable[[], None]
) -> None:
    """Look for the records that break the rules.

    Raises:
        BadRecordsError: with each such record, if there is one.
    """
    named: list[tuple[int, str]] = []
    many, pos = 0, 0
    code = ErrorCode.INVALID_RECORD
    for index in range(header.record_count):
        if index % REST_RECORDS == 0:
            rest()
        size, pos = read_varint(payload, pos)
        delta, at = read_varint(payload, pos + 1)
        _, at = read_varint(payload, at)
        key_size, _ = read_varint(payload, at)
        pos += size
        if rules.keyed and key_size < 0:
            what = f"record {index} of the batch has no key, and the topic is compacted"
            wrong = ErrorCode.INVALID_RECORD
        else:
            time_ms = header.base_timestamp_ms + delta
            if rules.earliest_ms <= time_ms <= rules.latest_ms or time_ms == NO_TIMESTAMP:
                continue
            what = (
                f"record {index} of the batch has the timestamp {time_ms}, "
                f"not within {rules.earliest_ms} and {rules.latest_ms}"
            )
            wrong = ErrorCode.INVALID_TIMESTAMP
        if not many:
            code = wrong
        many += 1
        if len(named) < NAMED_MAX:
            named.append((index, what))
    if many:
        raise BadRecordsError(code, f"{many} records are refused; {named[0][1]}", named)
