"""Reading a range of a partition: every batch that overlaps it, in order, or an error.

While the caller decodes the result of one fetch, the next one is in flight. Data that was handed
out is never requested again, so whatever happens in between, a lost connection or a moved leader,
the batches are the same. Progress is measured by the last offsets of batches, which need not be
consecutive (compaction, markers). A range that is not in the log, or no longer, is a DataLossError;
nothing ends early without an error.

The size of a request depends on the rest of the range and on the size of earlier records: a slice
of a few records must not fetch megabytes.
"""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyspark_evenkeel.client.connection import Connection, Ticket
from pyspark_evenkeel.client.listing import EARLIEST, LATEST, list_offsets
from pyspark_evenkeel.client.nodes import Nodes
from pyspark_evenkeel.client.patience import Patience
from pyspark_evenkeel.client.settings import FETCH_BYTES_LEAST
from pyspark_evenkeel.errors import (
    BadAnswerError,
    DataLossError,
    EvenkeelSparkError,
    RefusedError,
    UnavailableError,
    UnsupportedError,
)
from wire.cluster_view import TopicPartition
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from wire.records.batch import Batch, BatchError, as_view, is_intact, split
from wire.records.transactions import Transactions

TOPIC_IDS_FROM: Final = 13
"""From this version on topics are named by their ids only."""
WAIT_MS: Final = 100
"""The length of the long poll: only at the end of a log is there something to wait for."""
FIRST_GUESS_BYTES: Final = 1024
"""Assumed size of a record before any was seen."""
MARGIN: Final = 1.25
DOUBTFUL_MS: Final = 5_000
"""After a leader has gone, the next one may not know at once how far the log is readable, and a
node may not have heard of a topic's deletion yet."""


class _Flight(NamedTuple):
    """A fetch in flight."""

    connection: Connection
    ticket: Ticket
    topic_id: bytes


class _Taken(NamedTuple):
    batches: list[Batch]
    position: int
    """The next offset that is wanted."""


