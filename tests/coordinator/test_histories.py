"""Consumers that behave as clients do, whatever happens to their coordinator.

Safety holds all the time: replicas are equal, generations only grow, in one generation no partition
has two owners, and no request is answered twice. At the end the faults stop; then all members must
share all partitions within a bounded time, and no request may be without an answer.
"""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coordinator.limits import CoordinatorConfig
from coordinator.model import (
    NO_MEMBER,
    ErrorCode,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberId,
    OffsetCommitResponse,
    ProposalFailure,
    Protocol,
    SyncGroupResponse,
)
from coordinator.replicated.store import GroupStore
from coordinator.states import GroupState
from tests.coordinator.world import GROUP, REBALANCE_MS, SESSION_MS, Client, World

PARTITIONS = 6


class Told:
    """All answers that consumers ever got: (generation, partition) -> owner, generation ->
    members."""

    def __init__(self) -> None:
        self.owners: dict[tuple[int, int], str] = {}
        self.rosters: dict[int, frozenset[str]] = {}


class Consumer(Client):
    """An automatic Client: one request outstanding, reacting to errors as Kafka's clients do."""

    def __init__(self, world: World, name: str, told: Told, *,
                 instance_id: str | None = None) -> None:  # fmt: skip
        super().__init__(world, name, instance_id=instance_id)
        self.owners, self.rosters = told.owners, told.rosters
        self.waits_for: int | None = None
        self.stable = False
        self.alive = True
        self.owned: list[int] = []

    def step(self) -> None:
        """Take in an answer if there is one, then do the next step."""
        if not self.alive:
            return
        if self.waits_for is not None:
            if self.waits_for not in self.world.answers:
                return
            token, self.waits_for = self.waits_for, None
            self._react(self.world.answers[token])
            if not self.alive:
                return
        if self.joined is None:
            self.waits_for = self.send_join()
        elif not self.stable:
            leads = self.joined.leader == self.member_id and not self.joined.skip_assignment
            self.waits_for = self.sync(self._plan() if leads else None)
        else:
            self._check(self.heartbeat())

    def try_commit(self, partition: int, offset: int) -> None:
        if self.alive and self.stable and self.waits_for is None:
            self.waits_for = self.send_commit(offset, partition=partition)

    def quit(self) -> None:
        """Leave, without waiting for the answer, and come back as a new member."""
        if self.alive and self.joined is not None:
            self.leave()
        self._lose(forget=True)
        self.waits_for = None

    def _plan(self) -> dict[MemberId, bytes]:
        assert self.joined is not None
        ids = [member.member_id for member in self.joined.members]
        parts = {
            member_id: list(range(index, PARTITIONS, len(ids)))
            for index, member_id in enumerate(ids)
        }
        return {member_id: json.dumps(part).encode() for member_id, part in parts.items()}

    def _react(self, answer: object) -> None:
        match answer:
            case JoinGroupResponse():
                if answer.error == ErrorCode.MEMBER_ID_REQUIRED:
                    self.member_id = answer.member_id
                elif answer.error == ErrorCode.NONE:
                    assert answer.generation >= self.generation
                    self._enrol(answer)
                    self.joined, self.member_id = answer, answer.member_id
                    self.generation = answer.generation
                else:
                    self._check(answer.error)
            case SyncGroupResponse():
                if answer.error == ErrorCode.NONE:
                    self._own(json.loads(answer.assignment or b"[]"))
                else:
                    self._check(answer.error)
            case OffsetCommitResponse():
                self._check(answer.topics[0].partitions[0].error)
            case HeartbeatResponse() | LeaveGroupResponse():
                raise AssertionError("not waited for")

    def _enrol(self, answer: JoinGroupResponse) -> None:
        """In one generation every leader sees the same members, whoever coordinates."""
        if answer.members:
            roster = frozenset(m.instance_id or m.member_id for m in answer.members)
            known = self.rosters.setdefault(answer.generation, roster)
            assert known == roster, f"generation {answer.generation} was given out twice"

    def _own(self, partitions: list[int]) -> None:
        self.stable, self.owned = True, partitions
        for partition in partitions:
            owner = self.instance_id or self.member_id
            known = self.owners.setdefault((self.generation, partition), owner)
            assert known == owner, f"two owners of {partition} in generation {self.generation}"

    def _check(self, error: ErrorCode) -> None:
        match error:
            case ErrorCode.NONE:
                pass
            case ErrorCode.FENCED_INSTANCE_ID:
                self.alive = False
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._lose(forget=True)
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                self._lose(forget=False)
            case ErrorCode.NOT_COORDINATOR | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self._lose(forget=False)
            case ErrorCode.REQUEST_TIMED_OUT:
                pass  # of a commit: the next one will do
            case _:
                raise AssertionError(f"no client expects {error!r}")

    def _lose(self, *, forget: bool) -> None:
        self.joined, self.stable, self.owned = None, False, []
        if forget:
            self.member_id, self.generation = NO_MEMBER, -1


