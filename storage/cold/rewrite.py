"""Rewriting a cold segment: its own blocks, with a peer's data in place of damaged ones.

A file is rewritten as a whole and renamed, never changed in place. Other damage in it stays: it is
copied as it is, or becomes a block that cannot be read, so that nobody takes its offsets for empty.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from paxos.entry import Buffer
from storage.cold.file import ColdFile
from storage.cold.format import (
    BATCHES_MAX,
    BLOCK_BYTES,
    BLOCK_HEADER_BYTES,
    NO_TIMESTAMP,
    Block,
    Written,
    batches_of,
    encode_block,
    encode_block_header,
)

_WRONG: Final = 0xFFFF_FFFF


@attrs.frozen
class Replacement:
    """All batches of offsets `start` to `end`; with gaps, if some were compacted away."""

    start: int
    end: int
    batches: Iterable[Written]


@attrs.frozen
class Covered:
    """Up to this offset there are no more batches."""

    end: int


@attrs.frozen
class Unreadable:
    """Offsets of a damaged block; `block` and `raw` are what is left of it, if anything."""

    base: int
    end: int
    block: Block | None = None
    raw: memoryview = attrs.field(factory=lambda: memoryview(b""))


@attrs.frozen
class Tile:
    """A block to be written for offsets `base` to `end`."""

    base: int
    end: int
    content: list[Written] | Unreadable

    def encode(self, seed: int, synced: int) -> list[Buffer]:
        content = self.content
        if not isinstance(content, Unreadable):
            return encode_block(seed, self.base, self.end, synced, content)
        if content.block is not None:
            block = content.block._replace(synced=synced)
            return [encode_block_header(block, seed), content.raw[BLOCK_HEADER_BYTES:]]
        nothing = Block(seed ^ _WRONG, 0, 0, self.base, self.end, NO_TIMESTAMP, synced)
        return [encode_block_header(nothing, seed)]

    @property
    def first_timestamp_ms(self) -> int:
        """Of its first batch."""
        if isinstance(self.content, Unreadable) or not self.content:
            return self.max_timestamp_ms
        return self.content[0][2]

    @property
    def max_timestamp_ms(self) -> int:
        if isinstance(self.content, Unreadable):
            return self.content.block.max_timestamp_ms if self.content.block else NO_TIMESTAMP
        return max((batch[2] for batch in self.content), default=NO_TIMESTAMP)


def tiles(items: Iterable[Written | Covered | Unreadable], start: int) -> Iterator[Tile]:
    """Blocks that tile the offsets from `start` on, of BLOCK_BYTES or a little more."""
    reached, size = start, 0
    gathered: list[Written] = []
    for item in items:
        if isinstance(item, Unreadable):
            if gathered:
                yield Tile(reached, item.base, gathered)
            yield Tile(item.base, item.end, item)
            reached, gathered, size = item.end, [], 0
        elif isinstance(item, Covered):
            if item.end > (gathered[-1][1] if gathered else reached):
                yield Tile(reached, item.end, gathered)
                reached, gathered, size = item.end, [], 0
        else:
            gathered.append(item)
            size += sum(map(len, item[3]))
            if size >= BLOCK_BYTES or len(gathered) == BATCHES_MAX:
                yield Tile(reached, item[1], gathered)
                reached, gathered, size = item[1], [], 0
    if gathered:
        yield Tile(reached, gathered[-1][1], gathered)


def rewritten(old: ColdFile, end: int, new: Replacement | None) -> Iterator[Tile]:
    """The blocks of a file that reaches to offset `end`, with `new` in its place."""
    return tiles(_items(old, end, new), old.base)


def _items(
    old: ColdFile, end: int, new: Replacement | None
) -> Iterator[Written | Covered | Unreadable]:
    if new is None:
        yield from _own(old, old.base, end, end)
        return
    yield from _own(old, old.base, new.start, end)
    yield from new.batches
    yield Covered(new.end)
    yield from _own(old, new.end, end, end)


def _own(
    old: ColdFile, start: int, stop: int, end: int
) -> Iterator[Written | Covered | Unreadable]:
    """What the file, which reaches to `end`, holds of the offsets from `start` to `stop`."""
    index = old.index
    reached = old.base
    for number, base in enumerate(index.bases):
        if reached < base:  # a block whose header is damaged
            yield from _unreadable(Unreadable(reached, base), start, stop)
        following = index.bases[number + 1] if number + 1 < len(index.bases) else index.end
        reached = following
        if following <= start or base >= stop:
            continue
        block, data = old.read_block(index.positions[number])
        if block is None or data is None:
            bad = Unreadable(base, following) if block is None else _left_of(old, number, block)
            yield from _unreadable(bad, start, stop)
            reached = bad.end
            continue
        for batch in batches_of(block, data):
            assert not batch.base < start < batch.end, f"{start} is within {batch[:2]}"
            assert not batch.base < stop < batch.end, f"{stop} is within {batch[:2]}"
            if start <= batch.base and batch.end <= stop:
                yield (batch.base, batch.end, batch.max_timestamp_ms, (batch.data,))
        reached = block.end
        yield Covered(min(block.end, stop))
    if reached < end:
        yield from _unreadable(Unreadable(reached, end), start, stop)


def _left_of(old: ColdFile, number: int, block: Block) -> Unreadable:
    raw = memoryview(old.file.pread(block.size, old.index.positions[number]))
    return Unreadable(block.base, block.end, block, raw)


def _unreadable(bad: Unreadable, start: int, stop: int) -> Iterator[Unreadable]:
    base, end = max(bad.base, start), min(bad.end, stop)
    if (base, end) == (bad.base, bad.end):
        yield bad
    elif base < end:
        yield Unreadable(base, end)


def check_order(batches: Sequence[Written], start: int, *, gaps: bool) -> None:
    reached = start
    for base, end, _, _ in batches:
        assert reached <= base < end, f"offsets {base} to {end} after {reached}"
        assert gaps or base == reached, f"offset {base} after {reached}: there is a gap"
        reached = end
