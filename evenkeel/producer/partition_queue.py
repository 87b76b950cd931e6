"""The way of one partition's records to its leader: batches, their order, and their sequences.

A function of the events it is given: no clock, no socket. The producer asks `next` what to send
now, and reports each outcome. A batch is *ready* (no sequence yet), then *unresolved*: it has a
sequence, and is either in flight or waits to be sent again. A broker remembers the last five
batches of a producer (KIP-98); it answers a batch that it gets again with its first offset. So from
the oldest unresolved batch on, at most `window` batches have a sequence, including those already
acknowledged: with more, the broker could have forgotten that it has the oldest.

    ready --next--> in flight --acknowledged--> done
                    |   ^    `--failed---------> done, with an error
              again |   | next, in order of the sequences
                    v   |
                   waiting

A broker that does not know a producer accepts any sequence as its first. So only one batch is in
flight until the first of an epoch is acknowledged: a leader that refused it and accepted the second
would have them in the wrong order.

Sequences have no holes. When a batch is given up although later ones have sequences, the broker
refuses those (OUT_OF_ORDER_SEQUENCE_NUMBER), which proves that they are not in the log: they become
ready again. Once nothing is unresolved or in flight the epoch is raised and sequences begin at 0
(KIP-360; epochs are per producer and partition, so each partition raises its own). A batch whose
fate is unknown is never given another sequence.
"""

from collections import deque
from enum import Enum, auto
from typing import Final

import attrs
import trio

from evenkeel.errors import DeliveryError
from wire.cluster_view import TopicPartition
from wire.codec.primitives import Buffer
from wire.records.batch import NO_PRODUCER_ID, NO_SEQUENCE, Record
from wire.records.batch_writer import BatchWriter

SEQUENCE_END: Final = 1 << 31
EPOCH_MAX: Final = 32_767
NEVER: Final = float("inf")


class State(Enum):
    READY = auto()
    IN_FLIGHT = auto()
    WAITING = auto()
    DONE = auto()


@attrs.frozen
class Appended:
    """A batch's position in the log; `offset` is -1 if the broker did not report it."""

    offset: int
    log_append_time_ms: int = -1


@attrs.define(eq=False)
class Batch:
    """Records that are sent together. `outcome` is set once, then `done`."""

    place: TopicPartition
    number: int
    deadline: float
    created: float
    writer: BatchWriter = attrs.Factory(BatchWriter)
    state: State = State.READY
    full: bool = False
    buffered: int = 0
    """Bytes of the producer's memory it uses until it is done."""
    payload: Buffer | None = None
    """The compressed records, from the first attempt on."""
    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    sequence: int = NO_SEQUENCE
    order: int = -1
    """The number of batches of the partition sent before it."""
    attempts: int = 0
    maybe_written: bool = False
    retry_at: float = 0.0
    outcome: Appended | DeliveryError | None = None
    done: trio.Event = attrs.Factory(trio.Event)

    def settle(self, outcome: Appended | DeliveryError) -> None:
        assert self.outcome is None, "a batch has one outcome"
        self.state = State.DONE
        self.outcome = outcome
        self.payload = None
        self.done.set()


