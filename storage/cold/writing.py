"""Writing cold segments: new files, blocks at the end of the last one, seals, whole rewrites.

No thread-safety here: ColdStore lets one thread at a time write.
"""

from collections.abc import Iterable
from typing import Final

import attrs

from paxos.entry import Buffer
from storage.cold.file import BlockIndex
from storage.cold.format import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    TEMPORARY_NAME,
    Block,
    cold_name,
    decode_block_header,
    encode_header,
    encode_seal,
    seed_of,
)
from storage.cold.rewrite import Tile
from storage.disk.files import Disk, File, join_small, write_all
from storage.identity import Identity

PENDING_BYTES: Final = 1 << 20
SYNC_EVERY_BYTES: Final = 1 << 20
"""A rewritten file is made durable in pieces of this size: the log's fdatasync must not wait."""


@attrs.define
class Tail:
    """Where a partition's data ends: in which file, and where in it."""

    base: int
    position: int
    end: int
    synced: int
    first_timestamp_ms: int
    sealed: bool = False
    """Full, or ended early: the next block begins a new file."""
    found: bool = False
    """As a start found it: what is beyond `synced` may be in the page cache only."""
    latest_ms: int = NO_TIMESTAMP
    """The greatest time in the file."""

    def is_full(self, tile: Tile, segment_bytes: int, segment_ms: int) -> bool:
        """Whether a new file begins with this block."""
        if self.sealed or self.position - HEADER_BYTES >= segment_bytes:
            return True
        first, latest = self.first_timestamp_ms, tile.max_timestamp_ms
        return self.position > HEADER_BYTES and NO_TIMESTAMP < first <= latest - segment_ms


class ColdWriter:
    def __init__(
        self, disk: Disk, identity: Identity, temporary_name: str = TEMPORARY_NAME
    ) -> None:
        self._disk, self._identity, self._temporary_name = disk, identity, temporary_name
        self._pending: list[Buffer] = []
        """Consecutive blocks to be written at once, up to PENDING_BYTES of them: direct writes
        should be long (direct.py)."""
        self._pending_at = self._pending_bytes = 0
        self.bytes_written = 0

    def begin(self, uid: int, base: int, first_timestamp_ms: int) -> Tail:
        """Begin a new file: when it has its name, its header is durable."""
        self._fresh(uid, base, first_timestamp_ms)
        self.publish(uid, base)
        return Tail(base, HEADER_BYTES, base, HEADER_BYTES, first_timestamp_ms)

    def repair_tail(self, file: File, tail: Tail) -> None:
        """Before the first append since the start: cut off a torn tail, and write again what may
        never have reached the disk. (After a failed fdatasync the kernel keeps pages that read well
        and are marked clean: "fsyncgate".)"""
        if file.size() > tail.position:
            file.truncate(tail.position)
        if tail.position > tail.synced:
            data = file.pread(tail.position - tail.synced, tail.synced)
            write_all(file, [data], tail.synced)
        self.sync(file)
        tail.synced, tail.found = tail.position, False

    def write(self, file: File, tail: Tail, tile: Tile, seed: int) -> tuple[int, Block]:
        """Append a block, and return its position and header. It is not durable yet."""
        pieces = tile.encode(seed, tail.synced)
        block = decode_block_header(bytes(pieces[0]), seed)
        assert block is not None, "what was just encoded"
        position = tail.position
        if not self._pending:
            self._pending_at = position
        self._pending += pieces
        self._pending_bytes += block.size
        if self._pending_bytes >= PENDING_BYTES:
            self._flush(file)
        self.bytes_written += block.size
        tail.position += block.size
        tail.end = tile.end
        tail.latest_ms = max(tail.latest_ms, block.max_timestamp_ms)
        return position, block

    def _flush(self, file: File) -> None:
        pieces = join_small(self._pending)
        self.abandon()
        if pieces:
            write_all(file, pieces, self._pending_at)

    def abandon(self) -> None:
        """Drop what was not written yet: its file has failed, or the caller gave up."""
        self._pending, self._pending_bytes = [], 0

    def sync(self, file: File) -> None:
        self._flush(file)
        file.fdatasync()

    def seal(self, file: File, tail: Tail, index: BlockIndex, seed: int) -> int:
        """Seal the file durably, and return its size."""
        seal = encode_seal(
            seed, index.bases, index.positions, index.timestamps, tail.position, tail.end
        )
        write_all(file, [seal], tail.position)
        self.sync(file)
        self.bytes_written += len(seal)
        tail.sealed = True
        return tail.position + len(seal)

    def draft(
        self,
        uid: int,
        base: int,
        first_timestamp_ms: int,
        tiles: Iterable[Tile],
        *,
        seals: bool,
        clean_to: int = 0,
    ) -> tuple[Tail, int]:
        """Write a whole file durably under the temporary name; returns its tail and its size."""
        file = self._fresh(uid, base, first_timestamp_ms, clean_to)
        seed = self.seed(uid, base)
        tail = Tail(base, HEADER_BYTES, base, HEADER_BYTES, first_timestamp_ms)
        index = BlockIndex(base, end=base)
        synced = tail.position
        try:
            for tile in tiles:
                tail.synced = tail.position  # as it will be when the file has its name
                index.add(*self.write(file, tail, tile, seed))
                if tail.position - synced >= SYNC_EVERY_BYTES:
                    self.sync(file)
                    synced = tail.position
        except BaseException:
            self.abandon()  # or it would go into the file that is written next
            raise
        self.sync(file)
        tail.synced = size = tail.position
        if seals:
            size = self.seal(file, tail, index, seed)
        return tail, size

    def _fresh(self, uid: int, base: int, first_timestamp_ms: int, clean_to: int = 0) -> File:
        self.abandon()
        if self._temporary_name in self._disk.names():
            self._disk.remove(self._temporary_name)  # left by a crash, or a full disk
        file = self._disk.create(self._temporary_name)
        header = encode_header(self._identity, uid, base, first_timestamp_ms, clean_to)
        write_all(file, [header], 0)
        self.sync(file)
        self.bytes_written += HEADER_BYTES
        return file

    def publish(self, uid: int, base: int) -> None:
        """Put the draft in the place of the file with this name, durably."""
        self._disk.rename(self._temporary_name, cold_name(uid, base))
        self._disk.sync_directory()

    def seed(self, uid: int, base: int) -> int:
        return seed_of(self._identity.cluster, uid, base)
