"""How long dead and living members are waited for, whatever the coordinator does meanwhile.

A wait counts the time in which a coordinator can hear the member. A standstill or a move neither
ends it early nor restarts it; both together cost at most one grace period.
"""

from collections.abc import Callable

import pytest

from coordinator.limits import WAITS_MAX, CoordinatorConfig
from coordinator.live.tenure import Counters, Tenure
from coordinator.live.wait_records import WaitRecords
from coordinator.model import (
    NO_MEMBER,
    AssignedHeartbeat,
    AssignedHeartbeatResponse,
    ConsumerGroupId,
    DescribeAssigned,
    DescribeAssignedResponse,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    MemberId,
    ProposalFailure,
)
from coordinator.replicated.commands import TimeLeft, decode, encode
from coordinator.replicated.store import GroupStore
from coordinator.replicated.waits import GroupWaits, WaitFor
from coordinator.timers import TimerKey, TimerKind, Wait
from coordinator.topics import Topics
from paxos.ids import Slot
from tests.coordinator.world import GROUP, REBALANCE_MS, SESSION_MS, Client, World, stable_group

CONFIG = CoordinatorConfig()
GRACE_MS = CONFIG.grace_ms
BEAT_MS = 3_000
SHARED = ConsumerGroupId("shared")
SHARED_SESSION_MS = CONFIG.consumer_session_timeout_ms


class Watch:
    """One member that beats as it should, and one that has died: when is it removed?"""

    def __init__(self, *, instance_id: str | None = None) -> None:
        self.world = World()
        self.living = Client(self.world, "anna")
        self.dead = Client(self.world, "bert", instance_id=instance_id)
        stable_group(self.world, self.living, self.dead)
        self.died_ms = self.beat_ms = self.world.now_ms
        self.away_ms = 0

    @property
    def silent_ms(self) -> int:
        """How long the dead member has been silent while a coordinator could hear it."""
        return self.world.now_ms - self.died_ms - self.away_ms

    def gone(self) -> bool:
        token = self.world.ask(DescribeGroup(group=GROUP))
        members = self.world.answer(token, DescribeGroupResponse).members
        return self.dead.member_id not in {one.member_id for one in members}

    def pass_time(self, duration_ms: int) -> None:
        """The living member goes on; it finds a moved coordinator a little later."""
        for _ in range(0, duration_ms, 50):
            self.world.pass_time(50)
            if self.world.now_ms - self.beat_ms >= BEAT_MS:
                self.beat_ms = self.world.now_ms
                gone = self.gone()
                expected = ErrorCode.REBALANCE_IN_PROGRESS if gone else ErrorCode.NONE
                assert self.living.heartbeat() == expected

    def stall(self, duration_ms: int) -> None:
        self.world.pause(duration_ms)
        self.away_ms += duration_ms

    def until_gone(self, trouble: Callable[[], None]) -> int:
        """Returns how long it took, without the time in which no coordinator could hear members."""
        while not self.gone():
            trouble()
            assert self.silent_ms < 10 * SESSION_MS, "it is kept for ever"
        return self.silent_ms


@pytest.mark.parametrize("stall_ms", [3_100, 4_000, 20_000])
@pytest.mark.parametrize("listens_ms", [1, 100, 1_499, 3_000, SESSION_MS - 500])
def test_stalls_do_not_keep_a_dead_member(stall_ms: int, listens_ms: int) -> None:
    """It is removed after a session timeout, the stalls, and one grace period, whenever they
    happen."""
    watch = Watch()

    def trouble() -> None:
        watch.world.pass_time(listens_ms)
        watch.stall(stall_ms)
        if watch.living.heartbeat() == ErrorCode.NONE:
            watch.beat_ms = watch.world.now_ms

    took_ms = watch.until_gone(trouble)
    assert took_ms <= SESSION_MS + GRACE_MS + listens_ms + CONFIG.pause_ms_max
    assert watch.living.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert watch.world.coordinator.statistics().sessions_expired == 1


def test_a_stall_at_the_last_moment_costs_a_living_member_nothing() -> None:
    """Its heartbeat is in our socket: the grace period is there to read it."""
    watch = Watch()
    watch.world.pass_time(SESSION_MS - 10)
    watch.stall(5_000)
    watch.world.pass_time(GRACE_MS - 1)
    assert watch.dead.heartbeat() == ErrorCode.NONE, "it has only been late"


