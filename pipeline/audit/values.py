"""The rules for what was sent: the fate of each value.

Nearly every value is sent once, acknowledged, and read at one offset. Sums over all values (which
need neither order nor lists) find the others; only for those are all records gathered and judged.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from history.anomaly import Anomaly, Verdict
from history.known import Options
from history.record import UNKNOWN, Op, Outcome
from pipeline.audit.columns import (
    KEY,
    OUTCOMES,
    count_if,
    is_op,
    of_op,
    outcome_number,
    placed,
    to_join_with,
)
from pipeline.audit.findings import finding
from pipeline.audit.settled import Settled

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_VALUE: Final = (*KEY, "value")
_PART: Final = {
    "prefix": Anomaly.LOST_PREFIX,
    "middle": Anomaly.LOST_MIDDLE,
    "postfix": Anomaly.LOST_POSTFIX,
}


def judged(settled: Settled, ends: "DataFrame") -> "DataFrame":
    """The values that have a finding, with all that is known of each.

    `fate` is the anomaly, if the value's fate is one; `again` lists the sends after its first, and
    `elsewhere` the offsets after the first at which it was seen.
    """
    polls = of_op(settled.rows, Op.POLL).where(F.col("value").isNotNull())
    records = settled.every(Op.SEND).unionByName(polls).withColumn("log", settled.names.log())
    ends = ends.withColumn("log", settled.names.log())
    note = to_join_with(_of_note(records, ends).select("log", "value"))
    told = records.join(note, ["log", "value"], "left_semi")
    sent, seen = F.when(is_op(Op.SEND), F.struct("seq", "process", "outcome", "offset")), placed()
    gathered = told.groupBy(*_VALUE).agg(
        F.array_sort(F.collect_list(sent)).alias("sends"),
        F.array_sort(F.collect_list(F.when(seen, F.struct("seq", "offset", "process")))).alias(
            "seen"
        ),
        F.bool_or(is_op(Op.POLL)).alias("polled"),
    )
    offsets = F.array_distinct(F.col("seen.offset"))
    return (
        gathered.join(ends, list(KEY))
        .withColumns(
            {
                "send": F.try_element_at("sends", F.lit(-1)),
                "again": F.expr("slice(sends, 2, size(sends))"),
                "offsets": offsets,
            }
        )
        .withColumn("elsewhere", F.expr("slice(offsets, 2, size(offsets))"))
        .withColumn("fate", _fate())
    )


def _of_note(records: "DataFrame", ends: "DataFrame") -> "DataFrame":
    """The values that were not simply sent once, acknowledged, and read where they are."""
    sent = is_op(Op.SEND)
    where = F.when(placed(), F.col("offset"))
    last = F.max(F.when(sent, F.col("seq") * len(OUTCOMES) + F.col("outcome")))
    sums = records.groupBy("log", "value").agg(
        count_if(sent).alias("sent"),
        last.alias("last"),
        count_if(is_op(Op.POLL)).alias("polled"),
        F.min(where).alias("lowest"),
        F.max(where).alias("highest"),
    )
    ok = F.col("last") % len(OUTCOMES) == outcome_number(Outcome.OK)
    several = (F.col("sent") != 1) | F.coalesce(F.col("lowest") != F.col("highest"), F.lit(False))
    found = sums.where(several | ((F.col("polled") > 0) != ok))
    had_its_time = (F.col("sent") == 1) & ok & (F.col("lowest") < F.col("log_start"))
    started = F.broadcast(ends.where(F.col("log_start") > 0).select("log", "log_start"))
    kept = found.join(started, "log", "left")
    return kept.where(several | ~F.coalesce(had_its_time & (F.col("polled") == 0), F.lit(False)))


def _fate() -> "Column":
    """`history.sends`: of the last send of the value, and whether any reader has read it."""
    polled, offset = F.col("polled"), F.col("send.offset")

    def was(outcome: Outcome) -> "Column":
        return F.col("send.outcome") == outcome_number(outcome)

    has_offset = offset != UNKNOWN
    had_its_time = has_offset & (offset < F.col("log_start"))
    passed = has_offset & (offset <= F.col("highest_polled"))
    return (
        F.when(F.col("send").isNull(), str(Anomaly.UNEXPECTED))
        .when(polled & was(Outcome.FAIL), str(Anomaly.G1A))
        .when(polled & was(Outcome.INFO), str(Anomaly.RECOVERED))
        .when(polled | ~was(Outcome.OK) | had_its_time, None)
        .when(passed, str(Anomaly.LOST_WRITE))
        .otherwise(str(Anomaly.UNSEEN))
    )


def findings(judged: "DataFrame", options: Options) -> Iterator["DataFrame"]:
    yield from _fates(judged)
    yield _lost_parts(judged)
    again = judged.select(*_VALUE, F.explode("again").alias("one")).select(*_VALUE, "one.*")
    detail = F.format_string("%s was sent twice", "value")
    shown = {"process": "process", "value": "value", "offset": "offset", "seq": "seq"}
    yield finding(again, Anomaly.REUSED_VALUE, detail, **shown)
    elsewhere = judged.select(
        *_VALUE, F.get("offsets", F.lit(0)).alias("first"), F.explode("elsewhere").alias("offset")
    )
    detail = F.format_string("%s is at offsets %d and %d", "value", "first", "offset")
    verdict = Verdict.BAD if options.idempotent else Verdict.ALLOWED
    yield finding(
        elsewhere,
        Anomaly.DUPLICATE,
        detail,
        verdict=verdict,
        value="value",
        offset="offset",
        other_offset="first",
    )


def _fates(judged: "DataFrame") -> Iterator["DataFrame"]:
    first_seen = F.get("seen", F.lit(0))
    fated = judged.where(F.col("fate").isNotNull())
    unexpected = fated.where(F.col("fate") == str(Anomaly.UNEXPECTED))
    detail = F.format_string("%s at offset %d", "value", first_seen["offset"])
    yield finding(
        unexpected,
        Anomaly.UNEXPECTED,
        detail,
        process=first_seen["process"],
        value="value",
        offset=first_seen["offset"],
        seq=first_seen["seq"],
    )
    sent = fated.where(F.col("fate") != str(Anomaly.UNEXPECTED))
    lost = F.col("fate").isin(str(Anomaly.LOST_WRITE), str(Anomaly.UNSEEN))
    told = F.format_string(
        "%s of %s, acknowledged at offset %d", "value", "send.process", "send.offset"
    )
    read = F.format_string("%s of %s was read", "value", "send.process")
    reported = F.col("fate") == str(Anomaly.RECOVERED)
    yield finding(
        sent,
        F.col("fate"),
        F.when(lost, told).otherwise(read),
        verdict=F.when(reported, str(Verdict.REPORT)).otherwise(str(Verdict.BAD)),
        process="send.process",
        value="value",
        offset=F.when(lost, F.col("send.offset")).otherwise(first_seen["offset"]),
        seq="send.seq",
    )


def _lost_parts(judged: "DataFrame") -> "DataFrame":
    """One row for each part of each key's log."""
    lost = judged.where(F.col("fate").isin(str(Anomaly.LOST_WRITE), str(Anomaly.UNSEEN)))
    offset = F.col("send.offset")
    part = (
        F.when((offset == UNKNOWN) | (offset > F.col("highest_polled")), str(_PART["postfix"]))
        .when(offset < F.col("lowest_polled"), str(_PART["prefix"]))
        .otherwise(str(_PART["middle"]))
    )
    parts = lost.groupBy(*KEY, part.alias("part")).agg(
        F.count("*").alias("missing"), F.min(offset).alias("low"), F.max(offset).alias("high")
    )
    detail = F.format_string("%d acknowledged, offsets %d to %d", "missing", "low", "high")
    return finding(
        parts, F.col("part"), detail, offset="low", other_offset="high", missing="missing"
    )
