"""Searching one partition for a time, batch by batch; any thread may search within a batch.

The header of a batch claims its greatest time, and the index and the cold store know these claims
for all batches. They come from the producer, so they only say where to look: the answer is a
record, and if a batch does not contain the time in its header (because compaction has emptied it,
because the record lies before the log start, or because it was never true), the search continues.

The owner drives a search: `next_job` returns the next piece of work, which depends only on its
arguments and may run in another thread; `heard` takes the result. In between the log may grow, lose
its beginning, or move into the cold store: positions are offsets, looked up again each time.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

import attrs

from broker.ports import ColdReader
from broker.reads.reader import Reader
from broker.state_machine.partition import PartitionState
from wire.records.batch import Batch, parse_header
from wire.records.times import Timed, first_reaching, greatest

MAX_TIMESTAMP: Final = -3
"""How KIP-734 asks for the record with the greatest time."""

_UNKNOWN: Final = 1 << 62
"""The possible cost of work on cold data: unknown before it is done."""


class Pace(Protocol):
    """How work shares its thread with others."""

    def rest(self) -> None:
        """Called now and then: let others run."""

    @property
    def stopped(self) -> bool:
        """Nobody waits for this work any more."""


Work: TypeAlias = Callable[[Pace, int], Timed | None]
"""Called with the number of bytes that a batch may have when decompressed.

