"""Batch queries, and the work of every task: reading its ranges and returning Arrow batches.

A task opens one connection to each node it needs, and keeps it for the next task in the same
worker. It never ends before the end of its range without an error: data that is not in the log, or
no longer, is an error or, with failOnDataLoss=false, a warning.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.errors import DamagedError, DataLossError, RefusedError
from pyspark_evenkeel.offsets import Range, Task, ranges_between, tasks_of
from pyspark_evenkeel.options import SourceOptions
from pyspark_evenkeel.read import planning
from pyspark_evenkeel.read.columns import Arrow, record_batches
from pyspark_evenkeel.read.pushdown import Wanted
from pyspark_evenkeel.worker import connected, freeze_once
from wire.codec.schema import UUID_ZERO
from wire.records.batch import BatchError

log = logging.getLogger(__name__)

GOING_ON: Final = "going on, as failOnDataLoss is false"


class TaskPartition(InputPartition):
    """What Spark sends to the worker that runs the task."""

    def __init__(self, task: Task, topic_ids: Mapping[str, bytes]) -> None:
        super().__init__(task)
        self.task = task
        self.topic_ids = topic_ids
        """Ids of the topics whose offsets these are; zero if unknown."""


def task_partitions(tasks: Iterable[Task], topic_ids: Mapping[str, bytes]) -> list[InputPartition]:
    """Each task with the ids of its topics."""
    return [
        TaskPartition(
            task, {one.place.topic: topic_ids.get(one.place.topic, UUID_ZERO) for one in task}
        )
        for task in tasks
    ]


class BatchReader(DataSourceReader):
    """One `spark.read`: planned on the driver, then sent to the workers."""

    def __init__(self, options: SourceOptions, schema: Arrow) -> None:
        self._options = options
        self._schema = schema
        self._wanted = Wanted()

    def partitions(self) -> list[InputPartition]:
        """The tasks; ends that are not given are looked up now."""
        with Cluster(self._options.cluster) as cluster:
            for _ in range(planning.TURNS_MAX):
                places = planning.places_of(cluster, self._options.subscription)
                topic_ids = planning.topic_ids(cluster, places)
                ranges = self._ranges(cluster, places)
                if planning.topic_ids(cluster, places) == topic_ids:
                    break
            else:
                raise planning.recreated_meanwhile()
        return task_partitions(tasks_of(ranges, self._options.cut), topic_ids)

    def _ranges(self, cluster: Cluster, places: Collection[Place]) -> list[Range]:
        options, wanted = self._options, self._wanted
        start = planning.starts(cluster, options, places)
        end = planning.ends(cluster, options, places)
        ranges = wanted.ranges(ranges_between(start, end))
        if wanted.since_ms is not None:
            times = {one.place: wanted.since_ms for one in ranges}
            ranges = wanted.recent(ranges, planning.first_since(cluster, options, times))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[Arrow]:
        return read_task(partition, self._options, self._schema)


class PushingReader(BatchReader):
    """A reader that reads less if filters on topic, partition, offset and timestamp allow it.

    Spark refuses a reader that defines pushFilters while its own setting for filter pushdown is
    off, though reading without it would be fine. It recognises such a reader by comparing the
    method's function with that of the base class. Here the method is an object that presents the
    base class' function as its own: while the setting is off, it is never called, and everything is
    read.
    """

    def __init__(self, options: SourceOptions, schema: Arrow) -> None:
        super().__init__(options, schema)
        self.pushFilters = _PushFilters(self)

    def narrow(self, filters: Sequence[Filter]) -> None:
        self._wanted = Wanted.of(filters)


class _PushFilters:
    def __init__(self, reader: PushingReader) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """All filters are returned: ranges are only cut roughly, and Spark checks each row."""
        self._reader.narrow(filters)
        return filters


# -- in a worker ----------------------------------------------------------------------------------


def read_task(partition: InputPartition, options: SourceOptions, schema: Arrow) -> Iterator[Arrow]:
    """The rows of a task as Arrow batches with this `schema`.

    Raises:
        EvenkeelSparkError: if they cannot be read.
    """
    if not isinstance(partition, TaskPartition):
        return  # Spark invents a partition where we gave none
    freeze_once()
    cluster = connected(options.cluster)
    looked_at = set()
    for one in partition.task:
        topic = one.place.topic
        try:
            if topic not in looked_at:
                cluster.topics([topic])  # if recreated since the last task, it is another topic
                looked_at.add(topic)
            yield from read_range(cluster, one, options, schema, partition.topic_ids[topic])
        except RefusedError as error:
            if options.fail_on_data_loss or not planning.is_unknown(error):
                raise
            log.warning("%s; %s", error.what, GOING_ON)


def read_range(
    cluster: Cluster,
    wanted: Range,
    options: SourceOptions,
    schema: Arrow,
    topic_id: bytes = UUID_ZERO,
) -> Iterator[Arrow]:
    """The rows of one range; with failOnDataLoss=false those that still exist. With `topic_id` they
    are that topic's, and never those of another one that now has its name."""
    place, position, end = wanted
    committed = options.committed_only
    while position < end:
        fetches = cluster.read(
            place, position, end, isolation_committed=committed, topic_id=topic_id
        )
        try:
            for batches in fetches:
                try:
                    yield from record_batches(place, position, end, batches, schema)
                except BatchError as error:
                    raise DamagedError(place, batches[0].header.base_offset, error) from error
            return
        except DataLossError as loss:
            if options.fail_on_data_loss:
                raise
            log.warning("%s: %s; %s", loss.what, loss.why, GOING_ON)
            if loss.replaced or loss.log_start <= loss.start:
                return  # it is another log, or it ends before the range does
            position = loss.log_start
