"""What a producer has for one partition, and in which order it may send it."""

from collections import deque
from typing import Final, Protocol

import attrs

from paxos.ids import MS
from simulator.checkers.overtaking import ACKED, Attempt, Sending
from simulator.checkers.partition_logs import PartitionLogs, Sent
from simulator.environment.violation import Violation
from simulator.whole.clients.families import Family
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceResponse
from wire.records.batch import NO_PRODUCER_ID, Record
from wire.records.batch_writer import build_batch

DEFINITE: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS))
"""Who is told so may take it that the batch is not in the log."""
PER_PARTITION_MAX: Final = 5
"""What a broker remembers of a producer (docs/kafka.md)."""
UNSENT_MAX: Final = 30


class Answer(Protocol):
    """One batch on its way; it is told what became of it. True: it was acknowledged."""

    @property
    def data(self) -> bytes: ...

    def heard(self, answer: PartitionProduceResponse | None) -> bool: ...


class BackOff:
    """Doubles with each failure in a row."""

    def __init__(self, family: Family) -> None:
        self._first_ns, self._longest_ns = family.back_off_ns
        self._failures = 0
        self.until_ns = 0

    def failed(self, now_ns: int) -> None:
        wait_ns = min(self._longest_ns, self._first_ns << min(self._failures, 8))
        self._failures += 1
        self.until_ns = max(self.until_ns, now_ns + wait_ns)

    def went_well(self) -> None:
        self._failures = 0


class Lane(Protocol):
    partition: int
    back_off: BackOff

    def add(self, now_ns: int, pad: bytes) -> None:
        """Its application has one more message."""
        ...

    def may_send(self, now_ns: int) -> bool: ...

    def take(self, connection: int, now_ns: int) -> Answer:
        """What is sent next, on this connection."""
        ...


# -- without sequences -----------------------------------------------------------------------------


@attrs.frozen
class _Message:
    number: int
    since_ns: int
    pad: bytes


@attrs.define(eq=False)
class _PlainAnswer:
    lane: "PlainLane"
    attempt: Attempt
    message: _Message

    @property
    def data(self) -> bytes:
        return self.attempt.data

    def heard(self, answer: PartitionProduceResponse | None) -> bool:
        return self.lane.heard(self, answer)


class PlainLane:
    """What was refused goes out again before what is new."""

    def __init__(self, family: Family, sending: Sending, partition: int) -> None:
        self._family, self._sending, self.partition = family, sending, partition
        self.back_off = BackOff(family)
        self._unsent: list[_Message] = []
        self._messages = 0

    def add(self, now_ns: int, pad: bytes) -> None:
        if len(self._unsent) < UNSENT_MAX:
            self._messages += 1
            self._unsent.append(_Message(self._messages, now_ns, pad))

    def may_send(self, now_ns: int) -> bool:
        if now_ns < self.back_off.until_ns:
            return False
        oldest_ns = now_ns - self._family.delivery_ns
        self._unsent = [one for one in self._unsent if one.since_ns > oldest_ns]
        return bool(self._unsent)

    def take(self, connection: int, now_ns: int) -> Answer:
        message = self._unsent.pop(0)
        attempt = self._sending.attempt(connection, message.number, message.pad)
        return _PlainAnswer(self, attempt, message)

    def heard(self, one: _PlainAnswer, answer: PartitionProduceResponse | None) -> bool:
        if answer is None:
            self._sending.gone(one.attempt, goes_on=self._family.keeps)
        elif answer.error_code == ErrorCode.NONE:
            self._sending.acked(one.attempt, answer.base_offset)
            return True
        else:
            self._sending.refused(one.attempt, definitely=answer.error_code in DEFINITE)
        if answer is None or answer.error_code in self._family.retries:
            self._unsent.append(one.message)
            self._unsent.sort(key=lambda message: message.number)
        return False


class SilentLane:
    """acks=0: sent once, and nobody says what became of it."""

    def __init__(
        self, family: Family, truth: PartitionLogs, sending: Sending, partition: int
    ) -> None:
        self._truth, self._sending, self.partition = truth, sending, partition
        self.back_off = BackOff(family)
        self._unsent: deque[bytes] = deque()
        self._messages = 0
        self.unseen: deque[tuple[Attempt, int]] = deque()
        """What was sent, and when; the log is asked for it."""

    def add(self, now_ns: int, pad: bytes) -> None:
        if len(self._unsent) < UNSENT_MAX:
            self._unsent.append(pad)

    def may_send(self, now_ns: int) -> bool:
        return bool(self._unsent) and now_ns >= self.back_off.until_ns

    def take(self, connection: int, now_ns: int) -> Answer:
        self._messages += 1
        attempt = self._sending.attempt(connection, self._messages, self._unsent.popleft())
        self.unseen.append((attempt, now_ns))
        return _SilentAnswer(attempt.data)

    def seen(self) -> int:
        """How many more are in the log; none is missing before one that is there (the truth's
        business)."""
        log, count = self._truth.logs.get(self.partition), 0
        while self.unseen and log is not None:
            attempt, _ = self.unseen[0]
            if log.last.get(attempt.sent.client, 0) < attempt.sent.first:
                break
            attempt.state = ACKED
            self.unseen.popleft()
            count += 1
        return count


