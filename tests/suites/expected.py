"""What a suite of tests is expected to say: all pass but the exceptions, each with its reason."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol

import attrs

HERE: Final = Path(__file__).parent
Verdict = Literal["pass", "fail", "skip"]
REASON_CHARS_MIN: Final = 15


class Unfit(Exception):
    """A checkout cannot be built or run here; the message says why."""


@attrs.frozen
class Outcome:
    verdict: Verdict
    seconds: float
    said: str = ""
    """Its last words."""


class Suite(Protocol):
    def build(self, checkout: Path) -> Sequence[str]:
        """What is run in a process of its own: a test, or a file of them.

        Raises:
            Unfit: if a tool is missing, or it does not build.
        """

    def run(self, checkout: Path, bootstrap: str, test: str) -> Mapping[str, Outcome]:
        """One of these, or all that a file of them holds."""


@attrs.frozen
class Exempt:
    """`tests` is a regular expression for whole names; `sometimes`: it passes in some runs."""

    tests: re.Pattern[str]
    verdict: Verdict
    reason: str
    sometimes: bool


@attrs.frozen
class Expectations:
    version: str
    exceptions: tuple[Exempt, ...]

    def of(self, test: str) -> frozenset[Verdict]:
        for one in self.exceptions:
            if one.tests.fullmatch(test):
                return frozenset({one.verdict, "pass"} if one.sometimes else {one.verdict})
        return frozenset({"pass"})

    def differences(self, outcomes: Mapping[str, Outcome]) -> list[str]:
        return [
            f"{test}: {outcome.verdict}, expected {' or '.join(sorted(self.of(test)))}"
            for test, outcome in outcomes.items()
            if outcome.verdict not in self.of(test)
        ]


def read(name: str, folder: Path = HERE) -> Expectations:
    return parse((folder / f"{name}.toml").read_text())


def parse(text: str) -> Expectations:
    """
    Raises:
        ValueError: if an exception has no reason, or a field is unknown.
    """
    known = tomllib.loads(text)
    exceptions = []
    for one in known.get("exception", []):
        if unknown := one.keys() - {"tests", "verdict", "reason", "sometimes"}:
            raise ValueError(f"unknown fields: {sorted(unknown)}")
        if one["verdict"] not in ("fail", "skip"):
            raise ValueError(f"{one['tests']}: verdict {one['verdict']}")
        if len(one.get("reason", "")) < REASON_CHARS_MIN:
            raise ValueError(f"{one['tests']}: an exception needs its reason")
        sometimes = bool(one.get("sometimes", False))
        tests = re.compile(one["tests"])
        exceptions.append(Exempt(tests, one["verdict"], one["reason"], sometimes))
    return Expectations(str(known["version"]), tuple(exceptions))
