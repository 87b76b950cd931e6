"""The batches of each partition that are older than the log window, in files of their own.

A partition's data is interleaved with everybody else's in the node's one log, so what is kept for
long must not stay there (docs/adr/0020-cold-segments.md). It is copied here in the background, in
the order of offsets, before the log's segments go; nobody waits for it.

Theory of operation. The files describe themselves: names say partition and first offset, so a start
reads names and nothing else, and the last file of a partition is walked when somebody first asks
where it ends. What is in a file was applied by somebody, so a valid tail beyond what a checkpoint
knows is kept: `end` may be ahead of a partition's next offset, and readers bound themselves.

Any thread may read. One thread at a time writes; a block is seen by readers when it is durable. A
reader holds a file together with its index (ColdFile), so a file that is replaced or dropped
meanwhile stays whole for him. Damage is found by checksums, by reading or by `check`, and mended by
`replace` with a peer's data.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NoReturn

import attrs

from storage.cold_cache import ColdCache
from storage.cold_file import ColdFile, damage_in, open_cold, read_trailer
from storage.cold_format import (
    FORMAT_VERSION,
    HEADER_BYTES,
    NO_TIMESTAMP,
    Block,
    ColdBatch,
    ColdSegment,
    Header,
    Written,
    cold_name,
    decode_header,
    parse_cold_name,
)
from storage.cold_rewrite import Replacement, Tile, check_order, rewritten, tiles
from storage.cold_writing import ColdWriter, Tail
from storage.disk import Disk, File, read_around
from storage.errors import ColdDamaged, DirectoryRefused, NotInLog, StorageFailed
from storage.identity import Identity

SEGMENT_BYTES: Final = 1 << 30
"""Kafka's default of `segment.bytes`."""
SEGMENT_MS: Final = 7 * 24 * 3600 * 1000
"""Kafka's default of `segment.ms`."""


@attrs.frozen(kw_only=True)
class ColdStatistics:
    partitions: int
    files: int
    bytes_held: int
    bytes_appended: int
    """Ever, since the start, headers included."""
    syncs: int
    damaged: int
    """Blocks found damaged since the start, by whomever."""
    files_open: int
    index_blocks: int


