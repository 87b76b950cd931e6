"""Files -> the rows of one history, each with its place.

Spark reads a file in blocks, concurrently and in any order; within a block rows come in the order
of the file. So a row carries its block and an increasing number, and a first pass counts each
block's rows: that gives every line its number. The same pass finds the lines that are not records.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import attrs
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from history.jsonl import HistoryError, record_of
from history.record import Record
from pipeline.audit.columns import COLUMNS, LINE_BITS, OPS, OUTCOMES, SCHEMA, TIME_MAX
from pipeline.audit.lines import completed, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_MAX: Final = 10_000
BLOCKS_MAX: Final = 100_000
"""Pieces in which Spark reads the files, of 128 MiB each."""
STRANGE_MAX: Final = 1000
"""Lines that only Python's parser takes for records; a history with more is refused."""
PARQUET: Final = ".parquet"
TASK_BITS: Final = 33
"""Numbers of `monotonically_increasing_id` have the number of their task above these bits."""
_COLUMNS: Final = {
    "op": "string",
    "process": "string",
    "topic": "string",
    "partition": "bigint",
    "value": "string",
    "offset": "bigint",
    "outcome": "string",
    "began_ns": "bigint",
    "ended_ns": "bigint",
}
"""The columns of a table; `key`, with `topic` and `partition` in it, may replace the two."""
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int"})


class File(NamedTuple):
    """A file by Spark's name for it: a URI."""

    uri: str

    @property
    def path(self) -> str:
        """A path that can be opened; a URI of another scheme stays a URI."""
        parts = urlsplit(self.uri)
        plain = unquote(parts.path)
        return plain if parts.scheme == "file" else f"{parts.scheme}://{parts.netloc}{plain}"

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@attrs.frozen
class Rows:
    """A history that has been read, with its places."""

    frame: "DataFrame"
    """`columns.SCHEMA`."""
    files: tuple[File, ...]
    """A row's seq has the number of its file in its upper bits."""


def read(spark: "SparkSession", paths: Sequence[str], held: ExitStack) -> Rows:
    """The rows of these files, folders and patterns: parquet if the name ends so, else lines.

    Cached data is released with `held`, once the rows are no longer needed. Otherwise the next
    reader in this session would get it for files of the same names, whatever they contain by then.

    Raises:
        HistoryError: one is missing or not a history; names the first line that is not a record.
    """
    files = _listed(spark, paths)
    parts = []
    for of_kind, tabular in ((_of_lines, False), (_of_tables, True)):
        mine = [file for file in files if file.name.endswith(PARQUET) == tabular]
        if mine:
            numbers = {file.path: at for at, file in enumerate(files)}
            parts.append(of_kind(spark, mine, numbers, held))
    every = parts[0].frame if len(parts) == 1 else parts[0].frame.unionByName(parts[1].frame)
    frame = every.select(*COLUMNS)
    if any(part.strange for part in parts):
        right = every.where(F.col("strange").isNull()).select(*COLUMNS)
        frame = right.unionByName(_judged(spark, every, files))
    return Rows(frame, files)


# -- which files ----------------------------------------------------------------------------------


def _listed(spark: "SparkSession", paths: Sequence[str]) -> tuple[File, ...]:
    """In the order in which they were given; those of a folder or a pattern by name."""
    found: list[File] = []
    for path in paths:
        try:
            uris = spark.read.text(_as_given(path)).inputFiles()
        except AnalysisException as error:
            raise HistoryError(f"{path} cannot be read: {error.getCondition()}") from error
        found += sorted(map(File, uris))
    if len(found) > FILES_MAX:
        raise HistoryError(f"{len(found):,} files: one history has at most {FILES_MAX:,}")
    twice = sorted({file.path for file in found if found.count(file) > 1})
    if twice:
        raise HistoryError(f"{twice[0]} is given twice")
    if not found:
        raise HistoryError(f"there is no file in {', '.join(paths)}")
    return tuple(found)


def _as_given(path: str) -> str:
    """A path that exists means itself, whatever characters it has; else it may be a pattern."""
    return _literally(path) if Path(path).exists() else path


def _literally(path: str) -> str:
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


# -- lines of text --------------------------------------------------------------------------------


class _Part(NamedTuple):
    frame: "DataFrame"
    """`columns.SCHEMA` and `strange`."""
    strange: int


class _Block(NamedTuple):
    """Lines that one task has read one after the other."""

    path: str
    start: int
    first: int
    """The number that Spark gave to its first line; the next lines have the next numbers."""
    rows: int
    strange: int


def _of_lines(
    spark: "SparkSession", files: Sequence[File], numbers: Mapping[str, int], held: ExitStack
) -> _Part:
    text = spark.read.text([_literally(file.path) for file in files], lineSep="\n")
    every = parsed(
        text.select(
            F.col("value").alias("line"),
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_block_start").alias("block"),
            F.monotonically_increasing_id().alias("number"),
        )
    )
    every = every.persist(StorageLevel.DISK_ONLY)  # parsing them is most of the work
    held.callback(every.unpersist)
    counted = every.groupBy("path", "block").agg(
        F.min("number"), F.count("*"), F.count("strange").alias("strange")
    )
    blocks = sorted(_Block(*row) for row in counted.limit(BLOCKS_MAX + 1).collect())
    if len(blocks) > BLOCKS_MAX:
        raise HistoryError(
            f"the files have more than {BLOCKS_MAX:,} blocks: too many for one history"
        )
    places = spark.createDataFrame(
        list(_places(blocks, numbers)), "task long, first long, after long, base long"
    )
    number = F.col("number")
    joined = every.join(
        F.broadcast(places),
        (F.shiftright(number, TASK_BITS) == F.col("task"))
        & (F.col("first") <= number)
        & (number < F.col("after")),
    )
    seq = (F.col("base") + number).alias("seq")
    rest = [name for name in COLUMNS if name != "seq"]
    return _Part(joined.select(seq, *rest, "strange"), sum(block.strange for block in blocks))


