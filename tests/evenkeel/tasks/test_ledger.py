"""The rules of the ledger: which notes count, as short stories of notes in order."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as some

from evenkeel.tasks import notes
from evenkeel.tasks.ledger import Ledger, Lock
from evenkeel.tasks.notes import (
    CHECKPOINT_BYTES_MAX,
    MEMBERS_MAX,
    METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    TASKS_MAX,
    Acquire,
    Checkpoint,
    Evict,
    Expire,
    Finish,
    Join,
    Leave,
    Note,
    NoteError,
    Notify,
    Plan,
    Release,
    Renew,
    Running,
    Snapshot,
    Stopped,
    Submit,
    View,
    Withdraw,
    decode,
    encode,
)
from evenkeel.tasks.sharding import Contiguous, TaskShares

RECORD_BYTES_MAX = 1024 * 1024
"""What a producer sends by default."""


class Story:
    """Notes, one after the other; each `says` whether it counts."""

    def __init__(self) -> None:
        self.ledger = Ledger(Contiguous())

    def says(self, note: Note | None) -> bool:
        read = None if note is None else decode(encode(note))
        return self.ledger.apply(self.ledger.next_offset, read)

    def join(self, *names: str, **metadata: object) -> None:
        for name in names:
            assert self.says(Join(by=name, lease_ms=1000, metadata=metadata))

    def view(self, generation: int, leader: str, *members: str, by: str | None = None) -> bool:
        return self.says(
            View(by=by or leader, generation=generation, leader=leader, members=members)
        )

    def plan(
        self,
        shares: Mapping[str, Iterable[str]],
        other: Mapping[str, object] = MappingProxyType({}),
    ) -> bool:
        """The leader's next version of the plan; `other` has the differences."""
        given: dict[str, object] = {
            "by": self.ledger.view.leader,
            "version": self.ledger.plan.version + 1,
            "term": self.ledger.view.term,
            "stop_all": False,
            "shares": Contiguous().encode(TaskShares.of(shares)),
        }
        return self.says(Plan(**(given | dict(other))))  # type: ignore[arg-type]

    def acquire(self, by: str, tasks: str) -> bool:
        return self.says(Acquire(by=by, version=self.ledger.plan.version, tasks=tuple(tasks)))


@pytest.fixture
def story() -> Story:
    """p and q are there, p leads and has planned: p runs a and b, q runs c and d."""
    found = Story()
    found.says(Submit(by="client", tasks=tuple("abcd")))
    found.join("p", "q")
    found.view(1, "p", "p", "q")
    found.plan({"p": "ab", "q": "cd"})
    return found


# -- which members there are ----------------------------------------------------------------------


def test_A6_who_is_known_changes_nothing_by_joining_again(story: Story) -> None:
    before = attrs.evolve(story.ledger.members["p"])
    assert not story.says(Join(by="p", lease_ms=5, metadata={"other": 1}))
    assert story.ledger.members["p"] == before
    assert story.ledger.view.generation == 1


def test_A7_A8_after_each_change_all_know_group_members_leader_and_generation(
    story: Story,
) -> None:
    story.join("r", rack="west")
    assert story.view(2, "r", "p", "q", "r")
    view = story.ledger.view
    assert (view.generation, view.leader, view.members) == (2, "r", ("p", "q", "r"))
    assert story.ledger.candidate("r").metadata == {"rack": "west"}
    assert list(story.ledger.tasks) == list("abcd")
    assert story.ledger.members["r"].alive == story.ledger.members["r"].joined


def test_who_gave_a_sign_of_life_is_not_gone(story: Story) -> None:
    """The central rule: of the renewal and the expiry, the one that comes first in the ledger
    counts."""
    story.acquire("q", "c")
    seen = story.ledger.members["q"].alive
    assert story.says(Renew(by="q", beat=1))
    assert not story.says(Expire(by="p", member="q", alive=seen))
    assert story.ledger.holds("q", "c")
    assert story.says(Expire(by="p", member="q", alive=story.ledger.members["q"].alive))
    assert not story.says(Renew(by="q", beat=2))
    assert "c" not in story.ledger.locks


