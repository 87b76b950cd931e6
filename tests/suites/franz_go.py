"""franz-go's own tests of its client: each in a process of its own.

They send 500,000 records in the largest of them; here, fewer, by a setting of theirs.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.suites.expected import Outcome, Unfit

BUILD_S_MAX: Final = 540.0
TEST_S_MAX: Final = 300
RECORDS: Final = 20_000
PACKAGE: Final = "./pkg/kgo"
BINARY: Final = "kgo.test"
SAID: Final = re.compile(r"\s+\w+_test\.go:\d+: (?!FAILED TESTING)")


class FranzGo:
    def build(self, checkout: Path) -> Sequence[str]:
        if shutil.which("go") is None:
            raise Unfit("no go here")
        command = ["go", "test", "-c", "-o", BINARY, PACKAGE]
        done = subprocess.run(
            command, cwd=checkout, capture_output=True, text=True, timeout=BUILD_S_MAX
        )
        if done.returncode != 0:
            raise Unfit(f"go test -c failed: {done.stderr[-600:]}")
        listed = subprocess.run(
            [f"./{BINARY}", "-test.list", "^Test"], cwd=checkout, capture_output=True, text=True
        )
        return sorted(listed.stdout.split())

    def run(self, checkout: Path, bootstrap: str, test: str) -> Mapping[str, Outcome]:
        environment = {
            **os.environ,
            "KGO_SEEDS": bootstrap,
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        words = [f"-test.run=^{test}$", "-test.v", f"-test.timeout={TEST_S_MAX}s"]
        begun = time.monotonic()
        done = subprocess.run(
            [str(checkout / BINARY), *words],
            cwd=checkout / PACKAGE,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=2 * TEST_S_MAX,
        )
        seconds = time.monotonic() - begun
        if done.returncode != 0:
            return {test: Outcome("fail", seconds, last_words(done.stdout + done.stderr))}
        skipped = f"--- SKIP: {test} (" in done.stdout
        return {test: Outcome("skip" if skipped else "pass", seconds, last_words(done.stdout))}


def last_words(text: str) -> str:
    """What the tests themselves said; else the end, before Go's trace of every goroutine."""
    said = [line.strip() for line in text.splitlines() if SAID.match(line)]
    told = " | ".join(said) if said else text.split("\ngoroutine ")[0].strip()[-600:]
    return told[:600].replace("\n", " | ")
