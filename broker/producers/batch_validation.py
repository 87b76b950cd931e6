"""Which checks a producer's batch undergoes before it is appended, where, and by which rules.

The node that a client talks to reads every record (`wire.records.validation`). Small batches,
nearly all of them, are read on the loop; batches that would block it for milliseconds, or turn out
to be large when decompressed, are read in the background. One thread does that, one batch at a
time: so at most one batch of a node is being decompressed there, using at most `unpacked_bytes_max`
of memory (broker.requests.request_memory), however many clients send large ones. Waiting batches
are frames of connections that are not read meanwhile (`Reply.stop_reading`), one per connection: so
nothing that a client sent later overtakes a batch that is still being read, and the queue is
bounded.

A node that gets a batch from another one (`runtime.engine.forwarding`) checks its header again, and
its records if that can be done on the loop. For a larger one it trusts the other node: nodes crash,
and links corrupt bytes, which the checksum detects; nodes do not invent things.
"""

from collections.abc import Callable, Mapping
from typing import Final

from broker.lifecycle.compaction import RECORDS_MAX as COMPACTED_RECORDS_MAX
from broker.lifecycle.compaction import UNPACKED_BYTES_MAX as COMPACTED_BYTES_MAX
from broker.topic_configs import (
    LOG_APPEND_TIME,
    TIMESTAMP_AFTER_MAX_MS,
    TIMESTAMP_AFTER_MAX_MS_DEFAULT,
    TIMESTAMP_BEFORE_MAX_MS,
    TIMESTAMP_TYPE,
    is_compacted,
)
from paxos.ids import MS, Now
from wire.error_codes import ErrorCode
from wire.records.batch import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    RECORD_BYTES_MIN,
    TIMESTAMP_END,
    TRANSACTIONAL_BIT,
    Batch,
    BatchError,
    TooMuchError,
)
from wire.records.validation import READABLE, Rules, check_records

ON_LOOP_RECORDS_MAX: Final = 2_000
"""About a millisecond."""
ON_LOOP_BYTES_MAX: Final = 1024 * 1024
"""Size of a compressed batch, and of its contents: one or two milliseconds, three with gzip."""
RECORDS_MAX: Final = 1_000_000
"""In one batch: about a second in the background. Java's producer splits batches refused as too
large."""


def rules_of(configs: Mapping[str, str], now: Now) -> Rules:
    """What a topic with these settings demands of records that arrive now.

    With a clock that is not trusted nothing is refused by its time: the refusal would be final.
    """
    earliest_ms, latest_ms = READABLE.earliest_ms, READABLE.latest_ms
    if now.trusted and configs.get(TIMESTAMP_TYPE) != LOG_APPEND_TIME:
        now_ms = now.wall_ns // MS
        before = configs.get(TIMESTAMP_BEFORE_MAX_MS)
        after = configs.get(TIMESTAMP_AFTER_MAX_MS)
        after_ms = TIMESTAMP_AFTER_MAX_MS_DEFAULT if after is None else int(after)
        earliest_ms = now_ms - (TIMESTAMP_END - 1 if before is None else int(before))
        latest_ms = min(now_ms + after_ms, latest_ms)
    return Rules(earliest_ms, latest_ms, bool(configs) and is_compacted(configs))


def check_on_loop(batch: Batch, rules: Rules) -> int | None:
    """The greatest timestamp of its records; None: it has to be read in the background.

    Raises:
        BatchError: as `check_records`; MESSAGE_TOO_LARGE for more records than are allowed at all.
    """
    count = batch.header.record_count
    if count > ON_LOOP_RECORDS_MAX:
        if count * RECORD_BYTES_MIN > DECOMPRESSED_BYTES_MAX:
            raise BatchError(ErrorCode.INVALID_RECORD, f"{count} records cannot be in one batch")
        many = COMPACTED_RECORDS_MAX if rules.keyed else RECORDS_MAX
        if count > many:
            what = f"{count} records in one batch, {many} are allowed"
            raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, what)
        return None
    if batch.header.attributes & COMPRESSION_MASK and len(batch.data) > ON_LOOP_BYTES_MAX:
        return None
    try:
        return check_records(batch, rules, bytes_max=ON_LOOP_BYTES_MAX)
    except TooMuchError:
        return None


def check_in_background(
    batch: Batch,
    rules: Rules,
    rest: Callable[[], None],
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> int:
    """The greatest timestamp of its records, however long that takes.

    Raises:
        BatchError: as `check_records`.
    """
    size = min(bytes_max, COMPACTED_BYTES_MAX) if rules.keyed else bytes_max
    return check_records(batch, rules, bytes_max=size, rest=rest)


def check_forwarded(batch: Batch) -> None:
    """
    Raises:
        BatchError: if no node that checks what it receives can have sent this.
    """
    if batch.header.attributes & TRANSACTIONAL_BIT:
        raise BatchError(ErrorCode.INVALID_RECORD, "a transaction's")
    check_on_loop(batch, READABLE)