def test_C9_who_is_evicted_cannot_renew_its_lease_but_keeps_its_locks_until_it_is_over(
    story: Story,
) -> None:
    story.acquire("q", "c")
    assert not story.says(Evict(by="q", member="p", version=1)), "only the leader evicts"
    assert story.says(Evict(by="p", member="q", version=1))
    assert not story.says(Renew(by="q", beat=1))
    assert story.ledger.holds("q", "c")
    assert not story.says(Acquire(by="q", version=1, tasks=("d",)))
    assert story.says(Leave(by="q"))
    assert not story.ledger.locks


def test_C9_who_has_acknowledged_is_not_evicted_by_a_leader_that_was_slow_to_read(
    story: Story,
) -> None:
    assert story.says(Stopped(by="q", version=1))
    assert not story.says(Evict(by="p", member="q", version=1))
    assert story.says(Renew(by="q", beat=1))


def test_C9_who_was_late_for_a_plan_of_before_is_not_evicted_for_it(story: Story) -> None:
    """The next plan counts, for which it may be in time."""
    assert story.plan({"p": "abcd", "q": ""})
    assert not story.says(Evict(by="p", member="q", version=1))
    assert story.says(Evict(by="p", member="q", version=2))


def test_nothing_is_kept_of_who_has_gone(story: Story) -> None:
    """Names are never used again: anything kept by name would only grow."""
    story.acquire("q", "cd")
    story.says(Stopped(by="q", version=1))
    story.says(Running(by="q", version=1))
    assert story.says(Leave(by="q"))
    kept = story.ledger
    for by_name in (kept.members, kept.stopped, kept.running):
        assert "q" not in by_name
    assert not kept.locks


def test_who_is_not_there_neither_acknowledges_nor_plans(story: Story) -> None:
    for kind in (Stopped, Running):
        assert not story.says(kind(by="nobody", version=1))
    assert story.says(Leave(by="p"))
    assert story.ledger.view.leader == "p", "until the coordinator has named another"
    assert not story.plan({"q": "abcd"})


def test_a_group_has_room_for_so_many() -> None:
    story = Story()
    story.join(*(f"m{number}" for number in range(MEMBERS_MAX)))
    assert not story.says(Join(by="one more", lease_ms=1000, metadata={}))
    assert story.says(Leave(by="m0"))
    story.join("one more")


# -- which member leads ---------------------------------------------------------------------------


def test_A9_later_generations_count_and_earlier_ones_do_not(story: Story) -> None:
    assert story.view(3, "q", "p", "q")
    assert not story.view(2, "p", "p", "q")
    assert not story.view(3, "p", "p", "q"), "a coordinator that has split names two"
    assert not story.view(4, "nobody", "p", "q", by="p")
    assert story.view(4, "p", "p", "q")


def test_a_coordinator_that_has_forgotten_the_group_begins_again_at_1(story: Story) -> None:
    """The last leader says so itself, or is gone."""
    assert story.view(5, "q", "p", "q")
    assert not story.view(1, "p", "p")
    assert story.view(1, "p", "p", by="q")
    assert story.view(6, "q", "p", "q")
    assert story.says(Leave(by="q"))
    assert story.view(1, "p", "p")


def test_B8_B10_of_two_plans_the_first_counts(story: Story) -> None:
    """One order needs no lock: the second plan is void for all members alike."""
    assert story.plan({"p": "abcd"}, {"version": 2})
    assert not story.plan({"q": "abcd"}, {"version": 2})
    assert story.ledger.plan.of_owner("p") == tuple("abcd")


@pytest.mark.parametrize(
    ("shares", "other"),
    [
        ({"p": "ab", "q": "bc"}, {}),
        ({"p": "ax"}, {}),
        ({"p": "ab", "nobody": "c"}, {}),
        ({"p": "ab"}, {"version": 4}),
        ({"p": "ab"}, {"by": "q"}),
        ({"p": "ab"}, {"term": 1}),
        ({}, {"shares": "no plan"}),
    ],
    ids=["a task twice", "no task", "no member", "not next", "no leader", "old term", "unreadable"],
)
def test_B9_every_member_reviews_a_plan_and_all_find_the_same(
    story: Story, shares: Mapping[str, str], other: Mapping[str, object]
) -> None:
    before = story.ledger.plan
    assert not story.plan(shares, other)
    assert story.ledger.plan == before
    assert story.plan({"p": "abcd"})


