"""Compile the models, run them, and judge their output.

Two programs run at a time, each on one core. The models print one line of `name=value` pairs; the
rest of their output is for people.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import attrs

from simulator.model.runs import Run

SOURCES: Final = Path(__file__).parent
COMPILERS: Final = ("c++", "g++", "clang++")
OPTIONS: Final = ("-O2", "-std=c++17", "-Wall", "-Wextra", "-Werror")
PROCESSES: Final = 2
RUN_SECONDS_MAX: Final = 3_600.0


class NoCompilerError(Exception):
    """There is no C++ compiler on this machine."""


class ModelError(Exception):
    """A model does not compile, or ended without a verdict."""


@attrs.frozen
class Verdict:
    run: Run
    text: str
    """Everything it printed, including a counterexample."""
    values: Mapping[str, str]

    @property
    def title(self) -> str:
        return self.text.partition(": ")[0]

    @property
    def finding(self) -> str:
        """What it prints after its title: the broken invariant, or that there is none."""
        return self.text.partition(": ")[2].partition("\n")[0]

    @property
    def as_expected(self) -> bool:
        return self.values["verdict"] == self.run.expected.value

    @property
    def states(self) -> int:
        return int(self.values["states"])

    def line(self) -> str:
        mark = "ok  " if self.as_expected else "BAD "
        return (
            f"{mark}{self.title}: {self.finding}\n        {self.states:,} states, depth "
            f"{self.values['depth']}, {self.values['seconds']} s ({self.values['cpu']} s of CPU), "
            f"{self.values['memory_mb']} MB"
        )


def find_compiler() -> str:
    """The compiler that CXX names, or the first that is installed."""
    named = os.environ.get("CXX")
    for name in (named,) if named else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise NoCompilerError(
        f"the models are written in C++17 and none of {', '.join(COMPILERS)} is installed "
        "(Debian: apt-get install g++), nor does CXX name one"
    )


def build(compiler: str, run: Run, folder: Path) -> Path:
    source, bounds = run.program
    name = "-".join([Path(source).stem, *(f"{key}{value}" for key, value in bounds)])
    program = folder / name
    defines = [f"-D{key}={value}" for key, value in bounds]
    command = [compiler, *OPTIONS, *defines, str(SOURCES / source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 # ours
    if done.returncode:
        raise ModelError(f"{' '.join(command)}\n{done.stderr}")
    return program


def execute(program: Path, run: Run) -> Verdict:
    command = [str(program), *([run.flag] if run.flag else [])]
    done = subprocess.run(  # noqa: S603 # just compiled from our own sources
        command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
    )
    for line in done.stdout.splitlines():
        if line.startswith("  verdict="):
            values = dict(pair.split("=", 1) for pair in line.split())
            return Verdict(run, done.stdout, values)
    raise ModelError(
        f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    )


def check(runs: Iterable[Run], folder: Path, processes: int = PROCESSES) -> Iterator[Verdict]:
    """Verdicts in the order of `runs`; each program is compiled once, in `folder`."""
    compiler = find_compiler()
    programs: dict[object, Future[Path]] = {}

    def one(run: Run, program: Future[Path]) -> Verdict:
        return execute(program.result(), run)

    with ThreadPoolExecutor(processes) as builders, ThreadPoolExecutor(processes) as runners:
        verdicts = []
        for run in runs:
            if run.program not in programs:
                programs[run.program] = builders.submit(build, compiler, run, folder)
            verdicts.append(runners.submit(one, run, programs[run.program]))
        for verdict in verdicts:
            yield verdict.result()


def disagreements(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Runs that differ only in their reductions must have seen the same outcomes."""
    seen: dict[str, Verdict] = {}
    for verdict in verdicts:
        word = verdict.run.same_outcomes
        if not word:
            continue
        first = seen.setdefault(word, verdict)
        if first.values["outcomes"] != verdict.values["outcomes"]:
            yield (
                f"reductions disagree ({word}): {first.values['outcomes']} with "
                f"{first.run.bounds['REDUCTION']}, {verdict.values['outcomes']} with "
                f"{verdict.run.bounds['REDUCTION']}"
            )
