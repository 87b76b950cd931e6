"""`python -m pipeline.report.synthetic --rows N --output FOLDER`: made-up samples.

As many rows as a long benchmark leaves, to see how long the report takes for them: four message
sizes, both layouts, a closed loop and an open one, latencies of a log-normal distribution, one
refusal in a million. The same N and parts give the same rows.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline import session
from pipeline.report.schema import BALANCED, CONCENTRATED, NO_LIMITS, PRODUCE, SAMPLES
from pipeline.report.transform import NS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES: Final = (100, 1_000, 10_000, 100_000)
PAIRS: Final = 5
LOADS: Final = 2 * PAIRS * len(SIZES)
WINDOW_S: Final = 10
LATE: Final = 50
"""One row in this many is outside of its load's window."""
ROWS_MAX: Final = 1_000_000_000
CONNECTIONS: Final = 48


def samples(spark: "SparkSession", rows: int, parts: int) -> "DataFrame":
    """This many sound rows, evenly divided among LOADS loads. Every other pair is an open loop."""
    from pyspark.sql import functions as F

    number = F.col("id")
    load = (number % LOADS).cast("long")
    size = F.array(*map(F.lit, SIZES))[(load % len(SIZES)).cast("int")]
    pair = F.floor(load / (2 * len(SIZES)))
    balanced = F.floor(load / len(SIZES)) % 2 == pair % 2
    is_open = pair % 2 == 1
    begin = load * (WINDOW_S + 10) * NS
    window = F.lit(WINDOW_S * NS)
    at = (F.rand(seed=1) * window * (1 + 1 / LATE)).cast("long")
    latency = (F.exp(F.randn(seed=2) * 0.7) * 4e6 * F.when(balanced, 1.0).otherwise(1.3)).cast(
        "long"
    )
    held_up = F.when(F.rand(seed=3) < 0.01, (F.rand(seed=4) * 5e7).cast("long")).otherwise(0)
    failed = number % 1_000_000 == 999_999
    raw = spark.range(0, rows, 1, parts).select(
        "id",
        load.alias("load"),
        *(size.alias("size"), pair.alias("pair"), balanced.alias("balanced")),
        *(is_open.alias("is_open"), begin.alias("begin"), failed.alias("failed")),
        (begin + at).alias("at"),
        latency.alias("took"),
        held_up.alias("held_up"),
    )
    values = {
        "run": F.lit("synthetic"),
        "load": F.col("load"),
        "pair": F.col("pair"),
        "benchmark": F.lit("synthetic"),
        "commit": F.lit("none"),
        "began": F.lit("2000-01-01T00:00:00+00:00"),
        "machine": F.lit("none"),
        "limits": F.lit(NO_LIMITS),
        "layout": F.when(F.col("balanced"), BALANCED).otherwise(CONCENTRATED),
        "nodes": F.lit(3),
        "groups": F.lit(12),
        "client": F.lit("nobody"),
        "message_bytes": F.col("size"),
        "rate": F.when(F.col("is_open"), float(rows // LOADS // WINDOW_S)).otherwise(0.0),
        "connections": F.lit(CONNECTIONS),
        "in_flight": F.when(~F.col("is_open"), 1),
        "window_from_ns": F.col("begin"),
        "window_to_ns": F.col("begin") + window,
        "others_share": F.lit(0.0),
        "side": F.lit(PRODUCE),
        "connection": F.col("id") % CONNECTIONS,
        "intended_ns": F.when(F.col("is_open"), F.col("at")),
        "start_ns": F.col("at") + F.when(F.col("is_open"), F.col("held_up")).otherwise(0),
    }
    end = F.col("start_ns") + F.col("took")
    since = F.coalesce("intended_ns", "start_ns")
    ends = {
        "end_ns": end,
        "latency_ns": F.when(~F.col("failed"), end - since),
        "records": F.lit(1),
        "bytes": F.when(F.col("failed"), 0).otherwise(F.col("size")),
        "ok": ~F.col("failed"),
        "error": F.when(F.col("failed"), "NOT_ENOUGH_REPLICAS"),
    }
    timed = raw.withColumns(values).withColumns(ends)
    return timed.select(
        *(F.col(name).cast(column.type).alias(name) for name, column in SAMPLES.items())
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.report.synthetic", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="(default %(default)s)")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    session.add_session_options(parser)
    options = parser.parse_args(argv)
    if not 1 <= options.rows <= ROWS_MAX:
        parser.error(f"--rows must be between 1 and {ROWS_MAX:,}")
    spark = session.start("synthetic", options)
    try:
        path = options.output / "synthetic.samples.parquet"
        samples(spark, options.rows, 4).write.mode("overwrite").parquet(str(path))
    finally:
        spark.stop()
    session.say(f"wrote {options.rows:,} rows to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
