"""Record batches as they travel between nodes: each is checked before it is written."""

from broker.reads.stored_batch import Batch
from broker.transfer.messages import Data
from wire.records.batch import BatchError, is_intact, split


class BadData(ValueError):
    """A source's batches are not what they claim to be."""


def batches_of(data: Data, at: int, *, fresh: bool) -> list[Batch]:
    """The batches of an answer, which cover the offsets from `at` to its end.

    Only if nothing of the partition is here (`fresh`) may the first batch begin before `at`: any
    other partition already has that batch as a whole.


    Raises:
        BadData: if a checksum is wrong, or the offsets do not follow each other.
    """
    found: list[Batch] = []
    for buffer in data.payload:
        try:
            batches = split(memoryview(buffer))
        except BatchError as error:
            raise BadData(str(error)) from error
        for batch in batches:
            header = batch.header
            base, last = header.base_offset, header.last_offset
            early = base < at and not (fresh and not found and last >= at)
            if early or last < base or (base > at and not data.gaps):
                raise BadData(f"a batch of offsets {base} to {last} where {at} should follow")
            if not is_intact(batch):
                raise BadData(f"the batch at offset {base} has a wrong checksum")
            found.append(Batch(base, last + 1, header.max_timestamp_ms, batch.data))
            at = last + 1
    if at > data.end or (at < data.end and not data.gaps):
        raise BadData(f"batches to offset {at}, and the answer ends at {data.end}")
    return found