class RangeReader:
    """Reads [start, end) of a partition once, through `batches`."""

    def __init__(
        self,
        nodes: Nodes,
        place: TopicPartition,
        start: int,
        end: int,
        *,
        committed: bool,
        topic_id: bytes = UUID_ZERO,
    ) -> None:
        self._nodes = nodes
        self._place = place
        self._start = start
        self._end = end
        self._committed = committed
        self._transactions = Transactions()
        self._record_bytes: float = FIRST_GUESS_BYTES
        self._doubt_since: float | None = None
        """Since when the wanted records have been missing, though they may still appear."""
        self._topic_id = topic_id
        """Id of the topic whose records are wanted: another one of the same name may replace it.
        While unknown, the topic that exists is meant."""

    def batches(self) -> Iterator[list[Batch]]:
        """The batches of one fetch after the other, without markers and aborted records.

        Raises:
            DataLossError: if the range, or part of it, is not in the log.
            UnavailableError: if there has been no progress for `retry_ms`.
            RefusedError, UnsupportedError, SecurityError: if a retry would not help.
        """
        what = f"offsets {self._start} to {self._end} of {self._place} cannot be read"
        patience = Patience(what, self._nodes.settings)
        position = self._start
        flight: _Flight | None = None
        try:
            while position < self._end:
                try:
                    flight = flight or self._ask(position)
                    answer = flight.connection.wait(flight.ticket, FetchResponse)
                    taken = self._take(answer, position)
                    self._topic_id = flight.topic_id
                    flight = None
                except EvenkeelSparkError as error:
                    if flight is not None and isinstance(error, BadAnswerError):
                        flight.connection.close(error)
                    flight = None
                    if isinstance(error, UnavailableError):
                        self._nodes.moved(self._place)  # perhaps: ask again before waiting
                    patience.failed(error, pause=not self._hinted(error))
                    continue
                patience.progressed()
                position = taken.position
                if position < self._end:
                    flight = self._ask_ahead(position)
                if taken.batches:
                    yield taken.batches
                    patience.progressed()  # the caller's time does not count
        finally:
            if flight is not None:
                flight.connection.abandon(flight.ticket)

    # -- asking -----------------------------------------------------------------------------------

    def _ask_ahead(self, position: int) -> _Flight | None:
        """An error here will come up again when the data is actually asked for."""
        try:
            return self._ask(position)
        except EvenkeelSparkError:
            return None

    def _ask(self, position: int) -> _Flight:
        nodes, place = self._nodes, self._place
        nodes.know([place.topic])
        node = nodes.leader(place)
        try:
            connection = nodes.connection(node)
            version = connection.version_for(FetchRequest)
            topic_id = self._same_topic(position)
            if version >= TOPIC_IDS_FROM and topic_id == UUID_ZERO:
                version = connection.version_for(FetchRequest, at_most=TOPIC_IDS_FROM - 1)
            partition = nodes.view.partition(place)
            epoch = -1 if partition is None else partition.epoch
            most = self._bytes_to_ask(position)
            row = FetchPartition(place.partition, epoch, position, partition_max_bytes=most)
            request = FetchRequest(
                max_wait_ms=WAIT_MS,
                min_bytes=1,
                max_bytes=most,
                isolation_level=int(self._committed),
                topics=[FetchTopic(place.topic, topic_id, [row])],
            )
            ticket = connection.send(request, version, hold_ms=WAIT_MS)
            return _Flight(connection, ticket, topic_id)
        except UnavailableError:
            nodes.moved(place)
            raise

    def _same_topic(self, position: int) -> bytes:
        """The id to use in the request. A node that lags may report the previous topic."""
        topic_id = self._nodes.view.topics[self._place.topic].topic_id
        if UUID_ZERO in (topic_id, self._topic_id) or topic_id == self._topic_id:
            return topic_id
        if self._is_doubtful():
            self._nodes.moved(self._place)
            raise UnavailableError(
                f"offset {position} of {self._place} cannot be read",
                why="another topic has its name, for now",
            )
        raise DataLossError(self._place, position, self._end, *self._bounds(), replaced=True)

    def _bytes_to_ask(self, position: int) -> int:
        wanted = int((self._end - position) * self._record_bytes * MARGIN)
        return min(max(wanted, FETCH_BYTES_LEAST), self._nodes.settings.fetch_bytes)

    # -- answers ----------------------------------------------------------------------------------

    def _take(self, answer: FetchResponse, position: int) -> _Taken:
        """The batches in an answer; raises if it brings no progress."""
        if answer.error_code != ErrorCode.NONE:
            raise RefusedError(f"a fetch of {self._place}", code=answer.error_code)
        row = self._row(answer)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._out_of_range(position)
        if row.error_code != ErrorCode.NONE:
            hinted = self._nodes.moved(self._place, row.current_leader, answer.node_endpoints)
            raise _Moved(f"a fetch of {self._place}", code=row.error_code, hinted=hinted)
        batches = self._checked(row, position)
        if batches and 0 <= row.high_watermark <= batches[-1].header.last_offset:
            raise self._damaged(position, "records beyond what is committed")
        if not batches:
            raise self._nothing(row, position)
        self._doubt_since = None
        last = batches[-1].header.last_offset
        size = sum(len(batch.data) for batch in batches)
        self._record_bytes = size / (last + 1 - max(position, batches[0].header.base_offset))
        self._transactions.set_aborted(row.aborted_transactions)
        wanted = [
            batch
            for batch in batches
            if not self._transactions.skips(batch)
            and batch.header.base_offset < self._end
            and batch.header.record_count > 0
        ]
        return _Taken(wanted, last + 1)

    def _row(self, answer: FetchResponse) -> PartitionData:
        place = self._place
        for topic in answer.responses:
            name = topic.topic or self._nodes.view.name_of(topic.topic_id)
            for row in topic.partitions if name == place.topic else ():
                if row.partition_index == place.partition:
                    return row
        if answer.throttle_time_ms > 0 and not answer.responses:
            raise UnavailableError(
                f"a fetch of {place}", why=f"the broker throttles us ({answer.throttle_time_ms} ms)"
            )
        self._nodes.moved(place)
        raise BadAnswerError(f"a fetch of {place}", why="the answer is about something else")

    def _checked(self, row: PartitionData, position: int) -> list[Batch]:
        """The intact batches from `position` on, in order."""
        try:
            found = split(as_view(row.records), partial_tail=True)
        except BatchError as error:
            if error.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                raise UnsupportedError(
                    f"{self._place} at offset {position} is in a message format of old",
                    why=str(error),
                    advice="brokers before 0.11, and topics written by them, cannot be read",
                ) from error
            raise self._damaged(position, str(error)) from error
        batches = [batch for batch in found if batch.header.last_offset >= position]
        if found and not batches:
            raise self._damaged(position, "the answer is about other offsets")
        expected = position
        for batch in batches:
            if batch.header.last_offset < expected or batch.header.last_offset_delta < 0:
                raise self._damaged(position, "batches are not in order")
            if not is_intact(batch):
                raise self._damaged(position, f"wrong checksum at {batch.header.base_offset}")
            expected = batch.header.last_offset + 1
        return batches

    def _damaged(self, position: int, why: str) -> BadAnswerError:
        return BadAnswerError(
            f"what is in {self._place} at offset {position} cannot be read",
            why=why,
            advice="the broker's log may be damaged",
        )

    # -- no progress ------------------------------------------------------------------------------

    def _nothing(self, row: PartitionData, position: int) -> EvenkeelSparkError:
        """An answer with neither an error nor records: there is nothing there (yet)."""
        if as_view(row.records):
            return self._damaged(position, "a batch is cut short")
        stable = row.last_stable_offset if self._committed else -1
        if 0 <= stable <= position < row.high_watermark:
            return UnavailableError(
                f"nothing to read in {self._place} at offset {position}",
                why=f"a transaction is open since offset {stable}",
                advice="end it, or read uncommitted records",
            )
        if row.high_watermark < self._end:
            return self._beyond(position, max(0, row.log_start_offset), row.high_watermark)
        return UnavailableError(
            f"nothing to read in {self._place} at offset {position}",
            why=f"the broker sends no records, yet says that they reach to {row.high_watermark}",
        )

    def _out_of_range(self, position: int) -> EvenkeelSparkError:
        """Ask the log where it begins and ends now."""
        place = self._place
        log_start, end_of_log = self._bounds()
        if position < log_start:
            return DataLossError(place, position, self._end, log_start, end_of_log)
        if end_of_log < self._end:
            return self._beyond(position, log_start, end_of_log)
        return RefusedError(f"a fetch of {place}", code=int(ErrorCode.OFFSET_NOT_AVAILABLE))

    def _bounds(self) -> tuple[int, int]:
        first, end = (
            list_offsets(self._nodes, {self._place: when}, committed=False)[self._place].offset
            for when in (EARLIEST, LATEST)
        )
        return first, end

    def _beyond(self, position: int, log_start: int, end_of_log: int) -> EvenkeelSparkError:
        if self._is_doubtful():
            return UnavailableError(
                f"nothing to read in {self._place} at offset {position}",
                why=f"the log ends at {end_of_log}, for now",
            )
        return DataLossError(self._place, position, self._end, log_start, end_of_log)

    def _is_doubtful(self) -> bool:
        """Whether the answer may soon be different."""
        now = time.monotonic()
        self._doubt_since = self._doubt_since or now
        patience_ms = min(DOUBTFUL_MS, self._nodes.settings.retry_ms / 2)
        return now - self._doubt_since < patience_ms / 1000

    def _hinted(self, error: EvenkeelSparkError) -> bool:
        return isinstance(error, _Moved) and error.hinted


class _Moved(RefusedError):
    """`hinted`: the refusal named the leader, so there is no need to wait."""

    def __init__(self, what: str, *, code: int, hinted: bool) -> None:
        super().__init__(what, code=code)
        self.hinted = hinted
