"""Jobs with Spark's own Kafka connector; the topic may be one that our sink wrote."""

import argparse
import json
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession

SMALL = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def tell(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("do", "bootstrap", "topic", "out", "state", "jars"):
        parser.add_argument(f"--{name}", default="")
    for name in ("count", "seconds", "at"):
        parser.add_argument(f"--{name}", type=int, default=0)
    return parser.parse_args()


def rows(session: SparkSession, count: int) -> DataFrame:
    """000000, 000001, ..., in one task, so that they keep their order."""
    return session.range(0, count, 1, 1).selectExpr("lpad(CAST(id AS STRING), 6, '0') AS value")


def written(asked: argparse.Namespace, session: SparkSession, format: str) -> None:
    writer = rows(session, asked.count).write.format(format).mode("append")
    writer.options(**servers(asked, format)).option("topic", asked.topic).save()


def servers(asked: argparse.Namespace, format: str) -> dict[str, str]:
    prefix = "kafka." if format == "kafka" else ""
    return {f"{prefix}bootstrap.servers": asked.bootstrap}


def read(asked: argparse.Namespace, session: SparkSession) -> None:
    reader = session.read.format("kafka").options(**servers(asked, "kafka"))
    if asked.at:
        starts = json.dumps({asked.topic: {"0": asked.at}})
        reader = reader.option("startingOffsetsByTimestamp", starts)
    found = reader.option("subscribe", asked.topic).load().orderBy("partition", "offset")
    for one in found.selectExpr("CAST(value AS STRING)", "partition", "offset").collect():
        tell("read", value=one.value, partition=one.partition, offset=one.offset)


def streamed(asked: argparse.Namespace, session: SparkSession) -> None:
    source: Any = session.readStream.format("kafka").options(**servers(asked, "kafka"))
    frame = source.option("subscribe", asked.topic).option("startingOffsets", "earliest").load()
    sink = frame.select("value").writeStream.format("kafka").options(**servers(asked, "kafka"))
    query = sink.option("topic", asked.out).option("checkpointLocation", asked.state).start()
    tell("running")
    deadline = time.monotonic() + asked.seconds
    while query.isActive and time.monotonic() < deadline:
        query.awaitTermination(1)
    if query.exception() is not None:
        tell("error", text=str(query.exception())[:1_000])
    query.stop()


asked = options()
builder = SparkSession.builder.master("local[2]").appName("compat").config("spark.jars", asked.jars)
for key, value in SMALL.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
session.sparkContext.setLogLevel("ERROR")
if asked.do == "read":
    read(asked, session)
elif asked.do == "stream":
    streamed(asked, session)
else:
    written(asked, session, asked.do)
session.stop()
tell("done")
