"""One partition on every replica: offsets are assigned here, when a batch is applied.

Everything applied is chosen, so the next offset is the high watermark and the last stable offset as
well. The state follows from the log alone: the batches, in the order of the group's slots, and the
leader epoch under which each was applied.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from broker.ports import NO_COLD, ColdReader
from broker.proposals.commands import RECORDS_HEAD, UID_BYTES, CommandKind
from broker.state_machine.batch_index import BatchIndex
from broker.state_machine.producer_state import PRODUCERS_MAX, SEQUENCES, Producers
from broker.state_machine.writer_state import Writers
from paxos.entry import Buffer
from wire.error_codes import ErrorCode
from wire.records.batch import (
    APPEND_FIELDS,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    parse_header,
)
from wire.records.write_tokens import FIRST_ID

OFFSET_MAX: Final = 2**63 - 1
TIERING_BATCHES_MAX: Final = 16_384
"""In one plan; making it takes about a millisecond."""
NO_TIME: Final = -1
NO_EPOCH: Final = -1
_RECORDS: Final = int(CommandKind.RECORDS)
_HEADS: Final = Struct(RECORDS_HEAD.format + APPEND_FIELDS.format.removeprefix(">"))
"""The head of a RECORDS command and that of its batch."""


class DamagedEntryError(ValueError):
    """The log holds what no node can have proposed: damage that no checksum detected, or our own
    bug."""


class Append(NamedTuple):
    """The outcome for a batch. `number` is its place in the index; None if it was not appended.

    A duplicate has no number. An idempotent producer's has no error, and its first offset; it is
    DUPLICATE_SEQUENCE_NUMBER if that offset is not known (-1), or if it has a write token.
    """

    error: ErrorCode
    base_offset: int
    number: int | None
    append_time_ms: int = NO_TIME


class Row(NamedTuple):
    """Usual batches for one partition, one after the other in an entry's payload."""

    bases: list[int]
    """Their base offsets."""
    places: list[int]
    """Their positions in the payload."""
    sizes: list[int]
    end: int
    """Where the next command begins."""