def _places(
    blocks: Sequence[_Block], numbers: Mapping[str, int]
) -> Iterator[tuple[int, int, int, int]]:
    """For each block: its task, its first number, the number after its last, and what to add to a
    number to get a seq. `blocks` are sorted."""
    path, lines = "", 0
    for block in blocks:
        if block.path != path:
            path, lines = block.path, 0
        base = (numbers[File(path).path] << LINE_BITS) + lines + 1 - block.first
        yield block.first >> TASK_BITS, block.first, block.first + block.rows, base
        lines += block.rows


# -- tables ---------------------------------------------------------------------------------------


def _of_tables(
    spark: "SparkSession", files: Sequence[File], numbers: Mapping[str, int], _held: ExitStack
) -> _Part:
    table = spark.read.parquet(*[_literally(file.path) for file in files])
    given = dict(table.dtypes)
    columns = {name: F.col(name) for name in given}
    if given.get("key", "").startswith("struct<"):
        columns["topic"], columns["partition"] = F.col("key.topic"), F.col("key.partition")
        given.update(table.select("key.topic", "key.partition").dtypes)
        del columns["key"]
    _check_types({name: given[name] for name in columns}, files[0].name)
    written = [
        columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _COLUMNS.items()
    ]
    every = completed(
        table.select(
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.row_index").alias("row"),
            F.to_json(F.struct(*written)).cast("binary").alias("raw"),
            *written,
        )
    )
    counted = every.groupBy("path").agg(F.count("strange")).collect()
    bases = [(path, (numbers[File(path).path] << LINE_BITS) + 1) for path, _ in counted]
    if len(bases) == 1:
        based = every.withColumn("base", F.lit(bases[0][1]))
    else:
        known = spark.createDataFrame(bases, "path string, base long")
        based = every.join(F.broadcast(known), "path")
    seq = (F.col("base") + F.col("row")).alias("seq")
    rest = [name for name in COLUMNS if name != "seq"]
    return _Part(based.select(seq, *rest, "strange"), sum(strange for _, strange in counted))


def _check_types(given: Mapping[str, str], name: str) -> None:
    if not {"op", "process"} <= given.keys() <= _COLUMNS.keys():
        raise HistoryError(
            f"{name}: expected the columns {', '.join(_COLUMNS)} (docs/spark.md), "
            f"got {', '.join(given)}"
        )
    for column, kind in given.items():
        right = _COLUMNS[column]
        if kind != right and not (right == "bigint" and kind in _INTEGERS):
            raise HistoryError(f"{name}: column {column} is {kind}, expected {right}")


# -- lines that are strange -----------------------------------------------------------------------


def _judged(spark: "SparkSession", every: "DataFrame", files: Sequence[File]) -> "DataFrame":
    """The strange lines that are records after all.

    Raises:
        HistoryError: for the first one that is not, as `history.jsonl` reports it; or if more than
            STRANGE_MAX come before it.
    """
    strange = every.where(F.col("strange").isNotNull()).select("seq", "strange").orderBy("seq")
    rows = []
    for limit in (1, STRANGE_MAX + 1):  # the first is mostly wrong, and a line may be long
        rows = [
            _row_of(_judge(seq, bytes(raw), files), seq, files)
            for seq, raw in strange.limit(limit).collect()
        ]
    if len(rows) > STRANGE_MAX:
        raise HistoryError(
            f"more than {STRANGE_MAX:,} lines are records only for Python's JSON parser: "
            "write them as `history.jsonl.line_of` does"
        )
    return spark.createDataFrame(rows, SCHEMA)


def _judge(seq: int, raw: bytes, files: Sequence[File]) -> Record:
    file, number = place_of(seq, files)
    try:
        return record_of(_line_of_row(raw) if file.name.endswith(PARQUET) else raw)
    except (ValueError, TypeError, RecursionError) as error:
        raise HistoryError(f"{file.name}:{number}: not a record: {error}") from error


def _line_of_row(raw: bytes) -> bytes:
    """A row of a table as the equivalent line."""
    fields: dict[str, Any] = json.loads(raw)
    if "topic" in fields or "partition" in fields:
        fields["key"] = [fields.pop("topic", None), fields.pop("partition", None)]
    return json.dumps(fields).encode()


def _row_of(record: Record, seq: int, files: Sequence[File]) -> tuple[Any, ...]:
    file, number = place_of(seq, files)
    numbers = (record.offset, record.began_ns, record.ended_ns)
    if max(map(abs, numbers)) > TIME_MAX or abs(record.key.partition) >= 1 << 63:
        raise HistoryError(
            f"{file.name}:{number}: a number is beyond the range of the audit ({TIME_MAX:,})"
        )
    try:
        "".join((record.process, record.key.topic, record.value or "")).encode()
    except UnicodeEncodeError as error:
        raise HistoryError(f"{file.name}:{number}: half a character: {error}") from error
    return (
        seq,
        OPS.index(record.op),
        record.process,
        *record.key,
        record.value,
        record.offset,
        OUTCOMES.index(record.outcome),
        record.began_ns,
        record.ended_ns,
    )


def place_of(seq: int, files: Sequence[File]) -> tuple[File, int]:
    """The file, and the line's number from 1."""
    return files[seq >> LINE_BITS], seq & ((1 << LINE_BITS) - 1)