def test_the_grace_is_given_once() -> None:
    watch = Watch()
    watch.world.pass_time(SESSION_MS - 10)
    for _ in range(20):
        watch.stall(CONFIG.pause_ms_max + 1)
        watch.world.pass_time(GRACE_MS // 10)
    assert watch.gone()


@pytest.mark.parametrize("instance_id", [None, "bert's"])
@pytest.mark.parametrize("every_ms", [100, 1_500, 4_000, SESSION_MS - 100])
def test_steals_do_not_keep_a_dead_member(every_ms: int, instance_id: str | None) -> None:
    """Masters move every second and a half: a session timeout and one grace, as without moves."""
    watch = Watch(instance_id=instance_id)

    def trouble() -> None:
        watch.pass_time(every_ms)
        watch.world.hand_over()

    took_ms = watch.until_gone(trouble)
    assert SESSION_MS <= took_ms <= SESSION_MS + GRACE_MS + every_ms
    assert watch.living.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("every_ms", [2_500, 4_000, 7_000])
def test_crashes_do_not_keep_a_dead_member(every_ms: int) -> None:
    """Each costs what was not written down yet, a second at most. The first one also costs the
    silence that is too short to be written down."""
    watch = Watch()
    crashes = 0

    def trouble() -> None:
        nonlocal crashes
        watch.pass_time(every_ms)
        watch.world.fail_over()
        crashes += 1

    took_ms = watch.until_gone(trouble)
    lost_ms = BEAT_MS + crashes * 2 * CONFIG.wait_records_every_ms
    assert took_ms <= SESSION_MS + GRACE_MS + lost_ms + every_ms


def in_doubt(watch: Watch, *, other_term: bool = False) -> None:
    """Its lease ends, and a second later it is master again, mostly under the same term."""
    world = watch.world
    world.resign()
    world.in_flight.clear()
    world.now_ms += 1_000
    watch.away_ms += 1_000
    world.term += other_term
    world.coordinator.elected(world.now_ms, Slot(world.term), world.secret)


@pytest.mark.parametrize("every_ms", [100, 1_500, 2_900, SESSION_MS - 100])
def test_a_mastership_in_doubt_does_not_keep_a_dead_member(every_ms: int) -> None:
    """No other node has heard the member, so what it knew holds, written down or not (seed 555)."""
    watch = Watch()

    def trouble() -> None:
        watch.pass_time(every_ms)
        if not watch.gone():
            in_doubt(watch)

    took_ms = watch.until_gone(trouble)
    assert SESSION_MS <= took_ms <= SESSION_MS + GRACE_MS + every_ms


@pytest.mark.parametrize("written", [True, False])
def test_an_eviction_that_a_mastership_in_doubt_forgets_is_made_up_for_after_a_grace(
    written: bool,
) -> None:
    """Whether or not the silence is in the log."""
    watch = Watch()
    watch.world.auto_commit = written
    watch.pass_time(SESSION_MS - 100)
    watch.world.now_ms += 100
    watch.world.coordinator.tick(watch.world.now_ms)  # what it proposes is never chosen
    assert watch.gone()
    in_doubt(watch)
    assert not watch.gone(), "the log has it"
    watch.world.pass_time(GRACE_MS)
    assert watch.gone()


def test_what_was_known_under_another_term_is_not_believed() -> None:
    """Another node may have heard the member in between: the log decides."""
    watch = Watch()
    watch.pass_time(BEAT_MS // 2)
    in_doubt(watch, other_term=True)
    watch.world.pass_time(SESSION_MS - 1)
    assert not watch.gone()
    watch.world.pass_time(1)
    assert watch.gone()


def test_moves_and_stalls_together_cost_one_grace() -> None:
    watch = Watch()

    def trouble() -> None:
        watch.pass_time(500)
        watch.stall(CONFIG.pause_ms_max + 1)
        watch.world.hand_over()

    assert watch.until_gone(trouble) <= SESSION_MS + GRACE_MS + CONFIG.pause_ms_max


def test_a_snapshot_that_is_lost_does_not_start_a_session_anew() -> None:
    """To members the coordinator has moved; the dead stay as dead as before."""
    watch = Watch()
    world = watch.world

    def trouble() -> None:
        watch.world.pass_time(1_000)
        assert watch.living.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
        world.auto_commit = False
        carl = Client(world, "carl", instance_id=f"{world.now_ms}")
        carl.send_join()
        watch.living.leave()
        world.fail(ProposalFailure.OVERLOADED)
        world.auto_commit = True

    assert watch.until_gone(trouble) <= SESSION_MS + GRACE_MS + 1_000


@pytest.mark.parametrize("lost", [1, 3])
def test_an_eviction_that_is_lost_is_made_up_for_after_a_grace(lost: int) -> None:
    """Its snapshot never reached the log: that does not give the member another session."""
    watch = Watch()
    world = watch.world
    world.auto_commit = False
    for _ in range(lost):
        world.pass_time(SESSION_MS + GRACE_MS)
        while world.in_flight:
            world.fail(ProposalFailure.OVERLOADED)
        assert watch.living.heartbeat() in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    assert not watch.gone()
    world.auto_commit = True
    world.pass_time(GRACE_MS)
    assert watch.gone()


def test_a_rebalance_that_moves_ends_in_its_time() -> None:
    """A member that sends heartbeats and never joins is waited for as long as allowed, once."""
    watch = Watch()
    world = watch.world
    carl = Client(world, "carl")
    carl.join()
    began_ms = world.now_ms
    while watch.dead.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
        world.pass_time(1_500)
        world.hand_over()
        for joining in (watch.living, carl):
            joining.join()
        assert world.now_ms - began_ms < 3 * REBALANCE_MS, "it is waited for anew at each move"
    assert REBALANCE_MS <= world.now_ms - began_ms <= REBALANCE_MS + GRACE_MS + 1_500


def test_a_leader_that_does_not_share_out_is_waited_for_once() -> None:
    world = World()
    anna, bert = Client(world, "anna"), Client(world, "bert")
    tokens = [anna.join(), bert.join()]
    world.pass_time(500)
    began_ms = world.now_ms
    anna.learn(tokens[0])
    bert.learn(tokens[1])
    while bert.heartbeat() == ErrorCode.NONE:
        assert anna.heartbeat() == ErrorCode.NONE
        world.pass_time(1_500)
        world.hand_over()
        assert world.now_ms - began_ms < 3 * REBALANCE_MS
    assert world.now_ms - began_ms <= REBALANCE_MS + GRACE_MS + 1_500


# --- groups that the broker assigns


def beat(world: World, name: str, epoch: int) -> AssignedHeartbeatResponse:
    joining = epoch == 0
    return world.answer(
        world.ask(
            AssignedHeartbeat(
                group=SHARED,
                member_id=MemberId(name),
                epoch=epoch,
                rebalance_timeout_ms=20_000 if joining else -1,
                topics=("orders",) if joining else None,
                owned=() if joining else None,
            )
        ),
        AssignedHeartbeatResponse,
    )


def shared_members(world: World) -> set[str]:
    token = world.ask(DescribeAssigned(group=SHARED))
    return {one.member_id for one in world.answer(token, DescribeAssignedResponse).members}


@pytest.mark.parametrize("moves", ["steals", "stalls"])
def test_a_dead_member_that_the_broker_shares_out_to_is_gone_in_time(moves: str) -> None:
    world = World()
    epoch = {name: beat(world, name, 0).epoch for name in ("anna", "bert")}
    died_ms, away_ms = world.now_ms, 0
    while len(shared_members(world)) == 2:
        world.pass_time(1_500)
        if moves == "steals":
            world.hand_over()
        else:
            world.pause(CONFIG.pause_ms_max + 1)
            away_ms += CONFIG.pause_ms_max + 1
        answer = beat(world, "anna", epoch["anna"])
        assert answer.error == ErrorCode.NONE
        epoch["anna"] = answer.epoch
        assert world.now_ms - died_ms < 10 * SHARED_SESSION_MS, "it is kept for ever"
    took_ms = world.now_ms - died_ms - away_ms
    assert took_ms <= SHARED_SESSION_MS + GRACE_MS + CONFIG.pause_ms_max
    assert shared_members(world) == {"anna"}


def test_who_does_not_give_up_its_partitions_is_waited_for_once() -> None:
    """Its own rebalance timeout continues through moves; heartbeats do not help it."""
    world = World()
    world.topics = Topics(1, {"orders": (bytes(16), 4)})
    stubborn = beat(world, "anna", 0).epoch
    beat(world, "bert", 0)
    began_ms = world.now_ms
    answer = beat(world, "anna", stubborn)
    while answer.error == ErrorCode.NONE:
        world.pass_time(1_000)
        world.hand_over()
        answer = beat(world, "anna", stubborn)
        assert world.now_ms - began_ms < 60_000, "it is waited for anew at each move"
    assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.now_ms - began_ms <= 20_000 + GRACE_MS + 1_000


# --- what it costs, and what it must not do


def test_a_group_that_is_well_writes_nothing() -> None:
    watch = Watch()
    other = Client(watch.world, "bert")
    other.member_id, other.generation = watch.dead.member_id, watch.dead.generation
    watch.pass_time(2 * BEAT_MS)
    other.heartbeat()
    written = len(watch.world.log)
    for _ in range(100):
        watch.pass_time(BEAT_MS)
        assert other.heartbeat() == ErrorCode.NONE
    assert len(watch.world.log) - written <= 3, "until their rhythm is known"


def test_a_dead_member_costs_one_command_a_second() -> None:
    watch = Watch()
    written = len(watch.world.log)
    took_ms = watch.until_gone(lambda: watch.pass_time(500))
    assert len(watch.world.log) - written <= took_ms // CONFIG.wait_records_every_ms + 2


def test_who_is_heard_again_has_its_whole_session_whoever_comes_next() -> None:
    """The record of its silence is removed within a second."""
    watch = Watch()
    watch.world.pass_time(SESSION_MS - 500)
    watch.world.hand_over()
    assert watch.living.heartbeat() == watch.dead.heartbeat() == ErrorCode.NONE
    watch.world.pass_time(CONFIG.wait_records_every_ms)
    watch.world.fail_over()
    watch.world.pass_time(SESSION_MS - 1)
    assert watch.living.heartbeat() == watch.dead.heartbeat() == ErrorCode.NONE


def test_a_new_generation_forgets_how_silent_its_members_were() -> None:
    watch = Watch()
    world = watch.world
    world.pass_time(SESSION_MS - 500)
    world.hand_over()
    assert dict(waits_of(world))
    tokens = [watch.living.join(), watch.dead.join()]
    world.pass_time(0)
    assert [client.learn(token).generation for client, token in zip(
        (watch.living, watch.dead), tokens, strict=True)] == [2, 2]  # fmt: skip
    assert not dict(waits_of(world))


def test_more_waits_than_may_be_written_are_those_that_end_first() -> None:
    tenure = Tenure(GroupStore(), CONFIG, 1, b"chance", Counters())
    for number in range(WAITS_MAX + 5):
        key = TimerKey(TimerKind.CONSUMER, GROUP, MemberId(f"m{number}"))
        tenure.go_on_waiting(key, 50_000, Wait(20_000 + number))
    WaitRecords(tenure).hand_over()
    (proposal,) = tenure.take_effects().proposals
    command = decode(proposal.command)
    assert isinstance(command, TimeLeft)
    (group,) = command.groups
    assert len(group.waits) == WAITS_MAX
    assert {wait.left_ms for _, wait in group.waits} == set(range(20_000, 20_000 + WAITS_MAX))


def test_golden_bytes_of_what_is_left() -> None:
    """In logs on disks: a change here needs a new kind."""
    waits = (
        (WaitFor(TimerKind.SESSION, MemberId("m")), Wait(700)),
        (WaitFor(TimerKind.REBALANCE, NO_MEMBER), Wait(9, graced=True)),
    )
    command = TimeLeft((GroupWaits(ConsumerGroupId("g"), 3, waits),))
    assert encode(command).hex() == (
        "0107" "00000001" "000167" "00000003" "00000002"
        "01" "00016d" "000002bc" "00" "02" "0000" "00000009" "01"
    )  # fmt: skip
    assert decode(encode(command)) == command


def waits_of(world: World) -> dict[WaitFor, Wait]:
    stored = world.stores[0].get(GROUP)
    assert stored is not None
    return stored.waits
