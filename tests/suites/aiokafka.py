"""aiokafka's own tests: each file in a process of its own, in pure Python from the checkout.

They start a Kafka in a container; `nodes_for_aiokafka` gives them these nodes in its place. What
they ask of the container itself (Kerberos, SASL and SSL listeners) is not to be had.
"""

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.suites.expected import Outcome, Unfit, Verdict

PLUGIN: Final = Path(__file__).parent / "plugin" / "nodes_for_aiokafka.py"
"""Alone in its folder: their tests, too, are a package `tests`."""
FILE_S_MAX: Final = 900.0
IMAGE: Final = "evenkeel:x_2.8.1"
"""No image: its tests read from the name which version of Kafka they have."""


class Aiokafka:
    def build(self, checkout: Path) -> Sequence[str]:
        files = sorted((checkout / "tests").glob("test_*.py"))
        if not files:
            raise Unfit("it has no tests: a source distribution leaves them out")
        for package in ("pytest", "async_timeout", "packaging"):
            if find_spec(package) is None:
                raise Unfit(f"no {package} here: `make compat` brings what aiokafka needs")
        return [f"tests/{file.name}" for file in files]

    def run(self, checkout: Path, bootstrap: str, test: str) -> Mapping[str, Outcome]:
        report = checkout / "evenkeel.xml"
        report.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "AIOKAFKA_NO_EXTENSIONS": "1",
            "EVENKEEL_BOOTSTRAP": bootstrap,
            "PYTHONPATH": os.pathsep.join((str(checkout), str(PLUGIN.parent))),
        }
        command = [sys.executable, "-m", "pytest", test, "-p", PLUGIN.stem]
        command += [f"--docker-image={IMAGE}", "--no-pull", f"--junitxml={report}"]
        command += ["-p", "no:trio", "-p", "no:cacheprovider"]
        begun = time.monotonic()
        try:
            done = subprocess.run(
                command,
                cwd=checkout,
                capture_output=True,
                text=True,
                env=environment,
                timeout=FILE_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return {test: Outcome("fail", FILE_S_MAX, "it did not end")}
        if not report.exists():
            return {test: Outcome("fail", time.monotonic() - begun, done.stdout[-600:])}
        return outcomes_of(test, report)


def outcomes_of(file: str, report: Path) -> dict[str, Outcome]:
    """By `file::Class::test`, as in pytest's own words."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place = case.get("classname", "").split(".")[2:]  # behind `tests` and the module
        name = "::".join([file, *place, case.get("name", "")])
        wrong = [*case.iter("failure"), *case.iter("error")]
        skipped = list(case.iter("skipped"))
        verdict: Verdict = "fail" if wrong else "skip" if skipped else "pass"
        said = "".join(str(one.get("message")) for one in [*wrong, *skipped])
        outcomes[name] = Outcome(verdict, float(case.get("time", 0)), said[:600])
    return outcomes
