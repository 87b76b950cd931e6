"""DataFrames and streams into topics of a real cluster: once, whatever is run again.

tests/pyspark_evenkeel/write/test_writing.py tests without Spark what a task does with its rows.
Here is what only Spark can do wrong: its plans, its retries, its checkpoints.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as sf

from pyspark_evenkeel.by_destination import by_destination
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.spark.bus import OurBus

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ROWS = 4_000
SMALL = 8_000
"""Bytes in a chunk, so that there are several in every micro-batch."""


@pytest.fixture(scope="module")
def numbers(bus: OurBus) -> str:
    """A topic with numbered rows in two partitions."""
    topic = bus.create("numbers", 2)
    each = ROWS // 2
    bus.produce(
        topic,
        {p: [(None, b"%06d" % (p * each + n) + b"." * 50) for n in range(each)] for p in range(2)},
    )
    return topic


def read(spark: Any, bus: OurBus, topic: str) -> Any:
    """A stream of it, in micro-batches of a quarter."""
    return (
        spark.readStream.format("evenkeel")
        .option("bootstrap.servers", bus.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS // 4)
        .load()
    )


def run(frame: Any, checkpoint: Path, options: dict[str, str]) -> None:
    """Until everything that is there has been written."""
    query = (
        frame.writeStream.format("evenkeel")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died between the last task and its commit: the micro-batch is run
    again."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    assert newest.name == "3"
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()


def times_written(bus: OurBus, topic: str) -> Counter[int]:
    """How many rows are there once, twice and so on."""
    rows = Counter(value for each in bus.contents(topic).values() for _, value in each)
    return Counter(rows.values())


@pytest.mark.parametrize(
    ("delivery", "expected"),
    [("exactly-once", {1: ROWS}), ("at-least-once", {1: ROWS - ROWS // 4, 2: ROWS // 4})],
)
def test_a_micro_batch_that_is_run_again(
    spark: Any, bus: OurBus, numbers: str, tmp_path: Path, delivery: str, expected: dict[int, int]
) -> None:
    """Once with tokens. Without them its rows are doubled, which shows that the test can fail."""
    topic = bus.create("once", 3)
    options = {
        "bootstrap.servers": bus.bootstrap,
        "topic": topic,
        "chunkBytes": str(SMALL),
        "delivery": delivery,
    }
    frame = read(spark, bus, numbers).select("value")
    run(frame, tmp_path, options)
    forget_last_commit(tmp_path)
    run(frame, tmp_path, options)
    assert times_written(bus, topic) == expected


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_rows_of_a_shuffle_by_destination(
    spark: Any, bus: OurBus, numbers: str, tmp_path: Path
) -> None:
    """Run again with another number of tasks and in another order, rows are still recognised."""
    topic = bus.create("by-destination", 4)
    for tasks, shuffles in (("4", 2), ("3", 5)):
        options = {
            "bootstrap.servers": bus.bootstrap,
            "topic": topic,
            "chunkBytes": str(SMALL),
            "delivery": "exactly-once",
            "WRITERS": tasks,
        }
        keyed = sf.when(sf.col("offset") % 2 == 0, sf.substring("value", 1, 4))
        shuffled = (
            read(spark, bus, numbers)
            .repartition(shuffles, "offset")
            .select(keyed.alias("key"), "value", sf.struct("partition", "offset").alias("at"))
        )
        frame, options = by_destination(shuffled, options, order_by=["at.partition", "at.offset"])
        run(frame, tmp_path, options)
        if tasks == "4":
            forget_last_commit(tmp_path)
    assert times_written(bus, topic) == {1: ROWS}
    contents = bus.contents(topic)
    assert all(len(rows) > ROWS / 16 for rows in contents.values())
    keys = [{key for key, _ in rows if key} for rows in contents.values()]
    assert len(set.union(*keys)) == sum(map(len, keys)), "a key is in one partition"


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_shuffle_whose_tasks_change_is_noticed(
    spark: Any, bus: OurBus, numbers: str, tmp_path: Path
) -> None:
    """Without by_destination, rows of the second run would be taken for others of the first."""
    topic = bus.create("noticed", 1)
    options = {"bootstrap.servers": bus.bootstrap, "topic": topic}
    frame = read(spark, bus, numbers).select("value")
    run(frame.repartition(3), tmp_path, options)
    forget_last_commit(tmp_path)
    with pytest.raises(StreamingQueryException, match=r"not what its first run has written"):
        run(frame.repartition(2), tmp_path, options)
    run(frame.repartition(2), tmp_path, {**options, "writeId": "again"})
    assert times_written(bus, topic) == {1: ROWS - ROWS // 4, 2: ROWS // 4}


def fails_once(marker: Path, rows: int) -> Any:
    """A function of Arrow batches whose first run fails after that many rows."""

    def through(column: Any) -> Any:
        if not marker.exists() and any(value.as_py() >= rows for value in column):
            marker.touch()
            raise RuntimeError("the first attempt of a task")
        return column

    return through


def test_a_task_that_is_tried_again_and_a_write_that_is_repeated(
    spark: Any, bus: OurBus, tmp_path: Path
) -> None:
    """A write has a name: a random one makes a task's second attempt recognisable; a given one, the
    whole write."""
    topic = bus.create("batch", 2)
    through = fails_once(tmp_path / "failed", 30_000)

    @sf.arrow_udf("bigint")
    def flaky(column: pa.Array) -> pa.Array:
        return through(column)

    frame = spark.range(0, 40_000, numPartitions=2).select(
        sf.format_string("%08d", flaky("id")).alias("value")
    )
    writing = (
        frame.write.format("evenkeel")
        .mode("append")
        .option("bootstrap.servers", bus.bootstrap)
        .option("topic", topic)
        .option("chunkBytes", SMALL)
    )
    writing.option("writeId", "numbers").save()
    assert (tmp_path / "failed").exists()
    assert times_written(bus, topic) == {1: 40_000}
    writing.option("writeId", "numbers").save()
    assert times_written(bus, topic) == {1: 40_000}
    writing.option("writeId", "numbers").option("writeBatch", 1).save()
    assert times_written(bus, topic) == {2: 40_000}


@pytest.mark.parametrize(
    ("mode", "columns", "why"),
    [
        ("append", "id", "no column 'value'"),
        ("append", "id AS value", "'value' is of type bigint"),
        ("overwrite", "'a' AS value", "only appended to"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_runs(
    spark: Any, mode: str, columns: str, why: str
) -> None:
    writing = spark.range(3).selectExpr(columns).write.format("evenkeel").mode(mode)
    with pytest.raises(AnalysisException, match=why):
        writing.option("bootstrap.servers", "127.0.0.1:1").option("topic", "nowhere").save()
