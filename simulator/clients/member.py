"""A member of the consumer group: joins, reads its partitions, commits, leaves, or dies.

Now and then it sends a request in the name of another member (docs/ownership.md): the name, the
generation or the instance id is false, so it must be refused, and the other must not notice.
"""

from functools import partial
from typing import Final

from paxos.ids import MS, NodeId
from simulator.clients.kafka_client import TOPIC, Answered, AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import between, dice
from simulator.environment.violation import Violation
from simulator.node.broker_node import COORDINATOR
from wire.apis import Request
from wire.error_codes import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.membership import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

GROUP: Final = "readers"
FIND_VERSION, JOIN_VERSION, SYNC_VERSION = 4, 9, 5
HEARTBEAT_VERSION, LEAVE_VERSION = 4, 5
COMMIT_VERSION, OFFSETS_VERSION, FETCH_VERSION = 8, 8, 12
SESSION_MS: Final = 1_500
REBALANCE_MS: Final = 1_200
TIMEOUT_NS: Final = 1_500 * MS
START_NS_MAX: Final = 3_000 * MS
JOIN_TIMEOUT_NS: Final = 4_000 * MS
KIND: Final = "consumer"
PROTOCOL: Final = "range"
LEAVE_CHANCE, DIE_CHANCE, COMMIT_CHANCE = 0.004, 0.004, 0.4
THINK_NS_MIN, THINK_NS_MAX = 50 * MS, 120 * MS
"""A member that thinks for longer misses its own session."""
GONE_NS_MAX: Final = 4_000 * MS
LIE_CHANCE: Final = 0.03
FALSE: Final = "of nobody"
FAR_OFFSET: Final = 1_000_000
"""If it were committed, the group would skip everything before it."""


