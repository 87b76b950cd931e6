"""The command line of the placement job.

As a stream it runs until it is stopped, and publishes weights whenever a time window has closed.
`--once` computes one time, on Spark or (`--no-spark`) without, and shows what the balancer would
do. Each decision is a line on standard output, and a record of `--decisions` if that is given;
everything else is progress, on standard error.
"""

import argparse
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

from balancer.registry.load import LOAD_TOPIC
from pipeline.bus import add_bus_options, bus_options
from pipeline.placement.admin import DEFAULT_PORT, Nodes, endpoints_of
from pipeline.placement.logic import Rules, Timing, closed_until_ms, group_costs, measure_of
from pipeline.placement.outlook import in_words
from pipeline.placement.publishing import SOURCE, Decision, Publisher
from pipeline.session import add_session_options, say, start

T = TypeVar("T")

HELP = "weights of groups from the cluster's load reports, published for the balancer"
DONE: Final = 0
NOT_DONE: Final = 1
EPILOG: Final = """\
With --json a decision is {as_of_ms, outcome, why, weights: {group: thousandths of an average one},
unknown: [group], moves: [{group, source, target, reason}], ratio_now, ratio_planned, balancer}; a
record of --decisions has the same. docs/spark.md explains it.

exit codes: 0 published, or would have been; or stopped by Ctrl-C or SIGTERM. 1 not published, or
the query failed, and it says why. 2 wrong arguments
"""
TASKS: Final = 2
"""Of each step on Spark: there are as many rows as groups, and a task costs more than its rows."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def parser() -> argparse.ArgumentParser:
    timing, rules = Timing(), Rules()
    found = argparse.ArgumentParser(
        "pipeline placement",
        description=f"{HELP[0].upper()}{HELP[1:]}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add(
        "--http",
        type=_checked(endpoints_of),
        default=f"127.0.0.1:{DEFAULT_PORT}",
        metavar="HOST:PORT,...",
        help="HTTP sides of nodes (listen.http), tried in turn; default %(default)s",
    )
    add("--once", action="store_true", help="compute one time, show the plan, change nothing")
    add("--no-spark", action="store_true", help="with --once: without Spark and Java")
    add("--publish", action="store_true", help="with --once: publish the weights as well")
    add("--dry-run", action="store_true", help="without --once: publish nothing")
    add("--json", action="store_true", help="decisions as JSON")
    add("--explain", action="store_true", help="with --once: also groups that stay, and why")
    add("--source", default=SOURCE, help="name of these weights in the registry (%(default)s)")
    add("--decisions", metavar="TOPIC", help="write every decision to this topic as well")
    add("--checkpoint", metavar="DIR", help="keep Spark's state; default: for this run")
    add("--every", type=float, default=10, metavar="S", help="between micro-batches (%(default)s)")
    add("--tasks", type=int, default=TASKS, metavar="N", help="of each step (%(default)s)")
    add(
        "--measure",
        type=_checked(measure_of),
        default="mean",
        help="what stands for a group's costs over the past: mean, or a percentile like p95",
    )
    for name, seconds, text in (
        ("window", timing.window_s, "length of a time window"),
        ("slide", timing.slide_s, "from one time window's beginning to the next one's"),
        ("past", timing.past_s, "how much of the past counts"),
        ("lateness", timing.lateness_s, "a report that is later is dropped"),
        ("stale", rules.stale_s_max, "weights as of longer ago are not published"),
    ):
        add(f"--{name}", type=int, default=seconds, metavar="S", help=f"{text} ({seconds} s)")
    add(
        "--windows-min",
        type=int,
        default=rules.windows_min,
        metavar="N",
        help="costs from fewer time windows are not used (%(default)s)",
    )
    add_bus_options(found)
    add_session_options(found)
    return found


def _checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Makes argparse show the message of a ValueError."""

    def checked(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def main(argv: Sequence[str]) -> int:
    """The exit codes are DONE and the others."""
    found = parser()
    options = found.parse_args(argv)
    if not options.once and (options.no_spark or options.publish):
        found.error("--no-spark and --publish go with --once")
    if options.no_spark and options.decisions:
        found.error("--decisions is written by Spark: leave --no-spark out")
    if options.every <= 0 or options.tasks <= 0:
        found.error("--every and --tasks must be more than 0")
    try:
        timing = Timing(
            window_s=options.window,
            slide_s=options.slide,
            past_s=options.past,
            lateness_s=options.lateness,
        )
    except ValueError as error:
        found.error(str(error))
    publisher = Publisher(
        nodes=Nodes(options.http),
        rules=Rules(windows_min=options.windows_min, stale_s_max=options.stale),
        now_ms=now_ms,
        source=options.source,
        dry=not options.publish if options.once else options.dry_run,
    )
    if options.no_spark:
        return _without_spark(options, timing, publisher)
    return _on_spark(options, timing, publisher)


def _tell(options: argparse.Namespace, decision: Decision) -> None:
    print(json.dumps(decision.to_json()) if options.json else decision, flush=True)
    if options.once and not options.json and decision.outlook is not None:
        print(f"\n{in_words(decision.outlook, explain=options.explain)}", flush=True)


# --- without Spark -------------------------------------------------------------------------------


def _without_spark(options: argparse.Namespace, timing: Timing, publisher: Publisher) -> int:
    from pipeline.placement.reading import read_reports
    from pyspark_evenkeel.errors import EvenkeelSparkError
    from pyspark_evenkeel.options import parse_source

    given = {**bus_options(options), "subscribe": LOAD_TOPIC}
    try:
        settings = parse_source(given, streaming=False).cluster
        reports, tally = read_reports(settings, now_ms(), timing)
    except EvenkeelSparkError as error:
        say(str(error))
        return NOT_DONE
    say(str(tally))
    if not reports:
        say("the load topic has no reports of the past: do the nodes report?")
        return NOT_DONE
    until_ms = closed_until_ms(max(one.wall_ms for one in reports), timing)
    costs = group_costs(reports, until_ms, timing, options.measure)
    decision = publisher.decide(costs, until_ms)
    _tell(options, decision)
    return DONE if decision.went_well else NOT_DONE


# --- on Spark ------------------------------------------------------------------------------------


def _on_spark(options: argparse.Namespace, timing: Timing, publisher: Publisher) -> int:
    from pyspark.errors import StreamingQueryException

    from pipeline.placement.stream import Computation, Decisions

    with ExitStack() as stack:
        session = start("placement", options)
        stack.callback(session.stop)
        stop = _stop_on_signal()
        session.conf.set("spark.sql.shuffle.partitions", str(options.tasks))
        checkpoint = options.checkpoint
        if checkpoint is None:
            checkpoint = stack.enter_context(tempfile.TemporaryDirectory(prefix="placement-"))
        connection = bus_options(options)
        topic = options.decisions
        computation = Computation(
            timing=timing,
            measure=options.measure,
            publisher=publisher,
            tell=partial(_tell, options),
            note=None if topic is None else Decisions(connection, topic, options.source),
        )
        source = computation.source(session, connection, now_ms())
        query = computation.begin(source, checkpoint, None if options.once else options.every)
        try:
            computation.watch(query, say, stop)
        except StreamingQueryException as error:
            say(f"placement: {error}")
            return NOT_DONE
    if stop.is_set():
        say("stopped")
        return DONE
    last = computation.last
    return DONE if last is not None and last.went_well else NOT_DONE


def _stop_on_signal() -> threading.Event:
    """Set by Ctrl-C and SIGTERM. On Ctrl-C PySpark itself calls the JVM at once, even from within
    another call to it, and fails at that."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
