"""Trace validation: a world runs, and the specification must accept everything its nodes do.

A mutant that breaks a rule must be refused, with the rule's name; the verdict of the simulator's
own checkers does not count here. A trace is judged as it happens, or written to a file and judged
from there: both must reach the same verdict.
"""

import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from paxos.ids import GroupId, NodeId
from simulator.environment.options import Options, Workload, draw
from simulator.model.events import Event
from simulator.model.observe import ObservedWorld
from simulator.model.specification import Refused, Specification
from simulator.mutants import catalogue as mutants

SEEDS: Final = range(200)
QUICK_SEEDS: Final = range(10)
PLANTED_SEEDS: Final = range(60)
"""Not every world gives every bug an opportunity."""

REFUSED_BY: Final[Mapping[str, str]] = {
    "forget-promise": "R1",
    "reuse-ballot": "R1",
    "promise-below-promise": "R1",
    "prepare-before-fsync": "R1",
    "promise-forgets-votes": "promise",
    "promise-without-behind": "promise",
    "vote-below-promise": "acceptor",
    "quorum-minus-one-promises": "phase 1",
    "quorum-minus-one-votes": "I3",
    "found-lowest": "phase 1",
    "found-ignored": "phase 1",
    "new-value-sent-again": "I1",
    "act-until-apply": "R3 R11 R12",
    "keep-range": "R4 R10",
    "resume-same-ballot": "R7",
    "naive-fresh-ballot": "R5",
    "usurped-ballot": "R5 R6",
    "replay-takes-over": "R5 R6",
    "no-incarnation": "R6",
    "act-on-replayed-lease": "R3 R11 R12",
    "no-holder-margin": "R3 R11 R12",
    "no-other-margin": "R12",
    "ack-unknown": "R14",
    "ack-when-proposed": "R14",
    "read-no-epoch": "R14",
    "read-checked-before": "R14",
    "promise-before-fsync": "R18",
    "accepted-before-fsync": "R18",
    "own-vote-before-fsync": "R18",
    "promise-not-written": "R18",
    "steal-for-any-life": "R5 R6",
}
"""Planted bugs (simulator/mutants/catalogue.py), and the rule by which each is refused."""

RARE: Final = frozenset({"found-lowest", "steal-for-any-life"})
"""Those of them that take many worlds."""


@attrs.frozen
class Validation:
    """`rule` and `refusal` are empty if the whole trace was accepted."""

    seed: int
    events: int
    slots: int
    rule: str = ""
    refusal: str = ""
    stopped_by: str = ""
    """What ended the world early: a checker that was faster than the specification."""

    @property
    def accepted(self) -> bool:
        return not self.refusal and not self.stopped_by

    def line(self) -> str:
        said = f"trace {self.seed}: {self.events:,} events, {self.slots:,} slots: "
        if self.refusal:
            return said + f"refused: {self.refusal}"
        return said + (f"accepted, then {self.stopped_by}" if self.stopped_by else "accepted")


class Judge:
    """A specification for every group of a world."""

    def __init__(self, members: Mapping[GroupId, Iterable[int]], margin_ns: int) -> None:
        self.groups = {
            group: Specification(map(NodeId, some), margin_ns) for group, some in members.items()
        }

    def feed(self, event: Event) -> None:
        self.groups[event.group].feed(event)

    def validation(self, seed: int, refused: Refused | None, stopped_by: str = "") -> Validation:
        groups = self.groups.values()
        return Validation(
            seed,
            sum(one.events for one in groups),
            sum(len(one.decided) for one in groups),
            "" if refused is None else refused.rule,
            "" if refused is None else str(refused),
            stopped_by,
        )


class JudgedWorld(ObservedWorld):
    """A world that ends with Refused at the first event that the specification does not allow."""

    def __init__(self, options: Options, *, verbose: bool = False) -> None:
        super().__init__(options, self._feed, verbose=verbose)
        self.judge = Judge(self.members, options.timing.margin_ns)

    def _feed(self, event: Event) -> None:
        self.judge.feed(event)


def validate(seed: int, mutant: str = "") -> Validation:
    """Run the world of `seed` and judge it while it runs."""
    options = draw(seed, workload=Workload.COMMANDS)
    world = JudgedWorld(options)
    refused, stopped_by = None, ""
    with mutants.planted(mutant):
        try:
            world.run()
        except Refused as refusal:
            refused = refusal
        except Exception as error:  # noqa: BLE001 # the world's end, whatever the cause
            stopped_by = f"{type(error).__name__}: {error}"
    return world.judge.validation(seed, refused, stopped_by)


def validate_planted(mutant: str, seeds: range = PLANTED_SEEDS) -> Validation:
    """The first refusal by the rule that the bug breaks, or else the last world's verdict."""
    for seed in seeds:
        verdict = validate(seed, mutant)
        if verdict.rule == REFUSED_BY[mutant]:
            break
    return verdict


def judge(by: Judge, trace: Iterable[Event], seed: int) -> Validation:
    try:
        for event in trace:
            by.feed(event)
    except Refused as refusal:
        return by.validation(seed, refusal)
    return by.validation(seed, None)


def validate_all(seeds: range, processes: int) -> Iterator[Validation]:
    """In the order of the seeds."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(validate, seeds)


def validate_all_planted(names: Sequence[str], processes: int) -> Iterator[tuple[str, Validation]]:
    """In the order of `names`."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from zip(names, pool.imap(validate_planted, names), strict=True)


def seed_range(text: str) -> range:
    """`0:200`; the second is excluded."""
    first, _, last = text.partition(":")
    return range(int(first), int(last))