class Member(KafkaClient):
    """One thing at a time, as in a consumer's poll loop; heartbeats go in between."""

    def __init__(self, world: Surroundings, address: int) -> None:
        super().__init__(world, "member", address, START_NS_MAX)
        self._lies = dice(world.options.seed, "lies", address)
        self._coordinator: int | None = None
        self._member_id, self._generation = "", -1
        self._assigned: tuple[int, ...] | None = None
        """None: it has to join first."""
        self._positions: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._commits = 0
        self._busy = False
        self._gone_until = 0
        self.doomed_ns = 0
        """The member dies as soon as it is in the group and waits for nothing, and another one
        takes its place this long after; 0: it lives on."""

    def stall(self, ns: int) -> None:
        """It does nothing for this long, and then continues as if nothing had happened."""
        self._gone_until = max(self._gone_until, self._world.loop.now_ns + ns)

    @property
    def think_ns(self) -> int:
        return min(max(self._world.options.client_think_ns, THINK_NS_MIN), THINK_NS_MAX)

    def _act(self) -> None:
        if self._busy or self._world.loop.now_ns < self._gone_until:
            return
        if self._coordinator is None:
            self._find()
        elif self._assigned is None:
            self._join()
        else:
            self._work(self._assigned)

    def _work(self, assigned: tuple[int, ...]) -> None:
        if self._lies.random() < LIE_CHANCE:
            self._lie()
            return
        roll = self._chance.random()
        doomed_ns, self.doomed_ns = self.doomed_ns, 0
        if roll < DIE_CHANCE or doomed_ns:
            self._world.deaths.died(self._member_id, SESSION_MS, COORDINATOR.grace_ms)
            self._forget_everything("members died")
            self.stall(doomed_ns)
        elif roll < DIE_CHANCE + LEAVE_CHANCE:
            self._leave()
        elif len(self._positions) < len(assigned):
            self._fetch_offsets(assigned)
        elif assigned and roll < COMMIT_CHANCE:
            self._commit(self._chance.choice(assigned))
        elif assigned and roll < 2 * COMMIT_CHANCE:
            self._fetch(self._chance.choice(assigned))
        else:
            self._heartbeat()

    def _forget_everything(self, what: str) -> None:
        self._world.statistics[what] += 1
        self._rejoin("")
        self._gone_until = self._world.loop.now_ns + between(self._chance, 0, GONE_NS_MAX)

    def _rejoin(self, member_id: str) -> None:
        self._member_id, self._generation = member_id, -1
        self._assigned, self._positions = None, {}

    def _ask(
        self, request: Request, version: int, answered: Answered, *, join: bool = False
    ) -> None:
        """Ask the coordinator; without an answer, look it up again."""
        assert self._coordinator is not None
        self._busy = True

        def done(response: AnyResponse) -> None:
            self._busy = False
            if response is None:
                self._coordinator = None
            answered(response)

        timeout_ns = JOIN_TIMEOUT_NS if join else TIMEOUT_NS
        self._caller.call(self._coordinator, request, version, timeout_ns, done)

    def _failed(self, error: int) -> bool:
        """Whether there is an error; reacts to it as a consumer does."""
        if error == ErrorCode.NONE:
            self.progress += 1
            return False
        self._world.trace.note(self._world.loop.now_ns, "member", self.address, error)
        if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self._rejoin(self._member_id)
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._rejoin("")
        return True

    # -- membership ---------------------------------------------------------------------------

    def _find(self) -> None:
        self._busy = True
        request = FindCoordinatorRequest(coordinator_keys=[GROUP])
        self._caller.call(self._anybody(), request, FIND_VERSION, TIMEOUT_NS, self._on_found)

    def _on_found(self, response: AnyResponse) -> None:
        self._busy = False
        if response is not None and response.coordinators[0].error_code == ErrorCode.NONE:
            self._coordinator = response.coordinators[0].node_id

    def _join(self) -> None:
        request = JoinGroupRequest(
            GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type=KIND,
            protocols=[JoinGroupRequestProtocol(PROTOCOL, b"")],
        )
        self._ask(request, JOIN_VERSION, self._on_joined, join=True)

    def _on_joined(self, response: JoinGroupResponse | None) -> None:
        if response is None:
            return
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        elif not self._failed(response.error_code):
            self._member_id, self._generation = response.member_id, response.generation_id
            self._world.member_names.append((self._member_id, self._generation))
            members = sorted(one.member_id for one in response.members)
            self._world.group_logs.told_members(
                GROUP, self._generation, self._member_id, response.leader, frozenset(members)
            )
            self._sync(members)

    def _sync(self, members: list[str]) -> None:
        """`members` is for the leader, which assigns the partitions."""
        partitions = range(self._world.options.partitions)
        parts = [
            SyncGroupRequestAssignment(member, bytes(partitions[index :: len(members)]))
            for index, member in enumerate(members)
        ]
        if self._coordinator is not None:
            request = SyncGroupRequest(
                GROUP,
                self._generation,
                self._member_id,
                protocol_type=KIND,
                protocol_name=PROTOCOL,
                assignments=parts,
            )
            self._ask(request, SYNC_VERSION, self._on_synced, join=True)

    def _on_synced(self, response: AnyResponse) -> None:
        if response is not None and not self._failed(response.error_code):
            self._assigned, self._positions = tuple(response.assignment), {}
            self._world.group_logs.told_plan(
                GROUP, self._generation, self._member_id, response.assignment
            )

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(GROUP, self._generation, self._member_id)
        self._ask(request, HEARTBEAT_VERSION, self._on_heartbeat)

    def _on_heartbeat(self, response: AnyResponse) -> None:
        if response is not None:
            self._failed(response.error_code)

    def _leave(self) -> None:
        request = LeaveGroupRequest(GROUP, members=[MemberIdentity(self._member_id)])
        self._ask(request, LEAVE_VERSION, lambda _response: None)
        self._forget_everything("members left")

    # -- lies ---------------------------------------------------------------------------------

    def _lie(self) -> None:
        """One of the three names is false. An earlier generation never becomes current again."""
        member, generation = self._lies.choice(self._world.member_names)
        instance = None
        false = self._lies.choice(("member", "generation", "instance"))
        if false == "member":
            member = FALSE
        elif false == "instance":
            instance = FALSE
        else:
            generation = self._lies.choice((generation - 1, generation + FAR_OFFSET))
        says = [self._false_heartbeat, self._false_sync, self._false_commit]
        if false != "generation":  # these requests do not name it
            says += [self._false_join, self._false_leave]
        self._lies.choice(says)(member, generation, instance)

    def _claim(self, request: Request, version: int, name: str = "") -> None:
        def answered(response: AnyResponse) -> None:
            if response is None:
                return
            error = _error_in(response)
            if error == ErrorCode.NONE:
                raise Violation(f"owner: believed without a proof: {request}")
            self._world.statistics["lies refused"] += 1
            if name and error != ErrorCode.REQUEST_TIMED_OUT:
                self._world.group_logs.told_failed(GROUP, name)

        self._ask(request, version, answered)

    def _false_heartbeat(self, member: str, generation: int, instance: str | None) -> None:
        self._claim(HeartbeatRequest(GROUP, generation, member, instance), HEARTBEAT_VERSION)

    def _false_sync(self, member: str, generation: int, instance: str | None) -> None:
        everything = bytes(range(self._world.options.partitions))
        request = SyncGroupRequest(
            GROUP,
            generation,
            member,
            instance,
            protocol_type=KIND,
            protocol_name=PROTOCOL,
            assignments=[SyncGroupRequestAssignment(self._member_id, everything)],
        )
        self._claim(request, SYNC_VERSION)

    def _false_commit(self, member: str, generation: int, instance: str | None) -> None:
        self._commits += 1
        name = f"false {self.address}-{self._commits}"
        one = OffsetCommitRequestPartition(0, FAR_OFFSET, committed_metadata=name)
        topic = OffsetCommitRequestTopic(TOPIC, [one])
        request = OffsetCommitRequest(
            GROUP, generation, member, group_instance_id=instance, topics=[topic]
        )
        self._claim(request, COMMIT_VERSION, name)

    def _false_join(self, member: str, generation: int, instance: str | None) -> None:
        request = JoinGroupRequest(
            GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member,
            group_instance_id=instance,
            protocol_type=KIND,
            protocols=[JoinGroupRequestProtocol(PROTOCOL, b"")],
        )
        self._claim(request, JOIN_VERSION)

    def _false_leave(self, member: str, generation: int, instance: str | None) -> None:
        request = LeaveGroupRequest(GROUP, members=[MemberIdentity(member, instance)])
        self._claim(request, LEAVE_VERSION)

    # -- records and offsets ------------------------------------------------------------------

    def _fetch_offsets(self, assigned: tuple[int, ...]) -> None:
        truth, generation = self._world.group_logs, self._generation
        floors = {partition: truth.floor(GROUP, partition) for partition in assigned}
        topic = OffsetFetchRequestTopic(TOPIC, list(assigned))
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=[topic])])

        def answered(response: AnyResponse) -> None:
            group = None if response is None else response.groups[0]
            if group is None or self._failed(group.error_code) or generation != self._generation:
                return
            for one in group.topics[0].partitions:
                number, offset = one.partition_index, one.committed_offset
                truth.told_offset(GROUP, number, floors[number], offset)
                self._positions[number] = max(offset, 0)

        self._ask(request, OFFSETS_VERSION, answered)

    def _commit(self, partition: int) -> None:
        self._commits += 1
        name, offset = f"{self.address}-{self._commits}", self._positions[partition]
        one = OffsetCommitRequestPartition(partition, offset, committed_metadata=name)
        request = OffsetCommitRequest(
            GROUP,
            self._generation,
            self._member_id,
            topics=[OffsetCommitRequestTopic(TOPIC, [one])],
        )
        self._ask(request, COMMIT_VERSION, partial(self._on_committed, name, partition, offset))

    def _on_committed(self, name: str, partition: int, offset: int, response: AnyResponse) -> None:
        truth = self._world.group_logs
        error = None if response is None else response.topics[0].partitions[0].error_code
        if error is None or error == ErrorCode.REQUEST_TIMED_OUT:
            return  # it may be in the log, or get there
        if self._failed(error):
            truth.told_failed(GROUP, name)
        else:
            truth.told_committed(GROUP, name, partition, offset)

    def _fetch(self, partition: int) -> None:
        position, generation = self._positions[partition], self._generation
        floor = self._world.partition_logs.floor(partition)
        target = self._leaders.setdefault(partition, self._anybody())
        asked = FetchPartition(partition, fetch_offset=position, partition_max_bytes=50_000)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[asked])]
        )

        def answered(response: AnyResponse) -> None:
            self._busy = False
            data = None if response is None else response.responses[0].partitions[0]
            truth = self._world.partition_logs
            if data is not None and data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                reached = truth.out_of_range(NodeId(target), partition, position, floor)
                if generation == self._generation:
                    self._positions[partition] = reached
                return
            if data is None or data.error_code != ErrorCode.NONE:
                leader = None if data is None else data.current_leader
                self._leaders[partition] = self._anybody() if leader is None else leader.leader_id
                return
            reached = truth.fetched(NodeId(target), position, floor, data)
            if generation == self._generation:
                self._positions[partition] = reached

        self._busy = True
        self._caller.call(target, request, FETCH_VERSION, TIMEOUT_NS, answered)


def _error_in(response: AnyResponse) -> int:
    """The error of a response to a claim: of the whole, or of the one thing that it is about."""
    error: int
    if isinstance(response, OffsetCommitResponse):
        error = response.topics[0].partitions[0].error_code
    elif isinstance(response, LeaveGroupResponse):
        error = response.error_code or response.members[0].error_code
    else:
        error = response.error_code
    return error
