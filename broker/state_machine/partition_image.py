"""A partition as bytes: what any replica can use (PARTITION), and where its batches lie (INDEX).

The first is the same, byte for byte, on every replica that has applied the same slots. The second
belongs to this node alone: four columns of numbers in the machine's memory layout, because copying
65,536 batches takes about a millisecond, and encoding them number by number would take a hundred.
"""

import struct
from array import array
from collections.abc import Iterator
from operator import lt
from typing import Final

from broker.state_machine.batch_index import BatchIndex, Columns
from broker.state_machine.checkpoint_chunks import Bytes, ImageError
from broker.state_machine.partition import PartitionState
from broker.state_machine.producer_state import (
    BATCHES_REMEMBERED,
    CONTIGUOUS_MAX,
    PRODUCERS_MAX,
    SEQUENCES,
    ProducerImage,
)
from broker.state_machine.writer_state import CHUNKS_REMEMBERED, WRITERS_MAX, Writer
from paxos.entry import Buffer
from wire.records.write_tokens import is_write_token, position_of, token_of

INDEX_PIECE: Final = 65_536
"""Batches in one INDEX chunk, which then has 2 MiB."""
EPOCHS_MAX: Final = 1 << 24
EPOCH_MAX: Final = 2**31 - 1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1

_PARTITION: Final = struct.Struct(">qqqQI")
_EPOCH: Final = struct.Struct(">qq")
_PRODUCERS: Final = struct.Struct(">BI")
_PRODUCER: Final = struct.Struct(">qhiiB")
_RECENT: Final = struct.Struct(">iiq")
_WRITERS: Final = struct.Struct(">I")
_WRITER: Final = struct.Struct(">qhiB")
_BASE: Final = struct.Struct(">q")
_INDEX: Final = struct.Struct(">QI")
_BYTE_ORDER: Final = array("Q", [0x0102030405060708]).tobytes()
"""This number in the machine's byte order, which the columns have as well."""


def encode_partition(state: PartitionState) -> bytes:
    epochs = state.epochs()
    out = bytearray(
        _PARTITION.pack(
            state.log_start,
            state.next_offset,
            state.append_time_ms,
            state.index.bytes_end,
            len(epochs),
        )
    )
    for start, epoch in epochs:
        out += _EPOCH.pack(start, epoch)
    producers = state.producers
    out += _PRODUCERS.pack(producers.forgot, len(producers))
    pack, pack_recent = _PRODUCER.pack, _RECENT.pack
    for producer_id, epoch, last, contiguous, recent in producers.images():
        out += pack(producer_id, epoch, last, contiguous, len(recent))
        for batch in recent:
            out += pack_recent(*batch)
    out += _WRITERS.pack(len(state.writers))
    for producer_id, (position, bases) in state.writers.images():
        out += _WRITER.pack(*token_of(producer_id, position), len(bases))
        for base in bases:
            out += _BASE.pack(base)
    return bytes(out)


def load_partition(state: PartitionState, body: Buffer) -> None:
    """Replace `state` by what the bytes say; where its batches lie is unknown then.

    Raises:
        ImageError: if this is no image of a partition; `state` is unchanged then.
    """
    data = Bytes(body)
    log_start, next_offset, append_time_ms, bytes_end, count = data.unpack(_PARTITION)
    if not 0 <= log_start <= next_offset:
        raise ImageError(f"partition {state.uid} from {log_start} to {next_offset}")
    if count > EPOCHS_MAX or (count == 0) != (next_offset == 0):
        raise ImageError(f"partition {state.uid}: {count} epochs up to {next_offset}")
    epochs: list[tuple[int, int]] = []
    before = -1
    for _ in range(count):
        start, epoch = data.unpack(_EPOCH)
        if not before < start < next_offset or not 0 <= epoch <= EPOCH_MAX:
            raise ImageError(f"partition {state.uid}: epoch {epoch} from {start} on")
        epochs.append((start, epoch))
        before = start
    if epochs and epochs[0][0] > log_start:
        raise ImageError(f"partition {state.uid}: no epoch at its start {log_start}")
    forgot, producers = data.unpack(_PRODUCERS)
    if forgot > 1 or producers > PRODUCERS_MAX:
        raise ImageError(f"partition {state.uid}: {producers} producers")
    images = [_read_producer(data, next_offset) for _ in range(producers)]
    if len({one.producer_id for one in images}) != len(images):
        raise ImageError(f"partition {state.uid}: a producer is there twice")
    (count,) = data.unpack(_WRITERS)
    if count > WRITERS_MAX:
        raise ImageError(f"partition {state.uid}: {count} writers")
    writers = dict(_read_writer(data, next_offset) for _ in range(count))
    if len(writers) != count:
        raise ImageError(f"partition {state.uid}: a writer is there twice")
    data.finish()
    state.load(log_start, next_offset, append_time_ms, bytes_end, epochs)
    state.producers.load(images, bool(forgot))
    state.writers.load(writers)


