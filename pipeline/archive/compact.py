"""Fewer, larger files: the pieces of many micro-batches become one that is sorted by offset. And
the last row of every key, as a piece beside the archive."""

from typing import Final

import attrs

from pipeline.archive.logic import (
    ArchiveError,
    Kind,
    Piece,
    differences,
    merged,
    newest_snapshot,
    standing,
    superseded,
)
from pipeline.archive.store import Archive
from pipeline.archive.transform import in_order, last_of_each_key
from pipeline.session import Say

FILE_BYTES: Final = 256 * 1024 * 1024
FILE_ROWS: Final = 2_000_000
"""Roughly the rows of one sorted file."""


def compact(archive: Archive, tell: Say) -> None:
    """Merge the pieces that no earlier call has merged, and remove those that this makes
    superfluous. It may be stopped at any point without harm: the next call does the rest.

    Raises:
        ArchiveError: the archive is not whole, or the merged rows differ from those of the pieces.
    """
    pieces = archive.pieces()
    whole = standing(pieces)
    archive.remove(superseded(pieces))  # left by an earlier call that was stopped
    archive.remove_strays(pieces, whole[-1].last + 1 if whole else 0)
    raw = [piece for piece in whole if piece.kind is Kind.RAW]
    if len(raw) < 2:
        return
    spans = merged(raw)
    result = Piece(Kind.SORTED, raw[0].first, raw[-1].last, raw[0].query, spans)
    size = sum(span.size for span in spans)
    files = max(1, size // FILE_BYTES, result.rows // FILE_ROWS)
    archive.write(in_order(archive.rows(raw), files), result)
    wrong = differences(result, archive.found(result))
    if wrong:
        raise ArchiveError(
            "merging did not keep all rows, so nothing was changed; pipeline archive-check shows "
            "which pieces are damaged:\n  " + "\n  ".join(wrong)
        )
    archive.commit(result)
    archive.remove(raw)
    tell(f"merged {len(raw)} pieces, {result.rows:,} rows, into {result.name}")


def keep_latest(archive: Archive, tell: Say) -> None:
    """Make a snapshot of the last row of every key, up to the archive's end, and remove older ones.

    Raises:
        ArchiveError: the archive is not whole.
    """
    pieces = archive.pieces()
    whole = standing(pieces)
    before = newest_snapshot(pieces)
    if not whole or (before is not None and before.last == whole[-1].last):
        return
    later = [piece for piece in whole if before is None or piece.first > before.last]
    if before is not None and later[0].first == before.last + 1:
        later = [before, *later]
    else:
        later = whole
    snapshot = Piece(Kind.LATEST, 0, whole[-1].last, whole[-1].query, ())
    archive.write(last_of_each_key(archive.rows(later)), snapshot)
    snapshot = attrs.evolve(snapshot, spans=archive.found(snapshot))
    archive.commit(snapshot)
    archive.remove(superseded(archive.pieces()))
    tell(f"{snapshot.name}: the last rows of all keys, {snapshot.rows:,}")
