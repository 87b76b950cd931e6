"""`python -m benchmarks.studies.spark`: the cost of a row through Spark, and of a micro-batch.

Three real nodes with fsync on this machine, local[2], and a plain confluent-kafka client beside it
on the same topics in the same run:

* `read`      a topic into nothing (Spark's noop sink), against a consumer that takes every message;
* `overhead`  micro-batches of a thousand rows from 1, 2, 4 and 8 partitions into nothing: the time
              a trigger takes, and how much of it the tasks take.

CPU seconds are those of the driver's JVM and of all Python processes that it has started, including
ended ones. They can be compared even on a machine that others use; rates cannot.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks.load.usage import PROC, TICKS_PER_S
from benchmarks.report.environment import ROOT, describe
from benchmarks.target import NODES, fresh_cluster
from cluster import state
from cluster.workload import create_topic

RESULTS_DIR: Final = Path("bench-results")
GROUPS: Final = 12
PARTITIONS: Final = 4
SIZES: Final = (100, 1000)
ROUNDS: Final = 3
BATCHES: Final = 30
BATCH_ROWS: Final = 1_000
OVERHEAD_PARTITIONS: Final = (1, 2, 4, 8)
CONSUMED_AT_ONCE: Final = 10_000
WAIT_S: Final = 60.0
PLAIN: Final = {
    "enable.auto.commit": False,
    "group.id": "benchmark",
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 128 * 1024,
    "fetch.message.max.bytes": 8 * 1024 * 1024,
    "fetch.queue.backoff.ms": 1,
}
"""As fast as we know to make it."""


Session: TypeAlias = Any
"""A SparkSession: pyspark is imported only when the JVM is needed, and has no types here."""
Figures: TypeAlias = dict[str, Any]
"""A line of a table, by column."""


@attrs.frozen
class Cost:
    """Of one pass over some rows."""

    seconds: float
    jvm_s: float
    python_s: float

    @property
    def cpu_s(self) -> float:
        return self.jvm_s + self.python_s


class NothingToCompare(RuntimeError):
    """A client did not do what was asked of it."""


# -- what it costs --------------------------------------------------------------------------------


def tree_cpu_s(pid: int) -> tuple[float, float]:
    """CPU seconds so far: of a process itself, and of all that it has started, including ended
    ones.

    An ended process counts with the one that waited for it: each process's share is what it spent
    and what its ended children had spent.
    """
    own = children = 0.0
    for one in _tree(pid):
        try:
            text = (PROC / str(one) / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = text.rpartition(")")[2].split()
        spent = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        of_dead = (int(fields[13]) + int(fields[14])) / TICKS_PER_S
        if one == pid:
            own += spent
        else:
            children += spent
        children += of_dead
    return own, children


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        listed = (PROC / str(pid) / "task").glob("*/children")
        children = [int(word) for one in listed for word in one.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from _tree(child)


def through_spark(spark: Session, work: Callable[[], None]) -> Cost:
    """What `work` takes of this session's JVM and of its Python processes."""
    pid = spark.sparkContext._gateway.proc.pid
    jvm, python = tree_cpu_s(pid)
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    jvm_after, python_after = tree_cpu_s(pid)
    return Cost(seconds, jvm_after - jvm, python_after - python)


def here(work: Callable[[], None]) -> Cost:
    """What `work` takes of this process."""
    began, cpu = time.monotonic(), time.process_time()
    work()
    return Cost(time.monotonic() - began, 0.0, time.process_time() - cpu)


def typical(costs: Sequence[Cost]) -> Cost:
    """Medians."""
    return Cost(
        *(statistics.median(column) for column in zip(*map(attrs.astuple, costs), strict=True))
    )


# -- a plain client -------------------------------------------------------------------------------