class CopyPlan(NamedTuple):
    """Consecutive batches to be copied from the log to the cold store, as columns."""

    uid: int
    bases: Sequence[int]
    positions: Sequence[int]
    sizes: Sequence[int]
    times: Sequence[int]
    epochs: Sequence[tuple[int, int]]
    """Pairs: a leader epoch, and the offset from which it holds."""
    end: int
    """The offset after the last batch."""

    def batches(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Base, end, greatest timestamp, position, size and leader epoch of each batch."""
        epochs = iter(self.epochs)
        _, epoch = next(epochs)
        until, following = next(epochs, (OFFSET_MAX, epoch))
        ends = [*self.bases[1:], self.end]
        rows = zip(self.bases, ends, self.times, self.positions, self.sizes, strict=True)
        for base, end, time_ms, position, size in rows:
            while base >= until:
                epoch = following
                until, following = next(epochs, (OFFSET_MAX, epoch))
            yield base, end, time_ms, position, size, epoch


class PartitionState:
    """Offsets `log_start` to `next_offset` - 1 exist; `next_offset` is the high watermark.

    The batches up to `index_start` are in the cold store, the others in this node's log, where the
    index knows them. What is in both is read from the log.
    """

    __slots__ = (
        "_epoch_starts",
        "_epochs",
        "append_time_ms",
        "cold",
        "dropped",
        "index",
        "log_start",
        "next_offset",
        "producers",
        "uid",
        "writers",
    )

    def __init__(
        self, uid: int, producers_max: int = PRODUCERS_MAX, cold: ColdReader = NO_COLD
    ) -> None:
        self.uid = uid
        self.cold = cold
        self.log_start = 0
        self.next_offset = 0
        self.append_time_ms = NO_TIME
        """Of the last batch with log append time (LogAppendTime): such times never go back."""
        self.index = BatchIndex()
        self.producers = Producers(producers_max)
        self.writers = Writers()
        self.dropped = False
        """The topic was deleted: no request may be answered from this partition any more."""
        self._epoch_starts = array("q")
        self._epochs = array("q")

    def append(self, batch: memoryview, position: int, epoch: int) -> Append:
        """Apply a batch that lies at `position` of the log, under a leader epoch.

        Raises:
            DamagedEntryError: if this is not exactly one batch.
        """
        size = len(batch)
        if size < HEADER_BYTES:
            raise DamagedEntryError(f"partition {self.uid}: a batch of {size} bytes")
        (length, magic, attributes, last_delta, time_ms, producer_id, producer_epoch, first) = (
            APPEND_FIELDS.unpack_from(batch)
        )
        if magic != MAGIC or length + LOG_OVERHEAD_BYTES != size or last_delta < 0:
            raise DamagedEntryError(f"partition {self.uid}: {parse_header(batch)} in {size} bytes")
        base = self.next_offset
        if producer_id >= 0:
            last = (first + last_delta) % SEQUENCES
            senders: Producers | Writers = self.producers
            if producer_id >= FIRST_ID:
                senders = self.writers
            verdict = senders.judge(producer_id, producer_epoch, first, last)
            if verdict is not None:
                return Append(verdict.error, verdict.base_offset, None)
            senders.appended(producer_id, producer_epoch, first, last, base)
        self.next_offset = base + last_delta + 1
        if not self._epochs or self._epochs[-1] != epoch:
            self._epoch_starts.append(base)
            self._epochs.append(epoch)
        number = self.index.append(base, position, size, time_ms)
        if attributes & LOG_APPEND_TIME_BIT:
            self.append_time_ms = time_ms
            return Append(ErrorCode.NONE, base, number, time_ms)
        return tuple.__new__(Append, (ErrorCode.NONE, base, number, NO_TIME))  # half of Append()

    def append_row(self, payload: Buffer, at: int, start: int, epoch: int) -> Row:
        """Apply the RECORDS commands from `at` on, up to one that is no usual batch for this
        partition: one that `append` would refuse, stamp with a time, or recognize as a duplicate.
        Commands are not parsed, which takes half as long as calling `append` for each. `start`:
        where the payload lies in the log.
        """
        bases: list[int] = []
        places: list[int] = []
        sizes: list[int] = []
        times: list[int] = []
        uid, base, end = self.uid, self.next_offset, len(payload)
        unpack, heads_bytes = _HEADS.unpack_from, _HEADS.size
        while end - at >= heads_bytes:
            (
                bytes_,
                kind,
                command_uid,
                length,
                magic,
                attributes,
                last_delta,
                time_ms,
                producer_id,
                producer_epoch,
                low,
            ) = unpack(payload, at)
            size, place = bytes_ - UID_BYTES, at + RECORDS_HEAD.size
            if kind != _RECORDS or command_uid != uid or not HEADER_BYTES <= size <= end - place:
                break
            if magic != MAGIC or length + LOG_OVERHEAD_BYTES != size or last_delta < 0:
                break
            if attributes & LOG_APPEND_TIME_BIT or producer_id >= FIRST_ID:
                break
            if producer_id >= 0:
                high, producers = (low + last_delta) % SEQUENCES, self.producers
                if producers.judge(producer_id, producer_epoch, low, high) is not None:
                    break
                producers.appended(producer_id, producer_epoch, low, high, base)
            bases.append(base)
            places.append(place)
            sizes.append(size)
            times.append(time_ms)
            base += last_delta + 1
            at = place + size
        if bases:
            if not self._epochs or self._epochs[-1] != epoch:
                self._epoch_starts.append(bases[0])
                self._epochs.append(epoch)
            self.next_offset = base
            self.index.append_row(bases, [start + place for place in places], sizes, times)
        return Row(bases, places, sizes, at)

    def epoch_of(self, offset: int) -> tuple[int, int]:
        """The leader epoch of the batch at `offset`, and the first offset it no longer holds
        for."""
        at = bisect_right(self._epoch_starts, offset) - 1
        until = self._epoch_starts[at + 1] if at + 1 < len(self._epochs) else OFFSET_MAX
        return self._epochs[at], until

    def end_of_epoch(self, epoch: int, current: int) -> tuple[int, int]:
        """The greatest known leader epoch up to `epoch`, and the first offset beyond it (KIP-320).

        `current` is the present leader's epoch, which may not have appended anything yet. (-1, -1)
        if `epoch` lies above that, or is none at all (-1). An epoch before all known ones ends
        where they begin.
        """
        if epoch == NO_EPOCH or epoch >= current:
            return (current, self.next_offset) if epoch == current else (NO_EPOCH, -1)
        at = bisect_right(self._epochs, epoch)
        end = self._epoch_starts[at] if at < len(self._epochs) else self.next_offset
        return (self._epochs[at - 1] if at else epoch), end

    @property
    def blank(self) -> bool:
        """Whether nothing was ever appended and no producer admitted: there is nothing to
        remember."""
        return self.next_offset == 0 and not len(self.producers)

    def epochs(self) -> list[tuple[int, int]]:
        """From which offset on which leader epoch holds, in order."""
        return list(zip(self._epoch_starts, self._epochs, strict=True))

    def load(
        self,
        log_start: int,
        next_offset: int,
        append_time_ms: int,
        bytes_end: int,
        epochs: Sequence[tuple[int, int]],
    ) -> None:
        """Become what a checkpoint says; where the batches lie is not known yet."""
        self.log_start = log_start
        self.next_offset = next_offset
        self.append_time_ms = append_time_ms
        self.index = BatchIndex(bytes_end)
        self.producers = Producers(self.producers.limit)
        self.writers = Writers(self.writers.limit)
        self._epoch_starts = array("q", [start for start, _ in epochs])
        self._epochs = array("q", [epoch for _, epoch in epochs])

    @property
    def index_start(self) -> int:
        """The first offset that has to be read from the log."""
        index = self.index
        return index.base(index.first) if len(index) else self.next_offset

    def bytes_from(self, offset: int) -> int:
        """Bytes of all batches from the one that contains `offset` on."""
        if offset >= self.next_offset:
            return 0
        index = self.index
        number = index.find(offset)
        if number >= index.first:
            return index.bytes_end - index.bytes_before(number)
        cold_end = self.cold.known_end(self.uid) or 0
        only_here = index.bytes_end - index.bytes_before(index.at_or_after(cold_end))
        return self.cold.bytes_from(self.uid, offset) + only_here

    @property
    def bytes_held(self) -> int:
        """Bytes of all batches from the log start on."""
        return self.bytes_from(self.log_start)

    def missing(self) -> tuple[int, int] | None:
        """The offsets that are neither in the cold store nor in the log; None if there are none."""
        start = max(self.log_start, self.cold.end(self.uid) or 0)
        end = self.index_start
        return (start, end) if start < end else None

    # -- tiering ------------------------------------------------------------------------------

    def copy_plan(self, below: int, batches_max: int = TIERING_BATCHES_MAX) -> CopyPlan | None:
        """What to copy to the cold store so that nothing below this position of the log is read any
        more; None if nothing is needed. Offsets move in order, so batches that lie further on may
        have to move as well. At most `batches_max`: call again once these are tiered.
        """
        index = self.index
        first = max(index.first, index.at_or_after(self.cold.end(self.uid) or 0))
        stop = min(index.below(below), first + batches_max)
        return self._plan(first, stop) if first < stop else None

    def read_plan(self, offset: int, batches_max: int) -> CopyPlan:
        """The batches of the log from the one that contains `offset` on, which must be there."""
        assert self.index_start <= offset < self.next_offset
        first = self.index.find(offset)
        return self._plan(first, min(self.index.stop, first + batches_max))

    def _plan(self, first: int, stop: int) -> CopyPlan:
        index = self.index
        bases, positions, _, times = index.columns(first, stop)
        _, sizes = index.places(first, stop)
        end = index.base(stop) if stop < index.stop else self.next_offset
        at = bisect_right(self._epoch_starts, bases[0]) - 1
        until = bisect_left(self._epoch_starts, end)
        epochs = list(zip(self._epoch_starts[at:until], self._epochs[at:until], strict=True))
        return CopyPlan(self.uid, bases, positions, sizes, times, epochs, end)

    def mark_tiered(self, to: int) -> None:
        """Everything up to this offset is in the cold store, and is read from there from now on."""
        index = self.index
        index.drop_before(max(index.first, index.at_or_after(min(to, self.next_offset))))

    def start_at(self, offset: int) -> None:
        """Forget what lies before `offset`; a batch that contains it stays whole."""
        assert self.log_start <= offset <= self.next_offset
        self.log_start = offset
        index = self.index
        if offset == self.next_offset:
            index.drop_before(index.stop)
        elif len(index) and offset > index.base(index.first):
            index.drop_before(index.find(offset))
        epoch_at = bisect_right(self._epoch_starts, offset) - 1
        if epoch_at > 0:  # the epoch of the batch that contains `offset` stays
            del self._epoch_starts[:epoch_at], self._epochs[:epoch_at]
