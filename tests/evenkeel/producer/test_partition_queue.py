"""Exactly once and in order, whatever happens to requests: the queue against a model of a broker.

The model is Kafka's rule for producers (KIP-98): it remembers the last five batches, accepts only
the next sequence, and begins at 0 with a new epoch. Requests are lost on the way or their answers
are, it refuses for a while, forgets the producer, and deadlines pass. A batch that was acknowledged
must be in its log exactly once, one with a final refusal never, one of unknown fate at most once;
and the log has the order of `append`.
"""

from collections import deque
from random import Random

import attrs
import pytest

from evenkeel.errors import DeliveryError
from evenkeel.producer.partition_queue import (
    EPOCH_MAX,
    NEVER,
    Appended,
    Batch,
    PartitionQueue,
    State,
)
from wire.cluster_view import TopicPartition
from wire.records.batch import Record

PLACE = TopicPartition("t", 0)
WINDOW = 5


@attrs.define
class ModelBroker:
    """One partition's leader."""

    log: list[bytes] = attrs.Factory(list)
    epoch: int = -1
    expected: int = 0
    recent: deque[tuple[int, int, int]] = attrs.Factory(lambda: deque(maxlen=5))
    """(epoch, first sequence, offset)"""
    lost: set[bytes] = attrs.Factory(set)

    def produce(self, epoch: int, sequence: int, values: list[bytes]) -> str | int:
        for known, first, offset in self.recent:
            if (known, first) == (epoch, sequence):
                return offset
        if epoch < self.epoch:
            return "fenced"
        if epoch > self.epoch:
            if sequence != 0 and self.epoch >= 0:
                return "out of order"
        elif sequence != self.expected:
            return "out of order"
        offset = len(self.log)
        self.log += values
        self.epoch, self.expected = epoch, sequence + len(values)
        self.recent.append((epoch, sequence, offset))
        return offset

    def lose_the_last_batch(self) -> None:
        """An unclean election: acknowledged data is lost, and so is the memory of it."""
        if len(self.recent) > 1 and self.recent[-1][0] == self.recent[-2][0]:
            _, sequence, offset = self.recent.pop()
            self.lost.update(self.log[offset:])
            del self.log[offset:]
            self.expected = sequence


