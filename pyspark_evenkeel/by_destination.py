"""Brings rows to the task that writes their destination, so that each partition has one writer.

By default a write token names the task that writes, so a repeated micro-batch has to give the same
rows to the same tasks. The source ensures that. A shuffle in between may not, if Spark chooses the
number of its tasks from the data (adaptive execution), or the job is restarted with another
`spark.sql.shuffle.partitions`. Here the destination itself names the writer, and tasks do not
matter:

    rows, options = by_destination(frame, {"bootstrap.servers": ..., "topic": ...},
                                   order_by=["sensor", "time"])
    rows.writeStream.format("evenkeel").options(**options).option("checkpointLocation", ...).start()

The price is a shuffle, and that each task sorts its share of a micro-batch in memory.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.datasource import CaseInsensitiveDict

from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.errors import ConfigurationError
from pyspark_evenkeel.options import parse_sink
from pyspark_evenkeel.write.encoding import check_columns
from pyspark_evenkeel.write.partitioning import Router
from wire.records.columns import Column

ORDER_COLUMN: Final = "_order"
_COLUMN: Final = "partition"


def by_destination(
    frame: Any,  # noqa: ANN401 (a DataFrame)
    options: Mapping[str, str],
    *,
    order_by: Sequence[Any],
    topics: Sequence[str] = (),
) -> tuple[Any, dict[str, str]]:
    """The DataFrame with each row in the task of its destination, and the options to write it with.

    `options` are those of the sink; the brokers they name are asked for the numbers of partitions.
    `order_by`, columns or their names, says how rows are sorted within a partition, and has to
    distinguish all rows, or at least those that differ. `topics` lists all topics that rows may
    name, if there is no option `topic`. As many tasks write as there are partitions, or as option
    `writers` says.

    Rows without a key and without a chosen partition are spread by their contents.

    Raises:
        ConfigurationError: if the DataFrame cannot be written with these options.
        RefusedError, UnavailableError: if the brokers do not answer.
    """
    given = CaseInsensitiveDict(options)
    given["writer"] = "destination"
    parsed = parse_sink(given, streaming=frame.isStreaming)
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    check_columns(types, has_topic=parsed.topic is not None)
    names = [parsed.topic] if parsed.topic is not None else list(topics)
    if not names or not order_by:
        missing = "order_by is empty" if names else "neither option topic nor topics is given"
        raise ConfigurationError(
            "rows cannot be distributed by destination",
            why=missing,
            advice="topics: all that rows may go to; order_by: what tells rows apart",
        )
    with Cluster(parsed.cluster) as cluster:
        counts = cluster.topics(names)
    tasks = parsed.writers or sum(counts.values())
    topic = sf.col("topic") if parsed.topic is None else sf.lit(parsed.topic)
    order = [sf.col(one) if isinstance(one, str) else one for one in order_by]
    key = sf.col("key").cast("binary") if "key" in types else sf.lit(None).cast("binary")
    asked = sf.col(_COLUMN) if _COLUMN in types else sf.lit(None).cast("int")

    def choose(topics: pa.Array, asked: pa.Array, keys: pa.Array, spread: pa.Array) -> pa.Array:
        return _partitions(counts, topics, asked, keys, spread)

    chosen = sf.arrow_udf(choose, "int")(topic, asked, key, sf.xxhash64("value", *order))
    rows = frame.withColumn(ORDER_COLUMN, sf.struct(*order)).withColumn(_COLUMN, chosen)
    task = sf.pmod(sf.crc32(topic.cast("binary")) + sf.col(_COLUMN), sf.lit(tasks)).cast("int")
    own = {name: text for name, text in options.items() if name.lower() not in _OURS}
    ours = {"writer": "destination", "writers": str(tasks), "orderBy": ORDER_COLUMN}
    return rows.repartitionById(tasks, task), own | ours


_OURS: Final = ("writer", "writers", "orderby")


def _partitions(
    counts: Mapping[str, int], topics: Column, asked: Column, keys: Column, spread: Column
) -> Column:
    """The partition of each row; what the sink would choose, except for rows without a key."""
    router = Router(partitions_of=partial(_known, counts), keyless=0)
    numbers = router.route(topics, asked, keys, spread.to_numpy(zero_copy_only=False))
    places = np.array([router.place(n).partition for n in range(router.destinations)], np.int32)
    return pa.array(places[numbers])


def _known(counts: Mapping[str, int], topic: str) -> int:
    """
    Raises:
        ConfigurationError: if the topic was not named.
    """
    if topic not in counts:
        raise ConfigurationError(
            f"a row is for topic '{topic}', which was not named",
            advice="name all topics: by_destination(..., topics=[...])",
        )
    return counts[topic]
