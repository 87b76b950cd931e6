"""One cold segment: finding its blocks, by its seal or one by one, and reading them."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import attrs

from storage.cold.format import (
    BATCHES_MAX,
    BLOCK_BYTES_MAX,
    BLOCK_HEADER_BYTES,
    BLOCK_MAGIC_BYTES,
    HEADER_BYTES,
    NO_TIMESTAMP,
    TRAILER_BYTES,
    Block,
    ColdBatch,
    Trailer,
    batches_of,
    content_intact,
    decode_block_header,
    decode_index,
    decode_trailer,
    index_bytes,
)
from storage.disk.direct import LONG_READ_BYTES_MAX
from storage.disk.files import File, read_around, read_long_around
from storage.errors import ColdDamaged

_WINDOW_BYTES: Final = 4096
"""Read at a time to find headers: several small blocks, and not much of a large one."""
_SEARCH_BYTES: Final = 1 << 20
NOTHING: Final = memoryview(b"")
UNKNOWN_MS: Final = (1 << 63) - 1
ENDLESS: Final = (1 << 63) - 1


def _signed() -> "array[int]":
    return array("q")


def _words() -> "array[int]":
    return array("Q")


class Hole(NamedTuple):
    """Offsets of which there is no block, before the one with this number."""

    number: int
    start: int
    end: int


@attrs.define(eq=False)
class BlockIndex:
    """The blocks of a file in their order: base offset, position, max timestamp."""

    base: int
    """The first offset that the file covers."""
    bases: "array[int]" = attrs.Factory(_signed)
    positions: "array[int]" = attrs.Factory(_words)
    timestamps: "array[int]" = attrs.Factory(_signed)
    end: int = 0
    """The offset after the last block."""
    position: int = HEADER_BYTES
    """Where the last block ends."""
    synced: int = HEADER_BYTES
    """Everything below was durable when the last block was written."""
    sealed: bool = False
    holes: list["Hole"] = attrs.Factory(list)
    """Where a block is missing because its header is damaged."""

    def add(self, position: int, block: Block) -> None:
        """A reader in another thread may look at any moment, and goes by `bases`: add that last."""
        if block.base != (self.end if self.bases else self.base):
            start = self.end if self.bases else self.base
            self.holes.append(Hole(len(self.bases), start, block.base))
        self.timestamps.append(block.max_timestamp_ms)
        self.positions.append(position)
        self.end = block.end
        self.position = position + block.size
        self.synced = max(self.synced, block.synced)
        self.bases.append(block.base)

    def at(self, offset: int) -> int:
        """The number of the block in which to look for `offset`; below 0 if it is in none."""
        return bisect_right(self.bases, offset) - 1

    def end_of(self, number: int) -> int:
        """The offset where the block ends, unless the one after it is damaged."""
        last = number + 1 >= len(self.bases)
        return self.end if last else self.bases[number + 1]

    def cut(self, position: int) -> None:
        """Forget the blocks from `position` on: they are still being written."""
        number = bisect_left(self.positions, position)
        if number < len(self.bases):
            self.end = self.bases[number]
            self.position = self.positions[number]
            self.forget(number)

    def forget(self, number: int) -> None:
        """Forget the blocks from this one on."""
        del self.bases[number:], self.positions[number:], self.timestamps[number:]
        self.holes = [hole for hole in self.holes if hole.number < number]

    @property
    def max_timestamp_ms(self) -> int:
        """UNKNOWN_MS if a block is missing: it may be as late as any."""
        return UNKNOWN_MS if self.holes else max(self.timestamps, default=NO_TIMESTAMP)

    def hole(self, since: int, until: int, number: int | None = None) -> "Hole | None":
        """A hole with offsets from `since` to `until`; with `number`, right before that block."""
        for hole in self.holes:
            if hole.end > since and hole.start < until and number in (None, hole.number):
                return hole
        return None


@attrs.frozen
class ColdFile:
    """An open file with its index; readers keep both, whatever happens to the name."""

    uid: int
    base: int
    seed: int
    file: File
    index: BlockIndex
    intact: bool = True
    """False: the index in the file is damaged, and was rebuilt from the blocks."""

    def size_of(self, number: int) -> int:
        """Bytes of a block, including any damage between it and the next one."""
        positions, behind_last = self.index.positions, self.index.position
        end = positions[number + 1] if number + 1 < len(positions) else behind_last
        return end - positions[number]

    def span(self, number: int, bytes_max: int) -> tuple[int, memoryview]:
        """Read the blocks from `number` on, at least one and as many as fit, in one read; returns
        the number of the next block, and the bytes."""
        stop, start, end = self._extent(number, bytes_max)
        return stop, read_long_around(self.file, end - start, start)

    def span_now(self, number: int, bytes_max: int) -> tuple[int, memoryview] | None:
        """The same without waiting for the disk; None if that is not possible."""
        stop, start, end = self._extent(number, bytes_max)
        data = self.file.read_now(end - start, start)
        return None if data is None else (stop, data)

    def span_soon(self, number: int, bytes_max: int) -> None:
        """Read ahead for a `span` with these arguments; for a sealed file."""
        _, start, end = self._extent(number, bytes_max)
        self.file.read_soon(end - start, start)

    def _extent(self, number: int, bytes_max: int) -> tuple[int, int, int]:
        """For `span`: the first block after it, and where its bytes begin and end."""
        positions, behind_last = self.index.positions, self.index.position
        start = positions[number]
        limit = start + min(bytes_max, LONG_READ_BYTES_MAX)
        stop = max(number + 1, bisect_right(positions, limit, number) - 1)
        end = positions[stop] if stop < len(positions) else behind_last
        if stop + 1 == len(positions) and behind_last <= limit:
            stop, end = stop + 1, behind_last
        return stop, start, end

    def read(self, number: int, data: memoryview = NOTHING) -> tuple[list[ColdBatch], int]:
        """The batches of a block, and the offset where it ends; `data`: its bytes, if already read.

        Raises:
            ColdDamaged: it is damaged; the error has the offsets that cannot be read.
        """
        index = self.index
        base, position = index.bases[number], index.positions[number]
        block, whole = self._block(data) if data else self.read_block(position)
        if block is None or whole is None or block.base != base:
            raise ColdDamaged(self.uid, base, index.end_of(number), self.file.name, position)
        return batches_of(block, whole), block.end

    def _block(self, data: memoryview) -> tuple[Block | None, memoryview | None]:
        block = decode_block_header(data[:BLOCK_HEADER_BYTES], self.seed)
        if block is None or not _plausible(block):
            return None, None
        data = data[: block.size]
        return block, data if content_intact(block, data, self.seed) else None

    def read_block(self, position: int) -> tuple[Block | None, memoryview | None]:
        """The block's header and its whole bytes, each None if it is damaged."""
        head = read_around(self.file, BLOCK_HEADER_BYTES, position)
        block = decode_block_header(head, self.seed)
        if block is None or not _plausible(block):
            return None, None
        data = read_long_around(self.file, block.size, position)
        intact = data[:BLOCK_HEADER_BYTES] == head and content_intact(block, data, self.seed)
        return block, data if intact else None


