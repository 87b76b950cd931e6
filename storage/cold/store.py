"""The batches of each partition that are older than the log window, in files of their own.

The node's one log interleaves the data of all partitions, so what is kept for long must not stay
there (docs/adr/0020-cold-segments.md). It is copied here in the background, in the order of
offsets, before the log's segments go; nobody waits for it.

Theory of operation. The files describe themselves: names say partition and first offset, so a start
reads names and nothing else. The rest (where a partition ends, how old its files are) is read by
`secure` or `learn`, in a thread; the event loop asks `knows` first. Whatever is in a file was
applied, so a valid tail beyond what a checkpoint knows is kept: `end` may be ahead of a partition's
next offset, and readers limit themselves.

Any thread may read. One thread at a time writes; a block is seen by readers when it is durable. A
reader holds a file together with its index (ColdFile), so a file that is replaced or dropped
meanwhile stays whole for it. Checksums reveal damage, in a read or in `check`, and `replace`
repairs it with a peer's data. What compaction has left of several files becomes one (`merge`).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import attrs

from storage.cold.format import HEADER_BYTES, Block, ColdFacts, Written, cold_name
from storage.cold.merge import Merged, finish_merges
from storage.cold.reading import ColdReading
from storage.cold.rewrite import Replacement, Tile, check_order, rewritten, tiles
from storage.cold.writing import Tail
from storage.disk.direct import BLOCK_BYTES
from storage.disk.files import Disk, File
from storage.errors import UNREADABLE, ColdDamaged, DiskFull, StorageError, StorageFailed
from storage.identity import Identity

SEGMENT_BYTES: Final = 1 << 30
"""Kafka's default of `segment.bytes`."""
SEGMENT_MS: Final = 7 * 24 * 3600 * 1000
"""Kafka's default of `segment.ms`."""


