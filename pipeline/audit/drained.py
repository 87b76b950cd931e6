"""The rule for readers that have read to the end: each got all that exists below its position, and
what was acknowledged before it looked for the end.

The walk has counted what each reader got and how much there is. If the numbers agree and the reader
never went back, nothing is missing. For the other readers it also knows where to look: between two
steps that skip something, and above the last. (A reader that went back may have got anything
anywhere.)
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from history.anomaly import Anomaly
from history.known import Options
from history.record import Op, Outcome
from pipeline.audit.columns import KEY, computed, is_op, outcome_number, placed, to_join_with
from pipeline.audit.findings import finding
from pipeline.audit.settled import Settled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BLOCK_BITS: Final = 12
"""Offsets are matched by blocks of this many bits: a join by range would compare all with all."""


def findings(
    walked: "DataFrame", settled: Settled, ends: "DataFrame", options: Options
) -> "DataFrame | None":
    """None: every reader that drained its key got everything."""
    doubtful = computed(_doubtful(walked, options))
    if doubtful.isEmpty():
        return None
    error_ns = F.lit(options.clock_error_ns)
    acknowledged = (
        (F.col("sent.outcome") == outcome_number(Outcome.OK))
        & (F.col("sent.offset") == F.col("offset"))
        & (F.col("sent.ended_ns") > 0)
        & (F.col("sent.ended_ns") + error_ns < F.col("began_ns"))
    )
    below = F.col("offset") < F.col("end")
    missing = _missing(doubtful, walked, settled, ends)
    found = missing.where(below | F.coalesce(acknowledged, F.lit(False)))
    of_node = F.col("node").isNotNull()
    anomaly = F.when(of_node, str(Anomaly.LOST_ON_NODE)).otherwise(str(Anomaly.LOST_ON_READER))
    whose = F.when(of_node, F.concat(F.lit("of "), "node", F.lit(" "))).otherwise("")
    detail = F.format_string(
        "%s read the log %sup to %d and did not get offset %d (%s)",
        *("process", whose, "end", "offset", "value"),
    )
    shown = {"process": "process", "value": "value", "offset": "offset", "seq": "seq"}
    return finding(found, anomaly, detail, other_offset="end", other_process="node", **shown)


def _doubtful(walked: "DataFrame", options: Options) -> "DataFrame":
    """The records of readers that say they are done although the numbers do not agree: `low` and
    `end` of what they have read, the record it begins with (`since`), and whether `in_order`."""
    own = Window.partitionBy(*KEY, "process").orderBy("seq")

    def when_assigned(name: str) -> "Column":
        return F.last(F.when(is_op(Op.ASSIGN), F.col(name)), ignorenulls=True).over(own)

    done = (
        walked.where(is_op(Op.ASSIGN, Op.DRAINED))
        .withColumns(
            {
                "since": when_assigned("seq"),
                "start": when_assigned("position") + 1,
                "there": when_assigned("above") - F.col("above"),
                "gotten": F.col("got") - when_assigned("got"),
                "went_back": F.col("backs") - when_assigned("backs"),
            }
        )
        .where(is_op(Op.DRAINED))
    )
    complete = (
        (F.col("went_back") == 0)
        & (F.col("came_from") <= F.col("position"))
        & (F.col("gotten") == F.greatest("there", F.lit(0)))
    )
    known_ns = F.col("above_ns") + F.lit(options.clock_error_ns)
    short = F.coalesce(known_ns < F.col("began_ns"), F.lit(False))
    return done.where(~F.coalesce(complete, F.lit(False)) | short).select(
        *KEY,
        "process",
        "seq",
        "began_ns",
        F.col("value").alias("node"),
        (F.col("position") + 1).alias("end"),
        F.coalesce("since", F.lit(-1)).alias("since"),
        F.greatest(F.coalesce("start", F.lit(0)), F.col("log_start")).alias("low"),
        F.coalesce(F.col("went_back") == 0, F.lit(False)).alias("in_order"),
        "came_from",
    )


def _missing(
    doubtful: "DataFrame", walked: "DataFrame", settled: Settled, ends: "DataFrame"
) -> "DataFrame":
    """What each of them did not get although it exists from its `low` on, with the last send of the
    first value that was seen there, as `sent`."""
    places = to_join_with(_where_to_look(doubtful, walked, ends))
    seen = settled.rows.where(placed()).withColumn("block", _block("offset"))
    its = F.col("process") == F.col("its_process")
    got = its & is_op(Op.POLL) & F.col("seq").between(F.col("since"), F.col("done"))
    inside = seen.join(places, [*KEY, "block"]).where(
        F.col("offset").between(F.col("first"), F.col("last"))
    )
    missing = (
        inside.groupBy(*KEY, "done", "offset")
        .agg(F.min_by("value", "seq").alias("value"), F.bool_or(got).alias("got"))
        .where(~F.col("got"))
        .drop("got")
    )
    missing = to_join_with(missing)
    values = missing.select(*KEY, "value").distinct()
    newest = F.max_by(F.struct("outcome", "offset", "ended_ns"), "seq").alias("sent")
    sends = settled.every(Op.SEND).join(values, [*KEY, "value"], "left_semi")
    last = sends.groupBy(*KEY, "value").agg(newest)
    who = doubtful.select("seq", "process", "began_ns", "node", "end")
    return (
        missing.withColumnRenamed("done", "seq")
        .join(who, "seq")
        .join(last, [*KEY, "value"], "left")
    )


def _where_to_look(doubtful: "DataFrame", walked: "DataFrame", ends: "DataFrame") -> "DataFrame":
    """Ranges of offsets (`first` to `last`), one row for each block that they touch."""
    who = doubtful.select(
        *KEY, F.col("process").alias("its_process"), "since", F.col("seq").alias("done"), "low"
    )
    low, above = F.col("low"), F.greatest("low", F.col("came_from") + 1)
    open_ends = doubtful.join(ends, list(KEY)).select(
        F.col("seq").alias("done"),
        F.when(F.col("in_order"), above).otherwise(low).alias("first"),
        F.col("top").alias("last"),
    )
    skips = walked.where(is_op(Op.POLL) & (F.col("skipped") > 0)).select(
        *KEY, F.col("process").alias("its_process"), "seq", "came_from", "position"
    )
    own = F.col("seq").between(F.col("since"), F.col("done"))
    in_order = doubtful.where("in_order").select(F.col("seq").alias("done"))
    of_skips = (
        skips.join(who.join(in_order, "done", "left_semi"), [*KEY, "its_process"])
        .where(own)
        .select("done", above.alias("first"), (F.col("position") - 1).alias("last"))
    )
    stretches = open_ends.unionByName(of_skips).where(F.col("first") <= F.col("last"))
    blocks = F.explode(F.sequence(_block("first"), _block("last"))).alias("block")
    return stretches.select("done", "first", "last", blocks).join(who.drop("low"), "done")


def _block(offset: str) -> "Column":
    return F.shiftright(F.col(offset), _BLOCK_BITS)
