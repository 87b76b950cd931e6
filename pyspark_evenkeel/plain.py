"""Records without Spark: reading on one machine with the data source's own client."""

from collections.abc import Iterator
from typing import Final

from pyspark_evenkeel.client.cluster import EARLIEST, LATEST, Cluster, Place
from wire.records.batch import Record, iterate_records
from wire.records.compression import decompress

BATCH_BYTES_MAX: Final = 256 * 1024 * 1024
"""A batch that claims to hold more is not unpacked."""


def records_since(cluster: Cluster, topic: str, since_ms: int) -> Iterator[Record]:
    """The records of a topic from a time (in milliseconds since 1970) up to now, partition by
    partition; the first ones may be older.

    Raises:
        EvenkeelSparkError: as `Cluster.read` does.
        BatchError: if records cannot be unpacked.
    """
    places = [Place(topic, number) for number in range(cluster.topics([topic])[topic])]
    firsts = cluster.offsets(dict.fromkeys(places, EARLIEST))
    found = cluster.offsets(dict.fromkeys(places, since_ms))
    ends = cluster.offsets(dict.fromkeys(places, LATEST))
    for place in places:
        since, end = found[place].offset, ends[place].offset
        if since < 0:
            continue  # nothing is that new
        start = max(since, firsts[place].offset)
        for batches in cluster.read(place, start, end):
            for batch in batches:
                for record in iterate_records(batch, decompress(batch, BATCH_BYTES_MAX)):
                    if start <= record.offset < end:
                        yield record
