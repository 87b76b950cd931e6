"""The data source in a session: Spark finds it, plans with it, and runs its micro-batches again.

Everything that can be tested by calling the reader's methods is in tests/pyspark_evenkeel.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from pyspark.testing import assertSchemaEqual

from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.spark.bus import WAIT_S, Bus, OurBus, Row
from tests.spark.conftest import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

BEGAN_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_PARTITION = 120
KAFKA_S_OWN = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers",
            ArrayType(
                StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            ),
        ),
    ]
)


def read(spark: Any, kafka: Bus, topic: str, **options: str) -> Any:
    return _with(spark.read, kafka, topic, options).load()


def _with(reader: Any, kafka: Bus, topic: str, options: dict[str, str]) -> Any:
    told = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **options}
    return reader.format("evenkeel").options(**told)


class Query:
    """A query that copies topics into parquet files; each run stops at the logs' present ends."""

    def __init__(self, spark: Any, kafka: Bus, topic: str, folder: Path, **options: str) -> None:
        self._spark, self._kafka, self._topic = spark, kafka, topic
        self.options = {"startingOffsets": "earliest", **options}
        self.folder = folder
        self.checkpoint = folder / "checkpoint"

    def start(self) -> Any:
        rows = _with(self._spark.readStream, self._kafka, self._topic, self.options).load()
        writer = rows.writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.start(str(self.folder / "rows"))

    def run(self) -> list[int]:
        """How many rows each micro-batch of this run had."""
        return ended(self.start())

    def uncommit(self, batch: int) -> None:
        """As if the driver had died before the sink or the checkpoint committed that micro-batch,
        the last one: its files are there, and nothing refers to them."""
        for log in (self.checkpoint / "commits", self.folder / "rows" / "_spark_metadata"):
            for name in (f"{batch}", f".{batch}.crc"):
                (log / name).unlink(missing_ok=True)

    def offsets(self) -> dict[tuple[str, int], list[int]]:
        """All offsets written so far, sorted."""
        rows = self._spark.read.parquet(str(self.folder / "rows")).select(
            "topic", "partition", "offset"
        )
        return offsets_of(rows.collect())


def ended(query: Any) -> list[int]:
    try:
        assert query.awaitTermination(WAIT_S), query.status
    finally:
        query.stop()
    return [progress["numInputRows"] for progress in query.recentProgress]


def offsets_of(rows: Iterable[Any]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return {place: sorted(offsets) for place, offsets in found.items()}


def some(count: int) -> list[Row]:
    return [(None, b"x")] * count


# -- batch ----------------------------------------------------------------------------------------


def test_a_batch_read_is_what_was_produced(spark: Any, bus: OurBus) -> None:
    """Every column of every codec's rows, with only the name of the format."""
    topic = bus.create("produced", len(CODECS))
    expected = {}
    for partition, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bus.bootstrap, "compression.type": codec})
        for n in range(PER_PARTITION):
            key = b"key %d" % n if n % 3 else None
            value = b"value %d" % n * (n % 7) if n % 5 else None
            headers = [("h", b"%d" % n), ("h", None), ("ä", b"")] if n % 4 == 0 else None
            producer.produce(topic, value, key, partition, timestamp=BEGAN_MS + n, headers=headers)
            in_spark = None if headers is None else headers
            expected[topic, partition, n] = (key, value, BEGAN_MS + n, 0, in_spark)
        assert producer.flush(WAIT_S) == 0
    rows = read(spark, bus, topic, includeHeaders="true")
    assertSchemaEqual(rows.schema, KAFKA_S_OWN)
    found = {
        (row.topic, row.partition, row.offset): (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            row.ms,
            row.timestampType,
            row.headers
            and [(one.key, None if one.value is None else bytes(one.value)) for one in row.headers],
        )
        for row in rows.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    }
    assert found == expected


def test_of_any_other_kafka_too(spark: Any, foreign: Bus) -> None:
    foreign.produce("foreign", {0: some(5), 2: some(7)})
    rows = read(spark, foreign, "foreign", **{"kafka.isolation.level": "read_committed"})
    assert offsets_of(rows.collect()) == {
        ("foreign", 0): list(range(5)),
        ("foreign", 2): list(range(7)),
    }


def test_pitfall_7_an_empty_topic_has_no_rows(spark: Any, bus: OurBus) -> None:
    assert read(spark, bus, bus.create("empty", 2)).count() == 0


