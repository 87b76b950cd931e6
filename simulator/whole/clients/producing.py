"""The producing engine: one for all families (`families.py`).

It sends what its lanes have to whom it believes to lead them, as many requests at a time as its
family has under way, and asks who leads when it has reason to.
"""

from functools import partial
from typing import Final

from paxos.ids import MS
from simulator.checkers.overtaking import Sending
from simulator.clients.kafka_client import TOPIC, AnyResponse, KafkaClient
from simulator.environment.dice import between
from simulator.environment.violation import Violation
from simulator.whole.calls import StreamCalls
from simulator.whole.clients.families import OF_HUNTS
from simulator.whole.clients.lanes import (
    LOST_NS,
    Answer,
    Identity,
    Lane,
    PlainLane,
    SequencedLane,
    SilentLane,
)
from simulator.whole.clients.surroundings import WholeSurroundings
from simulator.whole.clients.view import View
from wire.error_codes import ErrorCode
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from wire.messages.producer_ids import InitProducerIdRequest

INIT_VERSION: Final = 4
START_NS_MAX: Final = 500 * MS
BURST_MAX: Final = 4
PAD_CHANCE: Final = 0.1
PAD_MAX: Final = 30_000
BOOTSTRAP_MAX: Final = 3
LOOK_NS: Final = 40 * MS
"""Its own thread looks so often for what has become due."""


