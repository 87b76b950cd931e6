"""The periods in which the cluster was healthy: a table to join rows with by time.

Time is cut into stretches of trouble and of health, and again into slices of equal length: a row
finds its slice by a division, and within it the one stretch that contains its time. A join by range
alone would compare every row with every stretch.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql import functions as F

from history.trouble import Stretch, Trouble
from pipeline.audit.columns import TIME_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA: Final = "slice long, from_ns long, to_ns long, healed_ns long"


@attrs.frozen
class HealthyPeriods:
    """For a time, when the cluster was last healed before it; null during a fault."""

    table: "DataFrame | None"
    first_ns: int = 0
    last_ns: int = 0
    slice_ns: int = 1

    @classmethod
    def of(cls, spark: "SparkSession", trouble: Trouble) -> "HealthyPeriods":
        stretches = list(trouble.stretches())
        if len(stretches) == 1:
            return cls(None)
        first_ns, last_ns = (int(stretches[at].begin_ns or 0) for at in (1, -1))
        slice_ns = (last_ns - first_ns) // len(stretches) + 1
        rows = list(slices(stretches, first_ns, last_ns, slice_ns))
        return cls(spark.createDataFrame(rows, _SCHEMA), first_ns, last_ns, slice_ns)

    def looked_up(self, rows: "DataFrame", time: str) -> "DataFrame":
        """Adds `healed_ns` for the time in this column: 0 before any fault, null during one."""
        if self.table is None:
            return rows.withColumn("healed_ns", F.lit(0).cast("long"))
        within = F.greatest(F.lit(self.first_ns), F.least(F.lit(self.last_ns), F.col(time)))
        sliced = rows.withColumn("within", within).withColumn(
            "slice", F.expr(f"(within - {self.first_ns}L) DIV {self.slice_ns}L")
        )
        at = (F.col("from_ns") <= F.col(time)) & (F.col(time) < F.col("to_ns"))
        table = F.broadcast(self.table.withColumnRenamed("slice", "its_slice"))
        joined = sliced.join(table, (F.col("slice") == F.col("its_slice")) & at)
        return joined.drop("within", "slice", "its_slice", "from_ns", "to_ns")


def slices(
    stretches: list[Stretch], first_ns: int, last_ns: int, slice_ns: int
) -> Iterator[tuple[int, int, int, int | None]]:
    """Each stretch in each slice that it touches: (slice, from, to, when it was healed).

    Times before `first_ns` belong to the first slice, times after `last_ns` to the last.
    """
    ends: list[int] = [int(one.begin_ns or 0) for one in stretches[1:]]
    bounds = [-TIME_MAX, *ends, TIME_MAX + 1]
    for (begin, end), stretch in zip(pairwise(bounds), stretches, strict=True):
        if begin >= end:
            continue
        low, high = (min(max(at, first_ns), last_ns) for at in (begin, end - 1))
        for number in range((low - first_ns) // slice_ns, (high - first_ns) // slice_ns + 1):
            yield number, begin, end, stretch.healed_ns
