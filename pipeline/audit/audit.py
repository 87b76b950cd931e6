"""All rules applied to one history: its findings, and their summary."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql import functions as F

from history.anomaly import Anomaly, Report, Verdict
from history.known import Options
from history.record import Op, Outcome
from pipeline.audit import drained, findings, log_metadata, order, progress, values
from pipeline.audit.columns import KEY, LATER, LINE_BITS, computed, is_op, outcome_is
from pipeline.audit.healthy_periods import HealthyPeriods
from pipeline.audit.settled import Settled, ends_of_keys, settled
from pipeline.audit.source import Rows, read
from pipeline.session import Say

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_A_TASK: Final = 1_000_000
TASKS_A_KEY: Final = 2
"""Keys are hashed to tasks: with more tasks than keys, few tasks get two keys."""
TASKS_FOR_KEYS_MAX: Final = 64


@attrs.frozen(kw_only=True)
class Audited:
    """What an audit has found. Its tables are computed: writing them reads no history."""

    report: Report
    findings: "DataFrame"
    """The columns of `findings.finding`, and the file and line of the record in question."""
    partitions: "DataFrame"
    """A row for each key: what was sent and read, and how often each anomaly was found."""


def audit(
    spark: "SparkSession",
    paths: Sequence[str],
    options: Options | None = None,
    say: Say = lambda line: None,
) -> Audited:
    """Look for every anomaly.

    Raises:
        HistoryError: the files are not a history.
    """
    say("reading")
    with ExitStack() as held:
        return _audited(spark, read(spark, paths, held), ", ".join(paths), options, say)


def _audited(
    spark: "SparkSession", rows: Rows, name: str, options: Options | None, say: Say
) -> Audited:
    options = options or Options()
    history = settled(rows.frame, name)
    say(f"{history.records:,} records of {history.names.keys:,} partitions")
    ends = computed(ends_of_keys(history.profile))
    calm = HealthyPeriods.of(spark, history.trouble)
    walked = computed(order.walked(history, ends, calm, options, _tasks(spark, history)))
    say(f"{walked.count():,} of them need a second check for their order")
    judged = computed(values.judged(history, ends))
    say(f"{judged.count():,} values need one for their fate")
    parts = [
        *order.findings(walked, options),
        *values.findings(judged, options),
        drained.findings(walked, history, ends, options),
        *log_metadata.findings(history, options),
        progress.stuck(history),
    ]
    found = findings.together(part for part in parts if part is not None)
    found = computed(_located(spark, found, rows))
    report = _report(found, history, progress.acknowledged_during_faults(history, calm))
    return Audited(report=report, findings=found, partitions=_partitions(found, history, ends))


def _tasks(spark: "SparkSession", history: Settled) -> int:
    """How many tasks share the keys."""
    usual = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    by_keys = min(TASKS_A_KEY * history.names.keys, TASKS_FOR_KEYS_MAX)
    small = history.records < ROWS_A_TASK
    return usual if small else max(usual, by_keys, history.records // ROWS_A_TASK)


def _located(spark: "SparkSession", found: "DataFrame", rows: Rows) -> "DataFrame":
    """Adds the file and line of the record in question."""
    number = F.col("seq") % F.lit(LATER)
    files = spark.createDataFrame(
        [(number, file.path) for number, file in enumerate(rows.files)], "its_file int, file string"
    )
    placed = found.withColumns(
        {
            "its_file": F.shiftright(number, LINE_BITS).cast("int"),
            "line": number.bitwiseAND(F.lit((1 << LINE_BITS) - 1)),
        }
    )
    return placed.join(F.broadcast(files), "its_file", "left").drop("its_file", "seq")


def _report(found: "DataFrame", history: Settled, during_faults: int) -> Report:
    report = Report()
    report.tallies = findings.tallies(found)
    report.sent = history.sent()
    report.records = history.records
    report.acknowledged_during_faults = during_faults
    polls = is_op(Op.POLL) & outcome_is(Outcome.OK)
    read = history.profile.where(polls).agg(F.sum("messages"))
    report.polled = read.collect()[0][0] or 0
    lags = found.where(F.col("anomaly") == str(Anomaly.REALTIME_LAG)).agg(F.max("time_ns"))
    report.worst_lag_ns = lags.collect()[0][0] or 0
    return report


def _partitions(found: "DataFrame", history: Settled, ends: "DataFrame") -> "DataFrame":
    """Findings that concern no key (`stuck`) are in none of its rows."""
    profile = history.profile
    if history.pending is not None:
        more = history.pending.groupBy(*KEY, "process", "op", "outcome")
        profile = profile.unionByName(more.agg(F.count("*").alias("records")), True)
    sent = is_op(Op.SEND)
    polled = is_op(Op.POLL) & outcome_is(Outcome.OK)

    def total(kind: "Column", name: str = "records") -> "Column":
        return F.coalesce(F.sum(F.when(kind, F.col(name))), F.lit(0))

    totals = (
        profile.where(~is_op(Op.FAULT, Op.HEAL))
        .groupBy(*KEY)
        .agg(
            total(sent & outcome_is(Outcome.OK)).alias("acknowledged"),
            total(sent & outcome_is(Outcome.INFO)).alias("unknown"),
            total(sent & outcome_is(Outcome.FAIL)).alias("failed"),
            total(polled, "messages").alias("polled"),
        )
    )
    counted = found.groupBy(*KEY, "anomaly", "verdict").count()
    verdicts = counted.groupBy(*KEY).agg(
        *[
            total(F.col("verdict") == str(verdict), "count").alias(str(verdict))
            for verdict in Verdict
        ],
        F.map_from_entries(F.array_sort(F.collect_list(F.struct("anomaly", "count")))).alias(
            "anomalies"
        ),
    )
    whole = totals.join(ends, list(KEY)).join(verdicts, list(KEY), "left")
    return whole.fillna(0, [str(verdict) for verdict in Verdict]).orderBy(*KEY)
