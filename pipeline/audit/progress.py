"""The rules for faults: what processes get done after them, and during them."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from history.anomaly import Anomaly
from history.record import NO_KEY, Op, Outcome
from pipeline.audit.columns import outcome_is
from pipeline.audit.findings import finding
from pipeline.audit.healthy_periods import HealthyPeriods
from pipeline.audit.settled import Settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stuck(settled: Settled) -> "DataFrame | None":
    """The processes that sent after the last healing and got nothing acknowledged since; None if
    nothing was ever healed."""
    healed_ns = settled.trouble.healed_ns()
    if not healed_ns:
        return None
    tried = F.col("began_ns") > healed_ns
    served = outcome_is(Outcome.OK) & (F.col("ended_ns") > healed_ns)
    first = F.min_by(F.struct("value", "seq"), F.struct("began_ns", "seq"))
    of_each = (
        settled.every(Op.SEND)
        .where(tried | served)
        .groupBy("process")
        .agg(F.bool_or(served).alias("served"), first.alias("first"))
    )
    found = of_each.where(~F.col("served")).select(
        F.lit(NO_KEY.topic).alias("topic"),
        F.lit(NO_KEY.partition).cast("long").alias("partition"),
        "process",
        "first.*",
    )
    detail = F.format_string("%s sent %s and more after it", "process", "value")
    shown = {"process": "process", "value": "value", "seq": "seq"}
    return finding(found, Anomaly.STUCK, detail, time_ns=F.lit(healed_ns), **shown)


def acknowledged_during_faults(settled: Settled, calm: HealthyPeriods) -> int:
    if calm.table is None:
        return 0
    done = settled.of_op(Op.SEND)
    return int(calm.looked_up(done, "ended_ns").where(F.col("healed_ns").isNull()).count())
