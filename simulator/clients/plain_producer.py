"""Plain producers, as most are: no sequences, many requests in flight, refused ones sent again.

Only the order of a connection protects their order (simulator.checkers.overtaking).
"""

from typing import Final

import attrs

from paxos.ids import MS
from simulator.checkers.overtaking import Attempt, Sending
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import between
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PRODUCE_VERSION: Final = 10
ACKS: Final = (-1, -1, 1)
TIMEOUT_NS: Final = 1_500 * MS
ANSWER_MS: Final = 1_000
START_NS_MAX: Final = 200 * MS
BACK_OFF_NS: Final = (80 * MS, 200 * MS)
BURST_MAX: Final = 4
UNSENT_MAX: Final = 20
DEFINITE: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)


@attrs.define(eq=False)
class _Lane:
    partition: int
    target: int
    sending: Sending
    next_message: int = 1
    unsent: list[int] = attrs.Factory(list)
    """Messages to be sent, in order: those that were refused, and new ones."""
    under_way: list[Attempt] = attrs.Factory(list)
    not_before_ns: int = 0


class PlainProducer(KafkaClient):
    """`timeout_ns`: so long it waits for an answer; `answer_ms`: so long it lets a node wait for
    what becomes of a batch."""

    def __init__(
        self,
        world: Surroundings,
        address: int,
        *,
        timeout_ns: int = TIMEOUT_NS,
        answer_ms: int = ANSWER_MS,
    ) -> None:
        super().__init__(world, "pipeliner", address, START_NS_MAX)
        self._lanes = [
            _Lane(p, self._anybody(), Sending(world.partition_logs, world.statistics, address, p))
            for p in range(world.options.partitions)
        ]
        self._timeout_ns, self._answer_ms = timeout_ns, answer_ms
        self._acks = self._chance.choice(ACKS)

    def _act(self) -> None:
        for lane in self._lanes:
            for _ in range(between(self._chance, 1, BURST_MAX)):
                if len(lane.unsent) < UNSENT_MAX:
                    lane.unsent.append(lane.next_message)
                    lane.next_message += 1
            self._send(lane)

    def _send(self, lane: _Lane) -> None:
        """Send whatever may be sent, in order; after a refusal that message, and all behind it,
        wait a while."""
        if self._world.loop.now_ns < lane.not_before_ns:
            return
        window = 2 * self._world.options.client_window + 1
        while lane.unsent and len(lane.under_way) < window:
            self._attempt(lane, lane.unsent.pop(0))

    def _attempt(self, lane: _Lane, message: int) -> None:
        target = lane.target
        connection = self._caller.connection(target)
        attempt = lane.sending.attempt(connection, message)
        lane.under_way.append(attempt)
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=self._answer_ms,
            topic_data=[
                TopicProduceData(
                    TOPIC, [PartitionProduceData(lane.partition, memoryview(attempt.data))]
                )
            ],
        )

        def answered(response: AnyResponse) -> None:
            self._on_answer(lane, target, attempt, response)

        self._caller.call(target, request, PRODUCE_VERSION, self._timeout_ns, answered)

    def _on_answer(self, lane: _Lane, asked: int, attempt: Attempt, response: AnyResponse) -> None:
        lane.under_way.remove(attempt)
        if response is None:
            lane.sending.gone(attempt)
            self._again(lane, attempt)
            lane.target = self._anybody()
            if lane.target == asked:  # as many failed as there are nodes (whole nodes, 196)
                lane.target = self._anybody()
            return
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.NONE:
            lane.sending.acked(attempt, answer.base_offset)
            self.progress += 1
            return
        lane.sending.refused(attempt, definitely=answer.error_code in DEFINITE)
        self._again(lane, attempt)
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            leader = answer.current_leader
            lane.target = self._anybody() if leader is None else leader.leader_id

    def _again(self, lane: _Lane, attempt: Attempt) -> None:
        """The message goes back before all that come behind it, and waits a while."""
        lane.unsent = sorted([*lane.unsent, attempt.message])
        back_off_ns = between(self._chance, *BACK_OFF_NS)
        lane.not_before_ns = self._world.loop.now_ns + back_off_ns