def test_B9_a_plan_that_names_an_evicted_member_does_not_count(story: Story) -> None:
    """It is listed until its lease is over, but it must not be given anything any more."""
    assert story.says(Evict(by="p", member="q", version=1))
    assert "q" in story.ledger.members
    assert not story.plan({"p": "ab", "q": "cd"})
    assert story.ledger.plan.version == 1
    assert story.plan({"p": "abcd"})


def test_B11_C7_plans_have_versions_in_order(story: Story) -> None:
    for version in (2, 3, 4):
        assert story.plan({"p": "a"})
        assert story.ledger.plan.version == version
    assert not story.plan({"p": "b"}, {"version": 4})
    assert not story.says(Acquire(by="p", version=3, tasks=("a",))), "with a stale plan"
    assert story.says(Acquire(by="p", version=4, tasks=("a",)))


def test_B12_C8_everybody_acknowledges_and_nobody_another_round(story: Story) -> None:
    assert story.says(Stopped(by="p", version=1))
    assert not story.says(Stopped(by="p", version=1))
    assert story.says(Running(by="p", version=1))
    assert not story.ledger.all_running
    assert story.says(Stopped(by="q", version=1))
    assert story.says(Running(by="q", version=1))
    assert story.ledger.all_stopped
    assert story.ledger.all_running
    assert story.plan({"p": "abcd", "q": ""})
    assert not story.says(Running(by="q", version=1)), "a slow one's word for the round before"
    assert not story.ledger.all_stopped


@pytest.mark.parametrize("kind", [Stopped, Running])
def test_B12_C8_a_word_for_another_round_does_not_count_even_if_it_was_never_said(
    story: Story, kind: type[Stopped | Running]
) -> None:
    """So far the slow one has acknowledged nothing, neither the round before nor this one."""
    assert story.plan({"p": "abcd", "q": ""})
    for version in (1, 3):
        assert not story.says(kind(by="q", version=version))
    assert not story.ledger.stopped
    assert not story.ledger.running
    assert story.says(kind(by="q", version=2))


# -- which member holds what ----------------------------------------------------------------------


def test_B1_B13_a_task_is_held_by_one_and_started_only_by_its_holder(story: Story) -> None:
    assert not story.acquire("q", "a"), "the plan gives it to p"
    assert story.acquire("p", "a")
    token = story.ledger.locks["a"].token
    assert not story.acquire("p", "a"), "held already"
    assert story.ledger.locks["a"] == Lock("p", token)


def test_B5_the_next_owner_waits_until_the_last_has_released(story: Story) -> None:
    story.acquire("p", "ab")
    old = story.ledger.locks["a"].token
    assert story.plan({"p": "b", "q": "acd"})
    assert not story.acquire("q", "a")
    assert not story.says(Release(by="q", tasks=("a",), up_to=99)), "only who holds it"
    assert story.says(Release(by="p", tasks=("a",), up_to=99))
    assert story.acquire("q", "a")
    assert story.ledger.locks["a"].token > old


def test_B5_a_late_release_does_not_release_what_was_acquired_again(story: Story) -> None:
    story.acquire("p", "a")
    late = Release(by="p", tasks=("a",), up_to=story.ledger.locks["a"].token)
    assert story.says(late)
    assert story.acquire("p", "a")
    assert not story.says(late)
    assert story.ledger.holds("p", "a")


def test_C5_C6_with_stop_all_nobody_starts_before_all_have_stopped(story: Story) -> None:
    story.acquire("p", "ab")
    assert story.plan({"p": "ac", "q": "bd"}, {"stop_all": True})
    assert not story.acquire("q", "d"), "free, but p has not stopped"
    story.says(Release(by="p", tasks=("a", "b"), up_to=99))
    story.says(Stopped(by="p", version=2))
    assert not story.acquire("q", "d"), "q itself has not said so"
    story.says(Stopped(by="q", version=2))
    assert story.acquire("q", "bd")
    assert story.acquire("p", "ac")


