"""From batches in memory and on disk to the buffers of a fetch response.

A fetch gets whole batches, from the one that contains its offset on. Their first 16 bytes (base
offset and leader epoch, outside the CRC) are rewritten; the rest goes out as it came in. Small
batches are joined, because copying them is cheaper than an iovec each; a large one costs a head of
16 bytes and a view.

What the in-memory tail does not hold is read from the log. There a partition's batches lie between
those of all others: neighbours are read in one go where the gap between them costs less than
another read. One request reads a bounded number of bytes, so that a consumer that starts at the
beginning does not block the loop, and what its next request will need can be read while this answer
is on its way. Data from the disk is checked against the batch's CRC.

Nothing here waits for the disk. What is not in memory is `missing`: counted as if it had been read,
so that one pass finds everything that a request needs; the caller has it read
(broker.reads.disk_reads) and then reads again with the result as `given`.

What has left the log is in the cold store: one partition's batches in a row, with offset and epoch
already written in. It is checked there, and goes out as it is.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import attrs
from crc32c import crc32c

from broker.ports import AppliedLog
from broker.proposals.commands import SMALL_BYTES
from broker.state_machine.partition import PartitionState
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from storage.errors import StorageError
from wire.codec.primitives import Buffer
from wire.records.batch import LOG_OVERHEAD_BYTES, MAGIC, PATCHED_BYTES, parse_header, patched_head

BATCHES_MAX: Final = 4_096
"""Batches of one partition in one answer: bounds the time that tiny batches take."""
LOG_BYTES_MAX: Final = 1024 * 1024
"""Read from the log for one request, gaps included; soft: at least one batch is always read."""
LOG_READS_MAX: Final = 64
"""Spans read from the log for one request."""
GAP_BYTES_MAX: Final = 16 * 1024
"""A gap up to this size is read and thrown away: that costs about as much as a separate read.
Positions in different segments are further apart than this, so no span crosses a border."""

Got: TypeAlias = memoryview | list[memoryview]
Key: TypeAlias = tuple[int, int]
"""In the log: -1 and the position. In the cold store: the partition and the offset."""
_LOG: Final = -1
NOTHING_GIVEN: Final[Mapping[Key, "Got | StorageError"]] = {}

_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_AT: Final = 12
_CHECKED_HEAD: Final = struct.Struct(">8xi4xbI")
_COVERED_FROM: Final = 21


class UnreadableError(Exception):
    """A batch that should be in the log cannot be read, or is not what was written. `position` is
    its place in the log, if it lies there."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.position = position


class _NotHereError(Exception):
    """The batch is among those that are missing."""


@attrs.frozen
class Missing:
    """Something that `read`, in any thread, will get; `key` says what it is."""

    key: Key
    read: Callable[[], "Got"]


