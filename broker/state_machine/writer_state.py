"""Write tokens of one partition: a micro-batch that is run twice is appended once (ADR 28).

A streaming job writes record batches whose headers say where they belong
(`wire.records.write_tokens`): the writer, its micro-batch, the chunk within it, and whether more
chunks follow. For each writer only the last position is remembered; that suffices, because one
writer's micro-batches come in order, and each is finished before the next begins:

    an unknown writer, or a later micro-batch    appended if it is chunk 0
    an earlier micro-batch                       there already
    the same micro-batch: a chunk that is there  there already; of the last five we say where
                          the next chunk         appended, if more were to follow
    any other chunk                              out of order

What is there was written by the first run, which is right only if the second run would write the
same: otherwise rows get lost that the first one had not reached. So a writer is told where the
chunks are that it wants to write again, and can compare; a writer with more chunks than a completed
micro-batch had is not told that they exist. To say so of a later micro-batch would lose it; to
append an earlier one would write it twice.

Writers are kept apart from idempotent producers, so that these, many of which live for minutes, do
not push out the position of a job that is stopped for a weekend. Over the limit, the writer that
has not appended for the longest time is forgotten, by every replica at the same batch; if it
returns, it begins anew.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from broker.state_machine.producer_state import Verdict
from wire.error_codes import ErrorCode
from wire.records.write_tokens import Position, position_of

WRITERS_MAX: Final = 2_000
"""Per partition, about 330 bytes each. A writer is a task of a job: a shuffle makes 200 of them."""
CHUNKS_REMEMBERED: Final = 5
"""With their offsets, as for idempotent producers."""

_OUT_OF_ORDER: Final = Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
_THERE_ALREADY: Final = Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)


class Writer(NamedTuple):
    """What is known of one writer."""

    position: Position
    """Position of the last chunk that was appended."""
    bases: tuple[int, ...] = ()
    """Base offsets of the last chunks of this micro-batch, oldest first."""


class Writers:
    """Takes the place of `Producers` for batches with a token and is called the same way; `last`
    and the order of epochs mean nothing here."""

    __slots__ = ("_by_id", "limit")

    def __init__(self, limit: int = WRITERS_MAX) -> None:
        self.limit = limit
        self._by_id: dict[int, Writer] = {}
        """In the order of their last chunks."""

    def __len__(self) -> int:
        return len(self._by_id)

    def images(self) -> Iterator[tuple[int, Writer]]:
        """All of them by producer id, the one silent for the longest time first."""
        return iter(self._by_id.items())

    def load(self, images: Mapping[int, Writer]) -> None:
        """Replace the known writers by these, in this order."""
        self._by_id = dict(images)

    def judge(self, producer_id: int, epoch: int, first: int, last: int) -> Verdict | None:
        """None if the batch with this token is to be appended."""
        batch, chunk, _ = position_of(epoch, first)
        known = self._by_id.get(producer_id)
        if known is None or batch > known.position.batch:
            return None if chunk == 0 else _OUT_OF_ORDER
        (last_batch, last_chunk, more), bases = known
        if batch < last_batch:
            return _THERE_ALREADY
        if chunk > last_chunk:
            return None if more and chunk == last_chunk + 1 else _OUT_OF_ORDER
        back = last_chunk - chunk
        if back >= len(bases):
            return _THERE_ALREADY
        return Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, bases[-1 - back])

    def appended(self, producer_id: int, epoch: int, first: int, last: int, offset: int) -> None:
        """The batch was not refused by `judge` and now lies at `offset`."""
        position = position_of(epoch, first)
        known = self._by_id.pop(producer_id, None)
        before = known.bases if known is not None and position.chunk else ()
        bases = (*before, offset)[-CHUNKS_REMEMBERED:]
        self._by_id[producer_id] = Writer(position, bases)
        if len(self._by_id) > self.limit:
            del self._by_id[next(iter(self._by_id))]
