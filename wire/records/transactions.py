"""Which batches of a log are no records for a reader: markers, and what aborted transactions wrote.

KIP-98: between the first offset of an aborted transaction, which the answer to a fetch tells to
those who read committed records only, and its marker, the transactional batches of that producer do
not count. A transaction may reach over several answers, so this is kept from one to the next.
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
    """Of one partition, whose batches are shown to it in order."""

    _aborting: set[int] = attrs.Factory(set)
    """Producers within a transaction that ends in an abort."""
    _to_come: deque[AbortedTransaction] = attrs.Factory(deque)

    def set_aborted(self, aborted: Iterable[AbortedTransaction] | None) -> None:
        """What the answer says that holds the batches which are shown next."""
        self._to_come = deque(sorted(aborted or (), key=_first_offset))

    def skips(self, batch: Batch) -> bool:
        """Whether the batch has nothing for a reader."""
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
        """Reading goes on somewhere else."""
        self._aborting.clear()
        self._to_come.clear()


def _first_offset(one: AbortedTransaction) -> int:
    return one.first_offset


def _is_abort(batch: Batch) -> bool:
    """A marker's key is its version and its type."""
    try:
        record = next(iterate_records(batch), None)
    except BatchError:
        return False
    key = b"" if record is None or record.key is None else record.key
    return int.from_bytes(key[MARKER_TYPE_AT : MARKER_TYPE_AT + 2], "big") == ABORT_MARKER
