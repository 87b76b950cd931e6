"""`python -m simulator.mutation`: are the checkers any good? Plant each bug and see who notices.

Every mutant of simulator/mutants/catalogue.py runs in the worlds of seeds 0, 1, 2, ... until one of
them fails. If the swarm does not find it, the tests that the mutant names run with the bug planted.
A bug that neither finds is a hole, or a rule that is not needed; the report says so.

`--only` runs some mutants and leaves the other rows of the report as they are; `--resume` runs
those that no world has shown so far, from the seed at which they ended (the code must be the same).
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import attrs
import pytest

from simulator.clock_world import ClockWorld
from simulator.environment.options import changed, draw
from simulator.environment.violation import Violation
from simulator.mutants.catalogue import MUTANTS, planted
from simulator.mutants.clocks import CLOCKS
from simulator.mutants.state import MEMBERS, STATES
from simulator.swarm import PROCESSES, checker_of, make_world
from simulator.world import World

SEEDS: Final = 300
UNEXPECTED_SHARE: Final = 10
"""One in this many seeds is tried if the mutant says why the swarm cannot notice it."""
WORLD_SECONDS_MAX: Final = 60.0
"""A mutant may make a world that never ends; such a world counts as having found nothing."""
NICENESS: Final = 10
UNJUDGED: Final = {**STATES, **MEMBERS}
"""The specification does not know checkpoints: worlds with them have only the other checkers."""
REPORT: Final = Path("docs/mutants.md")
WHOLE: Final = "## In worlds of whole nodes"
"""The section under it is written by simulator.whole.hunts."""
CHECKERS: Final = {
    "I1": "I1 one value per ballot",
    "I2": "I2 one value chosen",
    "I3": "I3 one log",
    "I4": "I4 one master",
    "I6": "I6 acknowledged",
    "I7": "I7 reads",
    "I8": "I8 lease never shorter",
    "I9": "I9 one steal",
    "I10": "I10 progress",
    "I11": "I11 gives up",
    "group": "one lease per version",
    "G1a": "no refused write",
    "aim": "steals aim at the living",
    "drain": "steals leave nothing behind",
    "committed": "committed offsets",
    "dead-member": "the dead are replaced",
    "duplicate": "no duplicates",
    "fenced": "fencing",
    "times": "offsets for times",
    "generation": "one generation",
    "inconsistent-offsets": "one value per offset",
    "late": "nothing late undoes",
    "lost-commit": "commits are kept",
    "lost-on-node": "equal copies",
    "lost-write": "acknowledged writes",
    "nonmonotonic-send": "order of sends",
    "owner": "one owner",
    "overtaken": "order of a connection",
    "poll-skip": "order of polls",
    "reborn-epoch": "leader epochs do not fall",
    "reborn-offset": "offsets end with their topic",
    "reborn-record": "records end with their topic",
    "reborn-refused": "a new topic takes what goes on",
    "trust": "nobody acts by a wrong clock",
    "unexpected": "nothing invented",
}


class EndlessWorldError(Exception):
    """A world took longer than any good one does."""


@attrs.frozen
class Finding:
    """What became of one mutant. `seeds` were run; `checker` is empty if no checker noticed."""

    name: str
    seeds: int
    checker: str
    endless: int
    test: str
    """The first test that fails with the mutant planted; only sought if no checker noticed."""

    @property
    def caught(self) -> bool:
        return bool(self.checker or self.test)


@attrs.frozen
class Hunt:
    name: str
    first: int
    seeds: int
    test: str = ""
    """Known to fail with the mutant planted, so the search is skipped."""


def hunt(job: Hunt) -> Finding:
    """Run worlds with the mutant until one fails, or else its tests."""
    limit = seeds_of(job.name, job.seeds)
    endless = 0
    for seed in range(job.first, limit):
        try:
            checker = noticed_by(job.name, seed)
        except EndlessWorldError:
            endless += 1
            continue
        if checker:
            return Finding(job.name, seed + 1, checker, endless, "")
    return Finding(job.name, limit, "", endless, job.test or failing_test(job.name))


def seeds_of(name: str, seeds: int) -> int:
    """How many seeds are tried if `seeds` are asked for."""
    return max(1, seeds // UNEXPECTED_SHARE) if MUTANTS[name].why_not else seeds


def noticed_by(name: str, seed: int) -> str:
    """The checker or assertion that ends the world of `seed`; "" if it ends well.

    Raises:
        EndlessWorldError: it does not end.
    """
    signal.signal(signal.SIGALRM, _give_up)
    world = _world_for(name, seed)
    with planted(name):
        signal.setitimer(signal.ITIMER_REAL, WORLD_SECONDS_MAX)
        try:
            world.run()
        except EndlessWorldError:
            raise
        except Exception as error:  # noqa: BLE001 # whatever it is, it is the finding
            key = checker_of(error)
            return CHECKERS[key] if isinstance(error, Violation) else key
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return ""


def _world_for(name: str, seed: int) -> World | ClockWorld:
    if name in CLOCKS:
        return ClockWorld(seed)
    options = draw(seed, workload=MUTANTS[name].workload)
    judged = MUTANTS[name] not in UNJUDGED.values() or not options.checkpoint_slots
    return make_world(changed(attrs.evolve(options, judged=judged), MUTANTS[name].settings))


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    raise EndlessWorldError


class _FirstFailure:
    """A pytest plugin that remembers the first test that fails."""

    test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid


def failing_test(name: str) -> str:
    """The first test that fails with the mutant planted."""
    first = _FirstFailure()
    arguments = ["-x", "-q", "-p", "no:cacheprovider", MUTANTS[name].tests]
    with planted(name), contextlib.redirect_stdout(io.StringIO()):
        status = pytest.main(arguments, plugins=[first])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{name}: pytest ended with {status!r}")
    return first.test


def hunt_all(jobs: Iterable[Hunt], processes: int) -> Iterator[Finding]:
    """In the order in which they end. A process for each mutant: nothing is left of the last."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, initializer=_be_nice, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(hunt, jobs)