@attrs.define
class Story:
    """A producer's life, drawn from one seed."""

    seed: int
    now: float = 0.0
    broker: ModelBroker = attrs.Factory(ModelBroker)
    batches: list[Batch] = attrs.Factory(list)
    under_way: list[tuple[Batch, int, int, list[bytes]]] = attrs.Factory(list)
    values: dict[int, list[bytes]] = attrs.Factory(dict)
    sent: int = 0

    def run(self) -> None:
        dice = Random(self.seed)
        queue = PartitionQueue(PLACE, WINDOW, True)
        queue.use_producer_id(7, dice.choice([0, 3, EPOCH_MAX - 2]))
        for _ in range(400):
            self.now += dice.random()
            self._act(queue, dice)
        while not queue.empty or self.under_way:
            self.now += 1
            self._settle_requests(queue, dice, faults=False)
            self._append_nothing_but_send(queue)
        self._check(dice)

    def _act(self, queue: PartitionQueue, dice: Random) -> None:
        kind = dice.random()
        if kind < 0.5:
            self._append(queue, dice)
        elif kind < 0.9:
            self._settle_requests(queue, dice, faults=True)
        else:
            for _ in range(dice.randint(1, 3)):
                queue.expire(self.now)
        self._append_nothing_but_send(queue)

    def _append(self, queue: PartitionQueue, dice: Random) -> None:
        value = b"%d" % self.sent
        self.sent += 1
        deadline = self.now + dice.choice([3, 20, 1000])
        batch, index, _ = queue.append(
            Record(value), 50, now=self.now, deadline=deadline, batch_bytes=150
        )
        if not index:
            self.batches.append(batch)
            self.values[id(batch)] = []
        self.values[id(batch)].append(value)

    def _append_nothing_but_send(self, queue: PartitionQueue) -> None:
        if queue.wants_producer_id():
            queue.use_producer_id(8, 0)
            self.broker.epoch, self.broker.expected = -1, 0  # to it that is another producer
            self.broker.recent.clear()
        while (batch := queue.next(self.now, 0.5)) is not None:
            assert len(queue.unresolved) <= WINDOW
            request = (batch, batch.epoch, batch.sequence, list(self.values[id(batch)]))
            self.under_way.append(request)

    def _settle_requests(self, queue: PartitionQueue, dice: Random, *, faults: bool) -> None:
        """Some of the requests, in order, as on one connection. A loss takes all that follow it."""
        count = dice.randint(0, len(self.under_way)) if faults else len(self.under_way)
        requests, self.under_way = self.under_way[:count], self.under_way[count:]
        fate = dice.choice(["fine"] * 6 + ["lost", "unanswered", "moved", "too large"])
        if faults and dice.random() < 0.02:
            self.broker.lose_the_last_batch()
        for batch, epoch, sequence, values in requests:
            retry_at = self.now + dice.choice([0, 0.5, 2])
            if faults and fate == "lost":
                queue.again(batch, retry_at, maybe_written=True)
            elif faults and fate == "unanswered":
                self.broker.produce(epoch, sequence, values)
                queue.again(batch, retry_at, maybe_written=True)
            elif faults and fate == "moved":
                queue.again(batch, retry_at, maybe_written=False)
            elif faults and fate == "too large" and not batch.maybe_written:
                queue.failed(batch, DeliveryError("too large"))
                fate = "fine"  # the broker may or may not refuse those behind it
            else:
                self._answer(queue, batch, self.broker.produce(epoch, sequence, values), retry_at)

    def _answer(
        self, queue: PartitionQueue, batch: Batch, answer: str | int, retry_at: float
    ) -> None:
        if answer == "out of order":
            queue.out_of_order(batch, retry_at)
        elif answer == "fenced":
            assert batch.state is State.DONE, "only what was given up may have an old epoch"
            queue.failed(batch, DeliveryError("fenced"))
        else:
            assert isinstance(answer, int)
            queue.acknowledged(batch, Appended(answer))

    def _check(self, dice: Random) -> None:
        log = self.broker.log
        assert len(set(log)) == len(log), "something is in the log twice"
        assert log == sorted(log, key=int), "the log has another order than the producer"
        there = set(log)
        assert all(batch.outcome is not None for batch in self.batches)
        for batch in self.batches:
            values = self.values[id(batch)]
            if isinstance(batch.outcome, Appended) and not self.broker.lost & set(values):
                at = log.index(values[0]) if self.broker.lost else batch.outcome.offset
                assert log[at : at + len(values)] == values
            elif isinstance(batch.outcome, DeliveryError):
                assert batch.outcome.maybe_written or not there & set(values)


