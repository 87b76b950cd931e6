"""Offsets for times: a reader must get what the chosen log has."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from simulator.checkers.partition_logs import Log
from simulator.environment.violation import Violation
from wire.messages.list_offsets import ListOffsetsPartitionResponse
from wire.records.batch import PATCHED_BYTES, Batch, iterate_records, parse_header
from wire.records.times import Timed

MAX_TIMESTAMP: Final = -3
TIMES_MS: Final = 64
"""Records' times are below this."""
BATCHES_KEPT: Final = 20_000
"""Batches whose records' times are cached after they were read."""
_SPREAD: Final = 37
_NOTHING: Final = Timed(-1, -1)
_HEAD: Final = bytes(PATCHED_BYTES)


def time_of(number: int) -> int:
    """The time of a client's record with this number: in no order, and often repeated."""
    return number * _SPREAD % TIMES_MS


def listed(
    log: Log, floor: int, time_ms: int, told: ListOffsetsPartitionResponse, *, fresh: bool
) -> None:
    """The first record of this time or later, or, for MAX_TIMESTAMP, the first of the latest ones:
    of a log that ends at `floor`, where it ended when the client asked, or somewhere beyond."""
    answers = dict.fromkeys(_right_answers(log, floor if fresh else 0, time_ms))
    answer = Timed(told.offset, told.timestamp)
    if answer not in answers:
        raise Violation(f"times: {time_ms} is said to be at {answer}, right are {list(answers)}")


def _right_answers(log: Log, floor: int, time_ms: int) -> Iterator[Timed]:
    found = _NOTHING
    if floor == 0:
        yield found
    for base, (content, sent) in zip(log.bases, log.batches, strict=True):
        for record in _records(base, content):
            if time_ms == MAX_TIMESTAMP:
                better = record.timestamp_ms > found.timestamp_ms
            else:
                better = found is _NOTHING and record.timestamp_ms >= time_ms
            found = record if better else found
        if base + sent.records >= floor:
            yield found


@lru_cache(maxsize=BATCHES_KEPT)
def _records(base: int, content: bytes) -> tuple[Timed, ...]:
    """Cached, because each question goes through the log from its start."""
    data = memoryview(_HEAD + content)
    records = iterate_records(Batch(parse_header(data)._replace(base_offset=base), data))
    return tuple(Timed(record.offset, record.timestamp_ms) for record in records)