@attrs.define(eq=False)
class PartitionQueue:
    """One partition of one producer. Times are seconds of one monotonic clock."""

    place: TopicPartition
    window: int
    idempotent: bool
    ready: deque[Batch] = attrs.Factory(deque)
    unresolved: list[Batch] = attrs.Factory(list)
    """In order of their sequences."""
    in_flight: int = 0
    """Requests in flight, including those of batches that were given up."""
    producer_id: int = NO_PRODUCER_ID
    epoch: int = 0
    next_sequence: int = 0
    hole: bool = False
    """A batch with a sequence was given up: no later sequence can succeed."""
    known: bool = False
    """The broker has acknowledged a sequence of this epoch, so it will refuse a gap."""
    resets: int = 0
    """How often sequences restarted: after holes, and after logs lost acknowledged batches."""
    _numbers: int = 0
    _sent: int = 0

    @property
    def _window_now(self) -> int:
        return self.window if self.known or not self.idempotent else 1

    @property
    def _window_is_full(self) -> bool:
        return bool(self.unresolved) and self._sent - self.unresolved[0].order >= self._window_now

    @property
    def empty(self) -> bool:
        return not self.ready and not self.unresolved

    def append(
        self, record: Record, size: int, *, now: float, deadline: float, batch_bytes: int
    ) -> tuple[Batch, int, bool]:
        """Queue a record; returns its batch, its index there, and whether one may now be due."""
        batch = self.ready[-1] if self.ready else None
        fresh = batch is None or batch.full or batch.sequence != NO_SEQUENCE
        if batch is not None and not fresh and batch.writer.size + size > batch_bytes:
            batch.full = fresh = True
        if batch is None or fresh:
            batch = Batch(self.place, self._numbers, deadline, now)
            self._numbers += 1
            self.ready.append(batch)
        index = batch.writer.count
        batch.writer.append(record)
        batch.buffered += size
        if batch.writer.size >= batch_bytes:
            batch.full = True
        return batch, index, fresh or batch.full

    # -- what may be sent ------------------------------------------------------------------------

    def next(self, now: float, linger: float) -> Batch | None:
        """The batch to send now, marked as in flight; None if nothing is due."""
        for batch in self.unresolved:
            if batch.state is State.WAITING:
                return self._mark_in_flight(batch) if batch.retry_at <= now else None
        if not self.ready or self._window_is_full:
            return None
        batch = self.ready[0]
        if batch is self.ready[-1] and not batch.full and batch.created + linger > now:
            return None
        if self.idempotent and not self._number(batch):
            return None
        self.ready.popleft()
        self.unresolved.append(batch)
        batch.order = self._sent
        self._sent += 1
        return self._mark_in_flight(batch)

    def _mark_in_flight(self, batch: Batch) -> Batch:
        batch.state = State.IN_FLIGHT
        batch.full = True
        batch.attempts += 1
        self.in_flight += 1
        return batch

    def _number(self, batch: Batch) -> bool:
        """Give a batch the next sequence; False while that is not possible."""
        if self.producer_id == NO_PRODUCER_ID:
            return False
        if self.hole:
            if self.unresolved or self.in_flight:
                return False
            if self.epoch >= EPOCH_MAX:
                self.producer_id = NO_PRODUCER_ID  # the producer asks for another
                return False
            self.epoch += 1
            self._begin_again()
        batch.producer_id, batch.epoch = self.producer_id, self.epoch
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.writer.count) % SEQUENCE_END
        return True

    def _begin_again(self) -> None:
        self.next_sequence = 0
        self.hole = self.known = False
        self.resets += 1

    def wants_producer_id(self) -> bool:
        return self.idempotent and self.producer_id == NO_PRODUCER_ID and bool(self.ready)

    def use_producer_id(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.next_sequence = 0
        self.hole = self.known = False

    def due_at(self, linger: float) -> float:
        """When `next` may return a batch. If that time is past and it returns none, an event must
        come first: an answer, a leader, a producer id."""
        for batch in self.unresolved:
            if batch.state is State.WAITING:
                return batch.retry_at
        if not self.ready or self._window_is_full:
            return NEVER
        first = self.ready[0]
        alone = first is self.ready[-1] and not first.full
        return first.created + linger if alone else first.created

    def deadline(self) -> float:
        """When `expire` will next return a batch."""
        batches = self.unresolved if not self.ready else [*self.unresolved, self.ready[0]]
        return min((batch.deadline for batch in batches), default=NEVER)

    # -- outcomes ---------------------------------------------------------------------------------

    def acknowledged(self, batch: Batch, where: Appended) -> None:
        self.in_flight -= 1
        if batch.state is State.DONE:
            return  # given up before, and reported so; `maybe_written` covers this case
        self.unresolved.remove(batch)
        self.known = self.known or batch.epoch == self.epoch
        batch.settle(where)

    def again(self, batch: Batch, retry_at: float, *, maybe_written: bool) -> None:
        """Not acknowledged: retry. `maybe_written` unless the broker ruled that out."""
        self.in_flight -= 1
        if batch.state is State.DONE:
            return
        batch.maybe_written |= maybe_written
        batch.state, batch.retry_at = State.WAITING, retry_at

    def out_of_order(self, batch: Batch, retry_at: float) -> None:
        """The broker does not have the batches before this one, so it does not have this one
        either."""
        self.in_flight -= 1
        if batch.state is State.DONE:
            return
        batch.maybe_written = False
        if batch is not self.unresolved[0]:
            batch.state, batch.retry_at = State.WAITING, retry_at
            return
        self.hole = True
        self.unresolved.remove(batch)
        batch.state = State.READY
        batch.sequence, batch.retry_at = NO_SEQUENCE, 0.0
        at = sum(one.number < batch.number for one in self.ready)
        self.ready.insert(at, batch)

    def failed(self, batch: Batch, error: DeliveryError) -> None:
        """The broker will never accept the batch, and has not written it."""
        self.in_flight -= 1
        if batch.state is State.DONE:
            return
        batch.state = State.WAITING  # no longer in flight: its sequence may be given again
        self._give_up(batch, error)

    def expire(self, now: float) -> list[Batch]:
        """Give up batches past their deadline; returns them, settled."""
        late = [one for one in (*self.unresolved, *self.ready) if one.deadline <= now]
        for batch in late:
            in_flight = batch.state is State.IN_FLIGHT
            maybe_written = batch.maybe_written or in_flight
            why = "the last attempt is not answered yet" if in_flight else "every attempt failed"
            if not batch.attempts:
                why = "there was no leader to send it to, or it was too slow"
            self._give_up(
                batch,
                DeliveryError(
                    f"records for {self.place} were not acknowledged in time",
                    why=why,
                    advice="they may be in the log" if maybe_written else "they are not in the log",
                    maybe_written=maybe_written,
                    retriable=True,  # only time has run out
                ),
            )
        return late

    def abandon(self, error: DeliveryError) -> list[Batch]:
        """Give up all batches: the producer is closing, or not let in."""
        all_of_them = [*self.unresolved, *self.ready]
        for batch in all_of_them:
            maybe_written = batch.maybe_written or batch.state is State.IN_FLIGHT
            one = DeliveryError(
                error.what, why=error.why, advice=error.advice, maybe_written=maybe_written
            )
            one.__cause__ = error.__cause__
            self._give_up(batch, one)
        return all_of_them

    def _give_up(self, batch: Batch, error: DeliveryError) -> None:
        if batch.state is State.READY:
            self.ready.remove(batch)
        else:
            last = batch is self.unresolved[-1]
            self.unresolved.remove(batch)
            if last and not batch.maybe_written and batch.state is not State.IN_FLIGHT:
                self.next_sequence = batch.sequence
            else:
                self.hole = self.hole or batch.sequence != NO_SEQUENCE
        batch.settle(error)
