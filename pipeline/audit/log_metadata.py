"""The rules for what clients learn about a log without reading it: `history.places`, on Spark.

Its ends may not go back; a consumer group gets back what it committed; replicas agree; an epoch has
one master. (That an end is not below a known record is a rule of `order`.)
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from history.anomaly import Anomaly
from history.known import Options
from history.record import UNKNOWN, Op, Outcome
from pipeline.audit.columns import KEY, is_op, nonzero, outcome_is
from pipeline.audit.findings import finding
from pipeline.audit.settled import Settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIRST: Final = Window.unboundedPreceding


def findings(settled: Settled, options: Options) -> Iterator["DataFrame"]:
    """The findings of the rules whose operations the history has."""
    if settled.has(Op.EARLIEST, Op.LATEST):
        yield _ends_back(settled, options)
    if settled.has(Op.COMMITTED):
        yield _committed_back(settled, options)
    if settled.has(Op.CHAIN):
        yield _diverged(settled)
    if settled.has(Op.MASTER):
        yield _two_masters(settled)


def _ends_back(settled: Settled, options: Options) -> "DataFrame":
    """If one answer was there before another was requested, the second is not lower: no higher
    answer was known before it was requested."""
    highest_first = Window.partitionBy(*KEY, "op").orderBy("down")
    higher = highest_first.rangeBetween(_FIRST, -1)
    known_ns = F.min(nonzero("ended_ns")).over(higher)
    answers = settled.of_op(Op.EARLIEST, Op.LATEST).withColumn("down", -F.col("offset"))
    back = answers.withColumn("known_ns", known_ns).where(
        F.col("known_ns") + F.lit(options.clock_error_ns) < F.col("began_ns")
    )
    names = F.when(is_op(Op.EARLIEST), str(Op.EARLIEST)).otherwise(str(Op.LATEST))
    detail = F.format_string(
        "%s: %s was told %d, though a higher answer was known before it asked",
        *(names, "process", "offset"),
    )
    return finding(
        back,
        Anomaly.OFFSETS_BACK,
        detail,
        process="process",
        offset="offset",
        time_ns="known_ns",
        seq="seq",
    )


def _committed_back(settled: Settled, options: Options) -> "DataFrame":
    """A group gets back an offset that it committed and that was not overwritten before it asked:
    no commit that began after that one had ended was acknowledged by then."""
    error_ns = F.lit(options.clock_error_ns)
    commits = settled.every(Op.COMMIT)
    settles = outcome_is(Outcome.OK) & (F.col("ended_ns") != 0)
    events = commits.where(settles).withColumn("at_ns", F.col("ended_ns") + error_ns)
    asked = settled.of_op(Op.COMMITTED).withColumn("at_ns", F.col("began_ns"))
    own = Window.partitionBy(*KEY, "value").orderBy("at_ns").rangeBetween(_FIRST, -1)
    newest = F.max(F.when(is_op(Op.COMMIT), F.col("began_ns"))).over(own)
    read = (
        events.unionByName(asked)
        .withColumn("newest_ns", F.greatest(F.coalesce(newest, F.lit(-1)), F.lit(-1)))
        .where(is_op(Op.COMMITTED))
    )
    possible = commits.where(~outcome_is(Outcome.FAIL)).select(
        *[F.col(key).alias(f"its_{key}") for key in KEY],
        F.col("value").alias("its_group"),
        F.col("offset").alias("its_offset"),
        F.col("began_ns").alias("its_began_ns"),
        F.when(outcome_is(Outcome.OK), nonzero("ended_ns")).alias("its_ended_ns"),
    )
    same = (
        (F.col("topic") == F.col("its_topic"))
        & (F.col("partition") == F.col("its_partition"))
        & (F.col("value") == F.col("its_group"))
        & (F.col("offset") == F.col("its_offset"))
    )
    in_time = (F.col("ended_ns") == 0) | (F.col("its_began_ns") <= F.col("ended_ns") + error_ns)
    newer = F.col("its_ended_ns").isNull() | (
        F.col("its_ended_ns") + error_ns >= F.col("newest_ns")
    )
    something = F.col("offset") != UNKNOWN
    not_its = read.where(something).join(possible, same & in_time & newer, "left_anti")
    forgotten = read.where(~something & (F.col("newest_ns") >= 0))
    told = F.when(something, F.format_string("offset %d", "offset")).otherwise("nothing")
    detail = F.format_string("%s of group %s was told %s", "process", "value", told)
    return finding(
        not_its.unionByName(forgotten),
        Anomaly.COMMITTED_BACK,
        detail,
        process="process",
        value="value",
        offset="offset",
        seq="seq",
    )


def _diverged(settled: Settled) -> "DataFrame":
    slot = Window.partitionBy(*KEY, "offset").orderBy("seq")
    first = F.first(F.struct("value", "process")).over(slot)
    chains = settled.of_op(Op.CHAIN).withColumn("first", first)
    others = chains.where(F.col("value") != F.col("first.value"))
    detail = F.format_string(
        "up to slot %d: %s on %s, %s on %s",
        *("offset", "first.value", "first.process", "value", "process"),
    )
    return finding(
        others,
        Anomaly.DIVERGED,
        detail,
        process="process",
        value="value",
        offset="offset",
        other_process="first.process",
        other_value="first.value",
        seq="seq",
    )


def _two_masters(settled: Settled) -> "DataFrame":
    masters = F.array_sort(F.collect_set("process"))
    epochs = (
        settled.of_op(Op.MASTER)
        .groupBy(*KEY, "offset")
        .agg(masters.alias("nodes"), F.max("seq").alias("seq"))
    )
    several = epochs.where(F.size("nodes") > 1)
    detail = F.format_string("epoch %d: %s", "offset", F.array_join("nodes", ", "))
    return finding(
        several,
        Anomaly.TWO_MASTERS,
        detail,
        process=F.get("nodes", F.lit(0)),
        other_process=F.get("nodes", F.lit(1)),
        offset="offset",
        seq="seq",
    )