def open_cold(file: File, uid: int, base: int, seed: int) -> ColdFile:
    """Find the blocks of a file, from its seal if it has one.

    Raises:
        StorageFailed: the disk fails other than by having lost data.
    """
    trailer = read_trailer(file, seed)
    if trailer is not None:
        data = read_around(file, index_bytes(trailer), trailer.position)
        columns = decode_index(data, trailer, seed)
        if columns is not None:
            position = trailer.position
            index = BlockIndex(base, *columns, trailer.end, position, position, True)
            return ColdFile(uid, base, seed, file, index)
    index = walk_blocks(file, base, seed)
    index.sealed = trailer is not None
    return ColdFile(uid, base, seed, file, index, intact=trailer is None)


def read_trailer(file: File, seed: int) -> Trailer | None:
    size = file.size()
    if size < HEADER_BYTES + TRAILER_BYTES:
        return None
    trailer = decode_trailer(read_around(file, TRAILER_BYTES, size - TRAILER_BYTES), seed)
    if trailer is None or trailer.position + index_bytes(trailer) + TRAILER_BYTES != size:
        return None
    return trailer


def walk_blocks(file: File, base: int, seed: int) -> BlockIndex:
    """The index of a file without a seal. What follows its last block is the tail of a write that
    was never acknowledged: only what a later block knows to be durable counts as damaged."""
    index = BlockIndex(base, end=base)
    blocks: list[tuple[int, Block]] = []
    position, size = HEADER_BYTES, file.size()
    while position < size:
        stopped = position
        for at, block in _headers(file, position, size, seed):
            index.add(at, block)
            blocks.append((at, block))
            stopped = index.position
        following = _search_blocks(file, stopped, size, seed)
        if following is None:
            break
        position = following
    _cut_torn(file, index, blocks, seed)
    return index


