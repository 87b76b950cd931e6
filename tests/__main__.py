"""`python -m tests`: all tests, as `make test` runs them: in two rows side by side.

Tests with real node processes mostly wait: they are one row. The other row has the tests that need
no processes; they compute, in two processes with lower priority, so they use what the first row
leaves of the cores. Those with Spark begin as soon as one row is done. What does not run in the
first row is shown when all are done. Arguments go to pytest each time; the exit code is 0 if all
tests passed.
"""

import os
import subprocess
import sys
import tempfile
import time
from typing import IO, Final

REAL: Final = "cluster and not spark"
COMPUTING: Final = "not (cluster or spark)"
SPARK: Final = "spark"
POLITENESS: Final = 8
"""The niceness of the tests that compute: each gets at least a seventh of a core, and usually most
of one."""
SIDE_BY_SIDE: Final = ("-n", "2", "--dist", "worksteal")
"""Arguments of pytest-xdist. Worlds come last and are long: whoever is done takes some of them."""
LOOK_S: Final = 0.5
NOTHING_COLLECTED: Final = 5
"""pytest's exit code when the arguments choose tests of only one row."""


def begin(
    expression: str, arguments: list[str], out: IO[str] | None = None, niceness: int = 0
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-m", expression, *arguments],
        stdout=out,
        stderr=None if out is None else subprocess.STDOUT,
        preexec_fn=lambda: os.nice(niceness),
    )


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as computed, tempfile.TemporaryFile("w+") as spark:
        running = [
            begin(REAL, arguments),
            begin(COMPUTING, [*SIDE_BY_SIDE, *arguments], computed, POLITENESS),
        ]
        try:
            while all(row.poll() is None for row in running):
                time.sleep(LOOK_S)
            running.append(begin(SPARK, arguments, spark))
            codes = [process.wait() for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait()
        for what, said in (("what needs no processes", computed), ("Spark", spark)):
            said.seek(0)
            print(f"\n=== and at the same time, {what}:\n\n{said.read()}")
    bad = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    failed = bool(bad) or codes.count(NOTHING_COLLECTED) == len(codes)
    print(f"tests {'did not pass' if failed else 'passed'}, {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
