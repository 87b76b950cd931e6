"""Which batches a reader of committed records skips: markers, and data of aborted transactions.

KIP-98: a fetch response lists the first offset of every aborted transaction. From there to its
abort marker, readers skip the transactional batches of that producer. A transaction may extend over
several responses, so this state is kept between them.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import attrs

from wire.messages.fetch import AbortedTransaction
from wire.records.batch import (
    CONTROL_BIT,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    Batch,
    BatchError,
    iterate_records,
)

ABORT_MARKER: Final = 0
MARKER_TYPE_AT: Final = 2


@attrs.define(eq=False)
class Transactions:
    """The transactions of one partition; call `skips` with its batches in order."""

    _aborting: set[int] = attrs.Factory(set)
    """Producers that are in a transaction which will be aborted."""
    _to_come: deque[AbortedTransaction] = attrs.Factory(deque)

    def set_aborted(self, aborted: Iterable[AbortedTransaction] | None) -> None:
        """Set the aborted transactions of the response that contains the next batches."""
        self._to_come = deque(sorted(aborted or (), key=_first_offset))

    def skips(self, batch: Batch) -> bool:
        """Whether a reader skips this batch."""
        header = batch.header
        while self._to_come and self._to_come[0].first_offset <= header.last_offset:
            self._aborting.add(self._to_come.popleft().producer_id)
        if header.attributes & CONTROL_BIT:
            if header.producer_id in self._aborting and _is_abort(batch):
                self._aborting.discard(header.producer_id)
            return True
        return (
            header.producer_id != NO_PRODUCER_ID
            and bool(header.attributes & TRANSACTIONAL_BIT)
            and header.producer_id in self._aborting
        )

    def forget(self) -> None:
        """Reset: reading continues at another offset."""
        self._aborting.clear()
        self._to_come.clear()


def _first_offset(one: AbortedTransaction) -> int:
    return one.first_offset


def _is_abort(batch: Batch) -> bool:
    """Whether this marker aborts: a marker's key is its version and its type."""
    try:
        record = next(iterate_records(batch), None)
    except BatchError:
        return False
    key = b"" if record is None or record.key is None else record.key
    return int.from_bytes(key[MARKER_TYPE_AT : MARKER_TYPE_AT + 2], "big") == ABORT_MARKER
