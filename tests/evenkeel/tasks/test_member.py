"""One member's decisions, and worlds without trouble: the scenarios of the seeds, simulated."""

from collections.abc import Sequence

import attrs
import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.tasks.config import MS, TaskGroupConfig, Timing
from evenkeel.tasks.member import CoordinatorView, Effect, Member, Over, Phase, Start, Stop, Write
from evenkeel.tasks.notes import (
    Acquire,
    Evict,
    Expire,
    Join,
    Leave,
    Note,
    Notify,
    Plan,
    Release,
    Renew,
    Running,
    Stopped,
    Submit,
    View,
    decode,
)
from evenkeel.tasks.sharding import (
    Candidate,
    Contiguous,
    Interleaved,
    Sharding,
    Sticky,
    TaskShares,
    largest_offset,
)
from tests.evenkeel.tasks.world import TIMING, World

LEASE_NS = (TIMING.lease_ms - TIMING.drift_ms_max) * MS


class Alone:
    """One member whose notes are read at once, or when the test says."""

    def __init__(self, sharding: Sharding | None = None) -> None:
        self.member = Member("m-1", sharding or Contiguous(), TIMING)
        self.waiting: list[Note] = []
        self.effects: list[Effect] = []
        self.take(self.member.tick(0))

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects = list(effects)
        self.waiting += [one.note for one in effects if isinstance(one, Write)]

    def reads(self, now_ms: int, note: Note | None = None) -> None:
        """Reads a note, or all that it has written itself so far."""
        notes, self.waiting = (self.waiting, []) if note is None else ([note], self.waiting)
        for one in notes:
            offset = self.member.ledger.next_offset
            self.take(self.member.read(now_ms * MS, offset, one))

    def ticks(self, now_ms: int) -> None:
        self.take(self.member.tick(now_ms * MS))

    def leads(self, now_ms: int, *tasks: str) -> None:
        """It is the only one, and runs these tasks."""
        self.reads(now_ms)
        self.take(self.member.on_coordinator_view(now_ms * MS, CoordinatorView(1, "m-1", ("m-1",))))
        self.reads(now_ms, Submit(by="x", tasks=tasks))
        while self.waiting:
            self.reads(now_ms)
        assert self.member.runs.keys() == set(tasks)


# -- the lease ------------------------------------------------------------------------------------


def test_the_lease_counts_from_when_it_was_asked_for() -> None:
    alone = Alone()
    assert alone.waiting == [Join(by="m-1", lease_ms=TIMING.lease_ms, metadata={})]
    alone.reads(150)
    assert alone.member.phase is Phase.IN
    assert alone.member.until_ns == LEASE_NS
    alone.ticks(200)
    assert alone.waiting == [Renew(by="m-1", beat=1)]
    alone.reads(390)
    assert alone.member.until_ns == 200 * MS + LEASE_NS


def test_of_two_attempts_to_join_the_first_counts() -> None:
    """The attempt that seemed to fail may be the one that is read."""
    alone = Alone()
    join = alone.waiting.pop()
    alone.take(alone.member.failed(300 * MS, join))
    assert join in alone.waiting
    alone.reads(400, join)
    assert alone.member.until_ns == LEASE_NS


def test_what_is_being_released_is_not_started_again_by_the_same_token() -> None:
    """A plan takes it away, it stops, and the next plan gives it back too early."""
    alone = Alone()
    alone.leads(10, "a")
    ledger, token = alone.member.ledger, alone.member.runs["a"].token

    def plan(shares: dict[str, tuple[str, ...]]) -> None:
        given = {"by": "m-1", "term": ledger.view.term, "stop_all": False}
        text = Contiguous().encode(TaskShares.of(shares))
        alone.reads(20, Plan(version=ledger.plan.version + 1, shares=text, **given))  # type: ignore[arg-type]

    plan({"m-1": ()})
    alone.take(alone.member.ended(21 * MS, "a", token, finished=False))
    release = Release(by="m-1", tasks=("a",), up_to=token)
    assert release in alone.waiting
    plan({"m-1": ("a",)})
    assert "a" not in alone.member.runs
    alone.take(alone.member.failed(22 * MS, release))  # it may be there nevertheless
    assert "a" not in alone.member.runs
    while alone.waiting:
        alone.reads(25)
    assert alone.member.runs["a"].token > token


