"""`df.write` and `df.writeStream` with `.format("evenkeel")`: what Spark calls.

Created on the driver, where columns and options are checked, and pickled to the tasks. A streaming
query's id and the number of its micro-batch are local properties of each task, the same whenever
the query is restarted on its checkpoint: that makes its writes recognisable.

`commit` has nothing to do and `abort` takes nothing back: an aborted micro-batch is run again, and
what exists already is recognised by its tokens. (Spark also calls `abort` when a query is stopped.)
"""

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_evenkeel.errors import ConfigurationError, EvenkeelSparkError
from pyspark_evenkeel.options import SinkOptions
from pyspark_evenkeel.worker import connected, freeze_once
from pyspark_evenkeel.write.encoding import RecordBatch, check_columns
from pyspark_evenkeel.write.task import Task, Written, write_task

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


@attrs.frozen
class Done(WriterCommitMessage):
    """A task's message to the driver."""

    written: Written


class BatchWriter(DataSourceArrowWriter):
    """One write of a DataFrame. Retried tasks are recognised by the write's name: the option
    writeId, or one drawn here."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        task = Task(self._name, self._options.write_batch, _context().partitionId())
        return _write(iterator, self._options, task)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writes of a streaming query; Spark creates one for every micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query = context.getLocalProperty(QUERY_PROPERTY)
        batch = context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise EvenkeelSparkError(
                "this version of Spark does not tell a sink which micro-batch it writes",
                why=f"local property {QUERY_PROPERTY} is {query}, {BATCH_PROPERTY} is {batch}",
                advice="use pyspark 4.2 or newer, below 5",
            )
        name = query if self._options.write_id is None else f"{query}/{self._options.write_id}"
        return _write(iterator, self._options, Task(name, int(batch), context.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is written: nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is written stays."""


def batch_writer(schema: Any, options: SinkOptions, overwrite: bool) -> BatchWriter:  # noqa: ANN401
    """For a DataFrame with this schema, a pyspark.sql.types.StructType.

    Raises:
        ConfigurationError: if such a DataFrame cannot be written, or not in this mode.
    """
    if overwrite:
        raise ConfigurationError(
            "mode 'overwrite' is not possible: a topic is only appended to",
            advice="use .mode('append'), and delete the topic or its records beforehand if need be",
        )
    _check(schema, options)
    return BatchWriter(options)


def stream_writer(schema: Any, options: SinkOptions, overwrite: bool) -> StreamWriter:  # noqa: ANN401
    """For a streaming DataFrame. In output mode 'complete' (`overwrite`) every micro-batch appends
    the whole result, as Spark's Kafka sink does.

    Raises:
        ConfigurationError: if such a DataFrame cannot be written.
    """
    _check(schema, options)
    return StreamWriter(options)


def _check(schema: Any, options: SinkOptions) -> None:  # noqa: ANN401 (a StructType)
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    check_columns(types, has_topic=options.topic is not None, order_by=options.order_by)


def _context() -> Any:  # noqa: ANN401 (a TaskContext)
    context = TaskContext.get()
    assert context is not None, "write is called in a task"
    return context


def _write(iterator: Iterator[RecordBatch], options: SinkOptions, task: Task) -> Done:
    freeze_once()
    return Done(write_task(iterator, options, task, partial(connected, options.cluster)))