class Histories(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 100, 3_000]))
    def start(self, delay_ms: int) -> None:
        config = CoordinatorConfig(initial_rebalance_delay_ms=delay_ms)
        self.world = World(config, replicas=3)
        self.world.auto_commit = False
        self.told = Told()
        self.generation = 0
        self.consumers = [Consumer(self.world, f"d{index}", self.told) for index in range(3)] + [
            Consumer(self.world, f"s{index}", self.told, instance_id=f"i{index}")
            for index in range(2)
        ]

    @rule(who=st.integers(0, 4), times=st.integers(1, 4))
    def one_steps(self, who: int, times: int) -> None:
        for _ in range(times):
            self.consumers[who].step()

    @rule()
    def all_step(self) -> None:
        for consumer in self.consumers:
            consumer.step()

    @rule()
    def all_step_and_the_log_follows(self) -> None:
        for consumer in self.consumers:
            consumer.step()
            self.choose(None)

    @rule(who=st.integers(0, 4), partition=st.integers(0, 5), offset=st.integers(0, 99))
    def one_commits(self, who: int, partition: int, offset: int) -> None:
        self.consumers[who].try_commit(partition, offset)

    @rule(who=st.integers(0, 4))
    def one_leaves(self, who: int) -> None:
        self.consumers[who].quit()

    @rule(who=st.integers(0, 4), other=st.booleans())
    def one_restarts(self, who: int, other: bool) -> None:
        """Its process dies and comes back, sometimes with another subscription."""
        old = self.consumers[who]
        new = Consumer(self.world, old.name, self.told, instance_id=old.instance_id)
        new.protocols = (Protocol("range", b"other"),) if other else old.protocols
        self.consumers[who] = new

    @rule(duration_ms=st.sampled_from([1, 50, 1_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule(duration_ms=st.sampled_from([2_000, 4_000, 10 * REBALANCE_MS]))
    def the_process_pauses(self, duration_ms: int) -> None:
        self.world.pause(duration_ms)

    @rule(count=st.integers(1, 4) | st.none())
    def choose(self, count: int | None) -> None:
        self.world.commit(count)
        self._look()

    @precondition(lambda self: self.world.in_flight)
    @rule(data=st.data())
    def the_log_is_full(self, data: st.DataObject) -> None:
        self.world.in_flight.rotate(-data.draw(st.integers(0, len(self.world.in_flight) - 1)))
        self.world.fail(ProposalFailure.OVERLOADED)

    @rule(lose=st.booleans())
    def the_master_moves(self, lose: bool) -> None:
        self.world.fail_over(lose=lose)
        self._look()

    def _look(self) -> None:
        """The log's present state: generations only grow, and only members own partitions."""
        stored = self.world.stores[0].get(GROUP)
        if stored is not None:
            assert stored.generation >= self.generation
            self.generation = stored.generation
            if stored.state != GroupState.STABLE:
                assert stored.state == GroupState.PREPARING_REBALANCE or not any(
                    member.assignment for member in stored.members.values()
                )

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.auto_commit = True
        world.commit()
        for consumer in self.consumers:
            consumer.alive = True
        for _ in range(3 * REBALANCE_MS // 1_000):
            world.pass_time(1_000)
            for consumer in self.consumers:
                consumer.step()
        self._look()
        assert {consumer.generation for consumer in self.consumers} == {self.generation}
        owned = sorted(p for consumer in self.consumers for p in consumer.owned)
        assert owned == list(range(PARTITIONS)), "not everything is shared in the end"
        world.resign()
        assert world.answers.keys() == world.asked.keys(), "a request has no answer"
        late = GroupStore()
        for command in world.log:
            late.apply(command)
        assert late.snapshot() == world.stores[0].snapshot()


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestHistories = Histories.TestCase
