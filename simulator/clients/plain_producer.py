"""Plain producers, as most are: no sequences, many requests under way, sent again where refused.

Nothing but the order of a connection protects their order (protocol.md F4). Every batch says on
which connection it was sent and as which one there, so a message that is sent again is another
batch, and the log can be compared with what was sent: in it, those of one connection and partition
are in the order in which they were sent. (But for what has timed out: it may come at any time, so
what was sent after the client had heard of that begins a new order.) And where one was refused,
none that was sent behind it, before the client heard of that, is acknowledged.
"""

from typing import TYPE_CHECKING, Final

import attrs

from paxos.ids import MS
from simulator.checkers.partition_logs import Sent
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.environment.dice import between
from simulator.environment.violation import Violation
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

if TYPE_CHECKING:
    from simulator.world import World

PRODUCE_VERSION: Final = 10
ACKS: Final = (-1, -1, 1)
TIMEOUT_NS: Final = 1_500 * MS
START_NS_MAX: Final = 200 * MS
BACK_OFF_NS: Final = (80 * MS, 200 * MS)
BURST_MAX: Final = 4
UNSENT_MAX: Final = 20
DEFINITE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
UNANSWERED, ACKED, REFUSED, GONE = range(4)


@attrs.define(eq=False)
class _Attempt:
    """A message sent once. `sent.client` is the order it belongs to."""

    sent: Sent
    connection: int
    place: int
    message: int
    state: int = UNANSWERED
    behind: "list[_Attempt]" = attrs.Factory(list)
    """Refused ones before it, of which the client had not heard when it sent this."""


@attrs.define(eq=False)
class _Lane:
    partition: int
    target: int
    next_message: int = 1
    unsent: list[int] = attrs.Factory(list)
    """Messages to be sent, in order: those that were refused, and new ones."""
    under_way: list[_Attempt] = attrs.Factory(list)
    of_connection: list[_Attempt] = attrs.Factory(list)
    """All attempts on the connection used last, in order."""
    not_before_ns: int = 0
    orders: int = 0
    number: int = 0
    """Of the last one in its order."""
    place: int = 0
    """Of the last one, whatever its order."""

    def begin_order(self) -> None:
        self.orders += 1
        self.number = 0


class PlainProducer(KafkaClient):
    def __init__(self, world: "World", address: int) -> None:
        super().__init__(world, "pipeliner", address, START_NS_MAX)
        self._lanes = [_Lane(p, self._anybody()) for p in range(world.options.partitions)]
        self._acks = self._chance.choice(ACKS)

    def _act(self) -> None:
        for lane in self._lanes:
            for _ in range(between(self._chance, 1, BURST_MAX)):
                if len(lane.unsent) < UNSENT_MAX:
                    lane.unsent.append(lane.next_message)
                    lane.next_message += 1
            self._send(lane)

    def _send(self, lane: _Lane) -> None:
        """Whatever may be sent, in order; what was refused waits a while, and all behind it."""
        if self._world.loop.now_ns < lane.not_before_ns:
            return
        window = 2 * self._world.options.client_window + 1
        while lane.unsent and len(lane.under_way) < window:
            self._attempt(lane, lane.unsent.pop(0))

    def _attempt(self, lane: _Lane, message: int) -> None:
        connection = self._caller.connection(lane.target)
        if not lane.of_connection or lane.of_connection[-1].connection != connection:
            lane.of_connection = []
            lane.begin_order()
        lane.place += 1
        lane.number += 1
        order = self.address << 32 | lane.orders
        sent = Sent(order, lane.partition, lane.number, 1)
        attempt = _Attempt(sent, connection, lane.place, message)
        value = b"%d/%d/%d/%d" % (order, lane.partition, lane.number, message)
        data = build_batch([Record(value)])
        truth = self._world.partition_logs
        truth.produced(sent, data)
        truth.gave_up(sent)  # it may well never come to be in the log
        lane.under_way.append(attempt)
        lane.of_connection.append(attempt)
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(TOPIC, [PartitionProduceData(lane.partition, memoryview(data))])
            ],
        )

        def answered(response: AnyResponse) -> None:
            self._on_answer(lane, attempt, response)

        self._caller.call(lane.target, request, PRODUCE_VERSION, TIMEOUT_NS, answered)

    def _on_answer(self, lane: _Lane, attempt: _Attempt, response: AnyResponse) -> None:
        lane.under_way.remove(attempt)
        if response is None:
            attempt.state = GONE
            self._again(lane, attempt)
            lane.target = self._anybody()
            return
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            attempt.state = ACKED
            self._world.partition_logs.acked(attempt.sent, answer.base_offset)
            for before in attempt.behind:
                self._check(before, attempt)
            self.progress += 1
            return
        attempt.state = REFUSED
        self._world.statistics["pipelined and refused"] += 1
        if answer.error_code in DEFINITE:
            self._world.partition_logs.failed(attempt.sent)
        else:
            lane.begin_order()
        self._look_behind(lane, attempt)
        self._again(lane, attempt)
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = answer.current_leader
            lane.target = self._anybody() if leader is None else leader.leader_id

    def _look_behind(self, lane: _Lane, refused: _Attempt) -> None:
        """All that was sent behind it on its connection was sent before this moment."""
        for later in lane.of_connection:
            if later.connection == refused.connection and later.place > refused.place:
                if later.state == ACKED:
                    self._check(refused, later)
                elif later.state == UNANSWERED:
                    later.behind.append(refused)

    def _check(self, refused: _Attempt, later: _Attempt) -> None:
        """A time-out is no refusal if it is in the log all the same, and before what came later."""
        log = self._world.partition_logs.logs[refused.sent.partition]
        if all(there != refused.sent for _, there in reversed(log.batches)):
            raise Violation(
                f"overtaken: {refused.sent} was refused, and {later.sent}, sent before its client "
                "could know, acknowledged"
            )
        self._world.statistics["pipelined and late"] += 1

    def _again(self, lane: _Lane, attempt: _Attempt) -> None:
        """The message takes its place before all that come behind it, and waits a while."""
        lane.unsent = sorted([*lane.unsent, attempt.message])
        back_off_ns = between(self._chance, *BACK_OFF_NS)
        lane.not_before_ns = self._world.loop.now_ns + back_off_ns
