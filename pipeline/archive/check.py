"""`python -m pipeline archive-check`: whether an archive has all the rows that its manifests
list.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pipeline.archive.logic import (
    ArchiveError,
    Piece,
    counted_only,
    describe_gaps,
    differences,
    gaps,
    newest_snapshot,
    standing,
)
from pipeline.archive.store import Archive
from pipeline.archive.transform import counts, spans, sums
from pipeline.session import Say, add_session_options, say, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELP: Final = "check that an archive has all rows that its manifests list"
SHOWN_MAX: Final = 20


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pipeline archive-check",
        description="Read every row of an archive, compare offsets, counts and checksums with the "
        "manifests, and look for gaps.",
        epilog="exit codes: 0 it is whole, 1 it is not, 2 wrong arguments",
    )
    parser.add_argument("archive", metavar="DIRECTORY")
    parser.add_argument(
        "--allow-gaps", action="store_true", help="report offsets without a row, but do not fail"
    )
    add_session_options(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Check an archive; returns the exit code."""
    options = parser().parse_args(argv)
    archive = Archive(start("archive-check", options), options.archive.rstrip("/"))
    try:
        check(archive, say, allow_gaps=options.allow_gaps)
    except ArchiveError as error:
        say(f"archive-check: {error}")
        return 1
    return 0


def check(archive: Archive, tell: Say, *, allow_gaps: bool) -> None:
    """Check every row of the archive.

    Raises:
        ArchiveError: rows are missing or have changed, or there are gaps that are not allowed.
    """
    pieces = archive.pieces()
    whole = standing(pieces)
    snapshot = newest_snapshot(pieces)
    compare([*whole, *([] if snapshot is None else [snapshot])], archive, fully=True)
    rows = sum(piece.rows for piece in whole)
    topics = {span.place.topic for piece in whole for span in piece.spans}
    tell(f"{rows:,} rows of {len(topics)} topics in {len(whole)} pieces are as they were written")
    check_gaps(whole, tell, allow=allow_gaps)


def compare(pieces: Sequence[Piece], archive: Archive, *, fully: bool) -> None:
    """Compare the rows of pieces with their manifests: `fully` by checksum, else only by count.

    Raises:
        ArchiveError: they differ.
    """
    rows: DataFrame = archive.rows(pieces)
    found = spans(sums(rows) if fully else counts(rows))
    wrong = [
        line
        for piece in pieces
        for line in differences(piece if fully else counted_only(piece), found.get(piece.name, ()))
    ]
    if wrong:
        more = [f"and {len(wrong) - SHOWN_MAX} more"] if len(wrong) > SHOWN_MAX else []
        lines = "\n  ".join([*wrong[:SHOWN_MAX], *more])
        raise ArchiveError(f"the archive is damaged; restore these pieces:\n  {lines}")


def check_gaps(pieces: Sequence[Piece], tell: Say, *, allow: bool) -> None:
    """Report offsets without a row.

    Raises:
        ArchiveError: there are some, and they are not allowed.
    """
    found = gaps(pieces)
    if found and not allow:
        raise ArchiveError(describe_gaps(found))
    if found:
        tell(f"{sum(gap.missing for gap in found):,} offsets have no row, which is allowed")