class ColdStore:
    """See the module's docstring for who may call what, and the format in cold_format.py."""

    def __init__(self, disk: Disk, identity: Identity) -> None:
        self._disk, self._identity = disk, identity
        self._lock = threading.Lock()
        """Guards what follows; never held while a file is read or written."""
        self._bases: dict[int, list[int]] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        self._tails: dict[int, Tail] = {}
        self._ends: dict[tuple[int, int], tuple[int, int]] = {}
        """End offset and max timestamp of sealed files, when somebody has asked."""
        self._write_lock = threading.Lock()
        self._cache = ColdCache()
        self._writer = ColdWriter(disk, identity)
        self._damaged = 0
        for name, size in disk.sizes().items():
            found = parse_cold_name(name)
            if found is not None:
                self._bases.setdefault(found[0], []).append(found[1])
                self._sizes[found] = size
        for bases in self._bases.values():
            bases.sort()

    # ---- what is there --------------------------------------------------------------------------

    def uids(self) -> list[int]:
        with self._lock:
            return sorted(self._bases)

    def files(self) -> list[tuple[int, int]]:
        """Uid and base offset of all files, in this order."""
        with self._lock:
            return sorted(self._sizes)

    def start(self, uid: int) -> int | None:
        """The first offset that there are files for; None if there are none."""
        with self._lock:
            bases = self._bases.get(uid)
            return bases[0] if bases else None

    def end(self, uid: int) -> int | None:
        """The offset behind the last batch. The first call reads the partition's last file: not
        for the event loop."""
        tail = self._tail(uid)
        return tail.end if tail is not None else None

    def segments(self, uid: int) -> list[ColdSegment]:
        """In order. The first call reads the end of each file."""
        found = []
        for base in self._bases_of(uid):
            summary = self._summary(uid, base)
            with self._lock:
                size = self._sizes.get((uid, base))
            if summary is not None and size is not None:
                found.append(ColdSegment(base, *summary, size))
        return found

    def bytes_from(self, uid: int, offset: int) -> int:
        """Bytes of the files' blocks from the one that contains `offset` on."""
        bases = self._bases_of(uid)
        first = bisect_right(bases, offset) - 1
        with self._lock:
            whole = sum(self._sizes.get((uid, base), 0) for base in bases[first + 1 :])
        if first < 0:
            return whole
        try:
            index = self._load(uid, bases[first]).index
        except NotInLog:
            return whole
        number = max(0, index.at(offset))
        inside = index.position - index.positions[number] if index.bases else 0
        return whole + (inside if offset < index.end else 0)

    @property
    def bytes_held(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def held(self) -> dict[int, int]:
        """Bytes of each partition's files."""
        found: dict[int, int] = {}
        with self._lock:
            for (uid, _), size in self._sizes.items():
                found[uid] = found.get(uid, 0) + size
        return found

    def statistics(self) -> ColdStatistics:
        files_open, blocks = self._cache.statistics()
        with self._lock:
            return ColdStatistics(
                partitions=len(self._bases),
                files=len(self._sizes),
                bytes_held=sum(self._sizes.values()),
                bytes_appended=self._writer.bytes_written,
                syncs=self._writer.syncs,
                damaged=self._damaged,
                files_open=files_open,
                index_blocks=blocks,
            )

    # ---- reading --------------------------------------------------------------------------------

    def read(self, uid: int, offset: int, bytes_max: int) -> list[memoryview]:
        """Batches from the one that contains `offset` on, or the next one where that was compacted
        away: the first in any case, more as long as they fit; none at the end.

        Raises:
            NotInLog: `offset` is below the first one that is here.
            ColdDamaged: the batches at `offset` are not what was written.
        """
        return [batch.data for batch in self.batches(uid, offset, bytes_max)]

    def batches(self, uid: int, offset: int, bytes_max: int) -> list[ColdBatch]:
        """As `read`, with offsets and timestamps. Damage further on ends the list."""
        found: list[ColdBatch] = []
        left = bytes_max
        try:
            for batch in self._from(uid, offset):
                left -= len(batch.data)
                if found and left < 0:
                    break
                found.append(batch)
        except ColdDamaged:
            if not found:
                raise
        return found

    def find_time(self, uid: int, timestamp_ms: int, since: int = 0) -> int | None:
        """The base offset of the first batch, of those from the one with offset `since` on, that
        holds a record of this time or later; None if there is none.

        Raises:
            ColdDamaged: it may lie in a block that is not what was written.
        """
        bases = self._bases_of(uid)
        for base in bases[max(0, bisect_right(bases, since) - 1) :]:
            summary = self._summary(uid, base)
            if summary is None or summary[1] < timestamp_ms:
                continue
            file = self._load(uid, base)
            for number, latest in enumerate(file.index.timestamps):
                if latest >= timestamp_ms and file.index.end_of(number) > since:
                    for batch in self._block(file, number)[0]:
                        if batch.max_timestamp_ms >= timestamp_ms and batch.end > since:
                            return batch.base
        return None

    def _from(self, uid: int, offset: int) -> Iterator[ColdBatch]:
        """Batches from the one that contains `offset` on; what is missing in between is damage."""
        tail = self._tail(uid)  # first: what is durable now will be found
        bases = self._bases_of(uid)
        first = bisect_right(bases, offset) - 1
        if tail is None or first < 0:
            raise NotInLog(f"partition {uid}: no cold data at offset {offset}")
        limit = (tail.base, tail.end)
        reached: int | None = None
        for base in bases[first:]:
            file = self._load(uid, base)
            index = file.index
            if reached is not None and reached != base:
                self._raise_missing(file, reached, base, 0)
            number = index.at(offset)
            reached = base if number < 0 else index.bases[number]
            if offset >= index.end:
                reached = index.end
                continue
            for at in range(max(0, number), len(index.bases)):
                if index.bases[at] != reached:
                    self._raise_missing(file, reached, index.bases[at], at)
                batches, reached = self._block(file, at)
                for batch in batches:
                    if batch.end > offset:
                        yield batch
            if base == limit[0] and reached < limit[1]:
                self._raise_missing(file, reached, limit[1], len(index.bases))

    def _raise_missing(self, file: ColdFile, start: int, end: int, number: int) -> NoReturn:
        positions = file.index.positions
        position = positions[number] if number < len(positions) else file.index.position
        raise self._found(ColdDamaged(file.uid, start, end, file.file.name, position))

    def _block(self, file: ColdFile, number: int) -> tuple[list[ColdBatch], int]:
        try:
            return file.read(number)
        except ColdDamaged as damage:
            raise self._found(damage) from None

    def _found(self, damage: ColdDamaged) -> ColdDamaged:
        with self._lock:
            self._damaged += 1
        return damage

    # ---- finding files --------------------------------------------------------------------------

    def _bases_of(self, uid: int) -> list[int]:
        with self._lock:
            return list(self._bases.get(uid, ()))

    def _load(self, uid: int, base: int) -> ColdFile:
        """The file with its index, as far as it is durable.

        Raises:
            NotInLog: it was dropped.
        """
        key = (uid, base)
        cached = self._cache.get(key)
        with self._lock:
            if key not in self._sizes:
                raise NotInLog(f"{cold_name(uid, base)} was dropped")
            tail = self._tails.get(uid)
            stop = tail.position if tail is not None and tail.base == base else None
        if cached is not None and stop in (None, cached.index.position):
            return cached
        try:
            file = self._disk.open(cold_name(uid, base))
        except StorageFailed:
            with self._lock:
                if key in self._sizes:
                    raise
            raise NotInLog(f"{cold_name(uid, base)} was dropped") from None
        found = open_cold(file, uid, base, self._writer.seed(uid, base))
        if stop is not None and not found.index.sealed:
            found.index.cut(stop)
        self._cache.put(key, found)
        return found

    def _tail(self, uid: int) -> Tail | None:
        with self._lock:
            tail, bases = self._tails.get(uid), self._bases.get(uid)
            if tail is not None or not bases:
                return tail
            base = bases[-1]
        file = self._load(uid, base)
        index = file.index
        first = self._first_timestamp(file)
        tail = Tail(base, index.position, index.end, index.synced, first, index.sealed, found=True)
        with self._lock:
            return self._tails.setdefault(uid, tail)

    def _first_timestamp(self, file: ColdFile) -> int:
        header = self._header(file)
        if header is not None:
            return header.first_timestamp_ms
        return file.index.timestamps[0] if file.index.timestamps else NO_TIMESTAMP

    def _header(self, file: ColdFile) -> Header | None:
        """None: it is damaged. What it says, the name says as well, but for the time.

        Raises:
            DirectoryRefused: it is of another cluster or version.
        """
        header = decode_header(read_around(file.file, HEADER_BYTES, 0))
        if header is None:
            return None
        if header.version != FORMAT_VERSION:
            raise DirectoryRefused(
                f"{file.file.name} has format version {header.version}; this program reads "
                f"{FORMAT_VERSION}: use the version of the program that wrote it"
            )
        if header.cluster != self._identity.cluster:
            raise DirectoryRefused(
                f"{file.file.name} was written in cluster {header.cluster!r}, and this is "
                f"{self._identity.cluster!r}: the files of two clusters have been mixed"
            )
        return header if (header.uid, header.base) == (file.uid, file.base) else None

    def _summary(self, uid: int, base: int) -> tuple[int, int] | None:
        """End offset and max timestamp of a file; None if it was dropped."""
        key = (uid, base)
        with self._lock:
            if key not in self._sizes:
                return None
            bases = self._bases[uid]
            following = bases[bisect_right(bases, base) :][:1]
            found = self._ends.get(key)
        if found is not None:
            return found
        try:
            if not following:
                tail = self._tail(uid)
                index = self._load(uid, base).index
                return (tail.end if tail is not None else index.end, index.max_timestamp_ms)
            file = self._disk.open(cold_name(uid, base))
            trailer = read_trailer(file, self._writer.seed(uid, base))
            if trailer is not None:
                found = following[0], trailer.max_timestamp_ms
            else:
                found = following[0], self._load(uid, base).index.max_timestamp_ms
        except (StorageFailed, NotInLog):
            with self._lock:
                if key in self._sizes:
                    raise
            return None
        with self._lock:
            if key in self._sizes:
                self._ends[key] = found
        return found

    # ---- writing --------------------------------------------------------------------------------

    def append(
        self,
        uid: int,
        batches: Sequence[Written],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_ms: int = SEGMENT_MS,
        gaps: bool = False,
    ) -> int:
        """Add batches behind the last one, durably; the new end. One fdatasync for all of them,
        unless a file gets full.

        The first one begins where the partition's data ends, or anywhere if there is none. With
        `gaps` some were compacted away.

        Raises:
            DiskFull: some of them may have been added.
        """
        assert batches, "nothing to append"
        with self._write_lock:
            tail = self._tail(uid)
            start = batches[0][0] if tail is None else tail.end
            check_order(batches, start, gaps=gaps)
            try:
                return self._append(uid, tail, tiles(batches, start), segment_bytes, segment_ms)
            except StorageFailed:
                with self._lock:
                    self._tails.pop(uid, None)  # to be read anew
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
                    self._writer.mend_tail(file, tail)
            seed = self._writer.seed(uid, tail.base)
            added.append(self._writer.write(file, tail, tile, seed))
        assert tail is not None
        assert file is not None
        self._commit(uid, tail, file, added)
        return tail.end

    def _begin(self, uid: int, tile: Tile) -> Tail:
        tail = self._writer.begin(uid, tile.base, tile.max_timestamp_ms)
        with self._lock:
            self._bases.setdefault(uid, []).append(tile.base)
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
                self._writer.mend_tail(file, tail)
        self._commit(uid, tail, file, added)
        whole = self._load(uid, tail.base)
        size = self._writer.seal(file, tail, whole.index, whole.seed)
        whole.index.sealed = True
        with self._lock:
            self._sizes[uid, tail.base] = size

    def replace(self, uid: int, start: int, end: int, batches: Sequence[Written]) -> None:
        """Write what a peer has of the offsets from `start` to `end` in the place of what is here:
        because it is damaged, or was compacted. The files concerned are written anew.

        What lies outside of the files is left out. Batches do not cross the borders of files.

        Raises:
            DiskFull: some files are replaced, or none.
        """
        with self._write_lock:
            for base in self._bases_of(uid):
                file_end, _ = self._extent(uid, base)
                low, high = max(start, base), min(end, file_end)
                if low < high:
                    mine = [one for one in batches if low <= one[0] and one[1] <= high]
                    self._rewrite(uid, base, Replacement(low, high, mine))

    def _extent(self, uid: int, base: int) -> tuple[int, bool]:
        """Where a file ends, and whether it is the partition's last one.

        Raises:
            NotInLog: it was dropped.
        """
        tail = self._tail(uid)
        bases = self._bases_of(uid)
        if tail is None or base not in bases:
            raise NotInLog(f"{cold_name(uid, base)} was dropped")
        following = bases[bisect_right(bases, base) :]
        return (following[0], False) if following else (tail.end, True)

    def _rewrite(self, uid: int, base: int, new: Replacement | None) -> None:
        end, is_last = self._extent(uid, base)
        old = self._load(uid, base)
        tail, size = self._writer.rewrite(
            old,
            self._first_timestamp(old),
            rewritten(old, end, new),
            seals=not is_last or old.index.sealed,
        )
        with self._lock:
            self._sizes[uid, base] = size
            self._ends.pop((uid, base), None)
            if is_last:
                self._tails[uid] = tail
        self._cache.drop((uid, base))

    # ---- letting go -----------------------------------------------------------------------------

    def drop_before(self, uid: int, offset: int) -> int:
        """Remove the files that lie wholly below `offset`, all of them if need be: then the next
        append may begin anywhere. How many bytes that frees."""
        with self._write_lock:
            bases = self._bases_of(uid)
            count = max(0, bisect_right(bases, offset) - 1)
            if bases and count == len(bases) - 1 and self._extent(uid, bases[-1])[0] <= offset:
                count += 1
            return self._drop(uid, bases[:count])

    def drop(self, uid: int) -> int:
        """Remove all files of a partition; how many bytes that frees."""
        with self._write_lock:
            return self._drop(uid, self._bases_of(uid))

    def _drop(self, uid: int, gone: list[int]) -> int:
        """The oldest first, so that a crash leaves no hole."""
        freed = 0
        with self._lock:
            for base in gone:
                freed += self._sizes.pop((uid, base))
                self._ends.pop((uid, base), None)
                self._bases[uid].remove(base)
            if gone and not self._bases[uid]:
                del self._bases[uid]
                self._tails.pop(uid, None)
        for base in gone:
            self._cache.drop((uid, base))
            self._disk.remove(cold_name(uid, base))
        if gone:
            self._disk.sync_directory()
        return freed

    # ---- looking for damage ---------------------------------------------------------------------

    def check(
        self, uid: int, base: int, pause: Callable[[int], None] = lambda size: None
    ) -> list[ColdDamaged]:
        """Read a whole file again, any thread: the offsets that are damaged, none if the file was
        dropped. `pause` is called with the size of each block that was read.

        What the file says about itself, its header and its seal, is mended here.
        """
        try:
            end, is_last = self._extent(uid, base)
            file = self._load(uid, base)
        except NotInLog:
            return []
        fresh = open_cold(file.file, uid, base, file.seed)
        if is_last and not fresh.index.sealed:
            fresh.index.cut(file.index.position)
        found = list(damage_in(fresh, end, pause))
        intact = self._header(file) is not None and fresh.intact
        intact = intact and (is_last or fresh.index.sealed)
        with self._lock:
            self._damaged += len(found)
        if not found and not intact:
            with self._write_lock:
                if base in self._bases_of(uid):
                    self._rewrite(uid, base, None)
        return found
