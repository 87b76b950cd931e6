"""The Spark session of a job, and how a job reports a query's progress.

A job started by plain `python -m pipeline` gets a session of its own, local[*] by default. Under
spark-submit its options apply; only options that are not set are set here.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

Say: TypeAlias = Callable[[str], None]
"""Prints a line for the user."""

FOLDER: Final = Path(__file__).resolve().parents[__name__.count(".")]
"""Where the outermost package is: in a checkout, or where the wheel is installed (ADR 59)."""
LOOK_EVERY_S: Final = 0.5
"""How often a running query is asked for its progress."""
ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sasl[.]jaas[.]config",
}
ON_THIS_MACHINE: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
}
"""For a local master: nothing else connects, and the driver is the only executor."""


def say(line: str) -> None:
    """Print progress to stderr: a job's results may go to stdout."""
    print(line, file=sys.stderr, flush=True)


def add_session_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        help="Spark's master, like local[4] or spark://host:7077 "
        "(default: what spark-submit says, else local[*])",
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a Spark setting, like spark.driver.memory=4g; may be repeated",
    )


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not like spark.driver.memory=4g")
    return key, value


def settings(options: argparse.Namespace, *, submitted: Mapping[str, str] | None) -> dict[str, str]:
    """The options to set, given the user's and those of spark-submit (None if it was not used)."""
    said: dict[str, str] = dict(submitted or {})
    if options.master is not None:
        said["spark.master"] = options.master
    said.update(options.conf)
    ours = dict(ALWAYS)
    if said.get("spark.master", "local[*]").startswith("local["):
        ours |= ON_THIS_MACHINE
    return {**ours, **said}


def start(job: str, options: argparse.Namespace) -> "SparkSession":
    """The job's session; `options` are those of `add_session_options`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    share_our_path()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    submitted = None
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has already started a JVM
        submitted = dict(SparkConf().getAll())
    builder = SparkSession.builder.appName(f"evenkeel {job}")
    for key, value in settings(options, submitted=submitted).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def share_our_path() -> None:
    """Let workers on this machine import what we import: a checkout is not installed anywhere."""
    here = str(FOLDER)
    path = os.environ.get("PYTHONPATH", "")
    if here not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, path)))


def follow(query: "StreamingQuery", tell: Say = say) -> None:
    """Report every micro-batch until the query ends. Ctrl-C ends it between two batches' commits; a
    batch in progress is repeated at the next start.

    Raises:
        StreamingQueryException: if the query has failed.
    """
    last = -1
    try:
        running = True
        while running:
            running = not query.awaitTermination(LOOK_EVERY_S)
            for progress in query.recentProgress:
                if progress["batchId"] > last and progress["numInputRows"]:
                    last = progress["batchId"]
                    tell(progress_line(progress))
    finally:
        query.stop()


def progress_line(progress: Mapping[str, Any]) -> str:
    """One micro-batch in words, with how far it is behind its sources, if they say."""
    rows = progress["numInputRows"]
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    speed = f" ({rows / seconds:,.0f}/s)" if seconds else ""
    return f"batch {progress['batchId']}: {rows:,} rows in {seconds:.1f} s{speed}"