class Reader:
    """Reads for one request, and keeps its budget of log reads."""

    def __init__(
        self,
        tail: Tail,
        log: AppliedLog,
        statistics: BrokerStatistics,
        given: Mapping[Key, "Got | StorageError"] = NOTHING_GIVEN,
    ) -> None:
        self._tail = tail
        self._log = log
        self._statistics = statistics
        self._given = given
        self.missing: list[Missing] = []
        self.got: dict[Key, Got | StorageError] = {}
        """What was in memory: `given` again to the next reader, because it may be gone by then."""
        self._bytes_left = LOG_BYTES_MAX
        self._reads_left = LOG_READS_MAX
        self._served: tuple[PartitionState, int, Buffer] | None = None
        """The first partition that had something, and where what was served ends: the number of the
        next batch or, in the cold store, an offset."""

    @property
    def disk_bytes(self) -> int:
        """How many of the bytes read came from the disk, not from the end of the log."""
        return LOG_BYTES_MAX - self._bytes_left

    def read(
        self, partition: PartitionState, offset: int, bytes_max: int, *, at_least_one: bool
    ) -> tuple[Sequence[Buffer], int]:
        """Batches from the one with `offset` on: their buffers, ready to be sent, and their size.

        `bytes_max` is respected, except for a first batch that is larger where `at_least_one` asks
        for it (KIP-74). `offset` must be in the partition, or its end, where there is nothing. The
        result is also empty if the first batch is missing.

        Raises:
            UnreadableError: if the first batch cannot be read.
        """
        if offset == partition.next_offset:
            return [], 0
        try:
            return self._read(partition, offset, bytes_max, at_least_one)
        except _NotHereError:
            return [], 0

    def _read(
        self, partition: PartitionState, offset: int, bytes_max: int, at_least_one: bool
    ) -> tuple[Sequence[Buffer], int]:
        first, stop = _numbers(partition, offset, bytes_max)
        if first < partition.index.first:
            cold = self._from_cold(partition, offset, bytes_max, at_least_one)
            if cold and self._served is None:
                self._served = partition, -1, cold[-1]
            return cold, sum(map(len, cold))
        if stop == first:
            if not at_least_one:
                return [], 0
            stop = first + 1
        batches = self._batches(partition, first, stop, at_least_one=at_least_one)
        if self._served is None:
            self._served = partition, first + len(batches), b""
        return outgoing(partition, first, batches), sum(map(len, batches))

    def read_soon(self, partition: PartitionState, offset: int, bytes_max: int) -> None:
        """Have the disk start on what `read` with the same arguments would read first, if that is
        the first that its request reads."""
        if not partition.log_start <= offset < partition.next_offset:
            return
        first, stop = _numbers(partition, offset, bytes_max)
        if first < partition.index.first:
            partition.cold.read_soon(partition.uid, offset, min(bytes_max, LOG_BYTES_MAX))
            return
        stop = max(stop, first + 1)
        kept = self._tail.kept(partition.uid)
        if kept is not None:
            stop = min(stop, kept.first)
        if first < stop:
            positions, sizes = _places(partition, first, stop, LOG_BYTES_MAX)
            _, end = _run(positions, sizes, 0, LOG_BYTES_MAX)
            self._log.read_soon(positions[0], end - positions[0])

    def read_on_soon(self, bytes_max: int) -> None:
        """The same for what follows in the partition that was served first."""
        if self._served is None:
            return
        partition, number, last = self._served
        if number < 0:
            offset = _end_of(memoryview(last))
        elif number < partition.index.stop:
            offset = partition.index.bases(number, number + 1)[0]
        else:
            return
        self.read_soon(partition, offset, bytes_max)

    def batch(
        self, partition: PartitionState, number: int
    ) -> tuple[Callable[[], memoryview], bool]:
        """A function that gets one batch as its producer sent it, and whether it may wait for the
        disk and so needs another thread. It raises StorageError and UnreadableError."""
        try:
            (batch,) = self._batches(partition, number, number + 1, at_least_one=True)
        except _NotHereError:
            size, position = partition.index.size(number), partition.index.position(number)
            return partial(_checked, self._log, position, size), True
        return lambda: batch, False

    def _from_cold(
        self, partition: PartitionState, offset: int, bytes_max: int, at_least_one: bool
    ) -> list[memoryview]:
        """Whole batches, as they go out; none if the budget does not allow it.

        Raises:
            UnreadableError: if the first one cannot be read, or does not exist.
            _NotHereError: if it is missing.
        """
        uid, cold = partition.uid, partition.cold
        affordable = min(bytes_max, self._bytes_left)
        if not at_least_one and (affordable <= 0 or self._reads_left <= 0):
            return []
        start = cold.start(uid)
        if start is None or offset < start:
            raise UnreadableError(f"partition {uid}: nothing at offset {offset}")
        self._reads_left -= 1
        key = (uid, offset)
        given = self._given.get(key)
        spans = cold.read_now(uid, offset, affordable) if given is None else given
        if spans is None:
            self._bytes_left -= max(affordable, 1)
            self.missing.append(Missing(key, partial(cold.read, uid, offset, affordable)))
            raise _NotHereError
        self._statistics.cold_reads += 1
        if isinstance(spans, StorageError):
            self._statistics.damaged_reads += 1
            self._statistics.damaged_cold.append((uid, offset))
            raise UnreadableError(f"partition {uid}: {spans}") from spans
        assert isinstance(spans, list)
        self.got[key] = spans
        if not spans:  # compaction leaves the last batch
            raise UnreadableError(f"partition {uid}: nothing from offset {offset} on")
        end = cold.end(uid) if cold.knows(uid) else None
        if end is None or end > partition.next_offset:
            spans = _before(spans, partition.next_offset)
        if given is not None:
            spans = _within(spans, affordable, at_least_one=at_least_one)
        size = sum(map(len, spans))
        self._bytes_left -= size
        self._statistics.cold_bytes += size
        if size > bytes_max and not at_least_one:
            return []
        return spans

    def _batches(
        self, partition: PartitionState, first: int, stop: int, *, at_least_one: bool
    ) -> list[memoryview]:
        """As many of the batches `first` to `stop` - 1 as the budget allows."""
        kept = self._tail.kept(partition.uid)
        kept_from = stop if kept is None else min(max(kept.first, first), stop)
        batches: list[memoryview] = []
        if first < kept_from:
            batches = self._from_log(partition, first, kept_from, at_least_one)
        if kept is not None and first + len(batches) == kept_from < stop:
            batches += kept.between(kept_from, stop)
        return batches

    def _from_log(
        self, partition: PartitionState, first: int, stop: int, at_least_one: bool
    ) -> list[memoryview]:
        positions, sizes = _places(partition, first, stop, self._bytes_left)
        batches: list[memoryview] = []
        at, count, waits = 0, len(positions), False
        while at < count:
            force = at_least_one and at == 0
            if not force and (self._reads_left <= 0 or sizes[at] > self._bytes_left):
                break
            start = positions[at]
            given = self._given.get((_LOG, start))
            most = self._bytes_left if given is None else min(self._bytes_left, _size(given))
            run, end = _run(positions, sizes, at, most)
            try:
                span = self._span(start, end - start, given)
                for position, size in zip(positions[at:run], sizes[at:run], strict=True):
                    batch = span[position - start : position - start + size]
                    if waits:
                        break
                    if not _intact(batch):
                        raise UnreadableError(f"the batch at position {position} is damaged")
                    batches.append(batch)
            except _NotHereError:
                waits = True  # what follows may be missing as well: all of it is read in one go
            except UnreadableError as error:
                self._statistics.damaged_reads += 1
                self._statistics.damaged_at.append(start)
                if batches or waits:  # served up to the damage, with which the next fetch begins
                    break
                raise UnreadableError(f"partition {partition.uid}: {error}") from error
            at = run
        if waits and not batches:
            raise _NotHereError
        return batches

    def _span(self, start: int, size: int, given: "Got | StorageError | None") -> memoryview:
        self._reads_left -= 1
        self._bytes_left -= size
        if isinstance(given, StorageError):
            raise UnreadableError(str(given)) from given
        span = self._log.read_span_now(start, size) if given is None else given
        if span is None:
            read = partial(self._log.read_span, start, size)
            self.missing.append(Missing((_LOG, start), read))
            raise _NotHereError
        assert isinstance(span, memoryview)
        self.got[_LOG, start] = span
        self._statistics.log_reads += 1
        self._statistics.log_bytes += size
        return span[:size]


