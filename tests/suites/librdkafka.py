"""librdkafka's own tests that need brokers: each in a process of its own.

Left out are those that cut connections by `sockem`. Its own `make quick` would leave out most parts
of most tests, which then count as passed: here they run in full length.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.suites.expected import Outcome, Unfit, Verdict

BUILD_S_MAX: Final = 1_800.0
TEST_S_MAX: Final = 300.0
KAFKA_VERSION: Final = "3.5.0"
"""The broker that its tests are told to expect: it decides which of them apply."""
VERDICTS: Final[dict[str, Verdict]] = {"PASSED": "pass", "FAILED": "fail", "SKIPPED": "skip"}
DECLARED: Final = re.compile(r"_TEST\((\w+),\s*([^,)]+)")


class Librdkafka:
    def build(self, checkout: Path) -> Sequence[str]:
        for tool in ("make", "gcc", "g++"):
            if shutil.which(tool) is None:
                raise Unfit(f"no {tool} here")
        if not (checkout / "tests" / "test-runner").exists():
            steps = [["./configure"], ["make", "libs"], ["make", "-C", "tests", "test-runner"]]
            for step in steps:
                done = subprocess.run(
                    step, cwd=checkout, capture_output=True, text=True, timeout=BUILD_S_MAX
                )
                if done.returncode != 0:
                    raise Unfit(f"{' '.join(step)} failed: {done.stderr[-600:]}")
        return tests_of((checkout / "tests" / "test.c").read_text())

    def run(self, checkout: Path, bootstrap: str, test: str) -> Mapping[str, Outcome]:
        folder = checkout / "tests"
        settings, report = folder / "evenkeel.conf", folder / "evenkeel.json"
        settings.write_text(f"bootstrap.servers={bootstrap}\ntest.topic.random=true\n")
        report.unlink(missing_ok=True)
        libraries = f"{checkout / 'src'}:{checkout / 'src-cpp'}"
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": libraries,
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_REPORT": str(report),
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "TESTS": test,
        }
        begun = time.monotonic()
        try:
            done = subprocess.run(
                ["./test-runner", "-p1", "-L", "-E"],
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                stdin=subprocess.DEVNULL,
                timeout=TEST_S_MAX,
            )
        except subprocess.TimeoutExpired:
            return {test: Outcome("fail", TEST_S_MAX, "it did not end")}
        seconds = time.monotonic() - begun
        said = last_words(done.stdout + done.stderr)
        return {test: Outcome(verdict_of(report, test), seconds, said)}


def last_words(text: str) -> str:
    """Why it failed, in its own words; else the end."""
    plain = re.sub(r"\x1b\[\d+m", "", text).strip()
    at = plain.find("### Test ")
    return (plain[-600:] if at < 0 else plain[at : at + 600]).replace("\n", " | ")


def verdict_of(report: Path, test: str) -> Verdict:
    """A test that took its process with it has left no report."""
    if not report.exists():
        return "fail"
    told = json.loads(report.read_text())["tests"]
    return VERDICTS.get(told[test]["state"], "skip")


def tests_of(source: str) -> list[str]:
    """All that need a broker, but those that are known not to work."""
    declared = DECLARED.findall(source.split("struct test tests[]")[1])
    return [
        name
        for name, flags in declared
        if not {"TEST_F_LOCAL", "TEST_F_SOCKEM", "TEST_F_KNOWN_ISSUE", "TEST_F_MANUAL"}
        & set(re.findall(r"\w+", flags))
    ]