class FamilyProducer(KafkaClient):
    def __init__(self, world: WholeSurroundings, address: int, family: str) -> None:
        super().__init__(world, "family", address, START_NS_MAX)
        self.world, self.name = world, f"{family} {address}"
        self.family = OF_HUNTS[family]
        self._calls = StreamCalls(
            world.loop,
            world.lan,
            world.trace,
            address,
            keeps=self.family.keeps,
            software=self.family.software,
        )
        self._calls.ended = self._connection_ended
        count = min(len(world.addresses), BOOTSTRAP_MAX)
        bootstrap = self._chance.sample(world.addresses, count)
        self.view = View(
            self._calls, world.loop, self.family, bootstrap, self._chance, self._send_all
        )
        self._identity = Identity()
        self._asking_id = False
        self._owed: dict[int, int] = {}
        """Node -> requests that are not answered yet."""
        self._lanes = [self._lane(number) for number in range(world.options.partitions)]

    def _lane(self, partition: int) -> Lane:
        world, family = self.world, self.family
        truth = world.partition_logs
        if family.idempotent:
            window = world.options.client_window + 2
            return SequencedLane(family, truth, world.proofs, self.address, partition, window)
        answered = family.acks != 0
        sending = Sending(truth, world.statistics, self.address, partition, answered=answered)
        if answered:
            return PlainLane(family, sending, partition)
        return SilentLane(family, truth, sending, partition)

    def start(self) -> None:
        super().start()
        self.world.loop.after(between(self._chance, 0, START_NS_MAX), self._look)

    def _look(self) -> None:
        if not self.stopped:
            self.world.loop.after(LOOK_NS, self._look)
            self._send_all()

    def _act(self) -> None:
        now = self.world.loop.now_ns
        for lane in self._lanes:
            for _ in range(between(self._chance, 1, BURST_MAX)):
                large = self._chance.random() < PAD_CHANCE
                lane.add(now, bytes(between(self._chance, 1, PAD_MAX)) if large else b"")
            if isinstance(lane, SilentLane):
                self._see(lane)
        self._send_all()

    # -- ids ----------------------------------------------------------------------------------

    def _look_after_ids(self) -> None:
        lanes = [lane for lane in self._lanes if isinstance(lane, SequencedLane)]
        if not lanes:
            return
        expired = [lane for lane in lanes if lane.expired(self.world.loop.now_ns)]
        if expired and self.family.bumps_epoch:
            self._identity = Identity(self._identity.producer_id, self._identity.epoch + 1)
        elif expired:
            self._identity = Identity()
        self.world.statistics["families: epochs begun"] += bool(expired)
        for lane in lanes:
            if lane.idle and lane.identity is not self._identity and self._identity.known:
                lane.use(self._identity)
        if not self._identity.known and not self._asking_id:
            self._asking_id = True
            self._calls.call(
                self.view.anybody(),
                InitProducerIdRequest(),
                INIT_VERSION,
                self.family.timeout_ns,
                self._on_id,
            )

    def _on_id(self, response: AnyResponse) -> None:
        self._asking_id = False
        if response is not None and response.error_code == ErrorCode.NONE:
            self._identity = Identity(response.producer_id, response.producer_epoch)

    # -- sending ------------------------------------------------------------------------------

    def _send_all(self) -> None:
        if self.stopped:
            return
        self._look_after_ids()
        self.view.tick()
        led: dict[int, list[Lane]] = {}
        for lane in self._lanes:
            node = self.view.leader(lane.partition)
            if node is not None:
                led.setdefault(node, []).append(lane)
        for node, lanes in led.items():
            while self._owed.get(node, 0) < self.family.in_flight_max:
                if not self._send_some(node, lanes):
                    break

    def _send_some(self, node: int, lanes: list[Lane]) -> bool:
        """One request; False where there is nothing to send, or the socket is full."""
        now = self.world.loop.now_ns
        ready = [lane for lane in lanes if lane.may_send(now)]
        connection = self._calls.connected(node) if ready else None
        if connection is None or (self.family.acks == 0 and connection.unsent):
            return False
        if not self.family.many_partitions:
            ready = [self._chance.choice(ready)]
        parcels = [(lane, lane.take(connection.number, now)) for lane in ready]
        data = [
            PartitionProduceData(lane.partition, memoryview(parcel.data))
            for lane, parcel in parcels
        ]
        family = self.family
        request = ProduceRequest(None, family.acks, 1_000, [TopicProduceData(TOPIC, data)])
        if family.acks == 0:
            self._calls.say(node, request, family.produce_version)
            return True
        self._owed[node] = self._owed.get(node, 0) + 1
        answered = partial(self._answered, node, parcels)
        self._calls.call(node, request, family.produce_version, family.timeout_ns, answered)
        return True

    def _answered(
        self, node: int, parcels: list[tuple[Lane, Answer]], response: AnyResponse
    ) -> None:
        self._owed[node] -= 1
        by_partition: dict[int, PartitionProduceResponse] = {}
        if response is None:
            self.view.lost(node)
        else:
            answers = response.responses[0].partition_responses
            by_partition = {one.index: one for one in answers}
        for lane, parcel in parcels:
            answer = by_partition.get(lane.partition)
            if response is not None and answer is None:
                raise Violation(f"answers: partition {lane.partition} was asked for, not answered")
            if parcel.heard(answer):
                self.progress += 1
                lane.back_off.went_well()
            else:
                self._failed(lane, answer)
        self.world.loop.after(0, self._send_all)

    def _failed(self, lane: Lane, answer: PartitionProduceResponse | None) -> None:
        now, news = self.world.loop.now_ns, False
        if answer is not None:
            self.world.statistics[f"families: {ErrorCode(answer.error_code).name}"] += 1
            self.view.failed(answer.error_code)
            news = self.view.hinted(lane.partition, answer.current_leader)
        if not (news and self.family.hint_ends_back_off):
            lane.back_off.failed(now)

    def _connection_ended(self, node: int) -> None:
        self.view.lost(node)
        if self.family.acks == 0:
            for lane in self._lanes:
                lane.back_off.failed(self.world.loop.now_ns)

    # -- what nobody answers ------------------------------------------------------------------

    def _see(self, lane: SilentLane) -> None:
        """Whether what was sent has come to be in the log."""
        now, numbers = self.world.loop.now_ns, self._calls.numbers()
        seen = lane.seen()
        self.progress += seen
        if seen:
            lane.back_off.went_well()
        while lane.unseen:
            attempt, since_ns = lane.unseen[0]
            lives = attempt.connection in numbers
            if lives and now - since_ns < LOST_NS:
                return
            if lives and self.world.healed_ns is not None and since_ns > self.world.healed_ns:
                raise Violation(f"lost-unanswered: {attempt.sent}, its connection lives")
            lane.unseen.popleft()
            self.world.statistics["families: unanswered, and not in the log"] += 1