def test_who_does_not_read_its_own_joining_tries_again_under_another_name() -> None:
    """It may have been declared gone in notes that are deleted by now."""
    alone = Alone()
    alone.ticks(TIMING.lease_ms - 1)
    assert alone.member.phase is Phase.JOINING
    assert alone.member.deadline_ns <= TIMING.lease_ms * MS
    alone.ticks(TIMING.lease_ms)
    over = alone.effects[-1]
    assert isinstance(over, Over)
    assert over.again


def test_who_finds_that_notes_were_deleted_which_it_had_not_read_begins_anew() -> None:
    """It cannot know what happened to its own notes there."""
    alone = Alone()
    alone.leads(10, "a")
    other = Alone()
    other.leads(10, "a")
    other.reads(20, Join(by="p", lease_ms=1000, metadata={}))
    snapshot = other.member.ledger.snapshot("p")
    missing = snapshot.as_of + 5
    alone.take(alone.member.read(30 * MS, missing, attrs.evolve(snapshot, as_of=missing)))
    assert isinstance(alone.effects[-1], Stop)
    assert "p" in alone.member.ledger.members
    assert alone.member.phase is Phase.ENDING


def test_who_cannot_renew_stops_by_its_own_clock_and_begins_anew() -> None:
    """It hears nothing at all; what it has written since does not help it."""
    alone = Alone()
    alone.leads(10, "a")
    token = alone.member.runs["a"].token
    stop_at_ms = (LEASE_NS - TIMING.stop_ms * MS) // MS
    for now_ms in range(20, stop_at_ms, 20):
        alone.ticks(now_ms)
        assert not alone.member.runs["a"].stopping
    assert alone.member.deadline_ns == stop_at_ms * MS
    alone.ticks(stop_at_ms)
    assert Stop("a", token, lost=True) in alone.effects
    assert alone.member.held((stop_at_ms + TIMING.stop_ms - 1) * MS, "a", token)
    assert not alone.member.held((stop_at_ms + TIMING.stop_ms) * MS, "a", token)
    alone.take(alone.member.ended(stop_at_ms * MS, "a", token, finished=False))
    assert Write(Leave(by="m-1")) in alone.effects
    over = alone.effects[-1]
    assert isinstance(over, Over)
    assert over.again


def test_who_wakes_from_a_long_sleep_holds_nothing_and_starts_nothing() -> None:
    """Whatever comes first after the pause: a note that would have started a task, or the time."""
    alone = Alone()
    alone.leads(10, "a")
    token = alone.member.runs["a"].token
    assert not alone.member.held(5_000 * MS, "a", token)
    alone.reads(5_000, Submit(by="x", tasks=("b",)))
    assert alone.effects[-1] == Stop("a", token, lost=True)
    alone.reads(5_001)
    assert not any(isinstance(one, Start) for one in alone.effects)


def test_others_are_declared_gone_a_lease_after_they_were_heard_of() -> None:
    alone = Alone()
    alone.leads(10)
    alone.reads(100, Join(by="other", lease_ms=400, metadata={}))
    alive = alone.member.ledger.members["other"].alive
    alone.waiting.clear()
    alone.ticks(499)
    assert not any(isinstance(note, Expire) for note in alone.waiting)
    alone.ticks(500)
    assert Expire(by="m-1", member="other", alive=alive) in alone.waiting


def test_C1_a_follower_buries_a_leader_that_nobody_else_buries() -> None:
    """It leads as long as the coordinator hears from it. A lease and a while after its last note in
    the ledger, any member declares it gone."""
    alone = Alone()
    alone.reads(10)
    alone.reads(100, Join(by="other", lease_ms=400, metadata={}))
    alone.take(
        alone.member.on_coordinator_view(100 * MS, CoordinatorView(1, "other", ("other", "m-1")))
    )
    assert not alone.member.is_leader
    alone.waiting.clear()
    alone.ticks(500 + TIMING.renew_ms - 1)
    assert not any(isinstance(note, Expire) for note in alone.waiting)
    alone.ticks(500 + TIMING.renew_ms)
    assert Expire(by="m-1", member="other", alive=1) in alone.waiting


def test_A15_who_stops_says_so_and_need_not_be_declared_gone() -> None:
    alone = Alone()
    alone.leads(10, "a")
    token = alone.member.runs["a"].token
    alone.take(alone.member.close(20 * MS))
    assert not any(isinstance(note, Leave) for note in alone.waiting), "a still runs"
    alone.take(alone.member.ended(21 * MS, "a", token, finished=False))
    assert alone.waiting[-1] == Leave(by="m-1")
    alone.reads(22)
    assert alone.member.ledger.members == {}
    assert alone.member.ledger.locks == {}