def extent_of(body: Buffer) -> tuple[int, int]:
    """First and next offset of an encoded partition.

    Raises:
        ImageError: if it is malformed.
    """
    log_start, next_offset, *_ = Bytes(body).unpack(_PARTITION)
    if not 0 <= log_start <= next_offset:
        raise ImageError(f"a partition from {log_start} to {next_offset}")
    return log_start, next_offset


def _read_producer(data: Bytes, next_offset: int) -> ProducerImage:
    producer_id, epoch, last, contiguous, count = data.unpack(_PRODUCER)
    known = producer_id >= 0 and 0 <= epoch <= PRODUCER_EPOCH_MAX and 0 <= last < SEQUENCES
    if not known or not 0 <= contiguous <= CONTIGUOUS_MAX or not 0 <= count <= BATCHES_REMEMBERED:
        raise ImageError(f"producer {producer_id} of epoch {epoch}, last {last}, {count} batches")
    if (count == 0) != (contiguous == 0):  # both if it was admitted and has sent nothing
        raise ImageError(f"producer {producer_id}: {count} batches, {contiguous} in a row")
    recent = []
    for _ in range(count):
        first, until, offset = data.unpack(_RECENT)
        if not 0 <= first < SEQUENCES or not 0 <= until < SEQUENCES:
            raise ImageError(f"producer {producer_id}: sequence numbers {first} to {until}")
        if not 0 <= offset < next_offset:
            raise ImageError(f"producer {producer_id}: offset {offset} of {next_offset}")
        recent.append((first, until, offset))
    return ProducerImage(producer_id, epoch, last, contiguous, recent)


def _read_writer(data: Bytes, next_offset: int) -> tuple[int, Writer]:
    producer_id, epoch, sequence, count = data.unpack(_WRITER)
    if not is_write_token(producer_id) or epoch < 0 or sequence < 0:
        raise ImageError(f"writer {producer_id} with epoch {epoch}, sequence {sequence}")
    position = position_of(epoch, sequence)
    if count != min(position.chunk + 1, CHUNKS_REMEMBERED):
        raise ImageError(f"writer {producer_id} at {position}: {count} chunks are known")
    bases = tuple(data.unpack(_BASE)[0] for _ in range(count))
    if any(not 0 <= base < next_offset for base in bases) or not all(map(lt, bases, bases[1:])):
        raise ImageError(f"writer {producer_id} at {position}: chunks at {bases}")
    return producer_id, Writer(position, bases)


# -- where the batches lie -------------------------------------------------------------------------


def index_pieces(index: BatchIndex, stop: int) -> Iterator[bytes]:
    """The batches before number `stop`, in pieces; those dropped meanwhile are left out."""
    at = index.first
    while at < stop:
        at = max(at, index.first)
        end = min(at + INDEX_PIECE, stop)
        if at < end:
            columns = b"".join(column.tobytes() for column in index.columns(at, end))
            yield _BYTE_ORDER + _INDEX.pack(at, end - at) + columns
        at = end


def load_index(state: PartitionState, body: Buffer) -> None:
    """Add a piece to the index of a partition, whose PARTITION chunk has been loaded.

    It continues where the previous piece ended, or later: then the log start was moved up, or
    batches were tiered, between the two.

    Raises:
        ImageError: if it cannot be a piece of this index.
    """
    data = Bytes(body)
    if data.take(len(_BYTE_ORDER)) != _BYTE_ORDER:
        raise ImageError("an index from a machine that writes numbers in another order")
    first, count = data.unpack(_INDEX)
    if not 0 < count <= INDEX_PIECE:
        raise ImageError(f"an index of {count} batches")
    columns = Columns(*(_column(code, data.take(8 * count)) for code in "qQQq"))
    data.finish()
    index = state.index
    if len(index) and first < index.stop:
        raise ImageError(f"partition {state.uid}: batch {first} instead of {index.stop}")
    if len(index) and first > index.stop:
        index.drop_before(index.stop)
    bases, starts = list(columns.bases), list(columns.starts)
    if len(index):
        last = index.stop - 1
        bases.insert(0, index.base(last))
        starts.insert(0, index.bytes_before(last))
    bases.append(state.next_offset)
    starts.append(index.bytes_end)
    if bases[0] < 0 or not all(map(lt, bases, bases[1:])) or not all(map(lt, starts, starts[1:])):
        raise ImageError(f"partition {state.uid}: batches out of order, or beyond its end")
    index.extend(first, columns)


def _column(code: str, data: memoryview) -> "array[int]":
    column = array(code)
    column.frombytes(data)
    return column