def test_B16_checkpoints_are_each_tasks_own_and_fenced(story: Story) -> None:
    story.acquire("p", "ab")
    token = story.ledger.locks["a"].token
    assert story.says(Checkpoint(by="p", task="a", token=token, value=b"17"))
    assert story.says(Checkpoint(by="p", task="b", token=token, value=b"23"))
    story.plan({"q": "abcd"})
    story.says(Release(by="p", tasks=("a", "b"), up_to=99))
    story.acquire("q", "ab")
    assert not story.says(Checkpoint(by="p", task="a", token=token, value=b"18"))
    assert story.ledger.checkpoints == {"a": b"17", "b": b"23"}


def test_what_is_finished_is_nobodys_any_more(story: Story) -> None:
    story.acquire("p", "ab")
    token = story.ledger.locks["a"].token
    assert not story.says(Finish(by="q", task="a", token=token))
    assert story.says(Finish(by="p", task="a", token=token))
    assert story.ledger.share("p") == ("b",)
    assert "a" not in story.ledger.locks
    assert not story.acquire("p", "a")


@pytest.mark.parametrize("end", ["finished", "withdrawn"])
def test_B16_a_task_that_comes_again_under_its_name_begins_anew(story: Story, end: str) -> None:
    """Its checkpoint is removed with it; otherwise the new task would continue where the old one
    ended."""
    story.acquire("p", "ab")
    token = story.ledger.locks["a"].token
    for task in "ab":
        assert story.says(Checkpoint(by="p", task=task, token=token, value=b"17"))
    if end == "finished":
        assert story.says(Finish(by="p", task="a", token=token))
    else:
        assert story.says(Withdraw(by="client", tasks=("a",)))
        assert not story.says(Checkpoint(by="p", task="a", token=token, value=b"18"))
    assert story.says(Submit(by="client", tasks=("a",)))
    assert story.ledger.checkpoints == {"b": b"17"}


def test_A14_tasks_come_before_and_after_members_and_go(story: Story) -> None:
    assert story.says(Submit(by="client", tasks=("e", "a")))
    assert not story.says(Submit(by="client", tasks=("e", "a")))
    assert story.acquire("p", "a")
    assert story.says(Withdraw(by="client", tasks=("a", "unknown")))
    assert story.ledger.holds("p", "a"), "who runs it has to stop first"
    assert list(story.ledger.tasks) == list("bcde")
    full = tuple(f"task-{number}" for number in range(TASKS_MAX - 4))
    assert story.says(Submit(by="client", tasks=full))
    assert not story.says(Submit(by="client", tasks=("too many",)))


# -- notes and snapshots --------------------------------------------------------------------------


def test_A4_every_kind_of_note_is_known_and_anything_else_changes_nothing(story: Story) -> None:
    kinds = {cls for cls in vars(notes).values() if isinstance(cls, type)}
    assert {cls for cls in kinds if issubclass(cls, Note)} - {Note} == set(notes.KINDS.values())
    before = story.ledger.snapshot("p").state
    assert not story.says(None)
    assert story.says(Notify(by="q", payload=b"hello"))
    after = story.ledger.snapshot("p").state
    assert before == after


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"note":"nothing"}',
        b'{"note":"alive","by":"p"}',
        b'{"note":"alive","by":"p","beat":-1}',
        b'{"note":"alive","by":"p","beat":true}',
        b'{"note":"alive","by":"","beat":1}',
        b'{"note":"notify","by":"p","payload":"*"}',
        b'{"note":"submit","by":"p","tasks":"abc"}',
        b'{"note":"submit","by":"p","tasks":["a\\nb"]}',
        b'{"note":"submit","by":"p","tasks":["a\\"b"]}',
        b'{"note":"plan","by":"p","version":1,"term":1,"stop_all":0,"shares":"{}"}',
        b'{"note":"join","by":"p","lease_ms":1,"metadata":[]}',
    ],
)
def test_what_is_no_note_is_refused(data: bytes) -> None:
    with pytest.raises(NoteError):
        decode(data)


