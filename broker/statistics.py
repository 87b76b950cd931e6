"""Counters of the data path: plain integers, incremented on the hot path, read by the metrics."""

from collections import deque
from typing import Final

import attrs

DAMAGED_AT_MAX: Final = 64


@attrs.define(eq=False)
class BrokerStatistics:
    """Counters since the start; `errors` by error code, counting each partition answered with
    it."""

    produce_requests: int = 0
    produce_batches: int = 0
    produce_records: int = 0
    produce_bytes: int = 0
    produce_timeouts: int = 0
    produce_read_aside: int = 0
    produce_behind_refusal: int = 0
    """Batches refused because an earlier one on the same connection was (ordering_barriers)."""
    duplicates: int = 0
    """Batches of producers and of writers that had been appended before; on every replica."""
    fetch_requests: int = 0
    fetch_bytes: int = 0
    fetched_unaware: int = 0
    """Partitions read for clients that do not know that the master has moved (ADR 50)."""
    fetches_parked: int = 0
    reads_given_up: int = 0
    """Fetches answered without data that the disk did not deliver in time."""
    fetches_refused: int = 0
    """Answered at once, because no more may wait."""
    list_offsets_requests: int = 0
    log_reads: int = 0
    log_bytes: int = 0
    """Read from the log, because the in-memory tail did not reach back that far."""
    cold_reads: int = 0
    cold_bytes: int = 0
    """Read from cold segments: no longer in the log either."""
    retention_trims: int = 0
    retention_records: int = 0
    """Deleted because of their age or number; counted on the master that proposed it."""
    damaged_reads: int = 0
    damaged_at: deque[int] = attrs.Factory(lambda: deque(maxlen=DAMAGED_AT_MAX))
    """Positions of such damage in the log, for the repair task, which removes them."""
    damaged_cold: deque[tuple[int, int]] = attrs.Factory(lambda: deque(maxlen=DAMAGED_AT_MAX))
    """Partition and offset of such damage in cold data; likewise."""
    errors: dict[int, int] = attrs.Factory(dict)

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1