def _headers(file: File, position: int, size: int, seed: int) -> Iterator[tuple[int, Block]]:
    window, start = b"", position
    while position < size:
        if position - start + BLOCK_HEADER_BYTES > len(window):
            start, window = position, read_around(file, _WINDOW_BYTES, position)
        at = position - start
        block = decode_block_header(window[at : at + BLOCK_HEADER_BYTES], seed)
        if block is None or not _plausible(block) or position + block.size > size:
            return
        yield position, block
        position += block.size


def _search_blocks(file: File, position: int, size: int, seed: int) -> int | None:
    """The next intact block header after a place without one, if that place was durable when the
    block was written."""
    start = position + 1
    while start < size:
        window = read_around(file, _SEARCH_BYTES, start)
        at = window.find(BLOCK_MAGIC_BYTES)
        while at >= 0 and at + BLOCK_HEADER_BYTES <= len(window):
            block = decode_block_header(window[at : at + BLOCK_HEADER_BYTES], seed)
            if block is not None and _plausible(block) and block.synced > position:
                return start + at
            at = window.find(BLOCK_MAGIC_BYTES, at + 1)
        if len(window) < _SEARCH_BYTES:
            return None
        start += len(window) - BLOCK_HEADER_BYTES + 1
    return None


def _cut_torn(file: File, index: BlockIndex, blocks: list[tuple[int, Block]], seed: int) -> None:
    """Of the blocks that may not be durable, keep those before the first bad one."""
    whole = ColdFile(0, index.base, seed, file, index)
    for number, (position, _) in enumerate(blocks):
        if position >= index.synced and whole.read_block(position)[1] is None:
            index.forget(number)
            index.end = blocks[number - 1][1].end if number else index.base
            index.position = (
                blocks[number - 1][0] + blocks[number - 1][1].size if number else (HEADER_BYTES)
            )
            return


def _plausible(block: Block) -> bool:
    return block.payload_bytes <= BLOCK_BYTES_MAX and block.batches <= BATCHES_MAX


def damage_in(file: ColdFile, end: int, pause: Callable[[int], None]) -> Iterator[ColdDamaged]:
    """The offsets up to `end` that the file should hold and does not. `pause` is called with the
    bytes of each block that was read."""
    index, name = file.index, file.file.name
    reached = file.base
    for number, base in enumerate(index.bases):
        position = index.positions[number]
        if base != reached:
            yield ColdDamaged(file.uid, reached, base, name, position)
        following = index.end_of(number)
        try:
            _, reached = file.read(number)
        except ColdDamaged as damage:
            yield damage
            reached = following
        behind = index.positions[number + 1] if number + 1 < len(index.bases) else index.position
        pause(behind - position)
    if reached < end:
        yield ColdDamaged(file.uid, reached, end, name, index.position)
