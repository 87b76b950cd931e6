"""The token under which a chunk is written, and what an answer to it means: pure.

A micro-batch that is run again sends what its first run has sent, and the broker answers that a
chunk exists already. It has to be checked that it is the same: a query whose rows change from run
to run, or go to other tasks, would otherwise lose those that the first run had not reached. So
existing chunks are fetched back and compared, as the set of all rows in them: the order of rows and
the borders of chunks may differ if the micro-batch was complete. If it was not, its first chunks
must hold the same rows in both runs, because the second continues behind them.

What cannot be compared counts as equal: a chunk older than the last five, or one deleted since. If
compaction has thinned out a chunk, its remaining rows must be among ours.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from hashlib import blake2b
from typing import Final

import attrs

from pyspark_evenkeel.client.producing import Produced
from pyspark_evenkeel.errors import RefusedError, ReplayError
from pyspark_evenkeel.write.chunks import Chunk
from wire.cluster_view import TopicPartition
from wire.error_codes import ErrorCode
from wire.records.batch import DECOMPRESSED_BYTES_MAX, Batch, Record, iterate_records, split
from wire.records.compression import decompress
from wire.records.write_tokens import CHUNK_END, Position, Token, position_of, token_of, writer_id

SEQUENCE_END: Final = 1 << 31
_DIGEST_BYTES: Final = 16
_DIGEST_END: Final = 1 << 8 * _DIGEST_BYTES
_WAY_OUT: Final = (
    "rows must be the same each time: no rand() or current_timestamp() in what decides on them, no "
    "shuffle whose tasks vary (see by_destination), the same chunkBytes and bufferBytes; to go on, "
    "set option writeId to a new name: the micro-batch is then written once more as a whole"
)


class Fate(Enum):
    """The outcome for a chunk."""

    APPENDED = auto()
    THERE_ALREADY = auto()


@attrs.frozen
class WriteTokens:
    """Identifies a task and its micro-batch, so that its rows are written once (ADR 28)."""

    query: str
    """Its name in errors."""
    writer: tuple[str | int, ...]
    batch: int

    def token(self, chunk: Chunk, partitions: int, *, more: bool) -> Token:
        """`partitions` is how many the topic has: with more of them rows go elsewhere, and earlier
        writes cannot be compared with present ones.

        Raises:
            ReplayError: if there are too many chunks.
        """
        if chunk.number >= CHUNK_END - 1:
            raise ReplayError(
                f"{self.query}: over {CHUNK_END:,} chunks for {chunk.place} in one micro-batch",
                advice="raise chunkBytes, or make micro-batches smaller (maxOffsetsPerTrigger)",
            )
        name = writer_id(*self.writer, partitions)
        return token_of(name, Position(self.batch, chunk.number, more))


@attrs.frozen
class Sequences:
    """An idempotent producer: what is sent again within one attempt of a task is written once."""

    producer_id: int
    epoch: int

    def token(self, chunk: Chunk, partitions: int, *, more: bool) -> Token:
        return Token(self.producer_id, self.epoch, chunk.records_before % SEQUENCE_END)


def judge(chunk: Chunk, produced: Produced, names: WriteTokens | Sequences) -> Fate:
    """
    Raises:
        ReplayError: if the chunk does not follow the existing ones.
        RefusedError: if it was refused for another reason.
    """
    if produced.error is ErrorCode.NONE:
        return Fate.APPENDED
    if produced.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return Fate.THERE_ALREADY
    if produced.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and isinstance(names, WriteTokens):
        raise ReplayError(
            f"{names.query}: chunk {chunk.number} for {chunk.place} does not follow what is there",
            why="this run has more rows than the first one, or the topic was recreated meanwhile",
            advice=_WAY_OUT,
        )
    raise RefusedError(
        f"writing to {chunk.place} failed", code=produced.error, message=produced.message
    )


@attrs.define
class _Place:
    """What is known of one destination of a repeated micro-batch."""

    difference: int = 0
    """Difference of the sums of digests: what we would have written less what exists."""
    reported: str = ""
    """The chunk in which a difference was first seen."""


@attrs.define
class Replay:
    """Compares what a task has found with what it wanted to write."""

    query: str
    """Chunks that were fetched back."""
    _places: dict[TopicPartition, _Place] = attrs.field(factory=dict, init=False)

    def appended(self, place: TopicPartition) -> None:
        """A chunk was written after those that existed.

        Raises:
            ReplayError: if those were different.
        """
        self._check(place)

    def found(self, chunk: Chunk, sealed: bytes, theirs: Batch) -> None:
        """A chunk existed already; `sealed` is ours, `theirs` what lies where it should be."""
        ours = split(memoryview(sealed))[0]
        meant, position = _position(ours), _position(theirs)
        if ours.header.producer_id != theirs.header.producer_id or meant[:2] != position[:2]:
            return  # it does not exist any more, and this is another batch
        place = self._places.setdefault(chunk.place, _Place())
        mine, found = _records(ours), _records(theirs)
        header = theirs.header
        if header.record_count <= header.last_offset_delta:
            differs = bool(Counter(found) - Counter(mine))
            place.difference += int(differs)
        else:
            place.difference += _sum(mine) - _sum(found)
            differs = place.difference % _DIGEST_END != 0
        if position.more and not meant.more:
            place.difference += 1
            differs = True
        if differs and not place.reported:
            place.reported = (
                f"chunk {chunk.number}, at offset {header.base_offset}, has {len(found):,} rows of "
                f"the first run, and would have {len(mine):,} rows now, not the same ones"
            )

    def finish(self) -> None:
        """Everything has been written.

        Raises:
            ReplayError: if what existed already was something else.
        """
        for place in sorted(self._places):
            self._check(place)

    def _check(self, place: TopicPartition) -> None:
        known = self._places.get(place)
        if known is not None and known.difference % _DIGEST_END:
            raise ReplayError(
                f"{self.query}, run again, is not what its first run has written to {place}",
                why=known.reported,
                advice=_WAY_OUT,
            )


def _position(batch: Batch) -> Position:
    return position_of(batch.header.producer_epoch, batch.header.base_sequence)


def _records(batch: Batch) -> list[bytes]:
    """What is compared of a record: not its time, which may be that of the run."""
    records = iterate_records(batch, decompress(batch, DECOMPRESSED_BYTES_MAX))
    return [_digest(one) for one in records]


def _digest(record: Record) -> bytes:
    """Digest of key, value and headers, each with its length so that none can be confused."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    parts: list[bytes | None] = [record.key, record.value]
    for name, content in record.headers:
        parts += [name.encode(), content]
    for part in parts:
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()


def _sum(digests: Iterable[bytes]) -> int:
    """Does not depend on the order."""
    return sum(int.from_bytes(one, "big") for one in digests)