class ColdStore(ColdReading):
    """See the module's docstring for who may call what, and the format in format.py."""

    def __init__(self, disk: Disk, identity: Identity) -> None:
        finish_merges(disk)
        super().__init__(disk, identity)

    # ---- writing --------------------------------------------------------------------------------

    def append(
        self,
        uid: int,
        batches: Sequence[Written],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_ms: int = SEGMENT_MS,
        gaps: bool = False,
        start: int | None = None,
    ) -> int:
        """Add batches after the last one, durably; returns the new end. One fdatasync for all of
        them, unless a file gets full.

        The first one begins where the partition's data ends, or anywhere if there is none. With
        `gaps` some were compacted away, perhaps also the first ones, from `start` on.

        Raises:
            DiskFull: some of them may have been added.
        """
        assert batches, "nothing to append"
        with self._write_lock:
            tail = self._tail(uid)
            if tail is not None:
                start = tail.end
            elif start is None or not gaps:
                start = batches[0][0]
            check_order(batches, start, gaps=gaps)
            try:
                return self._append(uid, tail, tiles(batches, start), segment_bytes, segment_ms)
            except BaseException:  # whatever it was: the pending blocks belong to this file alone
                self._writer.abandon()
                with self._lock:
                    self._tails.pop(uid, None)
                with suppress(StorageError):  # the next `learn` meets it again
                    self.learn([uid])
                raise

    def _append(
        self,
        uid: int,
        tail: Tail | None,
        blocks: Iterable[Tile],
        segment_bytes: int,
        segment_ms: int,
    ) -> int:
        tail = None if tail is None else attrs.evolve(tail)
        if tail is not None and not self._takes_more(uid, tail):
            tail.sealed = True
        added: list[tuple[int, Block]] = []
        file: File | None = None
        for tile in blocks:
            if tail is None or tail.is_full(tile, segment_bytes, segment_ms):
                if tail is not None and not tail.sealed:
                    self._seal(uid, tail, file, added)
                tail, file, added = self._begin(uid, tile), None, []
            if file is None:
                file = self._disk.open(cold_name(uid, tail.base))
                if tail.found:
                    self._writer.repair_tail(file, tail)
            seed = self._writer.seed(uid, tail.base)
            added.append(self._writer.write(file, tail, tile, seed))
        assert tail is not None
        assert file is not None
        self._commit(uid, tail, file, added)
        return tail.end

    def _takes_more(self, uid: int, tail: Tail) -> bool:
        """Whether the file can be appended to. It cannot if the disk has lost the last block, which
        is not full: then the file ends as it is, without a seal, like one that is damaged there.
        Otherwise every start would fail on it."""
        written = tail.position % BLOCK_BYTES
        if tail.sealed or not written:
            return True
        try:
            self._disk.open(cold_name(uid, tail.base)).pread(written, tail.position - written)
        except StorageFailed as failure:
            if failure.errno not in UNREADABLE:
                raise
            return False
        return True

    def secure(self, uids: Iterable[int]) -> None:
        """Make durable what a start has found of these partitions, torn tails cut off. `end` only
        says what can be read: what an unfinished call of an earlier life has left may be in the
        page cache only. Call this before the log retires the same data."""
        for uid in uids:
            with self._write_lock:
                self.learn([uid])
                found = self._tail(uid)
                if found is None or not found.found or found.sealed:
                    continue
                tail = attrs.evolve(found)
                self._writer.repair_tail(self._disk.open(cold_name(uid, tail.base)), tail)
                with self._lock:
                    self._tails[uid] = tail
                    self._sizes[uid, tail.base] = tail.position

    def _begin(self, uid: int, tile: Tile) -> Tail:
        tail = self._writer.begin(uid, tile.base, tile.first_timestamp_ms)
        with self._lock:
            before, bases = self._tails.get(uid), self._bases.setdefault(uid, [])
            if tile.base in bases:
                self._forget((uid, tile.base))  # nothing of it could be read
            else:
                bases.append(tile.base)
                if before is not None:
                    self._ends[uid, before.base] = tile.base, before.latest_ms
            self._sizes[uid, tile.base] = HEADER_BYTES
            self._tails[uid] = attrs.evolve(tail)
        return tail

    def _commit(self, uid: int, tail: Tail, file: File, added: Sequence[tuple[int, Block]]) -> None:
        """Make it durable, and only then visible."""
        self._writer.sync(file)
        tail.synced = tail.position
        key = (uid, tail.base)
        cached = self._cache.get(key)
        if cached is not None and added and cached.index.position == added[0][0]:
            for position, block in added:
                cached.index.add(position, block)
        else:
            self._cache.drop(key)
        with self._lock:
            self._sizes[key] = tail.position
            self._tails[uid] = attrs.evolve(tail)

    def _seal(
        self, uid: int, tail: Tail, file: File | None, added: Sequence[tuple[int, Block]]
    ) -> None:
        if file is None:
            file = self._disk.open(cold_name(uid, tail.base))
            if tail.found:
                self._writer.repair_tail(file, tail)
        self._commit(uid, tail, file, added)
        whole = self._load(uid, tail.base)
        size = self._writer.seal(file, tail, whole.index, whole.seed)
        whole.index.sealed = True
        with self._lock:
            self._sizes[uid, tail.base] = size

    def end_file(self, uid: int) -> bool:
        """Seal the partition's last file, however little is in it: the next batch begins a new one.
        False if there is none that could be appended to.

        Raises:
            DiskFull: nothing has changed.
        """
        with self._write_lock:
            found = self._tail(uid)
            if found is None or found.sealed or found.position == HEADER_BYTES:
                return False
            tail = attrs.evolve(found)
            if self._takes_more(uid, tail):
                self._seal(uid, tail, None, [])
            else:
                tail.sealed = True
            with self._lock:
                self._tails[uid] = tail
            return True

    def replace(self, uid: int, start: int, end: int, batches: Sequence[Written]) -> None:
        """Replace the offsets from `start` to `end` by what a peer has of them, because ours are
        damaged or were compacted. The files concerned are rewritten.

        Batches outside of the files are left out; none crosses a border between files.

        Raises:
            DiskFull: only some of the files are replaced, or none.
        """
        with self._write_lock:
            for base in self._bases_of(uid):
                file_end, _ = self._extent(uid, base)
                low, high = max(start, base), min(end, file_end)
                if low < high:
                    mine = [one for one in batches if low <= one[0] and one[1] <= high]
                    self._rewrite(uid, base, Replacement(low, high, mine))

    def _rewrite(self, uid: int, base: int, new: Replacement | None) -> None:
        end, is_last = self._extent(uid, base)
        old = self._load(uid, base)
        tail, size = self._writer.draft(
            uid,
            base,
            self._first_timestamp(old),
            rewritten(old, end, new),
            seals=not is_last or old.index.sealed,
        )
        with self._renaming:
            self._look_again()
            self._writer.publish(uid, base)
            with self._lock:
                self._sizes[uid, base] = size
                self._forget((uid, base))
                if is_last:
                    self._tails[uid] = tail
                else:
                    self._ends[uid, base] = end, tail.latest_ms

    # ---- merging: one thread, which may be another one ------------------------------------------

    def merge(
        self,
        uid: int,
        files: Sequence[ColdFacts],
        batches: Iterable[Written],
        clean_to: int,
        is_needed: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Replace adjacent sealed files by one with what is left of their batches; readers go on.
        False if that is no longer needed, or the files have changed meanwhile.

        Raises:
            DiskFull: nothing has changed.
            Exception: what `batches` raises; nothing has changed.
        """
        assert files[-1].sealed, "the last file is still appended to"
        try:
            merged = self._merger.write(uid, files, batches, clean_to)
        except BaseException:
            self._merger.discard()
            raise
        with self._write_lock:
            if is_needed() and self._unchanged(uid, files):
                self._merger.mark(merged)
                try:
                    self._adopt(merged, [one.base for one in files[1:]])
                except DiskFull as full:  # after the mark, nothing can be undone
                    reason = OSError(full.errno, "no room left in the middle of a merge")
                    raise StorageFailed(full.operation, full.file, reason) from full
                return True
        self._merger.discard()
        return False

    def _unchanged(self, uid: int, files: Sequence[ColdFacts]) -> bool:
        bases = self._bases_of(uid)
        if files[0].base not in bases:
            return False
        at = bases.index(files[0].base)
        behind = at + len(files)
        tail = self._tail(uid)
        with self._lock:
            return (
                bases[at:behind] == [one.base for one in files]
                and all(self._sizes[uid, one.base] == one.bytes for one in files)
                and (behind < len(bases) or (tail is not None and tail.sealed))
            )

    def _adopt(self, merged: Merged, others: list[int]) -> None:
        uid, start = merged.uid, merged.start
        self._merger.prepare()
        with self._renaming:
            self._look_again()
            self._merger.rename(merged)
            with self._lock:
                for base in others:
                    self._bases[uid].remove(base)
                    del self._sizes[uid, base]
                    self._forget((uid, base))
                self._sizes[uid, start] = merged.size
                self._forget((uid, start))
                tail = self._tails.get(uid)
                if tail is not None and tail.base in (start, *others):
                    self._tails[uid] = merged.tail  # the last one was ended early
                else:
                    self._ends[uid, start] = merged.end, merged.tail.latest_ms
        self._merger.clear(merged, others)

    def _look_again(self) -> None:
        """A file is about to be replaced: until `_renaming` is free again, a reader may combine the
        new file with what is known of the old one, and then has to read again."""
        with self._lock:
            self._changes += 1

    # ---- dropping -------------------------------------------------------------------------------

    def drop_before(self, uid: int, offset: int) -> int:
        """Remove the files that lie wholly below `offset`, and return the number of bytes freed. If
        none is left, the next append may begin anywhere."""
        with self._write_lock:
            bases = self._bases_of(uid)
            count = max(0, bisect_right(bases, offset) - 1)
            if bases and count == len(bases) - 1 and self._extent(uid, bases[-1])[0] <= offset:
                count += 1
            return self._drop(uid, bases[:count])

    def drop(self, uid: int) -> int:
        """Remove all files of a partition, and return the number of bytes freed."""
        with self._write_lock:
            return self._drop(uid, self._bases_of(uid))

    def _drop(self, uid: int, gone: list[int]) -> int:
        """Oldest first, so that a crash leaves no hole."""
        freed = 0
        with self._lock:
            for base in gone:
                freed += self._sizes.pop((uid, base))
                self._forget((uid, base))
                self._bases[uid].remove(base)
            if gone and not self._bases[uid]:
                del self._bases[uid]
                self._tails.pop(uid, None)
        for base in gone:
            self._disk.remove(cold_name(uid, base))
        if gone:
            self._disk.sync_directory()
        return freed

    # ---- looking for damage ---------------------------------------------------------------------

    def check(
        self, uid: int, base: int, pause: Callable[[int], None] = lambda size: None
    ) -> list[ColdDamaged]:
        """Read a whole file again, any thread; returns the damaged offsets, none if the file was
        dropped. `pause` is called with the size of each block that was read.

        If only the header or the seal is damaged, it is repaired here.
        """
        found, intact = self.survey(uid, base, pause)
        if not found and not intact:
            with self._write_lock:
                if base in self._bases_of(uid):
                    self._rewrite(uid, base, None)
        return found