def test_a_task_is_a_range_and_filters_may_narrow_it(spark: Any, bus: OurBus) -> None:
    """If Spark's own setting is off, as by default, everything is read."""
    topic = bus.create("filtered", 3)
    bus.produce(topic, dict.fromkeys(range(3), some(50)))
    chosen = _with(spark.read, bus, topic, {"pushdown": "true", "maxRecordsPerPartition": "40"})
    rows = chosen.schema("offset long, partition int").load()
    for setting, tasks in (("false", 6), ("true", 1)):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", setting)
        try:
            narrowed = rows.where("partition = 2 and offset between 5 and 9")
            assert narrowed._jdf.queryExecution().toRdd().getNumPartitions() == tasks
            assert sorted(row.offset for row in narrowed.collect()) == [5, 6, 7, 8, 9]
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_pitfall_8_a_task_that_is_tried_again_gives_its_rows_once(spark: Any, bus: OurBus) -> None:
    """The session is local[2,2]: with local[2] the first failure would be the last."""
    from pyspark.sql.functions import udf

    topic = bus.create("retried", 2)
    bus.produce(topic, {0: some(300), 1: some(20)})

    @udf("long", useArrow=False)
    def fails_at_first(offset: int) -> int:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and offset == 299:
            raise RuntimeError("the first attempt fails near its end")
        return offset

    rows = read(spark, bus, topic).select(
        "topic", "partition", fails_at_first("offset").alias("offset")
    )
    assert offsets_of(rows.collect()) == {
        (topic, 0): list(range(300)),
        (topic, 1): list(range(20)),
    }


# -- streams --------------------------------------------------------------------------------------


def test_a_stream_in_small_steps_that_is_restarted(spark: Any, bus: OurBus, tmp_path: Path) -> None:
    """Each row once, also when the last micro-batch is run again with other options."""
    topic = bus.create("stream", 2)
    bus.produce(topic, {0: some(50), 1: some(25)})
    query = Query(spark, bus, topic, tmp_path, maxOffsetsPerTrigger="30")
    assert query.run() == [30, 30, 15]
    bus.produce(topic, {0: some(10)})
    assert query.run() == [10]
    bus.produce(topic, {1: some(5)})
    query.uncommit(3)
    query.options = {"maxPartitions": "1", "MAXOFFSETSPERTRIGGER": "3"}
    assert query.run() == [10, 3, 2]
    assert query.offsets() == {(topic, 0): list(range(60)), (topic, 1): list(range(30))}


def test_pitfall_1_latest_is_where_it_was_when_the_query_first_ran(
    spark: Any, bus: OurBus, tmp_path: Path
) -> None:
    """Batch 0 has no rows but keeps where the query begins. The query dies before batch 0 is
    committed, and rows arrive before it is run again."""
    topic = bus.create("latest", 1)
    bus.produce(topic, {0: some(40)})
    query = Query(spark, bus, topic, tmp_path, startingOffsets="latest")
    assert query.run() == [0]
    query.uncommit(0)
    bus.produce(topic, {0: some(5)})
    assert sum(query.run()) == 5
    assert query.offsets() == {(topic, 0): list(range(40, 45))}


def test_pitfall_10_queries_side_by_side_have_their_own_options(
    spark: Any, bus: OurBus, tmp_path: Path
) -> None:
    """They share a registration, and each has a planning process of its own."""
    topics = [bus.create("parallel", 1) for _ in range(2)]
    queries = []
    for number, topic in enumerate(topics, start=1):
        bus.produce(topic, {0: some(10 * number)})
        limit = {"maxOffsetsPerTrigger": str(5 * number)}
        queries.append(Query(spark, bus, topic, tmp_path / topic, **limit))
    running = [query.start() for query in queries]
    assert [ended(one) for one in running] == [[5, 5], [10, 10]]
    for number, query in enumerate(queries, start=1):
        assert query.offsets() == {(topics[number - 1], 0): list(range(10 * number))}