def _be_nice() -> None:
    os.nice(max(0, NICENESS - os.nice(0)))


# -- the report -------------------------------------------------------------------------------


ROW: Final = re.compile(
    r"\| `(?P<name>[^`]+)` \|.*"
    r"\| (?P<missed>not in )?(?P<seeds>\d+)(?:, (?P<endless>\d+) endless)? \| (?P<by>.*) \|"
)
NOBODY: Final = "**nobody**"


def row(finding: Finding) -> str:
    mutant = MUTANTS[finding.name]
    if finding.checker:
        seeds, by = str(finding.seeds), finding.checker
    else:
        seeds = f"not in {finding.seeds}"
        by = f"`{finding.test}`" if finding.test else NOBODY
    if finding.endless:
        seeds += f", {finding.endless} endless"
    cells = (f"`{finding.name}`", mutant.rule, mutant.what, seeds, by)
    return f"| {' | '.join(cells)} |"


def findings_in(text: str) -> dict[str, Finding]:
    """What the rows of a report say; rows of mutants that no longer exist are left out."""
    findings = {}
    for line in text.splitlines():
        match = ROW.fullmatch(line)
        if match is not None and match["name"] in MUTANTS:
            missed, by = bool(match["missed"]), match["by"]
            findings[match["name"]] = Finding(
                match["name"],
                int(match["seeds"]),
                "" if missed else by,
                int(match["endless"] or 0),
                by.strip("`") if missed and by != NOBODY else "",
            )
    return findings


def report(findings: Sequence[Finding]) -> str:
    """docs/mutants.md: what was planted, and who noticed."""
    found = [one for one in findings if one.checker]
    tested = [one for one in findings if not one.checker and one.test]
    holes = [one for one in findings if not one.caught]
    lines = [
        "# Planted bugs",
        "",
        "Generated by `make mutants`; do not edit. Each mutant changes a line or two of the code",
        "(`simulator/mutants/`). Then worlds of seeds 0, 1, 2, ... run until one fails. The",
        "executable specification judges nearly all of them, too: `trace: ...` names the rule that",
        "was broken, often long before any harm. If no world fails, the tests run with the bug in",
        "place. If the swarm is known not to find a mutant, only a tenth of the seeds is tried.",
        "",
        f"{len(findings)} mutants: {len(found)} found by the swarm, {len(tested)} by a test alone, "
        f"{len(holes)} by nobody;",
        f"{sum(one.seeds for one in findings)} worlds.",
        "",
        "| mutant | rule | what | seeds until found | found by |",
        "|---|---|---|---|---|",
        *map(row, findings),
        "",
    ]
    for title, some in (("Not found by the swarm", tested), ("Found by nobody", holes)):
        if some:
            lines += [f"## {title}", "", *map(_explained, some), ""]
    return "\n".join(lines)


def _explained(finding: Finding) -> str:
    why = MUTANTS[finding.name].why_not
    return f"- `{finding.name}`: {why or 'no reason is known; more seeds may show it'}."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.mutation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="for each mutant, at most")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--only", nargs="*", choices=sorted(MUTANTS), default=[], metavar="MUTANT")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    findings = findings_in(REPORT.read_text()) if REPORT.exists() else {}
    jobs = []
    for name in arguments.only or MUTANTS:
        known = findings.get(name)
        if not arguments.resume or known is None:
            jobs.append(Hunt(name, 0, arguments.seeds))
        elif not known.checker and known.seeds < seeds_of(name, arguments.seeds):
            jobs.append(Hunt(name, known.seeds, arguments.seeds, known.test))
    for finding in hunt_all(jobs, arguments.processes):
        findings[finding.name] = finding
        print(row(finding), flush=True)
        if findings.keys() == MUTANTS.keys():
            kept = REPORT.read_text().partition(WHOLE)[2] if REPORT.exists() else ""
            text = report([findings[name] for name in MUTANTS])
            REPORT.write_text(text + (f"\n{WHOLE}{kept}" if kept else ""))
    return 0 if all(one.caught for one in findings.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
