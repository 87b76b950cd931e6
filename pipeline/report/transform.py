"""From rows to figures, DataFrame to DataFrame: throughput, latency, balanced against concentrated.

Everything except percentiles comes from one pass over the samples, which adds up each load's
seconds (`by_second`); what is left is small. Percentiles are exact, in two more passes
(`percentiles`): a histogram finds the narrow bucket of each one, and only values in these buckets
are sorted. So nothing has to fit into the memory of one task, and no percentile is ever an average
of others.
"""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pipeline.report.schema import (
    BALANCED,
    CONCENTRATED,
    LAYOUTS,
    LOAD,
    MOVES,
    SAMPLES,
    SIDES,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NS: Final = 1_000_000_000
PERCENTS: Final = (50.0, 90.0, 99.0, 99.9, 100.0)
"""The last one is the maximum."""
BUCKETS_PER_E: Final = 500
"""Buckets of the percentiles' histogram for each factor of e: 0.2 % wide."""
LOAD_KEY: Final = ("run", "load", "side")
CELL: Final = (
    "run",
    "began",
    "commit",
    "benchmark",
    "machine",
    "limits",
    "layout",
    "nodes",
    "groups",
    "client",
    "message_bytes",
    "rate",
    "connections",
    "in_flight",
    "side",
)
"""What loads have in common whose rows are pooled: repetitions of one measurement."""
DUE: Final = "due"
SENT: Final = "sent"


# --- refusing what is no sample ------------------------------------------------------------------


def rules(kind: str) -> "dict[str, Column]":
    """What must hold of each row: its name for people -> the condition."""
    from pyspark.sql import functions as F

    is_row = F.col("_corrupt").isNull()
    of_values = _rules_of_moves() if kind == "moves" else _rules_of_samples()
    found = {
        f"{name} has a value": F.col(name).isNotNull()
        for name, column in (SAMPLES if kind == "samples" else MOVES).items()
        if column.needed
    }
    return {
        "it is a row of JSON with the columns' types": is_row,
        **{name: rule | ~is_row for name, rule in (found | of_values).items()},
    }


def _rules_of_moves() -> "dict[str, Column]":
    from pyspark.sql import functions as F

    return {
        f"{name}_from_ns <= {name}_to_ns": F.col(f"{name}_from_ns") <= F.col(f"{name}_to_ns")
        for name in ("quiet", "handover", "redirect")
    }


def _rules_of_samples() -> "dict[str, Column]":
    from pyspark.sql import functions as F

    since = F.coalesce("intended_ns", "start_ns")
    return {
        f"layout is one of {', '.join(LAYOUTS)}": F.col("layout").isin(*LAYOUTS),
        f"side is one of {', '.join(SIDES)}": F.col("side").isin(*SIDES),
        "window_from_ns <= window_to_ns": F.col("window_from_ns") <= F.col("window_to_ns"),
        "start_ns <= end_ns": F.col("start_ns") <= F.col("end_ns"),
        "intended_ns <= start_ns": F.col("intended_ns").isNull() | (since <= F.col("start_ns")),
        "latency_ns is the time from intended_ns, else start_ns, to end_ns": (
            F.col("latency_ns").isNull() | (F.col("latency_ns") == F.col("end_ns") - since)
        ),
        "records >= 0": F.col("records") >= 0,
        "bytes >= 0": F.col("bytes") >= 0,
        "rate >= 0": F.col("rate") >= 0,
    }


def is_sound(kind: str) -> "Column":
    """Whether a row keeps all rules."""
    from pyspark.sql import functions as F

    kept = (F.coalesce(rule, F.lit(False)) for rule in rules(kind).values())
    return reduce(lambda one, other: one & other, kept)


def broken_rules(rows: "DataFrame", kind: str) -> "DataFrame":
    """One row: for each rule, how many rows break it (a column each, numbered r0, r1, ...)."""
    from pyspark.sql import functions as F

    return rows.select(
        *(
            F.sum(F.when(F.coalesce(rule, F.lit(False)), 0).otherwise(1)).alias(f"r{number}")
            for number, rule in enumerate(rules(kind).values())
        )
    )


# --- throughput ----------------------------------------------------------------------------------


def by_second(samples: "DataFrame") -> "DataFrame":
    """The seconds of each load's window: what came in each, and what was outside (second null).

    Columns: those of a load, side, ok, error, second, requests, records, bytes, last_ns (the last
    row's end), unsound (rows that break a rule).
    """
    from pyspark.sql import functions as F

    since = F.col("end_ns") - F.col("window_from_ns")
    within = (since >= 0) & (F.col("end_ns") < F.col("window_to_ns"))
    second = F.when(within, F.floor(since / NS)).cast("int")
    keys = [*LOAD, "side", "ok", "error"]
    return samples.groupBy(*keys, second.alias("second")).agg(
        F.count("*").alias("requests"),
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.max("end_ns").alias("last_ns"),
        F.sum(F.when(is_sound("samples"), 0).otherwise(1)).alias("unsound"),
    )


def loads(seconds: "DataFrame") -> "DataFrame":
    """A description of each load: columns of CELL and a load, requests, errors (records that
    failed), an example error, `whole_seconds` of its window, and `cut_short`: whether its rows end
    more than a second before its window does, in which case it says nothing about throughput.
    `cell` numbers the cells."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.partitionBy(F.lit(0)).orderBy(*CELL)
    failed = ~F.col("ok")
    length = F.col("window_to_ns") - F.col("window_from_ns")
    return (
        seconds.groupBy(*LOAD, "side")
        .agg(
            F.sum("requests").alias("requests"),
            F.sum(F.when(failed, F.col("records")).otherwise(0)).alias("errors"),
            F.max("error").alias("error"),
            F.max("last_ns").alias("last_ns"),
        )
        .withColumn("whole_seconds", F.floor(length / NS).cast("int"))
        .withColumn("cut_short", F.col("last_ns") + NS < F.col("window_to_ns"))
        .withColumn("cell", F.dense_rank().over(in_order))
        .drop("last_ns")
    )


def second_rates(seconds: "DataFrame", of_loads: "DataFrame") -> "DataFrame":
    """(load, second, records, bytes) of every whole second, including seconds without any; only
    acknowledged records count."""
    from pyspark.sql import functions as F

    keys = [*LOAD_KEY, "second"]
    acknowledged = (
        seconds.where("ok and second is not null")
        .groupBy(*keys)
        .agg(F.sum("records").alias("records"), F.sum("bytes").alias("bytes"))
    )
    every = of_loads.where("not cut_short and whole_seconds >= 1").select(
        *LOAD_KEY, F.explode(F.sequence(F.lit(0), F.col("whole_seconds") - 1)).alias("second")
    )
    return every.join(acknowledged, keys, "left").fillna(0, ["records", "bytes"])


def throughput(of_loads: "DataFrame", rates: "DataFrame") -> "DataFrame":
    """A row for each cell: `qps` and `mb_per_s` as medians of all its seconds, the lowest and the
    highest `qps` of its loads, errors, the number of loads, and of those cut short."""
    from pyspark.sql import functions as F

    of_cell = of_loads.groupBy(*CELL).agg(
        F.count("*").alias("loads"),
        F.sum(F.col("cut_short").cast("int")).alias("cut_short"),
        F.sum("errors").alias("errors"),
        F.max("error").alias("error"),
        F.max("others_share").alias("others_share"),
    )
    where = of_loads.select(*CELL, "load")
    placed = rates.join(F.broadcast(where), [*LOAD_KEY])
    of_seconds = placed.groupBy(*CELL).agg(
        F.count("*").alias("seconds"),
        F.median("records").alias("qps"),
        (F.median("bytes") / 1e6).alias("mb_per_s"),
    )
    of_each = placed.groupBy(*CELL, "load").agg(F.median("records").alias("qps"))
    spread = of_each.groupBy(*CELL).agg(
        F.min("qps").alias("qps_least"), F.max("qps").alias("qps_greatest")
    )
    return _join(of_cell, _join(of_seconds, spread, "inner"), "left")


def ratios(of_loads: "DataFrame", rates: "DataFrame") -> "DataFrame":
    """A row for each pair of a balanced and a concentrated load that agree in all else: the `qps`
    of each, and balanced / concentrated."""
    from pyspark.sql import functions as F

    same = [name for name in CELL if name != "layout"] + ["pair"]
    paired = of_loads.where(F.col("pair").isNotNull()).select(*CELL, "load", "pair")
    of_pair = (
        rates.join(F.broadcast(paired), [*LOAD_KEY])
        .groupBy(*same, "layout")
        .agg(F.median("records").alias("qps"))
    )
    sides = [
        of_pair.where(F.col("layout") == layout).drop("layout").withColumnRenamed("qps", layout)
        for layout in (CONCENTRATED, BALANCED)
    ]
    return _join(sides[0], sides[1], "inner", same).withColumn(
        "ratio", F.when(F.col(CONCENTRATED) > 0, F.col(BALANCED) / F.col(CONCENTRATED))
    )


def _join(
    left: "DataFrame", right: "DataFrame", how: str, names: Sequence[str] = CELL
) -> "DataFrame":
    """A join on columns that may be null; null equals null."""
    from pyspark.sql import functions as F

    right = right.select(*(F.col(name).alias(f"_{name}") for name in right.columns))
    same = reduce(
        lambda one, other: one & other,
        (F.col(name).eqNullSafe(F.col(f"_{name}")) for name in names),
    )
    joined = left.join(right, same, how).drop(*(f"_{name}" for name in names))
    rest = [name for name in right.columns if name[1:] not in names]
    return joined.withColumnsRenamed({name: name[1:] for name in rest})


# --- latency -------------------------------------------------------------------------------------


def latencies(samples: "DataFrame", of_loads: "DataFrame") -> "DataFrame":
    """(cell, counted_from, value): how long each request took, in ns.

    In an open loop a request counts if it was due within the window, and twice: from when it was
    due, so that a stall costs everything that should have been sent meanwhile, and from when it was
    sent, which hides that (coordinated omission). In a closed loop nothing was due: requests
    answered within the window count, from when they were sent. `cell` is that of `loads`.
    """
    from pyspark.sql import functions as F

    due = F.col("intended_ns").isNotNull()
    at = F.coalesce("intended_ns", "end_ns")
    within = (at >= F.col("window_from_ns")) & (at < F.col("window_to_ns"))
    where = of_loads.where("not cut_short").select(*LOAD_KEY, "cell")
    both = F.array(
        F.struct(F.lit(DUE).alias("counted_from"), F.col("latency_ns").alias("value")),
        F.struct(
            F.lit(SENT).alias("counted_from"), (F.col("end_ns") - F.col("start_ns")).alias("value")
        ),
    )
    return (
        samples.where(F.col("ok") & F.col("latency_ns").isNotNull() & within)
        .join(F.broadcast(where), [*LOAD_KEY])
        .select("cell", F.inline(F.when(due, both).otherwise(F.slice(both, 2, 1))))
    )


def percentiles(values: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """(keys, percent, value, count): exact percentiles of `value`, a number that is not negative.

    A percentile is a value that occurs: the lowest that at least this share of all do not exceed.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    keys = list(keys)
    bucket = F.floor(F.log1p(F.col("value").cast("double")) * BUCKETS_PER_E).cast("int")
    placed = values.withColumn("bucket", bucket)
    running = Window.partitionBy(*keys).orderBy("bucket")
    whole = Window.partitionBy(*keys)
    histogram = (
        placed.groupBy(*keys, "bucket")
        .agg(F.count("*").alias("within"))
        .withColumn("upto", F.sum("within").over(running))
        .withColumn("count", F.sum("within").over(whole))
    )
    percent = F.explode(F.array(*map(F.lit, PERCENTS)))
    # Integer arithmetic in thousandths: 99.9 % of 1,000 is rank 999, but not in floats.
    rank = F.ceil(F.col("count") * F.round(F.col("percent") * 10).cast("long") / F.lit(1000.0))
    targets = (
        histogram.withColumn("percent", percent)
        .withColumn("rank", F.greatest(rank, F.lit(1)))
        .where(F.col("rank").between(F.col("upto") - F.col("within") + 1, F.col("upto")))
        .withColumn("rank", F.col("rank") - (F.col("upto") - F.col("within")))
        .select(*keys, "bucket", "percent", "rank", "count")
    )
    in_bucket = Window.partitionBy(*keys, "bucket").orderBy("value")
    candidates = (
        placed.join(F.broadcast(targets.select(*keys, "bucket").distinct()), [*keys, "bucket"])
        .withColumn("rank", F.row_number().over(in_bucket))
        .select(*keys, "bucket", "rank", "value")
    )
    return candidates.join(F.broadcast(targets), [*keys, "bucket", "rank"]).select(
        *keys, "percent", "value", "count"
    )
