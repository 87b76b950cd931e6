"""Finding and reading cold data: see storage.cold.store for what it is and who may call what."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, TypeVar

import attrs

from storage.cold.cache import ColdCache
from storage.cold.file import ENDLESS, NOTHING, ColdFile, damage_in, open_cold, read_trailer
from storage.cold.format import (
    FORMAT_VERSION,
    HEADER_BYTES,
    NO_TIMESTAMP,
    ColdBatch,
    ColdFacts,
    ColdSegment,
    Header,
    cold_name,
    decode_header,
    parse_cold_name,
)
from storage.cold.merge import Merger, superseded
from storage.cold.writing import ColdWriter, Tail
from storage.disk.files import Disk, read_around
from storage.errors import ColdDamaged, DirectoryRefused, NotInLog, StorageFailed
from storage.identity import Identity

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class ColdStatistics:
    partitions: int
    files: int
    bytes_held: int
    bytes_appended: int
    """Since the start, headers included."""
    damaged: int
    """Blocks found damaged since the start."""
    files_open: int
    index_blocks: int


class _NotNow(Exception):
    """The answer needs a wait for the disk."""


class ColdReading:
    """The half of a ColdStore that changes nothing; its attributes are the store's as well."""

    def __init__(self, disk: Disk, identity: Identity) -> None:
        self._disk, self._identity = disk, identity
        self._lock = disk.threads.lock()
        """Guards what follows; never held during a file operation."""
        self._renaming = disk.threads.lock()
        """Held while a file takes the place of others. Not for the event loop: it is held as long
        as the disk takes for a rename."""
        self._bases: dict[int, list[int]] = {}
        self._sizes: dict[tuple[int, int], int] = {}
        self._tails: dict[int, Tail] = {}
        self._ends: dict[tuple[int, int], tuple[int, int]] = {}
        """End offset and max timestamp of sealed files, once asked for."""
        self._write_lock = disk.threads.lock()
        self._cache = ColdCache(disk.threads)
        self._writer, self._merger = ColdWriter(disk, identity), Merger(disk, identity)
        self._headers: dict[tuple[int, int], tuple[int, int]] = {}
        """First timestamp and `clean to` of sealed files, once asked for."""
        self._changes = 0
        """How often files have taken the place of others."""
        self._damaged = 0
        sizes = disk.sizes()
        gone = set(superseded(sizes))
        for name, size in sizes.items():
            found = parse_cold_name(name)
            if found is not None and name not in gone:
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

    def knows(self, uid: int) -> bool:
        """Whether `end`, `segments` and `written_since_ms` of this partition need no disk: the
        event loop asks first. If they do, a `learn` or a change of the files is under way."""
        with self._lock:
            bases = self._bases.get(uid)
            return not bases or (
                uid in self._tails and all((uid, base) in self._ends for base in bases[:-1])
            )

    def learn(self, uids: Iterable[int]) -> None:
        """Read what `knows` asks for, for these partitions: not on the event loop."""
        for uid in uids:
            if not self.knows(uid):
                self.segments(uid)

    def end(self, uid: int) -> int | None:
        """The offset after the last batch. The first call reads the partition's last file: see
        `knows`."""
        tail = self._tail(uid)
        return tail.end if tail is not None else None

    def segments(self, uid: int) -> list[ColdSegment]:
        """In order. The first call reads the end of each file: see `knows`."""
        found = []
        for base in self._bases_of(uid):
            summary = self._summary(uid, base)
            with self._lock:
                size = self._sizes.get((uid, base))
            if summary is not None and size is not None:
                found.append(ColdSegment(base, *summary, size))
        return found

    def facts(self, uid: int) -> list[ColdFacts]:
        """In order. The first call reads the beginning and the end of each file."""
        segments = self.segments(uid)
        tail, found = self._tail(uid), []
        for number, (base, end, latest_ms, size) in enumerate(segments):
            with self._lock:
                header, changes = self._headers.get((uid, base)), self._changes
            if header is None:
                try:
                    said = self._header(self._load(uid, base))
                except NotInLog:
                    continue  # dropped meanwhile
                first_ms = NO_TIMESTAMP if said is None else said.first_timestamp_ms
                header = first_ms, 0 if said is None else said.clean_to
                with self._lock:
                    if changes == self._changes:
                        self._headers[uid, base] = header
            sealed = number + 1 < len(segments) or (
                tail is not None and tail.base == base and tail.sealed
            )
            found.append(ColdFacts(base, end, latest_ms, size, *header, sealed))
        return found

    def written_since_ms(self, uid: int) -> int | None:
        """The time of the first batch in the file that is still appended to; None if there is no
        such file, or nothing in it. The first call reads the partition's last file: see `knows`."""
        tail = self._tail(uid)
        if tail is None or tail.sealed or tail.position == HEADER_BYTES:
            return None
        return tail.first_timestamp_ms

    def bytes_from(self, uid: int, offset: int) -> int:
        """About how many bytes the files have from `offset` on. It opens none: a file that is not
        open counts in full."""
        bases = self._bases_of(uid)
        first = bisect_right(bases, offset) - 1
        file = self._cache.get((uid, bases[first])) if first >= 0 else None
        with self._lock:
            left = sum(self._sizes.get((uid, base), 0) for base in bases[max(0, first) :])
        if file is not None:
            index = file.index
            number = max(0, index.at(offset))
            if index.bases and offset < index.end:
                left -= index.positions[number]
            else:
                left -= index.position
        return max(0, left)

    def known_end(self, uid: int) -> int | None:
        """`end` if that is known without the disk, else where the last file begins."""
        with self._lock:
            tail, bases = self._tails.get(uid), self._bases.get(uid)
            return tail.end if tail is not None else bases[-1] if bases else None

    @property
    def bytes_held(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def bytes_of(self, uid: int) -> int:
        """Bytes of the partition's files."""
        with self._lock:
            return sum(self._sizes.get((uid, base), 0) for base in self._bases.get(uid, ()))

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
                bytes_appended=self._writer.bytes_written + self._merger.writer.bytes_written,
                damaged=self._damaged,
                files_open=files_open,
                index_blocks=blocks,
            )

    # ---- reading --------------------------------------------------------------------------------

    def read(self, uid: int, offset: int, bytes_max: int) -> list[memoryview]:
        """Batches from the one that contains `offset` on, or the next one if that was compacted
        away: the first in any case, more as long as they fit; none at the end.

        Raises:
            NotInLog: `offset` is below the first one that is here.
            ColdDamaged: the batches at `offset` are damaged.
        """
        return [batch.data for batch in self.batches(uid, offset, bytes_max)]

    def read_now(self, uid: int, offset: int, bytes_max: int) -> list[memoryview] | None:
        """As `read` but without waiting for the disk, perhaps with fewer batches; None: call `read`
        in another thread."""
        try:
            return [one.data for one in self._batches(uid, offset, bytes_max, now=True)]
        except (_NotNow, ColdDamaged, NotInLog):  # `read` also finds out what is wrong
            return None

    def read_soon(self, uid: int, offset: int, bytes_max: int) -> None:
        """Read ahead for a `read` with these arguments, if the bytes are in a sealed file that is
        open, because it was read from lately."""
        bases = self._bases_of(uid)
        first = bisect_right(bases, offset) - 1
        file = self._cache.get((uid, bases[first])) if first >= 0 else None
        if file is not None and file.index.sealed and offset < file.index.end:
            file.span_soon(max(0, file.index.at(offset)), bytes_max)

    def batches(self, uid: int, offset: int, bytes_max: int) -> list[ColdBatch]:
        """As `read`, with offsets and timestamps. Damage further on ends the list."""
        return self._while_still(lambda: self._batches(uid, offset, bytes_max))

    def _while_still(self, reads: Callable[[], T]) -> T:
        """A file that is replaced while it is read seems to be damaged: read again."""
        while True:
            changes = self._changes
            try:
                return reads()
            except (ColdDamaged, NotInLog) as error:
                with self._renaming, self._lock:
                    if changes == self._changes:
                        self._damaged += isinstance(error, ColdDamaged)
                        raise

    def _batches(
        self, uid: int, offset: int, bytes_max: int, *, now: bool = False
    ) -> list[ColdBatch]:
        found: list[ColdBatch] = []
        left = bytes_max
        try:
            for batch in self._from(uid, offset, bytes_max, now=now):
                left -= len(batch.data)
                if found and left < 0:
                    break
                found.append(batch)
        except (ColdDamaged, _NotNow):
            if not found:
                raise
        return found

    def find_time(self, uid: int, timestamp_ms: int, since: int = 0) -> int | None:
        """The base offset of the first batch, from the one with offset `since` on, that holds a
        record of this time or later; None if there is none.

        Raises:
            ColdDamaged: it may be in a damaged block.
        """
        return self._while_still(lambda: self._find_time(uid, timestamp_ms, since))

    def _find_time(self, uid: int, timestamp_ms: int, since: int) -> int | None:
        bases = self._bases_of(uid)
        for base in bases[max(0, bisect_right(bases, since) - 1) :]:
            summary = self._summary(uid, base)
            if summary is None or summary[1] < timestamp_ms:
                continue
            file = self._load(uid, base)
            for number, latest in enumerate(file.index.timestamps):
                if file.index.holes:
                    self._check_holes(file, since, ENDLESS, number)
                if latest >= timestamp_ms and file.index.end_of(number) > since:
                    for batch in file.read(number, NOTHING)[0]:
                        if batch.max_timestamp_ms >= timestamp_ms and batch.end > since:
                            return batch.base
            self._check_end(file, since)
        return None

    def next_latest(
        self, uid: int, since: int, until: int, seen: tuple[int, int] | None = None
    ) -> tuple[int, int] | None:
        """Go through the batches with offsets from `since` to `until` by their greatest time, the
        latest first, those with the same time in order: returns time and base offset of the one
        after `seen`, or None.

        Raises:
            ColdDamaged: it may be in a damaged block.
        """
        return self._while_still(lambda: self._next_latest(uid, since, until, seen))

    def _next_latest(
        self, uid: int, since: int, until: int, seen: tuple[int, int] | None
    ) -> tuple[int, int] | None:
        """Goes through files and blocks by their greatest times, too, so that it reads few."""
        bases = self._bases_of(uid)
        bases = bases[max(0, bisect_right(bases, since) - 1) : bisect_left(bases, until)]
        latest = ((base, self._summary(uid, base)) for base in bases)
        files = sorted((-told[1], base) for base, told in latest if told is not None)
        after = None if seen is None else (-seen[0], seen[1])
        best: tuple[int, int] | None = None
        for file_key in files:
            if best is not None and best <= file_key:
                break
            file = self._load(uid, file_key[1])
            self._check_holes(file, since, until)
            if file.index.end < until:
                self._check_end(file, since)
            index = file.index
            blocks = zip(index.bases, index.timestamps, strict=False)  # may be growing
            for block_ms, base, number in sorted(
                (-time_ms, base, number) for number, (base, time_ms) in enumerate(blocks)
            ):
                if best is not None and best <= (block_ms, base):
                    break
                if base >= until or index.end_of(number) <= since:
                    continue
                for batch in file.read(number, NOTHING)[0]:
                    key = (-batch.max_timestamp_ms, batch.base)
                    if batch.end > since and batch.base < until and (after is None or key > after):
                        best = key if best is None else min(best, key)
        return None if best is None else (-best[0], best[1])

    def _from(self, uid: int, offset: int, bytes_max: int, *, now: bool) -> Iterator[ColdBatch]:
        """Batches from the one that contains `offset` on; what is missing in between is damage.
        About `bytes_max` bytes are wanted: that much is read at a time, and after the first batches
        no block larger than what is left of it. `now`: as far as that needs no disk.

        Raises:
            _NotNow: to go on needs the disk.
        """
        left, some = bytes_max, False
        tail = self._tail(uid, now=now)  # first: what is durable now will be found
        bases = self._bases_of(uid)
        first = bisect_right(bases, offset) - 1
        if tail is None or first < 0:
            raise NotInLog(f"partition {uid}: no cold data at offset {offset}")
        limit = (tail.base, tail.end)
        reached: int | None = None
        for base in bases[first:]:
            file = self._load(uid, base, now=now)
            index = file.index
            if reached is not None and reached != base:
                self._raise_missing(file, reached, base, 0)
            number = index.at(offset)
            reached = base if number < 0 else index.bases[number]
            if offset >= index.end:
                reached = index.end
                continue
            stop, span, start = 0, NOTHING, 0
            for at in range(max(0, number), len(index.bases)):
                if index.bases[at] != reached:
                    self._raise_missing(file, reached, index.bases[at], at)
                if at >= stop:
                    if some and file.size_of(at) > left:
                        return
                    stop, span = _span_now(file, at, left) if now else file.span(at, left)
                    start = index.positions[at]
                    left -= len(span)
                batches, reached = file.read(at, span[index.positions[at] - start :])
                for batch in batches:
                    if batch.end > offset:
                        some = True
                        yield batch
            if base == limit[0] and reached < limit[1]:
                self._raise_missing(file, reached, limit[1], len(index.bases))

    def _check_holes(
        self, file: ColdFile, since: int, until: int, number: int | None = None
    ) -> None:
        """Raise ColdDamaged if a block is missing that may have what is looked for."""
        hole = file.index.hole(since, until, number)
        if hole is not None:
            self._raise_missing(file, hole.start, hole.end, hole.number)

    def _check_end(self, file: ColdFile, since: int) -> None:
        """Raise ColdDamaged if the partition's last file has lost its last blocks."""
        tail, index = self._tail(file.uid), file.index
        if tail is not None and tail.base == file.base and max(since, index.end) < tail.end:
            self._raise_missing(file, index.end, tail.end, len(index.bases))

    def _raise_missing(self, file: ColdFile, start: int, end: int, number: int) -> NoReturn:
        positions = file.index.positions
        position = positions[number] if number < len(positions) else file.index.position
        raise ColdDamaged(file.uid, start, end, file.file.name, position)

    # ---- finding files --------------------------------------------------------------------------

    def _bases_of(self, uid: int) -> list[int]:
        with self._lock:
            return list(self._bases.get(uid, ()))

    def _load(self, uid: int, base: int, *, now: bool = False) -> ColdFile:
        """The file with its index, as far as it is durable.

        Raises:
            NotInLog: it was dropped.
            _NotNow: it is not open; only with `now`.
        """
        key = (uid, base)
        cached = self._cache.get(key)
        with self._lock:
            if key not in self._sizes:
                raise NotInLog(f"{cold_name(uid, base)} was dropped")
            stop, changes = self._stop(uid, base), self._changes
        if cached is not None and stop in (None, cached.index.position):
            return cached
        if now:
            raise _NotNow
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
        with self._lock:
            # Otherwise it may be gone, or was sealed since, with blocks that were not read here.
            if (stop, changes) == (self._stop(uid, base), self._changes):
                self._cache.put(key, found)
        return found

    def _stop(self, uid: int, base: int) -> int | None:
        """Where to stop reading a file that may still be appended to; None: at its end. Call with
        the lock."""
        tail = self._tails.get(uid)
        return tail.position if tail is not None and tail.base == base else None

    def _tail(self, uid: int, *, now: bool = False) -> Tail | None:
        while True:
            with self._lock:
                tail, bases = self._tails.get(uid), self._bases.get(uid)
                if tail is not None or not bases:
                    return tail
                if now:
                    raise _NotNow
                base, changes = bases[-1], self._changes
            try:
                file = self._load(uid, base)
                first = self._first_timestamp(file)
            except NotInLog:
                continue  # dropped meanwhile
            index = file.index
            end, position, synced = index.end, index.position, index.synced
            latest = index.max_timestamp_ms
            tail = Tail(base, position, end, synced, first, index.sealed, True, latest)
            with self._lock:
                if changes == self._changes:  # else it may be that of a file that is gone
                    return self._tails.setdefault(uid, tail)

    def _first_timestamp(self, file: ColdFile) -> int:
        header = self._header(file)
        if header is not None:
            return header.first_timestamp_ms
        return file.index.timestamps[0] if file.index.timestamps else NO_TIMESTAMP

    def _header(self, file: ColdFile) -> Header | None:
        """None if it is damaged.

        Raises:
            DirectoryRefused: it is from another cluster or of another format version.
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
            found, changes = self._ends.get(key), self._changes
        if found is not None:
            return found
        try:
            if not following:
                tail = self._tail(uid)
                return None if tail is None else (tail.end, tail.latest_ms)
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
            if key in self._sizes and changes == self._changes:
                self._ends[key] = found
        return found

    def _forget(self, key: tuple[int, int]) -> None:
        """Forget what was known of a file. Call with the lock."""
        self._changes += 1
        self._ends.pop(key, None)
        self._headers.pop(key, None)
        self._cache.drop(key)

    # ---- looking for damage ---------------------------------------------------------------------

    def survey(
        self, uid: int, base: int, pause: Callable[[int], None] = lambda size: None
    ) -> tuple[list[ColdDamaged], bool]:
        """As `check`, and whether header and seal are intact; repairs nothing."""
        key = (uid, base)
        try:
            end, is_last = self._extent(uid, base)
            file = self._load(uid, base)
        except NotInLog:
            return [], True
        with self._lock:
            size = self._sizes.get(key)
        fresh = open_cold(file.file, uid, base, file.seed)
        if is_last and not fresh.index.sealed:
            fresh.index.cut(file.index.position)
        found = list(damage_in(fresh, end, pause))
        intact = self._header(file) is not None and fresh.intact
        intact = intact and (is_last or fresh.index.sealed)
        with self._renaming, self._lock:
            if key not in self._sizes or (not is_last and self._sizes[key] != size):
                return [], True  # another file has taken its place while it was read
            self._damaged += len(found)
        return found, intact

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


def _span_now(file: ColdFile, number: int, bytes_max: int) -> tuple[int, memoryview]:
    """As `ColdFile.span_now`.

    Raises:
        _NotNow: it has to be read from the disk.
    """
    found = file.span_now(number, bytes_max)
    if found is None:
        raise _NotNow
    return found
