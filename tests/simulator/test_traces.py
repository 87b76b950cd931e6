"""Trace validation: the specification accepts what the core does, and rejects what it must not
do."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import pytest

from paxos.entry import EntryKind
from paxos.ids import MS, Slot
from simulator.environment.options import Workload, draw
from simulator.model import events
from simulator.model.events import Event
from simulator.model.observe import ObservedWorld
from simulator.model.traces import (
    RARE,
    REFUSED_BY,
    Judge,
    Validation,
    judge,
    validate,
    validate_planted,
)
from simulator.mutants.catalogue import MUTANTS
from simulator.swarm import Job, run_world
from simulator.world import World
from tests.doses import FULL, some

WORLDS: Final = 4 if FULL else 1
"""`make model` runs more worlds and more bugs; every test run has a few of them."""
SEEDS_MAX: Final = 8


@pytest.mark.parametrize("seed", range(WORLDS))
def test_what_the_core_does_is_accepted(seed: int) -> None:
    verdict = validate(seed)
    assert verdict.accepted, verdict.line()
    assert verdict.slots > 100


@pytest.mark.parametrize("mutant", some(sorted(set(REFUSED_BY) - RARE)))
def test_what_a_planted_bug_does_is_refused_by_the_rule_it_breaks(mutant: str) -> None:
    """In some early world: not every world gives every bug its opportunity."""
    verdict = validate_planted(mutant, range(SEEDS_MAX))
    assert verdict.rule == REFUSED_BY[mutant], f"{MUTANTS[mutant].what}: {verdict.line()}"


@pytest.mark.parametrize("seed", [0, 5] if FULL else [0])
def test_what_the_core_does_for_the_broker_is_accepted_too(seed: int) -> None:
    verdict = run_world(Job(seed, settings=("judged=1", "workload=broker")))
    assert not verdict.failure, verdict.report


def test_in_a_world_of_brokers_a_planted_bug_is_refused() -> None:
    settings = ("judged=1", "workload=broker")
    verdict = run_world(Job(0, mutant="ack-when-proposed", settings=settings))
    assert verdict.checker == "trace: R14"


def test_a_watched_world_is_the_same_world() -> None:
    """Watching must not change anything, or the validated code is not the code that runs."""
    options = attrs.evolve(draw(0, workload=Workload.COMMANDS), checkpoint_slots=0)
    plain, watched = World(options), ObservedWorld(options, lambda _: None)
    plain.run()
    watched.run()
    assert watched.trace.digest() == plain.trace.digest()


# -- traces that were changed by hand -------------------------------------------------------------


class Recorded:
    """The trace of one world and one group, to be changed and judged again."""

    def __init__(self, seed: int) -> None:
        self.seed, options = seed, draw(seed, workload=Workload.COMMANDS)
        everything: list[Event] = []
        world = ObservedWorld(options, everything.append)
        world.run()
        self.members, self.margin_ns = world.members, options.timing.margin_ns
        self.trace = everything

    def judged(self, trace: list[Event]) -> Validation:
        return judge(Judge(self.members, self.margin_ns), trace, 0)

    def changed(self, which: Callable[[Any], bool], change: Callable[[Any], Any]) -> Validation:
        """The first event that satisfies the condition is changed, or left out (None)."""
        at = next(index for index, event in enumerate(self.trace) if which(event))
        new = change(self.trace[at])
        return self.judged([*self.trace[:at], *([new] if new else []), *self.trace[at + 1 :]])


def is_a(kind: type[Any], **fields: object) -> Callable[[Any], bool]:
    return lambda event: (
        type(event) is kind
        and all(getattr(event, name) == wanted for name, wanted in fields.items())
    )


def of_kind(kind: EntryKind) -> Callable[[Any], bool]:
    return lambda event: type(event) is events.Proposed and event.value.kind is kind


def with_votes(event: Any) -> bool:  # any event
    return type(event) is events.Promised and bool(event.votes)


def other_value(event: Any) -> Any:  # any event with a value
    return event._replace(value=event.value._replace(digest="another"))


CHANGES: Final[dict[str, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]]] = {
    "a promise did not become durable": ("R1", is_a(events.PromiseDurable), lambda _: None),
    "a vote did not become durable": ("R18", is_a(events.VoteDurable, slot=9), lambda _: None),
    "a Promise conceals a vote": ("promise", with_votes, lambda one: one._replace(votes=())),
    "a Promise reaches nobody as it was sent": (
        "network",
        is_a(events.PromiseReceived),
        lambda one: one._replace(votes=((Slot(1), one.ballot, events.Value("x", 1)),)),
    ),
    "a slot is left out": (
        "I3",
        is_a(events.Applied, slot=9),
        lambda one: one._replace(slot=Slot(10)),
    ),
    "another entry is applied": ("I3", is_a(events.Applied, slot=9), other_value),
    "another entry is taught": ("I3", is_a(events.Taught), other_value),
    "another entry is voted for": ("I1", is_a(events.VoteDurable, slot=9), other_value),
    "more is counted than was chosen": (
        "R17",
        is_a(events.Counted, first=1),
        lambda one: one._replace(last=one.last + 5),
    ),
    "a Steal leaves before its master stops acting": (
        "R3",
        of_kind(EntryKind.STEAL),
        lambda one: one._replace(suspended=0),
    ),
    "a Steal gives another ballot away": (
        "R5",
        of_kind(EntryKind.STEAL),
        lambda one: one._replace(value=one.value._replace(ballot=one.ballot._replace(round=99))),
    ),
    "a lease for somebody else": (
        "R11",
        of_kind(EntryKind.BE_MASTER),
        lambda one: one._replace(value=one.value._replace(incarnation=99)),
    ),
    "a lease of another version": (
        "R8",
        of_kind(EntryKind.BE_MASTER),
        lambda one: one._replace(value=one.value._replace(prev_ver=7)),
    ),
    "acting after the lease": (
        "R3 R11 R12",
        is_a(events.Acts),
        lambda one: one._replace(wall_ns=one.wall_ns + 60_000 * MS),
    ),
    "commands after the lease": (
        "R13",
        of_kind(EntryKind.BATCH),
        lambda one: one._replace(wall_ns=one.wall_ns + 60_000 * MS),
    ),
    "acknowledged after the lease": (
        "R14",
        is_a(events.Acknowledged),
        lambda one: one._replace(wall_ns=one.wall_ns + 60_000 * MS),
    ),
    "acknowledged before it is applied": (
        "R14",
        is_a(events.Acknowledged),
        lambda one: one._replace(slot=one.slot + 50),
    ),
    "acknowledged by another node": (
        "R14",
        is_a(events.Acknowledged),
        lambda one: one._replace(node=(one.node + 1) % 3),
    ),
    "a read under an older epoch": (
        "R14",
        is_a(events.ReadAnswered),
        lambda one: one._replace(epoch=one.epoch - 1),
    ),
}


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """The first world in which all events happen that are to be changed."""
    for seed in range(SEEDS_MAX):
        one = Recorded(seed)
        if all(any(map(which, one.trace)) for _, which, _ in CHANGES.values()):
            return one
    pytest.fail(f"none of {SEEDS_MAX} worlds shows all that is to be changed")


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_a_trace_changed_by_hand_is_refused(recorded: Recorded, what: str) -> None:
    rule, which, change = CHANGES[what]
    verdict = recorded.changed(which, change)
    assert verdict.rule == rule, verdict.line()


def test_the_trace_that_was_changed_was_good(recorded: Recorded) -> None:
    assert recorded.judged(recorded.trace).accepted


# -- a disk that forgets --------------------------------------------------------------------------


def forgetful_boots(one: Recorded) -> Iterator[tuple[Validation, Validation]]:
    """Every boot with votes, judged as if the disk had lost them: with the loss hidden, and
    declared."""
    for index, event in enumerate(one.trace):
        if isinstance(event, events.Booted) and event.votes and not event.forgot:
            before, after = one.trace[:index], one.trace[index + 1 :]
            lost = event._replace(votes=())
            yield (
                one.judged([*before, lost, *after]),
                one.judged([*before, lost._replace(forgot=True), *after]),
            )


def test_a_node_that_has_forgotten_votes_may_not_vote_again() -> None:
    """Not before the slots it voted in are decided: here the honest node's votes come too soon."""
    for seed in range(SEEDS_MAX):
        for unsaid, said in forgetful_boots(Recorded(seed)):
            if unsaid.accepted:
                continue  # they had outlived a power cut unsynced: nobody knew of them
            assert unsaid.rule == "R18", unsaid.line()
            if said.rule == "ADR 4":
                return
    pytest.fail(f"in {SEEDS_MAX} worlds no restarted node votes while its slots are undecided")
