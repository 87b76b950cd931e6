"""`evenkeel history check FILE...`: checks whether a log could have produced what clients saw."""

import argparse
import json
from itertools import chain
from pathlib import Path
from typing import Any

from cluster.recorder import read_history
from history.checker import check
from history.jsonl import HistoryError
from history.known import Options
from history.record import Op


def add_options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    text = "look for anomalies; exit with 1 where there is a bad one"
    examine = actions.add_parser("check", help=text, description=text + ".")
    examine.set_defaults(do=run_check)
    examine.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="parts of one history, as JSON lines (docs/history.md)",
    )
    examine.add_argument("--json", action="store_true", help="for programs")
    examine.add_argument(
        "--not-idempotent",
        action="store_true",
        help="its producers were not idempotent: a value may be stored twice",
    )
    examine.add_argument(
        "--clock-error-ms",
        type=_not_negative,
        default=0.0,
        metavar="MS",
        help="how far the clocks of its processes may differ (0)",
    )
    examine.add_argument(
        "--lag-ms-max",
        type=_not_negative,
        metavar="MS",
        help="longest lag of a reader that is allowed while there is no fault",
    )


def _not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a duration")
    return number


def run_check(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """0 if the history is clean, else 1.

    Raises:
        HistoryError: if a file is not a history, or there is nothing to judge in it.
    """
    history = list(chain.from_iterable(map(read_history, options.files)))
    if not any(one.op not in (Op.FAULT, Op.HEAL) for one in history):
        raise HistoryError(f"nothing to judge in {', '.join(map(str, options.files))}")
    report = check(history, promised(options))
    print(json.dumps(report.to_json(), indent=2) if options.json else report.summary())
    return 0 if report.clean else 1


def promised(options: Any) -> Options:  # noqa: ANN401 (argparse's)
    """What was promised, according to the command line."""
    lag_ms: float | None = options.lag_ms_max
    return Options(
        idempotent=not options.not_idempotent,
        clock_error_ns=round(options.clock_error_ms * 1e6),
        lag_ns_max=None if lag_ms is None else round(lag_ms * 1e6),
    )