def test_pitfall_9_what_is_lost_ends_the_query_in_words(
    spark: Any, bus: OurBus, tmp_path: Path
) -> None:
    topic = bus.create("lossy", 1)
    bus.produce(topic, {0: some(10)})
    query = Query(spark, bus, topic, tmp_path)
    assert query.run() == [10]
    bus.produce(topic, {0: some(10)})
    bus.forget(topic, 0, 15)
    with pytest.raises(StreamingQueryException, match="the log begins at 15") as caught:
        query.run()
    assert "set failOnDataLoss=false to go on" in str(caught.value)
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.offsets() == {(topic, 0): [*range(10), *range(15, 20)]}


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_another_topic_of_the_name_ends_the_query_in_words(
    spark: Any, bus: OurBus, tmp_path: Path
) -> None:
    """The new topic has more records than were read of the old one, so only its id shows the
    difference."""
    topic = bus.create("twice", 1)
    bus.produce(topic, {0: some(10)})
    query = Query(spark, bus, topic, tmp_path)
    assert query.run() == [10]
    bus.delete(topic)
    bus.cluster.create_topic(topic, 1)
    bus.produce(topic, {0: some(25)})
    with pytest.raises(StreamingQueryException, match=f"{topic}/0 was deleted and made") as caught:
        query.run()
    assert "set failOnDataLoss=false to go on" in str(caught.value)
    query.options["failOnDataLoss"] = "false"
    assert sum(query.run()) == 25
    assert query.offsets() == {(topic, 0): sorted([*range(10), *range(25)])}
    del query.options["failOnDataLoss"]
    bus.produce(topic, {0: some(1)})
    assert query.run() == [1], "the checkpoint has the new topic's id"


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.cluster
def test_masters_are_stolen_and_a_node_is_killed_while_it_runs(
    spark: Any, bus: OurBus, tmp_path: Path
) -> None:
    """Same rows."""
    rows = 100_000 if FULL else 3_000
    topic = bus.create("hurt", 6)
    bus.produce(topic, dict.fromkeys(range(6), some(rows)))
    query = Query(spark, bus, topic, tmp_path, maxOffsetsPerTrigger=str(rows // 2))
    running = query.start()

    def further(count: int) -> None:
        goal = len(running.recentProgress) + count
        deadline = time.monotonic() + WAIT_S
        while len(running.recentProgress) < goal and running.isActive:
            assert time.monotonic() < deadline, running.status
            time.sleep(0.05)
        assert running.isActive, "it ended before it was hurt"

    try:
        further(1)
        bus.place_all_on(2)
        further(1)
        bus.kill(2)
        further(2)
        bus.restart(2)
        assert len(ended(running)) >= 12
    finally:
        bus.restart(2)
        bus.spread()
    assert query.offsets() == {(topic, one): list(range(rows)) for one in range(6)}


# -- how workers get the package ------------------------------------------------------------------

SUBMITTED = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
told = {"bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
try:
    spark.read.format("evenkeel").options(**told).load()
    print("found")
except Exception:
    from pyspark_evenkeel import DefaultSource
    spark.dataSource.register(DefaultSource)
print("batch", spark.read.format("evenkeel").options(**told).load().count())
rows = spark.readStream.format("evenkeel").options(startingOffsets="earliest", **told).load()
query = rows.writeStream.format("noop").option("checkpointLocation", sys.argv[3])
query = query.trigger(availableNow=True).start()
query.awaitTermination()
print("stream", sum(one["numInputRows"] for one in query.recentProgress))
"""


def without_ours(folder: Path) -> Path:
    """A Python with all packages of this one except ours, which is installed from a checkout."""
    packages = folder / "packages"
    packages.mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if "evenkeel" not in one.name and one.suffix != ".pth":
            (packages / one.name).symlink_to(one)
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    python.chmod(0o755)
    return python


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)  # it starts a JVM twice
@pytest.mark.parametrize("on_path", [False, True])
def test_pitfall_2_py_files_are_enough_for_batch_only(
    bus: OurBus, tmp_path: Path, on_path: bool
) -> None:
    """With them alone the source has to be registered, and no stream can be read: Spark 4.3 looks
    in the wrong folder for the planning process. The archive also has to be on the driver's
    PYTHONPATH (docs/spark.md). If that changes one day, the page can become shorter."""
    topic = bus.create("submitted", 1)
    bus.produce(topic, {0: some(9)})
    for name in ("pyspark_evenkeel", "wire"):
        shutil.copytree(Path(ROOT) / name, tmp_path / "archive" / name)
    archive = shutil.make_archive(str(tmp_path / "evenkeel"), "zip", tmp_path / "archive")
    script = tmp_path / "job.py"
    script.write_text(SUBMITTED)
    submit = Path(sys.executable).parent / "spark-submit"
    command = [str(submit), "--master", "local[2]", "--py-files", archive]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    command += [str(script), bus.bootstrap, topic, str(tmp_path / "checkpoint")]
    env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    env["PYSPARK_PYTHON"] = env["PYSPARK_DRIVER_PYTHON"] = str(without_ours(tmp_path))
    if on_path:
        env["PYTHONPATH"] = archive
    ran = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=240
    )
    assert "batch 9" in ran.stdout, ran.stdout + ran.stderr[-3000:]
    for words in ("found", "stream 9"):
        assert (words in ran.stdout) == on_path, ran.stdout + ran.stderr[-3000:]
    assert on_path or "No module named 'pyspark_evenkeel'" in ran.stderr + ran.stdout
