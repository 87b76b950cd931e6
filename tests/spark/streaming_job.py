"""A job as a user would submit it: one topic into another, exactly once; to be killed by a test.

python -m tests.spark.streaming_job BOOTSTRAP SOURCE DESTINATION CHECKPOINT ROWS CHUNK_BYTES
"""

import sys
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.conftest import SMALL


def copy_rows(
    spark: Any,
    bootstrap: str,
    source: str,
    destination: str,
    checkpoint: str,
    rows: int,
    chunk_bytes: int,
) -> Any:
    """The running query, with that many rows in a micro-batch."""
    frame = (
        spark.readStream.format("evenkeel")
        .option("bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", rows)
        .load()
    )
    return (
        frame.select("key", "value")
        .writeStream.format("evenkeel")
        .option("bootstrap.servers", bootstrap)
        .option("topic", destination)
        .option("delivery", "exactly-once")
        .option("chunkBytes", chunk_bytes)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main(arguments: list[str]) -> None:
    bootstrap, source, destination, checkpoint, rows, chunk = arguments
    builder = SparkSession.builder.master("local[2]").appName("copy")
    for key, value in SMALL.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = copy_rows(spark, bootstrap, source, destination, checkpoint, int(rows), int(chunk))
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1:])
