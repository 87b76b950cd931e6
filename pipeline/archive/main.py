"""`python -m pipeline archive`: topics to parquet, incremental, every record exactly once.

A micro-batch becomes a piece (`logic`): its rows replace whatever an earlier attempt left, are read
back and summed up, and then its manifest makes them count. Spark's checkpoint, which is kept in the
archive, stores the offsets of a micro-batch before it runs and until it is done, so a job that was
killed writes the same rows into the same piece.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs

from pipeline.archive.compact import compact, keep_latest
from pipeline.archive.logic import ArchiveError, Kind, Piece, standing
from pipeline.archive.store import Archive
from pipeline.bus import FORMAT, add_bus_options, bus_options
from pipeline.session import Say, add_session_options, follow, say, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELP: Final = "topics to partitioned parquet files, incremental, exactly once"
ROWS_MAX: Final = 1_000_000
EPILOG: Final = """\
The columns of the files: key binary, value binary, offset bigint, timestamp timestamp,
timestampType int, headers array<struct<key string, value binary>>; those of their directories:
piece, topic, partition. docs/spark.md has the layout. Run the job again to continue where it
stopped.

exit codes: 0 everything is archived, 1 the job failed and says why, 2 wrong arguments
"""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pipeline archive",
        description="Topics to partitioned parquet files, incremental, every record exactly once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topics", metavar="A,B", help="the topics")
    which.add_argument("--topic-pattern", metavar="REGEX", help="all topics whose names match")
    parser.add_argument("--to", required=True, metavar="DIRECTORY", help="the archive")
    parser.add_argument(
        "--every",
        type=float,
        metavar="SECONDS",
        help="run for ever, a micro-batch this often; otherwise the job ends when it has archived "
        "what was there when it began",
    )
    parser.add_argument(
        "--rows-max",
        type=int,
        default=ROWS_MAX,
        metavar="N",
        help="offsets in a micro-batch (default: %(default)s)",
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="at the end merge the pieces into files sorted by offset",
    )
    parser.add_argument(
        "--latest-keys",
        action="store_true",
        help="at the end make a snapshot of the last row of every key",
    )
    parser.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="continue even if records were deleted from a topic before they were archived",
    )
    add_bus_options(parser)
    add_session_options(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Archive; returns the exit code."""
    options = parser().parse_args(argv)
    source = source_options(options)
    archive = Archive(start("archive", options), options.to.rstrip("/"))
    try:
        taking = Taking.into(archive, say)
        rows = archive.spark.readStream.format(FORMAT).options(**source).load()
        run(taking, rows, every_s=options.every)
        if options.compact:
            compact(archive, say)
        if options.latest_keys:
            keep_latest(archive, say)
    except ArchiveError as error:
        say(f"archive: {error}")
        return 1
    return 0


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """The options of the data source."""
    source = bus_options(options)
    if options.topics is not None:
        source["subscribe"] = options.topics
    else:
        source["subscribePattern"] = options.topic_pattern
    source["startingOffsets"] = "earliest"
    source["maxOffsetsPerTrigger"] = str(options.rows_max)
    source["includeHeaders"] = "true"
    source["failOnDataLoss"] = "false" if options.allow_data_loss else "true"
    return source


@attrs.define
class Taking:
    """Turns micro-batches into pieces."""

    archive: Archive
    tell: Say
    following: int
    """The first micro-batch that is not archived."""
    query: str | None
    failure: ArchiveError | None = None

    @classmethod
    def into(cls, archive: Archive, tell: Say) -> "Taking":
        """Continue an archive, or begin one.

        Raises:
            ArchiveError: the archive is not whole, or its checkpoint is missing or another's.
        """
        pieces = standing(archive.pieces())
        query = archive.query()
        if pieces and pieces[0].query != query:
            has = "has no checkpoint" if query is None else f"has the checkpoint of query {query}"
            raise ArchiveError(
                f"{archive.directory} was written by query {pieces[0].query} and {has}: without "
                "its own nobody can tell which records are archived; restore it, or archive into "
                "another directory"
            )
        return cls(archive, tell, pieces[-1].last + 1 if pieces else 0, query)

    def take(self, rows: "DataFrame", number: int) -> None:
        """Called for every micro-batch, and again for the last one after a restart."""
        try:
            self._take(rows, number)
        except ArchiveError as error:
            self.failure = error
            raise

    def _take(self, rows: "DataFrame", number: int) -> None:
        if number < self.following:
            self.tell(f"micro-batch {number} is archived already")
            return
        if number > self.following:
            raise ArchiveError(
                f"micro-batch {number} comes next, but {self.following} is not in the archive: its "
                "manifest was removed, or the checkpoint belongs to another archive; restore it, "
                "or archive into another directory"
            )
        query = self.archive.query()
        assert query is not None, "Spark writes the id before the first micro-batch"
        piece = Piece(Kind.RAW, number, number, query, ())
        self.archive.write(rows, piece)
        piece = attrs.evolve(piece, spans=self.archive.found(piece))
        self.archive.commit(piece)
        self.following = number + 1


def run(taking: Taking, rows: "DataFrame", *, every_s: float | None) -> None:
    """Run until everything that exists now is archived; or for ever, a micro-batch every `every_s`.

    Raises:
        ArchiveError: the micro-batches do not fit the archive.
        StreamingQueryException: the query has failed otherwise.
    """
    from pyspark.errors import StreamingQueryException

    writer = rows.writeStream.foreachBatch(taking.take)
    writer = writer.option("checkpointLocation", taking.archive.checkpoint)
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every_s} seconds")
    try:
        follow(writer.start(), taking.tell)
    except StreamingQueryException:
        if taking.failure is not None:
            raise taking.failure from None
        raise