def produce(bootstrap: str, topic: str, partitions: int, rows: int, size: int) -> None:
    """This many messages with random values, dealt out in turn.

    Raises:
        NothingToCompare: some were refused.
    """
    failures: list[KafkaError] = []

    def told(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": told,
        }
    )
    values = [random.Random(n).randbytes(size) for n in range(97)]
    for n in range(rows):
        while True:
            try:
                producer.produce(topic, values[n % 97], partition=n % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(WAIT_S) or failures:
        raise NothingToCompare(f"{topic}: not all messages were taken: {failures[:3]}")


def consume(bootstrap: str, topic: str, partitions: int, rows: int, size: int) -> None:
    """Take every message's value.

    Raises:
        NothingToCompare: there are fewer messages.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, **PLAIN})
    consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
    count = total = 0
    while count < rows:
        messages = consumer.consume(min(CONSUMED_AT_ONCE, rows - count), WAIT_S)
        if not messages:
            raise NothingToCompare(f"{topic}: {count} of {rows} messages")
        for message in messages:
            total += len(message.value() or b"")
        count += len(messages)
    consumer.close()
    if total != rows * size:
        raise NothingToCompare(f"{topic}: {total} bytes instead of {rows * size}")


# -- Spark ----------------------------------------------------------------------------------------


@contextmanager
def session(folder: Path) -> Iterator[Session]:
    """local[2] with the settings of a small job; nothing of it is tuned for benchmarks."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@attrs.frozen
class Bench:
    """What a section measures with; `spark` is a SparkSession."""

    spark: Session
    bootstrap: str
    folder: Path
    options: argparse.Namespace

    def topic(self, name: str, partitions: int) -> str:
        create_topic(self.bootstrap, name, partitions=partitions, replication=NODES)
        return name

    def told(self, **options: str) -> dict[str, str]:
        """Options of source and sink."""
        return {"bootstrap.servers": self.bootstrap, **options}

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def rate(what: str, rows: int, size: int, cost: Cost) -> Figures:
    """A line of the table of rates."""
    million = rows / 1e6
    return {
        "what": what,
        "bytes": size,
        "rows": rows,
        "rows/s": round(rows / cost.seconds),
        "MB/s": round(rows * size / cost.seconds / 1e6, 1),
        "CPU s/Mrow": round(cost.cpu_s / million, 2),
        "of it JVM": round(cost.jvm_s / million, 2),
        "Python": round(cost.python_s / million, 2),
    }


def read(bench: Bench) -> list[Figures]:
    """Topics into nothing, and by a plain consumer, in turn."""
    figures = []
    for size in SIZES:
        rows = bench.options.megabytes * 1_000_000 // size
        topic = bench.topic(f"read-{size}", PARTITIONS)
        bench.say(f"read: {rows:,} messages of {size} B are produced")
        produce(bench.bootstrap, topic, PARTITIONS, rows, size)

        def into_nothing(topic: str = topic, **options: str) -> None:
            told = bench.told(subscribe=topic, **options)
            frame = bench.spark.read.format("evenkeel").options(**told).load()
            frame.write.format("noop").mode("overwrite").save()

        plain = partial(consume, bench.bootstrap, topic, PARTITIONS, rows, size)
        into_nothing()
        costs: dict[str, list[Cost]] = {"Spark": [], "plain consumer": []}
        for number in range(bench.options.rounds):
            bench.say(f"read: {size} B, round {number + 1}")
            costs["Spark"].append(through_spark(bench.spark, into_nothing))
            costs["plain consumer"].append(here(plain))
        figures += [rate(what, rows, size, typical(found)) for what, found in costs.items()]
    return figures


def overhead(bench: Bench) -> list[Figures]:
    """Micro-batches of few rows, from more and more partitions."""
    figures = []
    for partitions in OVERHEAD_PARTITIONS:
        topic = bench.topic(f"overhead-{partitions}", partitions)
        produce(bench.bootstrap, topic, partitions, BATCHES * BATCH_ROWS, SIZES[0])
        bench.say(f"overhead: {BATCHES} micro-batches from {partitions} partitions")
        progress: list[dict[str, Any]] = []
        cost = through_spark(bench.spark, partial(_micro_batches, bench, topic, progress))
        took = [one["durationMs"] for one in progress[len(progress) // 3 :]]
        if len(progress) != BATCHES:
            raise NothingToCompare(f"{topic}: {len(progress)} micro-batches")
        figures.append(
            {
                "partitions": partitions,
                "trigger ms": statistics.median(one["triggerExecution"] for one in took),
                "least": min(one["triggerExecution"] for one in took),
                "of it tasks": statistics.median(one["addBatch"] for one in took),
                "latestOffset": statistics.median(one["latestOffset"] for one in took),
                "CPU ms JVM": round(1000 * cost.jvm_s / BATCHES),
                "Python": round(1000 * cost.python_s / BATCHES),
            }
        )
    return figures


def _micro_batches(bench: Bench, topic: str, progress: list[dict[str, Any]]) -> None:
    told = bench.told(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH_ROWS)
    )
    frame = bench.spark.readStream.format("evenkeel").options(**told).load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(bench.folder / topic)).start()
    query.awaitTermination()
    progress.extend(query.recentProgress)


SECTIONS: Final[dict[str, Callable[[Bench], list[Figures]]]] = {"read": read, "overhead": overhead}


# -- from the command line ------------------------------------------------------------------------


def table(figures: Sequence[Figures]) -> str:
    """In columns as wide as they need to be."""
    rows = [
        list(figures[0]),
        *(
            [f"{value:,}" if isinstance(value, int) else str(value) for value in one.values()]
            for one in figures
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(word.rjust(width) for word, width in zip(row, widths, strict=True))
        for row in rows
    )


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.spark",
        description="What a row costs through Spark, beside a plain client on the same topics.",
    )
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument(
        "--megabytes", type=int, default=200, help="of each topic (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result is kept")
    return parser.parse_args(arguments)


def measure(bootstrap: str, options: argparse.Namespace) -> dict[str, list[Figures]]:
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-spark-"))
    try:
        with session(folder) as spark:
            bench = Bench(spark, bootstrap, folder, options)
            return {name: SECTIONS[name](bench) for name in options.sections}
    finally:
        shutil.rmtree(folder)


async def on_a_fresh_cluster(options: argparse.Namespace) -> dict[str, Any]:
    context = describe(state.DEFAULT_DATA_DIR)
    async with fresh_cluster(groups=GROUPS, overrides=(), say=print) as target:
        figures = await trio.to_thread.run_sync(measure, target.bootstrap, options)
    return {**context, "pyspark": metadata.version("pyspark"), "figures": figures}


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = options_of(arguments)
    result = trio.run(on_a_fresh_cluster, options)
    result["command"] = ["python", "-m", "benchmarks.studies.spark", *arguments]
    path = options.json or RESULTS_DIR / f"spark-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name in options.sections:
        print(f"\n{name}\n{table(result['figures'][name])}")
    load = ", ".join(f"{one:.1f}" for one in result["machine"]["load_average"])
    print(f"\nload average before: {load}; kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