Raises StorageError, UnreadableError or BatchError.
"""


@attrs.frozen
class Job:
    prepared: Callable[[Reader], tuple[Work, bool]]
    """Returns the work, and whether it has to read from disk: then it needs another thread,
    whatever its size. Raises UnreadableError."""
    bytes: int
    records: int
    """How many records it examines at most."""
    offset: int
    """The offset where it begins."""


class Search(Protocol):
    found: Timed | None
    """The result, once there are no more jobs; None: there is no such record."""

    def next_job(self) -> Job | None:
        """The next piece of work; None: `found` is final."""

    def heard(self, found: Timed | None) -> None:
        """Take the result of the job."""


def search(state: PartitionState, timestamp_ms: int) -> Search:
    """The first record that is not earlier or, for MAX_TIMESTAMP, the one that has the greatest
    time: the first of them, if there are several."""
    if timestamp_ms == MAX_TIMESTAMP:
        return Greatest(state)
    return FirstReaching(state, timestamp_ms)


class FirstReaching:
    """Searches from the log start on to the end."""

    def __init__(self, state: PartitionState, timestamp_ms: int) -> None:
        self.found: Timed | None = None
        self._state, self._time_ms = state, timestamp_ms
        self._since = state.log_start
        """There is nothing before this offset."""
        self._until = self._since
        """Where the job under way ends."""

    def next_job(self) -> Job | None:
        state = self._state
        if self.found is not None and self.found.offset >= state.log_start:
            return None
        self.found = None
        since = self._since = max(self._since, state.log_start)
        if since >= state.next_offset:
            return None
        if since < state.index_start:
            self._until = state.index_start
            return _in_cold(
                partial(_first_in_cold, state.cold, state.uid, self._time_ms, since, self._until),
                since,
            )
        number = state.index.reaching(self._time_ms, since)
        if number is None:
            return None
        job, self._until = _in_log(
            state, number, lambda batch: partial(_first_in_batch, batch, self._time_ms, since)
        )
        return job

    def heard(self, found: Timed | None) -> None:
        assert found is None or self._since <= found.offset < self._until
        self.found = found
        if found is None:
            self._since = self._until


class Greatest:
    """Goes through the batches by the times they claim, greatest first, until no other can have a
    greater one, or an equal one earlier: first those in the log, then those in the cold store."""

    def __init__(self, state: PartitionState) -> None:
        self.found: Timed | None = None
        self._state = state
        self._seen: tuple[int, int] | None = None
        """Claim and number of the batch examined last."""
        self._next: tuple[int, int] | None = None
        self._cold_done = False
        self._since = state.log_start

    def next_job(self) -> Job | None:
        state = self._state
        if self.found is not None and self.found.offset < state.log_start:
            self.found = self._seen = self._next = None  # it has gone meanwhile
            self._cold_done = False
        since, index = state.log_start, state.index
        self._since = since
        number = index.next_latest(self._seen)
        if number is not None and _may_beat(index.timestamp(number), index.base(number), self):
            self._next = index.timestamp(number), number
            job, _ = _in_log(state, number, lambda batch: partial(_greatest_in_batch, batch, since))
            return job
        if since < state.index_start and not self._cold_done:
            self._next = None
            until, best = state.index_start, self.found
            return _in_cold(
                partial(_greatest_in_cold, state.cold, state.uid, since, until, best), since
            )
        return None

    def heard(self, found: Timed | None) -> None:
        assert found is None or found.offset >= self._since
        if self._next is None:
            self._cold_done = True
        else:
            self._seen = self._next
        self.found = _greater(self.found, found)


def _greater(one: Timed | None, other: Timed | None) -> Timed | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda record: (-record.timestamp_ms, record.offset))


def _may_beat(claim_ms: int, base: int, search: Greatest) -> bool:
    best = search.found
    return best is None or (-claim_ms, base) < (-best.timestamp_ms, best.offset)


def _in_log(state: PartitionState, number: int, look: Callable[[Batch], Work]) -> tuple[Job, int]:
    """A job about one batch, and the offset after it."""
    index = state.index
    base, size = index.base(number), index.size(number)
    end = index.base(number + 1) if number + 1 < index.stop else state.next_offset

    def prepared(reader: Reader) -> tuple[Work, bool]:
        read, waits = reader.batch(state, number)

        def work(pace: Pace, bytes_max: int) -> Timed | None:
            data = read()
            return look(Batch(parse_header(data)._replace(base_offset=base), data))(pace, bytes_max)

        return work, waits

    return Job(prepared, size, end - base, base), end


def _in_cold(work: Work, offset: int) -> Job:
    return Job(lambda _: (work, True), _UNKNOWN, _UNKNOWN, offset)


# -- work: in any thread ------------------------------------------------------------------------


def _first_in_batch(
    batch: Batch, time_ms: int, since: int, pace: Pace, bytes_max: int
) -> Timed | None:
    return first_reaching(batch, time_ms, since, bytes_max=bytes_max, rest=pace.rest)


def _greatest_in_batch(batch: Batch, since: int, pace: Pace, bytes_max: int) -> Timed | None:
    return greatest(batch, since, bytes_max=bytes_max, rest=pace.rest)


def _first_in_cold(
    cold: ColdReader, uid: int, time_ms: int, since: int, until: int, pace: Pace, bytes_max: int
) -> Timed | None:
    """The first record not earlier than the time that has an offset from `since` to `until`."""
    while not pace.stopped:
        base = cold.find_time(uid, time_ms, since)
        if base is None or base >= until:
            break
        batch = _cold_batch(cold, uid, base)
        found = _first_in_batch(batch, time_ms, since, pace, bytes_max)
        if found is not None:
            return found
        since = batch.header.last_offset + 1
        pace.rest()
    return None


def _greatest_in_cold(
    cold: ColdReader,
    uid: int,
    since: int,
    until: int,
    best: Timed | None,
    pace: Pace,
    bytes_max: int,
) -> Timed | None:
    """`best`, or a record from `since` to `until` with a greater time, or the same one earlier."""
    seen: tuple[int, int] | None = None
    while not pace.stopped:
        seen = cold.next_latest(uid, since, until, seen)
        if seen is None:
            break
        claim_ms, base = seen
        if best is not None and (-claim_ms, base) >= (-best.timestamp_ms, best.offset):
            break
        batch = _cold_batch(cold, uid, base)
        best = _greater(best, _greatest_in_batch(batch, since, pace, bytes_max))
        pace.rest()
    return best


def _cold_batch(cold: ColdReader, uid: int, base: int) -> Batch:
    (data, *_) = cold.read(uid, base, 1)
    header = parse_header(data)
    return Batch(header, data[: header.size])
