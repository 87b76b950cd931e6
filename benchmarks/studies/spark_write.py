"""`python -m benchmarks.studies.spark_write`: writing a topic from Spark, against a plain client.

Three real nodes with fsync, and the same rows each time, keyed, each with a number and padding:

* `evenkeel`   df.write.format("evenkeel"), exactly once, local[2]
* `noop`       the same DataFrame into nothing: what making its rows costs
* `confluent`  confluent-kafka's idempotent producer in one Python process

Rates say little on a shared machine; CPU seconds for a million rows, of the writing side (Spark's
JVM with its workers, or the client's process) and of the nodes, hardly change with the load.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs
import trio
from confluent_kafka import Producer

from benchmarks.load.usage import cpu_s
from benchmarks.report.environment import ROOT, describe
from benchmarks.studies.spark import tree_cpu_s
from cluster import workload
from cluster.launcher import launch
from cluster.spec import plan

TOPIC: Final = "written"
PARTITIONS: Final = 8
KEY_BYTES: Final = 8
FLUSH_S: Final = 120.0
WARM_ROWS: Final = 20_000


@attrs.frozen
class Figures:
    rows_per_s: float
    megabytes_per_s: float
    client_cpu_s: float
    """For a million rows."""
    nodes_cpu_s: float
    """For a million rows, of all nodes together."""


def family_cpu_s(root: int) -> float:
    """CPU time so far of a process and of all that it has started, including ended ones."""
    return sum(tree_cpu_s(root))


def measured(
    work: Callable[[], None],
    client: Callable[[], float],
    nodes: Sequence[int],
    rows: int,
    size: int,
) -> Figures:
    client_before, nodes_before = client(), sum(map(cpu_s, nodes))
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    millions = rows / 1e6
    return Figures(
        rows / seconds,
        rows * size / seconds / 1e6,
        (client() - client_before) / millions,
        (sum(map(cpu_s, nodes)) - nodes_before) / millions,
    )


def write_with_spark(
    spark: Any,  # noqa: ANN401 (a SparkSession)
    bootstrap: str,
    form: str,
    size: int,
    rows: int,
) -> None:
    from pyspark.sql import functions as sf

    number = sf.col("id").cast("string")
    frame = spark.range(0, rows, numPartitions=2).select(
        sf.lpad((sf.col("id") % 100_000).cast("string"), KEY_BYTES, "k").alias("key"),
        sf.concat(sf.lpad(number, 12, "0"), sf.lit("." * (size - KEY_BYTES - 12))).alias("value"),
    )
    writing = frame.write.format(form).mode("append")
    if form == "evenkeel":
        writing = writing.option("bootstrap.servers", bootstrap).option("topic", TOPIC)
        writing = writing.option("delivery", "exactly-once")
    writing.save()


def write_with_client(bootstrap: str, size: int, rows: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.size": 1_000_000,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    pad = b"." * (size - KEY_BYTES - 12)
    for number in range(rows):
        key = b"%0*d" % (KEY_BYTES, number % 100_000)
        while True:
            try:
                producer.produce(TOPIC, b"%012d" % number + pad, key)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(FLUSH_S)
    assert not left, f"{left} messages without an answer"


def local_spark(heap: str) -> Any:  # noqa: ANN401 (a SparkSession)
    """Workers import what this process runs."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    builder = builder.config("spark.driver.memory", heap).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def compare(
    bootstrap: str, nodes: Sequence[int], options: argparse.Namespace
) -> dict[str, list[Figures]]:
    """By writer and size, a figure for each round; the writers take turns."""
    spark = local_spark(options.heap)
    driver = spark.sparkContext._gateway.proc.pid
    found: dict[str, list[Figures]] = {}
    try:
        for size in options.sizes:
            rows = max(WARM_ROWS, options.megabytes * 1_000_000 // size)
            work: Mapping[str, tuple[Callable[[int], None], Callable[[], float]]] = {
                form: (
                    partial(write_with_spark, spark, bootstrap, form, size),
                    partial(family_cpu_s, driver),
                )
                for form in ("evenkeel", "noop")
            } | {"confluent": (partial(write_with_client, bootstrap, size), time.process_time)}
            for write, _ in work.values():
                write(WARM_ROWS)
            for _ in range(options.rounds):
                for name, (write, client) in work.items():
                    one = measured(partial(write, rows), client, nodes, rows, size)
                    found.setdefault(f"{name} {size:,} B", []).append(one)
    finally:
        spark.stop()
    return found


def table(found: Mapping[str, Sequence[Figures]]) -> str:
    """Medians of all rounds."""
    lines = [
        f"{'':20}{'rows/s':>12}{'MB/s':>8}{'client CPU-s/Mrow':>20}{'nodes CPU-s/Mrow':>19}",
    ]
    for name, figures in found.items():
        middle = [median(column) for column in zip(*map(attrs.astuple, figures), strict=True)]
        lines.append(
            f"{name:20}{middle[0]:>12,.0f}{middle[1]:>8.1f}{middle[2]:>20.2f}{middle[3]:>19.2f}"
        )
    return "\n".join(lines)


async def measure(directory: Path, options: argparse.Namespace) -> dict[str, list[Figures]]:
    spec, _ = plan(directory, node_count=3, groups=PARTITIONS, fixed_ports=False)
    async with launch(spec) as cluster:
        await cluster.start_all()
        create = partial(
            workload.create_topic, spec.bootstrap, TOPIC, partitions=PARTITIONS, replication=3
        )
        await trio.to_thread.run_sync(create)
        pids = [cluster.pid_of(node.id) for node in spec.nodes]
        return await trio.to_thread.run_sync(partial(compare, spec.bootstrap, pids, options))


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.spark_write", description=__doc__
    )
    parser.add_argument("--megabytes", type=int, default=100, help="written in each round")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="bytes of a row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--heap", default="2g", help="of Spark's JVM")
    return parser.parse_args(arguments)


def main() -> int:
    options = options_of(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="evenkeel-spark-write-") as directory:
        data = Path(directory) / "data"
        data.mkdir()
        machine = describe(data)
        found = trio.run(measure, data, options)
    print(table(found))
    result = {
        "machine": machine,
        "options": vars(options),
        "figures": {name: [attrs.asdict(one) for one in each] for name, each in found.items()},
    }
    print(json.dumps(result, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
