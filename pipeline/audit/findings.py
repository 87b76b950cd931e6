"""One row for each finding, and the report made from them."""

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from history.anomaly import DETAIL_CHARS_MAX, EXAMPLES_MAX, Anomaly, Finding, Tally, Verdict
from history.record import Key
from pipeline.audit.columns import KEY

if TYPE_CHECKING:
    from pyspark.sql import Column

EVIDENCE: Final = {
    "process": "string",
    "value": "string",
    "offset": "bigint",
    "other_process": "string",
    "other_value": "string",
    "other_offset": "bigint",
    "missing": "bigint",
    "time_ns": "bigint",
    "seq": "bigint",
}
"""The evidence a finding may show; docs/spark.md says what it means for each anomaly."""


def finding(
    of: DataFrame,
    anomaly: "Anomaly | Column",
    detail: "Column",
    *,
    verdict: "Verdict | Column" = Verdict.BAD,
    **evidence: "Column | str",
) -> DataFrame:
    """The rows of `of` as findings. `evidence` names columns or gives them; others are null."""
    shown = {
        name: F.col(given) if isinstance(given, str) else given for name, given in evidence.items()
    }
    return of.select(
        _named(anomaly).alias("anomaly"),
        _named(verdict).alias("verdict"),
        *KEY,
        F.substring(detail, 1, DETAIL_CHARS_MAX).alias("detail"),
        *[shown.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in EVIDENCE.items()],
    )


def _named(kind: "Anomaly | Verdict | Column") -> "Column":
    return F.lit(str(kind)) if isinstance(kind, str) else kind


def together(findings: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, findings)


def tallies(findings: DataFrame) -> dict[tuple[Anomaly, Verdict], Tally]:
    """How often, and a few examples: the first in order."""
    alike = Window.partitionBy("anomaly", "verdict")
    first = alike.orderBy("topic", "partition", "file", "line", "detail")
    counted = findings.groupBy("anomaly", "verdict").count().collect()
    found = {
        (Anomaly(anomaly), Verdict(verdict)): Tally(count) for anomaly, verdict, count in counted
    }
    examples = (
        findings.withColumn("nth", F.row_number().over(first))
        .where(F.col("nth") <= EXAMPLES_MAX)
        .orderBy("anomaly", "verdict", "nth")
        .select("anomaly", "verdict", *KEY, "detail")
    )
    for row in examples.collect() if found else ():
        one = _finding(*row)
        found[one.anomaly, one.verdict].examples.append(one)
    order = list(Anomaly)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0][0])))


def _finding(anomaly: str, verdict: str, topic: str, partition: int, detail: Any) -> Finding:  # noqa: ANN401
    return Finding(Anomaly(anomaly), Verdict(verdict), Key(topic, partition), str(detail))
