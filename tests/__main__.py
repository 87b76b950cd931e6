"""`python -m tests`: all tests, as `make test` runs them: in two rows side by side.

Tests with real node processes mostly wait: they are one row. The other row begins with tests that
need no processes; they compute, in two processes with lower priority, so they use what the first
row leaves of the cores. Those with Spark come after them. The output of the second row is shown
when both are done. Arguments go to pytest each time; the exit code is 0 if all tests passed.
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
SIDE_BY_SIDE: Final = ("-n", "2")
"""Arguments of pytest-xdist."""
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
    with tempfile.TemporaryFile("w+") as said:
        running = [
            begin(REAL, arguments),
            begin(COMPUTING, [*SIDE_BY_SIDE, *arguments], said, POLITENESS),
        ]
        try:
            codes = [running[1].wait()]
            running.append(begin(SPARK, arguments, said))
            codes += [running[2].wait(), running[0].wait()]
        finally:
            for process in running:
                process.kill()
                process.wait()
        said.seek(0)
        print(f"\n=== and at the same time, what needs no processes, and Spark:\n\n{said.read()}")
    bad = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    failed = bool(bad) or codes.count(NOTHING_COLLECTED) == len(codes)
    print(f"tests {'did not pass' if failed else 'passed'}, {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