@given(some.binary(max_size=200))
def test_any_bytes_give_a_note_or_a_note_error(data: bytes) -> None:
    for one in (data, b'{"note":"alive","by":' + data + b"}"):
        try:
            note = decode(one)
        except NoteError:
            continue
        assert decode(encode(note)) == note


def test_C2_all_that_paths_kept_is_in_the_ledger_and_in_its_snapshot(story: Story) -> None:
    story.acquire("p", "ab")
    token = story.ledger.locks["a"].token
    story.says(Checkpoint(by="p", task="a", token=token, value=b"\x00\xff"))
    story.says(Stopped(by="p", version=1))
    story.says(Evict(by="p", member="q", version=1))
    kept = story.ledger
    assert kept.members.keys() == {"p", "q"}  # REGISTER_CENTER
    assert kept.view.leader == "p"  # COORDINATOR
    assert kept.plan.version == 1  # BROADCAST
    assert kept.stopped == {"p": 1}  # ACK
    taken = decode(encode(story.ledger.snapshot("p")))
    assert isinstance(taken, Snapshot)
    other = Ledger(Contiguous())
    other.restore(taken)
    assert other.next_offset == story.ledger.next_offset
    assert other.snapshot("p").state == story.ledger.snapshot("p").state
    for note in (Release(by="p", tasks=("a",), up_to=99), Leave(by="q"), Leave(by="p")):
        offset = other.next_offset
        assert other.apply(offset, note) == story.ledger.apply(offset, note)
    assert encode(other.snapshot("p")) == encode(story.ledger.snapshot("p"))


def test_C2_C6_nothing_of_the_state_is_lost_in_a_snapshot(story: Story) -> None:
    """Field by field: each differs from an empty ledger, and is restored."""
    assert story.plan({"p": "ab", "q": "cd"}, {"stop_all": True})
    for name in "pq":
        story.says(Stopped(by=name, version=2))
    story.acquire("p", "ab")
    story.says(Running(by="p", version=2))
    token = story.ledger.locks["a"].token
    story.says(Checkpoint(by="p", task="a", token=token, value=b"17"))
    story.says(Evict(by="p", member="q", version=1))
    story.says(story.ledger.snapshot("p"))
    taken = decode(encode(story.ledger.snapshot("p")))
    assert isinstance(taken, Snapshot)
    restored, empty = Ledger(Contiguous()), Ledger(Contiguous())
    restored.restore(taken)
    for field in attrs.fields(Ledger):
        if field.name not in ("sharding", "snapshot_as_of"):  # it is itself what there is as of now
            kept = getattr(story.ledger, field.name)
            assert kept != getattr(empty, field.name), f"{field.name} is not tried here"
            assert getattr(restored, field.name) == kept, field.name
    assert restored.snapshot_as_of == taken.as_of == restored.next_offset


def test_the_largest_group_fits_into_one_record() -> None:
    """All limits at once: a snapshot must never be too large to be written."""
    story = Story()
    tasks = [f"{number:0{NAME_BYTES_MAX}}" for number in range(TASKS_MAX)]
    names = [f"{number:0{NAME_BYTES_MAX}}" for number in range(MEMBERS_MAX)]
    metadata = {"k": "x" * (METADATA_BYTES_MAX - 10)}
    for name in names:
        assert story.says(Join(by=name, lease_ms=1 << 40, metadata=metadata))
    assert story.says(Submit(by=names[0], tasks=tuple(tasks)))
    assert story.view(1 << 40, names[0], *names)
    shares = {name: tuple(tasks[at::MEMBERS_MAX]) for at, name in enumerate(names)}
    assert story.plan(shares)
    for name in names:
        assert story.says(Acquire(by=name, version=1, tasks=shares[name]))
        assert story.says(Stopped(by=name, version=1))
        assert story.says(Running(by=name, version=1))
    for task in tasks:
        holder, token = attrs.astuple(story.ledger.locks[task])
        value = b"\xff" * CHECKPOINT_BYTES_MAX
        assert story.says(Checkpoint(by=holder, task=task, token=token, value=value))
    assert len(encode(story.ledger.snapshot(names[0]))) < RECORD_BYTES_MAX
