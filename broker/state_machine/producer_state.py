"""Idempotent producers of one partition: a batch sent twice is appended once (KIP-98, KIP-360).

All of it follows from the headers of the batches in the log, so every replica knows the same, and a
new master continues where the old one stopped. For each producer id the epoch and the last five
batches are remembered, as in Kafka; clients also keep at most five in flight.

A batch older than those five is a duplicate only if we know that all of its sequence numbers were
appended. Numbers are contiguous within an epoch from the first one we saw on (R16),
so that first one is remembered too. Before it we know nothing: to say "duplicate" there could tell
a producer that a batch is safe although it was refused on its way here.

An unknown producer begins at 0: a low number above it may mean that an earlier batch was refused on
its way here, say by a node that was not master yet, and will be retried; if this batch were
appended now, it would precede that one (found by the swarm: seed 22 with brokers). If the master
finds that this is not so, it says where the producer begins (`admit`,
`broker.producers.unknown_producers`). A number that is too high to follow a refused batch is
admitted.

The state of a partition is bounded: over the limit, the producer that has not appended for the
longest time is forgotten, by every replica at the same batch. From then on an unknown producer may
be one that was forgotten, and may begin anywhere.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import attrs

from wire.error_codes import ErrorCode

SEQUENCES: Final = 1 << 31
"""Sequence numbers wrap around from 2^31 - 1 to 0."""
BATCHES_REMEMBERED: Final = 5
PRODUCERS_MAX: Final = 2_000
"""Per partition, about a kilobyte each. A retry is only at risk of being appended twice if this
many other idempotent producers wrote to its partition between the two attempts."""
IN_FLIGHT_RECORDS_MAX: Final = 1 << 16
"""More than clients have in flight at once: five batches, of 10,000 records at most by default."""
CONTIGUOUS_MAX: Final = SEQUENCES // 2
"""Further back than this, a sequence number could just as well be a future one."""


class Verdict(NamedTuple):
    """Why a batch must not be appended; a duplicate has error NONE and its first offset."""

    error: ErrorCode
    base_offset: int


_FENCED: Final = Verdict(ErrorCode.INVALID_PRODUCER_EPOCH, -1)
_OUT_OF_ORDER: Final = Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
_LONG_KNOWN: Final = Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)


@attrs.define(eq=False)
class _Producer:
    epoch: int
    last: int = -1
    contiguous: int = 0
    """How many sequence numbers up to `last` are known to have been appended."""
    recent: list[tuple[int, int, int]] = attrs.Factory(list)
    """First and last sequence number and base offset of the last batches, oldest first."""


class ProducerImage(NamedTuple):
    """What is known of one producer, in the form that a checkpoint has."""

    producer_id: int
    epoch: int
    last: int
    contiguous: int
    recent: list[tuple[int, int, int]]


class Producers:
    __slots__ = ("_by_id", "forgot", "limit")

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self.limit = limit
        self._by_id: dict[int, _Producer] = {}
        """In the order of their last batches."""
        self.forgot = False
        """Whether an unknown producer may be one that was forgotten."""

    def __len__(self) -> int:
        return len(self._by_id)

    def images(self) -> Iterator[ProducerImage]:
        """All of them, the one silent for the longest time first."""
        for producer_id, one in self._by_id.items():
            yield ProducerImage(producer_id, one.epoch, one.last, one.contiguous, one.recent)

    def load(self, images: Iterable[ProducerImage], forgot: bool) -> None:
        """Replace the known producers by these, in this order."""
        self._by_id = {
            one.producer_id: _Producer(one.epoch, one.last, one.contiguous, one.recent)
            for one in images
        }
        self.forgot = forgot

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._by_id

    def admit(self, producer_id: int, epoch: int, first: int) -> None:
        """An unknown producer continues with this sequence number."""
        if producer_id not in self._by_id:
            self._by_id[producer_id] = _Producer(epoch, (first - 1) % SEQUENCES)
            self._forget_over_limit()

    def judge(self, producer_id: int, epoch: int, first: int, last: int) -> Verdict | None:
        """None if the batch with these sequence numbers is to be appended."""
        producer = self._by_id.get(producer_id)
        if producer is None:
            may_begin = first == 0 or first >= IN_FLIGHT_RECORDS_MAX or self.forgot
            return None if may_begin else _OUT_OF_ORDER
        if epoch != producer.epoch:
            if epoch < producer.epoch:
                return _FENCED
            return None if first == 0 else _OUT_OF_ORDER
        if first == (producer.last + 1) % SEQUENCES:
            return None
        for known_first, known_last, base_offset in producer.recent:
            if known_first == first and known_last == last:
                return Verdict(ErrorCode.NONE, base_offset)
        behind = (producer.last - first) % SEQUENCES + 1
        length = (last - first) % SEQUENCES + 1
        return _LONG_KNOWN if length <= behind <= producer.contiguous else _OUT_OF_ORDER

    def appended(self, producer_id: int, epoch: int, first: int, last: int, offset: int) -> None:
        """The batch was not refused by `judge` and now lies at `offset`."""
        producer = self._by_id.pop(producer_id, None)
        if producer is None or producer.epoch != epoch:
            producer = _Producer(epoch)
        self._by_id[producer_id] = producer
        length = (last - first) % SEQUENCES + 1
        producer.last = last
        producer.contiguous = min(producer.contiguous + length, CONTIGUOUS_MAX)
        recent = producer.recent
        if len(recent) == BATCHES_REMEMBERED:
            del recent[0]
        recent.append((first, last, offset))
        self._forget_over_limit()

    def _forget_over_limit(self) -> None:
        if len(self._by_id) > self.limit:
            del self._by_id[next(iter(self._by_id))]
            self.forgot = True
