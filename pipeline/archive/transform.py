"""DataFrames to DataFrames: the sums of pieces, the last row of a key, the windows of a round."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pipeline.archive.logic import Place, Round, Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HASHED: Final = (
    "topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers",
)  # fmt: skip
WINDOW: Final = "topic string, partition int, start bigint, end bigint"


def sums(rows: "DataFrame") -> "DataFrame":
    """By piece and partition: first, last, rows, size and checksum, as in `logic.Span`."""
    from pyspark.sql import functions as f

    sizes = [f.coalesce(f.length(name), f.lit(0)).cast("bigint") for name in ("key", "value")]
    return rows.groupBy("piece", "topic", "partition").agg(
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.count("offset").alias("rows"),
        f.sum(sizes[0] + sizes[1]).alias("size"),
        f.bit_xor(f.xxhash64(*HASHED)).alias("checksum"),
    )


def counts(rows: "DataFrame") -> "DataFrame":
    """`sums` without sizes and checksums: only offsets are read."""
    from pyspark.sql import functions as f

    return rows.groupBy("piece", "topic", "partition").agg(
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.count("offset").alias("rows"),
        f.lit(0).cast("bigint").alias("size"),
        f.lit(0).cast("bigint").alias("checksum"),
    )


def spans(summed: "DataFrame") -> dict[str, tuple[Span, ...]]:
    """The result of `sums`, by piece."""
    found: dict[str, list[Span]] = {}
    for row in summed.collect():
        place = Place(row["topic"], row["partition"])
        numbers = (row[name] for name in ("first", "last", "rows", "size", "checksum"))
        found.setdefault(row["piece"], []).append(Span(place, *numbers))
    return {
        piece: tuple(sorted(there, key=lambda span: span.place)) for piece, there in found.items()
    }


def in_order(rows: "DataFrame", files: int) -> "DataFrame":
    """Sorted by offset within each partition, in about this many files that do not overlap."""
    order = ("topic", "partition", "offset")
    return rows.repartitionByRange(files, *order).sortWithinPartitions(*order)


def last_of_each_key(rows: "DataFrame") -> "DataFrame":
    """For every key of a partition its row with the highest offset, unless that row deletes the key
    (its value is null); rows without a key all stay."""
    from pyspark.sql import functions as f

    columns = rows.columns
    everything = f.struct(*(f.col(name) for name in columns))
    newest = (
        rows.where("key IS NOT NULL")
        .groupBy("topic", "partition", "key")
        .agg(f.max_by(everything, "offset").alias("newest"))
        .select("newest.*")
        .where("value IS NOT NULL")
    )
    return newest.select(*columns).union(rows.where("key IS NULL").select(*columns))


def within(rows: "DataFrame", windows: Round) -> "DataFrame":
    """The rows that lie in one of the windows."""
    from pyspark.sql import functions as f

    session = rows.sparkSession
    table = [(*one.place, one.start, one.end) for one in windows]
    bounds = session.createDataFrame(table, WINDOW)
    lowest = min(one.start for one in windows)
    highest = max(one.end for one in windows)
    near = rows.where(f.col("offset").between(lowest, highest - 1))  # parquet skips the others
    joined = near.join(f.broadcast(bounds), ["topic", "partition"])
    return joined.where("offset >= start AND offset < end").select(*rows.columns)


def between_times(rows: "DataFrame", start_ms: int | None, end_ms: int | None) -> "DataFrame":
    """The rows from the first time on, up to the second one, exclusive."""
    from pyspark.sql import functions as f

    millis = f.unix_millis("timestamp")
    if start_ms is not None:
        rows = rows.where(millis >= start_ms)
    return rows if end_ms is None else rows.where(millis < end_ms)


def to_topics(rows: "DataFrame", names: Mapping[str, str]) -> "DataFrame":
    """The rows of these topics, under their new names."""
    from pyspark.sql import functions as f

    renamed = f.col("topic")
    for old, new in names.items():
        if old != new:
            renamed = f.when(f.col("topic") == old, new).otherwise(renamed)
    return rows.where(f.col("topic").isin(*names)).withColumn("topic", renamed)