@attrs.define
class _SilentAnswer:
    data: bytes

    def heard(self, answer: PartitionProduceResponse | None) -> bool:
        return False


# -- with sequences --------------------------------------------------------------------------------


@attrs.define(eq=False)
class Identity:
    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1

    @property
    def known(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


@attrs.define(eq=False)
class _Batch:
    lane: "SequencedLane"
    sent: Sent
    epoch: int
    sequence: int
    data: bytes
    since_ns: int
    in_flight: bool = False
    attempts: int = 0
    was_first: bool = False
    """Whether all before it had been acknowledged when it was sent last."""

    def heard(self, answer: PartitionProduceResponse | None) -> bool:
        return self.lane.heard(self, answer)


class SequencedLane:
    """An idempotent producer's: batches have numbers, and the next one waits for a retry."""

    def __init__(
        self,
        family: Family,
        truth: PartitionLogs,
        proofs: dict[int, tuple[int, int, int]],
        client: int,
        partition: int,
        window: int,
    ) -> None:
        self._family, self._truth, self._proofs = family, truth, proofs
        self._client, self.partition = client, partition
        self._window_max = window
        self.back_off = BackOff(family)
        self.identity = Identity()
        self._window: deque[_Batch] = deque()
        self._number = 1
        self._sequence = 0
        self._failing = False
        self._given_up = False
        """What comes next under this identity would leave out what nobody knows of."""

    @property
    def idle(self) -> bool:
        return not self._window

    def use(self, identity: Identity) -> None:
        """A new id, or the next epoch, from the next batch on; nothing is under way."""
        assert self.idle
        self.identity, self._sequence, self._given_up = identity, 0, False

    def add(self, now_ns: int, pad: bytes) -> None:
        if len(self._window) >= self._window_max or not self.identity.known or self._given_up:
            return
        sent = Sent(self._client, self.partition, self._number, 1)
        value = b"%d/%d/%d" % (self._client, self.partition, self._number) + pad
        data = build_batch(
            [Record(value)],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self._sequence,
        )
        batch = _Batch(self, sent, self.identity.epoch, self._sequence, data, now_ns)
        self._number += 1
        self._sequence += 1
        self._window.append(batch)
        self._truth.produced(sent, data)

    def _next(self) -> _Batch | None:
        """The first that is not under way."""
        return next((one for one in self._window if not one.in_flight), None)

    def may_send(self, now_ns: int) -> bool:
        batch = self._next()
        under_way = sum(one.in_flight for one in self._window)
        if batch is None or now_ns < self.back_off.until_ns or under_way >= PER_PARTITION_MAX:
            return False
        if self._family.drains and self._failing:
            self._failing = under_way > 0
            return not self._failing
        return not batch.attempts or batch is self._window[0] or self._family.drains

    def take(self, connection: int, now_ns: int) -> Answer:
        batch = self._next()
        assert batch is not None
        batch.in_flight = True
        batch.attempts += 1
        batch.was_first = batch is self._window[0]
        return batch

    def expired(self, now_ns: int) -> bool:
        """Whether a batch has waited for too long: then nobody wants to know of any any more."""
        oldest_ns = now_ns - self._family.delivery_ns
        if not self._window or self._window[0].since_ns > oldest_ns:
            return False
        for batch in self._window:
            self._truth.gave_up(batch.sent)
        self._window.clear()
        self._failing = False
        self._given_up = True
        return True

    def heard(self, batch: _Batch, answer: PartitionProduceResponse | None) -> bool:
        batch.in_flight = False
        if answer is not None and answer.error_code == ErrorCode.NONE:
            self._truth.acked(batch.sent, answer.base_offset)
            following = batch.sequence + 1
            self._proofs[self.partition] = self.identity.producer_id, batch.epoch, following
            return self._done(batch)
        if batch not in self._window:
            return False  # given up: whatever it is, it is right
        self._failing = True
        if answer is None:
            return False
        error = answer.error_code
        if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._truth.known(batch.sent)
            return self._done(batch)
        if error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch.was_first:
                raise Violation(f"lost-write: all before {batch.sent} was acknowledged, and missed")
        elif error not in self._family.retries:
            name = ErrorCode(error).name
            raise Violation(f"refused: {batch.sent}, epoch {batch.epoch}, with {name}")
        return False

    def _done(self, batch: _Batch) -> bool:
        if batch in self._window:
            self._window.remove(batch)
        return True


LOST_NS: Final = 8_000 * MS
"""What was sent on a connection that lives is in the log by then, if nothing hurts the cluster."""