def test_C9_who_does_not_acknowledge_in_time_is_evicted() -> None:
    alone = Alone()
    alone.leads(10, "a", "b")
    alone.reads(20, Join(by="slow", lease_ms=5000, metadata={}))
    alone.take(
        alone.member.on_coordinator_view(20 * MS, CoordinatorView(2, "m-1", ("m-1", "slow")))
    )
    while alone.waiting:
        alone.reads(20)
        for run in [one for one in alone.effects if isinstance(one, Stop)]:
            alone.take(alone.member.ended(20 * MS, run.task, run.token, finished=False))
    assert alone.member.ledger.plan.owners.keys() == {"m-1", "slow"}
    alone.ticks(20 + TIMING.ack_timeout_ms - 1)
    assert not any(isinstance(note, Evict) for note in alone.waiting)
    alone.ticks(20 + TIMING.ack_timeout_ms)
    version = alone.member.ledger.plan.version
    assert Evict(by="m-1", member="slow", version=version) in alone.waiting
    while alone.waiting:
        alone.reads(30 + TIMING.ack_timeout_ms)
    assert alone.member.ledger.plan.owners.keys() == {"m-1"}, "nothing is given to it any more"
    assert alone.member.ledger.plan.version == version + 1
    assert TaskGroupConfig().timing.ack_timeout_ms == 5_000  # the seed's


def test_a_timing_that_cannot_work_is_refused() -> None:
    for wrong in (
        {"lease_ms": 5_000},
        {"stop_ms": 0},
        {"drift_ms_max": -1},
        {"renew_ms": 4_000},
    ):
        with pytest.raises(ConfigurationError):
            Timing(**wrong)
    with pytest.raises(ConfigurationError):
        TaskGroupConfig(heartbeat_ms=5_000)
    with pytest.raises(ConfigurationError):
        TaskGroupConfig(metadata={"x": "y" * 600})


class Impossible(Contiguous):
    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        return TaskShares.of({"nobody": tasks})


def test_a_sharding_that_gives_to_nobody_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(ConfigurationError, match="Impossible"):
        Alone(Impossible()).leads(10, "a")


def test_a_ledger_that_was_deleted_and_made_again_is_noticed() -> None:
    alone = Alone()
    alone.reads(10)
    with pytest.raises(ValueError, match="read before"):
        alone.member.read(20 * MS, 0, Notify(by="x", payload=b""))
    with pytest.raises(ConfigurationError):
        Alone(Impossible()).leads(10, "a")


# -- worlds without trouble -----------------------------------------------------------------------


def world_of(*names: str, tasks: str = "12345", **settings: object) -> World:
    world = World(1, **settings)  # type: ignore[arg-type]
    world.write(Submit(by="x", tasks=tuple(tasks)))
    for name in names:
        world.add(name)
        world.run(200)
    return world


def shares(world: World) -> dict[str, str]:
    found = {one.name: "" for one in world.processes.values() if one.member.phase is Phase.IN}
    for task, owners in sorted(world.owners().items()):
        assert len(owners) == 1
        found[owners.pop()] += task
    return found


def notes(world: World, kind: type[Note]) -> list[Note]:
    return [note for note in map(decode, world.records) if isinstance(note, kind)]


def test_A1_A13_the_coordinator_elects_and_the_leader_shares_through_the_ledger() -> None:
    """Only the elected leader writes a plan; all learn it by reading, and run their part."""
    world = World(1, election=largest_offset)
    world.write(Submit(by="x", tasks=tuple("12345")))
    for offset, name in enumerate("pqr"):
        world.add(name, offset=offset)
        world.run(200)
    assert [plan.by for plan in notes(world, Plan)] == ["p-0", "q-0", "r-0"]
    first, *others = (one.member.ledger.plan for one in world.processes.values())
    assert others == [first, first]
    assert shares(world) == {"p": "12", "q": "34", "r": "5"}


def test_A11_A14_a_follower_only_listens_and_tasks_may_come_late() -> None:
    world = world_of("p", "q", tasks="12")
    world.write(Submit(by="x", tasks=("3", "4")))
    world.run(200)
    assert shares(world) == {"p": "12", "q": "34"}
    of_follower = {type(note) for note in map(decode, world.records) if note.by == "q-0"}
    assert of_follower == {Join, Renew, Acquire, Release, Stopped, Running}