def _size(given: "Got | StorageError") -> int:
    """0 for an error, which says itself what it is about."""
    return len(given) if isinstance(given, memoryview) else 0


def _checked(log: AppliedLog, position: int, size: int) -> memoryview:
    """One batch of the log, in any thread."""
    try:
        batch = log.read_span(position, size)
    except StorageError as error:
        raise UnreadableError(str(error), position) from error
    if not _intact(batch):
        raise UnreadableError(f"the batch at position {position} is damaged", position)
    return batch


def _within(spans: list[memoryview], bytes_max: int, *, at_least_one: bool) -> list[memoryview]:
    """As many of them as fit: there may have been more room when they were read."""
    count = 0
    for span in spans:
        bytes_max -= len(span)
        if bytes_max < 0 and (count or not at_least_one):
            break
        count += 1
    return spans[:count]


def _numbers(partition: PartitionState, offset: int, bytes_max: int) -> tuple[int, int]:
    """The batches that fit, from the one with `offset` on: the first number, which lies below those
    of the index if the batch is in the cold store, and the number after the last."""
    index = partition.index
    first = index.find(offset)
    if first < index.first:
        return first, first
    return first, min(index.within(first, bytes_max), first + BATCHES_MAX)


def _places(
    partition: PartitionState, first: int, stop: int, bytes_left: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Positions and sizes of the batches `first` to `stop` - 1 as far as the budget goes, of at
    least one."""
    affordable = partition.index.within(first, max(0, bytes_left))
    stop = min(stop, max(first + 1, affordable))  # a request may name a partition many times
    return partition.index.places(first, stop)


def _run(
    positions: Sequence[int], sizes: Sequence[int], at: int, bytes_left: int
) -> tuple[int, int]:
    """Neighbours read in one go, from `at` on: the number of the next batch, and where they end."""
    start = positions[at]
    end = start + sizes[at]
    run = at + 1
    while run < len(positions):
        position = positions[run]
        run_end = position + sizes[run]
        if not 0 <= position - end <= GAP_BYTES_MAX or run_end > start + bytes_left:
            break
        end = run_end
        run += 1
    return run, end


def _end_of(span: memoryview) -> int:
    """The offset after the last of its batches."""
    at = end = 0
    while at < len(span):
        header = parse_header(span, at)
        end = header.last_offset + 1
        at += header.size
    return end


def _before(spans: list[memoryview], end: int) -> list[memoryview]:
    """The batches with offsets below `end`: another node's copy may reach further than ours."""
    kept = []
    for span in spans:
        at = 0
        while at < len(span):
            header = parse_header(span[at:])
            if header.base_offset >= end:
                break
            at += header.size
        if at:
            kept.append(span[:at])
        if at < len(span):
            break
    return kept


def _intact(batch: memoryview) -> bool:
    """Whether the batch has the length and the checksum it claims; it was validated when it came
    in.

    The magic byte is the only one that is neither covered by the checksum nor written by us.
    """
    length, magic, crc = _CHECKED_HEAD.unpack_from(batch)
    whole = length + LOG_OVERHEAD_BYTES == len(batch) and magic == MAGIC
    return bool(whole and crc32c(batch[_COVERED_FROM:]) == crc)


def outgoing(partition: PartitionState, first: int, batches: list[memoryview]) -> list[Buffer]:
    """The batches numbered from `first` on, with offset and epoch written into their heads."""
    bases = partition.index.bases(first, first + len(batches))
    until = -1
    epoch = 0
    chunks: list[Buffer] = []
    at, count = 0, len(batches)
    while at < count:
        batch = batches[at]
        if len(batch) > SMALL_BYTES:
            if bases[at] >= until:
                epoch, until = partition.epoch_of(bases[at])
            chunks.append(patched_head(batch, bases[at], epoch))
            chunks.append(batch[PATCHED_BYTES:])
            at += 1
            continue
        stop = at + 1
        while stop < count and len(batches[stop]) <= SMALL_BYTES:
            stop += 1
        run = batches[at:stop]
        joined = bytearray().join(run)
        place = 0
        for base, batch in zip(bases[at:stop], run, strict=True):
            if base >= until:
                epoch, until = partition.epoch_of(base)
            _BASE_OFFSET.pack_into(joined, place, base)
            _LEADER_EPOCH.pack_into(joined, place + _LEADER_EPOCH_AT, epoch)
            place += len(batch)
        chunks.append(joined)
        at = stop
    return chunks
