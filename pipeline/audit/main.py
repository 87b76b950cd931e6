"""`python -m pipeline audit FILE...`: checks whether logs could have shown this to clients, for
histories of any size."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from history.jsonl import HistoryError
from history.known import Options
from pipeline.session import add_session_options, say, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.audit.audit import Audited

HELP: Final = "look for anomalies in a history of any size; exit code 1 if there is a bad one"
BAD: Final = 1


def main(argv: Sequence[str]) -> int:
    """Audit; returns 0 if the history is clean, 1 if it is not, or is not a history."""
    options = parser().parse_args(argv)
    spark = start("audit", options)
    try:
        return run(spark, options)
    except HistoryError as error:
        print(f"audit: {error}", file=sys.stderr)
        return BAD
    finally:
        spark.stop()


def run(spark: "SparkSession", options: argparse.Namespace) -> int:
    """Audit in an existing session.

    Raises:
        HistoryError: the files are not a history.
    """
    from pipeline.audit.audit import audit

    found = audit(spark, options.files, promised(options), say)
    if options.output:
        write(spark, found, options.output, options.table)
    report = found.report
    print(as_json(report.to_json()) if options.json else report.summary())
    return 0 if report.clean else BAD


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m pipeline audit", description=HELP + ".")
    found.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="parts of one history (docs/history.md): JSON lines, or parquet if the name ends "
        "in .parquet; files, folders, patterns, or what Spark can read",
    )
    found.add_argument("--json", action="store_true", help="for programs")
    found.add_argument(
        "--output",
        metavar="DIR",
        help="write tables DIR/findings and DIR/partitions, and DIR/report; replaces existing ones",
    )
    found.add_argument(
        "--table",
        choices=("parquet", "json"),
        default="parquet",
        help="format of the tables of --output (parquet)",
    )
    found.add_argument(
        "--not-idempotent",
        action="store_true",
        help="its producers were not idempotent: a value may be stored twice",
    )
    found.add_argument(
        "--clock-error-ms",
        type=_not_negative,
        default=0.0,
        metavar="MS",
        help="how far the clocks of its processes may differ (0)",
    )
    found.add_argument(
        "--lag-ms-max",
        type=_not_negative,
        metavar="MS",
        help="a reader that is further behind, while there is no fault, is bad",
    )
    add_session_options(found)
    return found


def _not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a length of time")
    return number


def promised(options: argparse.Namespace) -> Options:
    lag_ms: float | None = options.lag_ms_max
    return Options(
        idempotent=not options.not_idempotent,
        clock_error_ns=round(options.clock_error_ms * 1e6),
        lag_ns_max=None if lag_ms is None else round(lag_ms * 1e6),
    )


def write(spark: "SparkSession", found: "Audited", folder: str, table: str) -> None:
    """Write through Spark, which knows more places than this machine's disks. The report is written
    last: if it exists, the tables are complete."""
    report = spark.createDataFrame([(as_json(found.report.to_json()),)], "value string")
    empty = report.limit(0)
    empty.write.mode("overwrite").text(f"{folder}/report")
    for name, frame in (("findings", found.findings), ("partitions", found.partitions)):
        frame.coalesce(1).write.mode("overwrite").format(table).save(f"{folder}/{name}")
    report.coalesce(1).write.mode("overwrite").text(f"{folder}/report")


def as_json(value: Any) -> str:  # noqa: ANN401
    return json.dumps(value, indent=2)
