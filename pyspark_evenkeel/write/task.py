"""One task writes its rows: divides them into chunks, sends these to their leaders, and checks the
answers.

Nothing is undone. What a failed task has written stays, and is recognised when the task or its
micro-batch is repeated (`replay`). If the brokers do not support write tokens it also stays, and is
then there twice: at least once.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NoReturn

import attrs

from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.client.producing import NO_OFFSET
from pyspark_evenkeel.errors import (
    ConfigurationError,
    DataLossError,
    EvenkeelSparkError,
    RowError,
)
from pyspark_evenkeel.options import Delivery, SinkOptions, Writer
from pyspark_evenkeel.write.chunks import Chunk, Chunks
from pyspark_evenkeel.write.encoding import RecordBatch, in_order, non_empty, part_of
from pyspark_evenkeel.write.partitioning import Router, task_of
from pyspark_evenkeel.write.replay import Fate, Replay, Sequences, WriteTokens, judge
from wire.error_codes import ErrorCode
from wire.framing import MIB

ROUND_BYTES_MAX: Final = 8 * MIB
"""Sent before the first answer is waited for, unless one chunk is larger."""
LIMIT: Final = "max.message.bytes"
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@attrs.frozen
class Task:
    """The identity of a write: what is written here, and by which task."""

    query: str
    """The same whenever the job runs again: a query's id, or the option writeId."""
    batch: int
    """The micro-batch."""
    number: int
    """The task's number in it."""

    def __str__(self) -> str:
        return f"micro-batch {self.batch} of {self.query}"


@attrs.define
class Written:
    """The outcome for a task's rows."""

    rows: int = 0
    bytes: int = 0
    """As sent."""
    chunks: int = 0
    there_already: int = 0
    """Chunks of an earlier attempt."""
    exactly_once: bool = False


def write_task(
    batches: Iterable[RecordBatch], options: SinkOptions, task: Task, connect: Callable[[], Cluster]
) -> Written:
    """Write all rows; connects only if there are any.

    Raises:
        EvenkeelSparkError: if that fails; its advice says what to do.
    """
    some = non_empty(batches)
    if options.order_by:
        some = in_order(some, options.order_by, options.buffer_bytes)
    first = next(some, None)
    if first is None:
        return Written()
    return _TaskWriter(connect(), options, task).write(itertools.chain([first], some))


