"""`evenkeel spark JOB ...`: the jobs of `python -m pipeline`, also where the wheel is installed.

They need Spark and the wheel `pyspark_evenkeel` (docs/spark.md), so they are programs of their own.
"""

import argparse
from typing import Any, NoReturn

from cluster.programs import become


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "the job and its options; without any, all jobs are listed"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="JOB ...", help=text)


def run(options: Any) -> NoReturn:  # noqa: ANN401 (argparse's)
    become("pipeline", *(options.words or ["--help"]))