def test_A15_the_last_one_gets_everything() -> None:
    world = world_of("p", "q", "r")
    for name in "pq":
        world.close(name)
        world.run(200)
    assert shares(world) == {"r": "12345"}
    assert [note.by for note in notes(world, Leave)] == ["p-0", "q-0"]
    assert notes(world, Expire) == []
    assert world.processes["r"].member.ledger.members.keys() == {"r-0"}
    leaders = [view.leader for view in notes(world, View) if isinstance(view, View)]
    assert leaders[-1] == "r-0"
    assert [view.generation for view in notes(world, View) if isinstance(view, View)] == sorted(
        range(1, len(leaders) + 1)
    )


def test_B2_joining_and_leaving_is_noticed_at_once_and_dying_a_lease_later() -> None:
    world = world_of("p", "q", sharding=Sticky())
    world.close("q")
    world.run(100)
    assert shares(world)["p"] == "12345"
    world.add("r")
    world.run(200)
    assert len(shares(world)["r"]) == 2
    world.processes["r"].dead = True
    world.run(TIMING.lease_ms // 2)
    assert len(world.owners()) == 3, "its lease may still be used: nobody takes what it had"
    world.run(TIMING.lease_ms)
    assert shares(world)["p"] == "12345"


def test_B3_a_member_too_many_stays_idle_and_disturbs_nobody() -> None:
    """5 members for 4 tasks: no new plan, nothing stops. Whatever the names, the last member to
    come is the one too many."""
    world = world_of(*"DBEC", tasks="1234", sharding=Interleaved())
    plans, starts = len(notes(world, Plan)), len(world.history)
    world.add("A")
    world.run(500)
    assert shares(world) == {"D": "1", "B": "2", "E": "3", "C": "4", "A": ""}
    assert (len(notes(world, Plan)), len(world.history)) == (plans, starts)
    assert notes(world, View)[-1].members[-1] == "A-0"  # type: ignore[attr-defined]


def test_B15_what_does_not_move_is_not_paused() -> None:
    """The hazards of the seed: with Sticky, only tasks that have to move stop, and the rest run
    on."""
    world = world_of("p", "q", tasks="123456", sharding=Sticky())
    before = len(world.history)
    world.add("r")
    world.run(300)
    assert sorted(map(len, shares(world).values())) == [2, 2, 2]
    assert len(world.history) - before == 2


@pytest.mark.parametrize("joins", [True, False], ids=["one more", "one less"])
def test_B15_the_spike_after_a_rebalance_is_no_higher_than_what_moved(joins: bool) -> None:
    """What piles up while nobody reads is read at once afterwards, so the spike is the time in
    which a task is not run, summed over tasks. Only moving tasks have any: the time to stop, to
    report it, and to be taken over. No lease and no time-out is waited for."""
    world = world_of("p", "q", "r", tasks="123456", sharding=Sticky())
    before = {task: names.copy() for task, names in world.owners().items()}
    paused = dict.fromkeys("123456", 0)
    if joins:
        world.add("s")
    else:
        world.close("r")
    for _ in range(500):
        world.step()
        for task in paused.keys() - world.owners().keys():
            paused[task] += 1
    after = world.owners()
    moved = {task for task in paused if after[task] != before[task]}
    assert len(moved) == (1 if joins else 2)
    assert {task for task, ms in paused.items() if ms} == moved
    quick_ms = TIMING.stop_ms // 2 + 60  # stopping in this world, and six notes of 5 ms and a read
    assert all(paused[task] <= quick_ms for task in moved), paused


def test_C1_C4_any_member_can_lead_and_the_next_one_does_when_it_dies() -> None:
    world = world_of("p", "q", "r")
    world.processes["p"].dead = True
    world.run(2 * TIMING.lease_ms)
    assert shares(world) == {"p": "", "q": "123", "r": "45"}
    assert notes(world, Plan)[-1].by in ("q-0", "r-0")


def test_C5_a_plan_that_would_change_nothing_is_not_made() -> None:
    world = world_of("p")
    world.write(Submit(by="x", tasks=tuple("123")))
    world.run(300)
    assert len(notes(world, Plan)) == 1


def test_C6_with_stop_all_everything_stops_before_anything_starts() -> None:
    world = world_of("p", "q", stop_all=True)
    assert shares(world) == {"p": "123", "q": "45"}
    plan_at = max(at for at, data in enumerate(world.records) if isinstance(decode(data), Plan))
    after = [decode(data) for data in world.records[plan_at:]]
    stopped = [at for at, note in enumerate(after) if isinstance(note, Stopped)]
    acquired = [at for at, note in enumerate(after) if isinstance(note, Acquire)]
    assert len(stopped) == 2
    assert max(stopped) < min(acquired)
    assert {one.token > plan_at for one in world.history[-5:]} == {True}
