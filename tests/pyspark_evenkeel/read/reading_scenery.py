"""Readers without a session: their methods, called as Spark calls them, and the results."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from pyspark_evenkeel import worker
from pyspark_evenkeel.read.batch import BatchReader, TaskPartition
from pyspark_evenkeel.read.streaming import StreamReader
from pyspark_evenkeel.source import EvenkeelSource
from tests.spark.bus import Bus

Offset = dict[str, Any]
Place = tuple[str, int]


def source(kafka: Bus, topic: str, **options: str) -> EvenkeelSource:
    """With a short timeout, so that errors are reported soon."""
    given = {"bootstrap.servers": kafka.bootstrap, "default.api.timeout.ms": "20000"}
    if not options.keys() & {"assign", "subscribePattern"}:
        given["subscribe"] = topic
    return EvenkeelSource(given | options)


def batch(kafka: Bus, topic: str, **options: str) -> BatchReader:
    made = source(kafka, topic, **options)
    reader = made.reader(made.schema())
    assert isinstance(reader, BatchReader)
    return reader


def stream(kafka: Bus, topic: str, **options: str) -> "Stream":
    made = source(kafka, topic, **options)
    reader = made.streamReader(made.schema())
    assert isinstance(reader, StreamReader)
    _streams.append(reader)
    return Stream(reader)


_streams: list[StreamReader] = []


def close_all() -> None:
    """What normally ends with a process of Spark's, and not with a test."""
    while _streams:
        _streams.pop().stop()
    while worker._clusters:
        worker._clusters.popitem()[1].close()


class Stream:
    """A streaming query as Spark's engine runs it, one micro-batch after the other."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.limit: ReadLimit = reader.getDefaultReadLimit()

    def after(self, start: Offset) -> Offset:
        """The next end, after a round trip through the checkpoint."""
        return checkpointed(self.reader.latestOffset(start, self.limit))

    def rows(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        return rows(self.reader, self.reader.partitions(start, end))

    def until_level(self, start: Offset) -> tuple[Offset, list[list[dict[str, Any]]]]:
        """Run micro-batches until there is nothing new; returns that end, and the rows of each."""
        batches = []
        while (end := self.after(start)) != start:
            batches.append(self.rows(start, end))
            start = end
        return start, batches


def checkpointed(offset: Offset) -> Offset:
    """Written by Spark and read again."""
    again: Offset = json.loads(json.dumps(offset))
    return again


def rows(
    reader: BatchReader | StreamReader, partitions: Iterable[InputPartition]
) -> list[dict[str, Any]]:
    return [row for one in partitions for arrow in reader.read(one) for row in arrow.to_pylist()]


def offsets_by_place(found: Iterable[dict[str, Any]]) -> dict[Place, list[int]]:
    """The offsets that were read of each partition, in order."""
    told: dict[Place, list[int]] = {}
    for row in found:
        told.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return told


def ranges(partitions: Iterable[InputPartition]) -> list[tuple[int, int, int]]:
    """Partition, start and end of what the tasks read."""
    found = []
    for one in partitions:
        assert isinstance(one, TaskPartition)
        found += [(each.place.partition, each.start, each.end) for each in one.task]
    return found


class Clock:
    """Time passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def with_clock(query: Stream, clock: Callable[[], float]) -> Stream:
    query.reader._clock = clock
    return query