class _TaskWriter:
    def __init__(self, cluster: Cluster, options: SinkOptions, task: Task) -> None:
        self._cluster = cluster
        self._options = options
        self._task = task
        self._router = Router(
            partitions_of=lambda topic: cluster.topics([topic])[topic],
            keyless=task.batch + task.number,
        )
        self._names = self._choose_names()
        self._replay = Replay(str(task))
        self._written = Written(exactly_once=isinstance(self._names, WriteTokens))

    def write(self, batches: Iterator[RecordBatch]) -> Written:
        options = self._options
        chunks = Chunks(options.chunk_bytes, options.buffer_bytes)
        for batch in batches:
            now_ms = time.time_ns() // 1_000_000
            rows, topics, partitions = part_of(batch, now_ms)
            self._written.rows += rows.count
            destinations = self._router.route(options.topic or topics, partitions, rows.keys)
            self._send(chunks.add(rows, destinations, self._place, now_ms), more=True)
        self._send(chunks.last(), more=False)
        self._replay.finish()
        return self._written

    def _choose_names(self) -> WriteTokens | Sequences:
        """Exactly once if all brokers support it and it is wanted.

        Raises:
            ConfigurationError: if they do not, and it is required.
        """
        wanted, task = self._options.delivery, self._task
        if wanted is not Delivery.AT_LEAST_ONCE:
            if self._cluster.supports_write_tokens():
                by_task = self._options.writer is Writer.TASK
                writer = ("task", task.number) if by_task else ("destination",)
                return WriteTokens(str(task), (task.query, *writer), task.batch)
            if wanted is Delivery.EXACTLY_ONCE:
                raise ConfigurationError(
                    "these brokers cannot be written to exactly once",
                    why="not all of them support write tokens, as Evenkeel's do",
                    advice="set delivery=at-least-once, and expect rows of a micro-batch that is "
                    "run again, or of a task that is retried, twice",
                )
        return Sequences(*self._cluster.producer_id())

    def _place(self, number: int) -> Place:
        """
        Raises:
            ConfigurationError: if another task may write there as well.
        """
        place = self._router.place(number)
        if self._options.writer is Writer.DESTINATION:
            tasks = self._options.writers or self._router.partition_count(place.topic)
            if task_of(place, tasks) != self._task.number:
                raise ConfigurationError(
                    f"task {self._task.number} has a row for {place}, which task "
                    f"{task_of(place, tasks)} of {tasks} has to write",
                    why="with writer=destination only one task may write to a partition",
                    advice="distribute the rows with by_destination, and pass the options on that "
                    "it gives",
                )
        return place

    # -- sending ----------------------------------------------------------------------------------

    def _send(self, chunks: Iterable[Chunk], *, more: bool) -> None:
        """Several at a time, but per destination one after the other."""
        under_way: dict[Place, Chunk] = {}
        size = 0
        for chunk in chunks:
            if under_way and (chunk.place in under_way or size + chunk.size > ROUND_BYTES_MAX):
                self._send_round(under_way, more=more)
                under_way, size = {}, 0
            under_way[chunk.place] = chunk
            size += chunk.size
        if under_way:
            self._send_round(under_way, more=more)

    def _send_round(self, chunks: Mapping[Place, Chunk], *, more: bool) -> None:
        sealed = {
            place: chunk.seal(
                self._names.token(chunk, self._router.partition_count(place.topic), more=more),
                self._options.compression,
            )
            for place, chunk in chunks.items()
        }
        answers = self._cluster.produce_many(sealed)
        for place, chunk in chunks.items():
            produced = answers[place]
            if produced.error in _TOO_LARGE:
                self._refuse_as_too_large(chunk, len(sealed[place]))
            fate = judge(chunk, produced, self._names)
            self._written.chunks += 1
            self._written.bytes += len(sealed[place])
            if fate is Fate.APPENDED:
                self._replay.appended(place)
                continue
            self._written.there_already += 1
            if self._written.exactly_once and produced.base_offset != NO_OFFSET:
                self._compare(chunk, sealed[place], produced.base_offset)

    def _compare(self, chunk: Chunk, sealed: bytes, offset: int) -> None:
        """Compare it with what lies at that offset, if it is still there."""
        try:
            for batches in self._cluster.read(chunk.place, offset, offset + 1):
                self._replay.found(chunk, sealed, batches[0])
        except DataLossError:
            return  # deleted since: there is nothing to compare

    def _refuse_as_too_large(self, chunk: Chunk, size: int) -> NoReturn:
        """
        Raises:
            RowError: always.
        """
        topic = chunk.place.topic
        limit = self._limit_of(topic)
        if chunk.writer.count == 1:
            raise RowError(
                f"a row of {size:,} bytes is too large for topic '{topic}'",
                why=f"its {LIMIT} is {limit}",
                advice=f"raise {LIMIT}, make the row smaller, or set option compression",
            )
        raise RowError(
            f"a chunk of {chunk.writer.count:,} rows in {size:,} bytes is too large for topic "
            f"'{topic}'",
            why=f"its {LIMIT} is {limit}, and option chunkBytes {self._options.chunk_bytes:,}",
            advice="set chunkBytes below it",
        )

    def _limit_of(self, topic: str) -> str:
        try:
            return self._cluster.topic_setting(topic, LIMIT) or "smaller"
        except EvenkeelSparkError:
            return "smaller"  # only used in an error's text
