"""The rules for order, in two passes over everything that is at an offset.

The first pass goes along each log, from its end to its beginning. What was known before something
began is a question about times: *was an offset not below this one known before then?* It is the
same as: *is the least of the times at which this offset, or a higher one, was known before then?*,
and that is a running minimum. So are the number of offsets above, and the time since which there
was something above.

The second pass goes along what each process did. A reader that moved from offset a to offset b has
skipped something if the log has more offsets above a than above b plus b itself; no list of them is
needed.

Rows are kept only if they show an anomaly, or carry what the next rules need: where a reader was
assigned, where it says that it is done, and its state at its last record.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from history.anomaly import Anomaly, Verdict
from history.known import Options
from history.record import Op, Outcome
from pipeline.audit.columns import (
    KEY,
    count_if,
    is_op,
    nonzero,
    op_number,
    outcome_is,
    placed,
)
from pipeline.audit.findings import finding
from pipeline.audit.healthy_periods import HealthyPeriods
from pipeline.audit.settled import Settled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_READS: Final = (Op.POLL, Op.ASSIGN, Op.SUBSCRIBE, Op.DRAINED)
_SPEAKS_OF_THE_NEXT: Final = (Op.ASSIGN, Op.DRAINED, Op.LATEST)
"""Their offset is not one that the reader has seen; it stands at the one before."""
_FIRST: Final = Window.unboundedPreceding


def walked(
    settled: Settled, ends: "DataFrame", calm: HealthyPeriods, options: Options, tasks: int
) -> "DataFrame":
    """The rows that matter, with what the rules need to know of each.

    `ends` has `log_start` per key; `tasks` is the number of tasks that share the keys.
    """
    wanted = outcome_is(Outcome.OK) & (placed() | is_op(*_READS, Op.LATEST))
    every = settled.names.shortened(settled.rows.where(wanted))
    started = ends.where(F.col("log_start") > 0)
    if started.isEmpty():
        every = every.withColumn("log_start", F.lit(0).cast("long"))
    else:
        known = started.select(settled.names.log().alias("log"), "log_start")
        every = every.join(F.broadcast(known), "log", "left")
        every = every.withColumn("log_start", F.coalesce("log_start", F.lit(0)))
    every = calm.looked_up(every, "began_ns").repartition(tasks, "log")
    return settled.names.restored(_along_each_process(_along_each_log(every, options)))


def _along_each_log(rows: "DataFrame", options: Options) -> "DataFrame":
    """Adds to each row: `above`, how many offsets exist above its position, and since when one is
    known to exist (`above_ns`); what else was seen at its offset (`other_value`); and when an
    offset that contradicts it was known, if that was before it began (`already_ns`)."""
    asks = is_op(*_SPEAKS_OF_THE_NEXT) | (is_op(Op.POLL) & ~placed())
    stands = rows.withColumns(
        {"position": F.col("offset") - F.when(asks, 1).otherwise(0), "placed": placed()}
    ).withColumn("down", -F.col("position"))
    at_one_offset = Window.partitionBy("log", "down").orderBy(F.col("placed").desc(), "seq")
    seen = stands.withColumns(
        {
            "nth": F.row_number().over(at_one_offset),
            "first_value": F.first("value").over(at_one_offset),
        }
    )
    downwards = Window.partitionBy("log").orderBy("down")
    above = downwards.rangeBetween(_FIRST, -1)
    from_here = downwards.rangeBetween(_FIRST, Window.currentRow)
    exists = F.col("placed") & (F.col("nth") == 1) & (F.col("position") >= F.col("log_start"))
    told_ns = F.when(F.col("placed") | is_op(Op.LATEST), nonzero("ended_ns"))
    known = seen.withColumns(
        {
            "above": F.coalesce(count_if(exists).over(above), F.lit(0)),
            "above_ns": F.min(F.when(F.col("placed"), nonzero("ended_ns"))).over(above),
            "here_ns": F.min(told_ns).over(from_here),
        }
    )
    known_ns = F.when(is_op(Op.SEND), F.col("here_ns")).when(is_op(Op.LATEST), F.col("above_ns"))
    early = known_ns + F.lit(options.clock_error_ns) < F.col("began_ns")
    differs = F.col("placed") & (F.col("value") != F.col("first_value"))
    return known.withColumns(
        {
            "other_value": F.when(differs, F.col("first_value")),
            "already_ns": F.when(early, known_ns),
        }
    ).drop("down", "nth", "first_value", "here_ns", "ended_ns", "offset", "outcome")


def _along_each_process(rows: "DataFrame") -> "DataFrame":
    """Adds to each step: where the one before it stood (`came_from`), whether it went `back`, how
    many offsets it `skipped`; whether both are `within` one poll, and whether the reader is
    `subscribed`.

    Adds to each record of a reader: how many messages it has got (`got`), how often it has gone
    back (`backs`), its worst lag so far (`worst`), and whether the record is its last (`last`).
    """
    kind = F.when(is_op(*_READS), 0).when(is_op(Op.SEND), 1).otherwise(2)
    turn = F.when(is_op(Op.SEND), F.col("began_ns")).otherwise(F.col("seq"))
    own = Window.partitionBy("log", "actor", "kind").orderBy("turn", "seq")
    before, so_far = own.rowsBetween(_FIRST, -1), own.rowsBetween(_FIRST, Window.currentRow)
    step = is_op(Op.ASSIGN) | F.col("placed")
    poll = is_op(Op.POLL)

    def newest(op: Op) -> "Column":
        return F.max(F.when(is_op(op), F.col("seq"))).over(so_far)

    def before_it(wanted: "Column") -> "Column":
        return F.last(F.when(step, wanted), ignorenulls=True).over(before)

    next_poll = (
        f"lead(CASE WHEN op = {op_number(Op.POLL)} THEN began_ns END) IGNORE NULLS "
        "OVER (PARTITION BY log, actor, kind ORDER BY turn, seq)"
    )
    steps = rows.withColumns({"kind": kind, "turn": turn}).withColumns(
        {
            "came_from": before_it(F.col("position")),
            "came_above": before_it(F.col("above")),
            "came_ns": before_it(F.when(poll, F.col("began_ns")).otherwise(0)),
            "assigned": newest(Op.ASSIGN),
            "subscribed": newest(Op.SUBSCRIBE),
            "next_poll_ns": F.expr(next_poll),
            "last": F.lead("seq").over(own).isNull(),
        }
    )
    here, began_ns = F.col("position"), F.col("began_ns")
    between = F.col("came_above") - F.col("above") - 1  # if retention removed it: 0 - 0 - 1
    forward = poll & F.col("placed") & (here > F.col("came_from"))
    ends_a_poll = F.col("next_poll_ns").isNull() | (F.col("next_poll_ns") != began_ns)
    since_ns = F.when(  # `greatest` would ignore nulls
        F.col("above_ns").isNotNull() & F.col("healed_ns").isNotNull(),
        F.greatest("above_ns", "healed_ns"),
    )
    lag_ns = F.when(poll & (began_ns != 0) & ends_a_poll, began_ns - since_ns)
    judged = steps.withColumns(
        {
            "back": _surely(F.col("placed") & (here <= F.col("came_from"))),
            "skipped": F.coalesce(F.when(forward, F.greatest(between, F.lit(0))), F.lit(0)),
            "within": _surely((F.col("came_ns") == began_ns) & (began_ns != 0)),
            "subscribed": _surely(F.col("subscribed") > F.coalesce("assigned", F.lit(-1))),
            "lag_ns": lag_ns,
        }
    )
    read = poll & F.col("placed")
    counted = judged.withColumns(
        {
            "got": count_if(read & (here >= F.col("log_start"))).over(so_far),
            "backs": count_if(read & F.col("back")).over(so_far),
            "worst": F.max(F.when(F.col("lag_ns") > 0, F.struct("lag_ns", "position"))).over(
                so_far
            ),
        }
    )
    needed_no_more = ("kind", "turn", "came_above", "came_ns", "next_poll_ns")
    return counted.where(_something_to_tell()).drop(*needed_no_more)


def _something_to_tell() -> "Column":
    """Whether a step, or the reader that takes it, has a finding."""
    return (
        F.col("other_value").isNotNull()
        | F.col("already_ns").isNotNull()
        | F.col("back")
        | (F.col("skipped") > 0)
        | (F.col("last") & F.col("worst").isNotNull())
        | is_op(Op.ASSIGN, Op.DRAINED)
    )


def _surely(condition: "Column") -> "Column":
    return F.coalesce(condition, F.lit(False))


def findings(walked: "DataFrame", options: Options) -> Iterator["DataFrame"]:
    """Offsets with two values, sends and answers that something contradicts, steps back, steps too
    far, and how far readers were behind."""
    offset = F.col("position")
    detail = F.format_string("offset %d is %s and %s", offset, "other_value", "value")
    yield finding(
        walked.where(F.col("other_value").isNotNull()),
        Anomaly.INCONSISTENT_OFFSETS,
        detail,
        process="process",
        value="value",
        offset=offset,
        other_value="other_value",
        seq="seq",
    )
    yield from _contradicted(walked.where(F.col("already_ns").isNotNull()))
    yield from _steps(walked.where(F.col("back") | (F.col("skipped") > 0)))
    yield _lags(walked.where(F.col("last") & F.col("worst").isNotNull()), options)


def _contradicted(rows: "DataFrame") -> Iterator["DataFrame"]:
    before_us = (F.col("began_ns") - F.col("already_ns")) / 1000
    detail = F.format_string(
        "%s got offset %d, but one not below it was known %.1f us before it was sent",
        *("value", "position"),
        before_us,
    )
    shown = {"process": "process", "value": "value", "time_ns": "already_ns", "seq": "seq"}
    sends, answers = rows.where(is_op(Op.SEND)), rows.where(is_op(Op.LATEST))
    yield finding(sends, Anomaly.REALTIME_ORDER, detail, offset="position", **shown)
    end = F.col("position") + 1
    detail = F.format_string(
        "%s was told that the end is %d, but a message at or above it was known %.1f us before it "
        "asked",
        *("process", end),
        before_us,
    )
    yield finding(answers, Anomaly.STALE_OFFSETS, detail, offset=end, **shown)


def _steps(rows: "DataFrame") -> Iterator["DataFrame"]:
    shown = {"process": "process", "value": "value", "offset": "position", "seq": "seq"}
    sends, polls = rows.where(is_op(Op.SEND)), rows.where(is_op(Op.POLL))
    detail = F.format_string(
        "%s got offset %d for %s, but %d for one that it sent before",
        *("process", "position", "value", "came_from"),
    )
    yield finding(sends, Anomaly.NONMONOTONIC_SEND, detail, other_offset="came_from", **shown)
    allowed = F.when(F.col("subscribed"), str(Verdict.ALLOWED)).otherwise(str(Verdict.BAD))
    detail = F.format_string(
        "%s read offset %d and stood after %d", "process", "position", "came_from"
    )
    yield finding(
        polls.where("back"),
        _one_of(Anomaly.INT_NONMONOTONIC_POLL, Anomaly.NONMONOTONIC_POLL),
        detail,
        verdict=allowed,
        other_offset="came_from",
        **shown,
    )
    detail = F.format_string(
        "%s came to offset %d after %d, without %d that exist between them",
        *("process", "position", "came_from", "skipped"),
    )
    yield finding(
        polls.where(~F.col("back")),
        _one_of(Anomaly.INT_POLL_SKIP, Anomaly.POLL_SKIP),
        detail,
        verdict=allowed,
        other_offset="came_from",
        missing="skipped",
        **shown,
    )


def _one_of(within: Anomaly, between: Anomaly) -> "Column":
    return F.when(F.col("within"), str(within)).otherwise(str(between))


def _lags(rows: "DataFrame", options: Options) -> "DataFrame":
    """The worst of each key."""
    worst = rows.select(
        *KEY, F.struct("worst.lag_ns", "worst.position", "process").alias("one")
    ).groupBy(*KEY)
    of_keys = worst.agg(F.max("one").alias("one")).select(*KEY, "one.*")
    limit_ns = options.lag_ns_max
    verdict: Column | Verdict = Verdict.REPORT
    if limit_ns is not None:
        bad = F.col("lag_ns") > limit_ns
        verdict = F.when(bad, str(Verdict.BAD)).otherwise(str(Verdict.REPORT))
    detail = F.format_string(
        "%s at offset %d: %.0f ms behind", "process", "position", F.col("lag_ns") / 1e6
    )
    return finding(
        of_keys,
        Anomaly.REALTIME_LAG,
        detail,
        verdict=verdict,
        process="process",
        offset="position",
        time_ns="lag_ns",
    )
