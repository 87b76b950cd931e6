"""The same computation as `logic`, as Spark plans it: data frames in, data frames out.

    decoded     a record of the load topic -> a report, or what is wrong with it
    once        each report once; of a stream, those within the watermark
    rates       sliding time windows: a group's work per second in each
    costs       over the time windows of the past: what stands for them

Everything runs in the JVM, in batch and as a stream (append mode). In a stream each step emits only
what can no longer change, so one micro-batch has all groups of a time window or none of them. What
is remembered in between is Spark's state, which is as exact after a restart as before it.

Numbers are added as doubles: a broken node may report large ones, and an overflow must not end the
query for all.
"""

from typing import TYPE_CHECKING, Final

from balancer.registry.load import (
    NS_PER_BYTE,
    NUMBER_MAX,
    REPORT_BYTES_MAX,
    REPORT_VERSION,
    REQUEST_BYTES,
)
from balancer.registry.records import GROUPS_MAX
from pipeline.placement.logic import (
    AHEAD,
    AHEAD_MS_MAX,
    COVERED_PERCENT,
    FAULTS,
    MALFORMED,
    UNKNOWN_VERSION,
    GroupCost,
    Measure,
    Timing,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REPORT: Final = (
    "version bigint, node bigint, incarnation bigint, wall_ms bigint, interval_ms bigint, "
    "produce_p99_us bigint, lag_slots bigint, uptime_ms bigint, groups map<string, struct<"
    "bytes_in bigint, bytes_out bigint, requests bigint, cpu_us bigint, bytes_kept bigint>>"
)
"""As `balancer.registry.load.encode_report` writes it."""
COLUMNS: Final = GroupCost._fields
OBSERVED: Final = "load_reports"
"""A query's progress has the number of records, and of each fault, under this name."""
WALL_MS_MAX: Final = 2**43
"""In the year 2248. A later time is ahead in any case, and could not be converted."""
_NUMBERS: Final = (
    "node",
    "incarnation",
    "wall_ms",
    "interval_ms",
    "produce_p99_us",
    "lag_slots",
    "uptime_ms",
)


def group_costs(source: "DataFrame", timing: Timing, measure: Measure) -> "DataFrame":
    """From records of the load topic to the costs of groups; see `costs` for the columns."""
    return costs(rates(once(counted(decoded(source)), timing), timing), timing, measure)


def decoded(source: "DataFrame") -> "DataFrame":
    """Columns `at` (the report's own time), `node`, `incarnation`, `interval_ms`, `loads` (array of
    struct<group, work, cost_us>) and `fault`: null, or one of FAULTS, in which case the others are
    meaningless.

    `source` has a binary column `value`. The verdict is that of
    `balancer.registry.load.decode_report`, except for what follows the end of the object, which
    Spark ignores.
    """
    from pyspark.sql import functions as f

    whole = f.when(f.octet_length("value") <= REPORT_BYTES_MAX, f.col("value").cast("string"))
    report = f.from_json("text", REPORT, {"allowSingleQuotes": "false"})
    told = source.select(whole.alias("text"))
    told = told.select(report.alias("told"), f.expr("is_valid_utf8(text)").alias("is_text"))
    told = told.select("told.*", "is_text")
    at = f.timestamp_millis(f.least("wall_ms", f.lit(WALL_MS_MAX)))
    ahead = f.current_timestamp() + f.expr(f"interval {AHEAD_MS_MAX} milliseconds")
    fault = (
        f.when(f.col("version").isNull() | ~f.coalesce("is_text", f.lit(False)), MALFORMED)
        .when(f.col("version") != REPORT_VERSION, UNKNOWN_VERSION)
        .when(~f.coalesce(_is_sound(), f.lit(False)), MALFORMED)
        .when(at > ahead, AHEAD)
    )
    kept = ("node", "incarnation", "interval_ms")
    return told.select(at.alias("at"), *kept, _loads().alias("loads"), fault.alias("fault"))


def _is_sound() -> "Column":
    """The bounds of `balancer.registry.load.decode_report`; null for fields that are no numbers."""
    from pyspark.sql import functions as f

    numbers = " and ".join(f"{name} between 0 and {NUMBER_MAX}" for name in _NUMBERS)
    loads = " and ".join(
        f"one.{name} between 0 and {NUMBER_MAX}"
        for name in ("bytes_in", "bytes_out", "requests", "cpu_us")
    )
    digits = len(str(GROUPS_MAX))
    return f.expr(
        f"{numbers} and interval_ms > 0 and size(groups) <= {GROUPS_MAX + 1} "
        f"and forall(map_keys(groups), name -> name rlike '^[0-9]{{1,{digits}}}$') "
        "and size(array_distinct(transform(map_keys(groups), name -> try_cast(name as int)))) "
        "= size(groups) "
        f"and forall(map_values(groups), one -> {loads} "
        f"and coalesce(one.bytes_kept, 0) between 0 and {NUMBER_MAX})"
    )


def _loads() -> "Column":
    """As `balancer.registry.load.work` and `cost_us`."""
    from pyspark.sql import functions as f

    count = "double(one.value.bytes_in) + double(one.value.bytes_out)"
    return f.expr(
        "transform(map_entries(groups), one -> named_struct("
        "'group', try_cast(one.key as int), "
        f"'work', double(one.value.requests) * {REQUEST_BYTES} + {count}, "
        f"'cost_us', double(one.value.cpu_us) + ({count}) * {NS_PER_BYTE}D / 1000))"
    )


def counted(decoded: "DataFrame") -> "DataFrame":
    """The same rows; a query's progress has their numbers by fault under OBSERVED."""
    from pyspark.sql import functions as f

    faults = [f.count_if(f.col("fault") == name).alias(name) for name in FAULTS]
    return decoded.observe(OBSERVED, f.count(f.lit(1)).alias("records"), *faults)


def once(decoded: "DataFrame", timing: Timing) -> "DataFrame":
    """The valid reports, each once. In a stream, reports older than the newest of the earlier
    micro-batches by more than the lateness are left out; Spark counts them."""
    sound = decoded.where("fault is null").drop("fault")
    sound = sound.withWatermark("at", f"{timing.lateness_s} seconds")
    return sound.dropDuplicates(["node", "incarnation", "at"])


def rates(reports: "DataFrame", timing: Timing) -> "DataFrame":
    """Columns `window`, `group`, and per second `work` and `cost_us`, for time windows that reports
    cover long enough."""
    from pyspark.sql import functions as f

    loads = reports.select("at", "interval_ms", f.explode("loads").alias("load"))
    window = f.window("at", f"{timing.window_s} seconds", f"{timing.slide_s} seconds")
    sums = loads.groupBy(window.alias("window"), f.col("load.group").alias("group")).agg(
        f.sum("load.work").alias("done"),
        f.sum("load.cost_us").alias("spent_us"),
        f.sum(f.col("interval_ms").cast("double")).alias("told_ms"),
    )
    covered = timing.window_s * 1_000 * COVERED_PERCENT / 100
    return sums.where(f.col("told_ms") >= covered).select(
        "window",
        "group",
        (f.col("done") * 1_000 / f.col("told_ms")).alias("work"),
        (f.col("spent_us") * 1_000 / f.col("told_ms")).alias("cost_us"),
    )


def costs(rates: "DataFrame", timing: Timing, measure: Measure) -> "DataFrame":
    """Column `until_ms` (the end of the past considered, in ms since 1970), and those of
    `logic.GroupCost`."""
    from pyspark.sql import functions as f

    past = f.window(f.col("window"), f"{timing.past_s} seconds", f"{timing.slide_s} seconds")
    mean = measure.percent is None
    stands = f.avg("work") if mean else f.percentile("work", (measure.percent or 0) / 100)
    summed = rates.groupBy(past.alias("past"), "group").agg(
        stands.alias("work"), f.avg("cost_us").alias("cost_us"), f.count(f.lit(1)).alias("windows")
    )
    return summed.select(f.unix_millis("past.end").alias("until_ms"), *COLUMNS)


def newest(costs: "DataFrame") -> "DataFrame":
    """At most one row: the latest `until_ms`, and `groups`, an array of the rest. In one pass,
    because a micro-batch that is read twice is computed twice."""
    from pyspark.sql import functions as f

    together = f.collect_list(f.struct(*COLUMNS)).alias("groups")
    return costs.groupBy("until_ms").agg(together).orderBy(f.desc("until_ms")).limit(1)