@pytest.mark.parametrize("first", range(0, 600, 100))
def test_exactly_once_and_in_order(first: int) -> None:
    for seed in range(first, first + 100):
        try:
            Story(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def queue_with(count: int, *, idempotent: bool = True) -> tuple[PartitionQueue, list[Batch]]:
    """Batches of one record each, none sent yet."""
    queue = PartitionQueue(PLACE, WINDOW if idempotent else 1, idempotent)
    queue.use_producer_id(1, 0)
    for number in range(count):
        queue.append(Record(b"%d" % number), 50, now=0, deadline=10, batch_bytes=60)
    return queue, list(queue.ready)


def test_no_more_than_the_window_is_unresolved() -> None:
    """And only one until the broker knows the producer: before that it accepts any first
    sequence."""
    queue, batches = queue_with(8)
    assert [queue.next(1, 0) for _ in range(2)] == [batches[0], None]
    queue.acknowledged(batches[0], Appended(0))
    assert [queue.next(1, 0) for _ in range(6)] == [*batches[1:6], None]
    queue.acknowledged(batches[2], Appended(1))
    assert queue.next(1, 0) is None, "the broker might forget the first, whose fate is unknown"
    queue.acknowledged(batches[1], Appended(1))
    assert [queue.next(1, 0) for _ in range(3)] == [batches[6], batches[7], None]


def test_without_sequences_one_at_a_time_keeps_order() -> None:
    queue, batches = queue_with(3, idempotent=False)
    assert queue.next(1, 0) is batches[0]
    assert queue.next(1, 0) is None
    queue.again(batches[0], 2.0, maybe_written=True)
    assert queue.next(1.9, 0) is None
    assert queue.due_at(0) == 2.0
    assert queue.next(2.0, 0) is batches[0]
    assert batches[0].sequence == -1


def test_a_batch_waits_for_its_linger_or_until_it_is_full() -> None:
    queue = PartitionQueue(PLACE, WINDOW, False)
    _, _, due = queue.append(Record(b"a"), 50, now=0, deadline=10, batch_bytes=500)
    assert due, "somebody must set a timer"
    assert queue.next(0.4, 0.5) is None
    assert queue.due_at(0.5) == 0.5
    _, index, due = queue.append(Record(b"b"), 50, now=0.1, deadline=10, batch_bytes=500)
    assert (index, due) == (1, False)
    batch = queue.next(0.5, 0.5)
    assert batch is not None
    assert batch.writer.count == 2
    assert queue.due_at(0.5) == NEVER


def test_a_refused_last_batch_gives_its_sequence_back() -> None:
    """A user's mistake must not cost an epoch each."""
    queue, batches = queue_with(2)
    queue.next(0, 0)
    queue.failed(batches[0], DeliveryError("too large"))
    second = queue.next(0, 0)
    assert second is batches[1]
    assert (second.epoch, second.sequence, queue.resets) == (0, 0, 0)


def test_what_is_behind_a_hole_is_sent_under_a_new_epoch() -> None:
    queue, batches = queue_with(4)
    queue.next(0, 0)
    queue.acknowledged(batches.pop(0), Appended(0))
    for _ in range(3):
        queue.next(0, 0)
    queue.failed(batches[0], DeliveryError("refused"))
    queue.out_of_order(batches[1], 0)
    assert queue.next(0, 0) is None, "the third is under way with its old sequence"
    queue.out_of_order(batches[2], 0)
    assert queue.next(0, 0) is batches[1]
    queue.acknowledged(batches[1], Appended(1))
    assert queue.next(0, 0) is batches[2]
    assert [(one.epoch, one.sequence) for one in batches[1:]] == [(1, 0), (1, 1)]


def test_a_late_answer_to_what_was_given_up_changes_nothing() -> None:
    queue, batches = queue_with(1)
    queue.next(0, 0)
    assert queue.expire(10) == batches
    outcome = batches[0].outcome
    assert isinstance(outcome, DeliveryError)
    assert outcome.retriable, "nothing was wrong with it: only time has run out"
    assert outcome.maybe_written
    queue.append(Record(b"next"), 50, now=10, deadline=20, batch_bytes=60)
    assert queue.next(11, 0) is None, "it may be written yet: no new epoch before we know"
    queue.acknowledged(batches[0], Appended(5))
    assert batches[0].outcome is outcome
    following = queue.next(11, 0)
    assert following is not None
    assert (following.epoch, following.sequence) == (1, 0)


def test_used_up_epochs_want_another_producer_id() -> None:
    queue, batches = queue_with(2)
    queue.use_producer_id(1, EPOCH_MAX)
    queue.next(0, 0)
    queue.again(batches[0], 0, maybe_written=True)
    queue.abandon(DeliveryError("closing"))
    queue.append(Record(b"x"), 50, now=0, deadline=10, batch_bytes=60)
    assert queue.next(1, 0) is None
    assert queue.wants_producer_id()
