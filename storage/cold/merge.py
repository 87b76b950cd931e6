"""Merging several files of a partition into one, for compaction, and what a crash leaves of that.

The new file is written beside the others, without a lock, and takes the name of the first of them
by one rename. Until the others are gone as well, a crash would leave offsets twice. So an empty
file, the mark, whose name says which offsets are merged, is in the directory before the rename, and
goes when all is done. A start that finds it knows how far the merge came:

    the temporary file is there    the old files are all there: the new one is forgotten
    the temporary file is not      it has the first one's name: the other ones go
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import attrs

from storage.cold.format import SUFFIX, ColdFacts, Written, cold_name, parse_cold_name
from storage.cold.rewrite import Covered, tiles
from storage.cold.writing import ColdWriter, Tail
from storage.disk.files import Disk
from storage.errors import DiskFull
from storage.identity import Identity

MERGE_NAME: Final = "cold-merge.tmp"
MARK_SUFFIX: Final = ".merge"


def mark_name(uid: int, start: int, end: int) -> str:
    return f"{cold_name(uid, start).removesuffix(SUFFIX)}-{end:020d}{MARK_SUFFIX}"


def parse_mark_name(name: str) -> tuple[int, int, int] | None:
    """Uid, first offset and end of a merge; None if the name is not that of a mark."""
    parts = name.removeprefix("cold-").removesuffix(MARK_SUFFIX).split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    uid, start, end = map(int, parts)
    return (uid, start, end) if mark_name(uid, start, end) == name else None


def superseded(names: Collection[str]) -> list[str]:
    """The files whose batches are in a merged one already: a crash has left them there."""
    marks = [mark for name in names if (mark := parse_mark_name(name)) is not None]
    if not marks or MERGE_NAME in names:
        return []
    return [
        old
        for old in names
        if (found := parse_cold_name(old)) is not None
        and any(
            found[0] == uid and start < found[1] < end and cold_name(uid, start) in names
            for uid, start, end in marks
        )
    ]


def finish_merges(disk: Disk) -> None:
    """At a start, before anything else: complete a merge that a crash interrupted, or undo it. A
    crash in the middle of this leads to the same decision again."""
    names = disk.names()
    marks = [name for name in names if parse_mark_name(name) is not None]
    renamed = MERGE_NAME not in names
    for old in superseded(names):
        disk.remove(old)
    if marks:
        disk.sync_directory()
        for name in marks:
            disk.remove(name)
        disk.sync_directory()
    if not renamed:
        disk.remove(MERGE_NAME)  # after the mark: a mark without it means that it was renamed
        disk.sync_directory()


@attrs.frozen
class Merged:
    """A file that is complete and durable, under its temporary name."""

    uid: int
    start: int
    tail: Tail
    """Where it ends."""
    size: int

    @property
    def end(self) -> int:
        return self.tail.end


class Merger:
    """One merge at a time, by one thread."""

    def __init__(self, disk: Disk, identity: Identity) -> None:
        self._disk = disk
        self.writer = ColdWriter(disk, identity, MERGE_NAME)

    def write(
        self,
        uid: int,
        files: Sequence[ColdFacts],
        batches: Iterable[Written],
        clean_to: int,
    ) -> Merged:
        """Write the file that will replace these; `discard` it if this raises."""
        start, end = files[0].base, files[-1].end
        first_ms = files[0].first_timestamp_ms

        def items() -> Iterator[Written | Covered]:
            yield from batches
            yield Covered(end)

        tail, size = self.writer.draft(
            uid, start, first_ms, tiles(items(), start), seals=True, clean_to=clean_to
        )
        assert tail.end == end, f"offsets to {tail.end} in the place of those to {end}"
        return Merged(uid, start, tail, size)

    def discard(self) -> None:
        if MERGE_NAME in self._disk.names():
            self._disk.remove(MERGE_NAME)

    def mark(self, merged: Merged) -> None:
        """Create the mark: from here on a start completes the merge, and it cannot be discarded.

        Raises:
            DiskFull: the merged file was discarded.
        """
        try:
            self._disk.sync_directory()
            self._disk.create(mark_name(merged.uid, merged.start, merged.end))
        except DiskFull:
            self.discard()
            raise

    def prepare(self) -> None:
        """Make the mark durable: the rename must not happen before."""
        self._disk.sync_directory()

    def rename(self, merged: Merged) -> None:
        self._disk.rename(MERGE_NAME, cold_name(merged.uid, merged.start))

    def clear(self, merged: Merged, others: Iterable[int]) -> None:
        """Remove the other files, and then the mark."""
        self._disk.sync_directory()
        for base in others:
            self._disk.remove(cold_name(merged.uid, base))
        self._disk.sync_directory()
        self._disk.remove(mark_name(merged.uid, merged.start, merged.end))
        self._disk.sync_directory()
