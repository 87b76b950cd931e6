"""`python -m tests`: all tests, as `make test` runs them: two rows of them side by side.

Tests with real node processes mostly wait: they are one row. The other begins with those that need
no processes; they compute, in two processes with less priority, so that they take what the first
row leaves of the cores. Those with Spark come behind them. What the second row says is shown when
both are done. Arguments go to pytest each time; the exit code is 0 if all passed.
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
"""Of those who compute: each of them gets a seventh of a core at least, and usually most of one."""
SIDE_BY_SIDE: Final = ("-n", "2")
"""Arguments of pytest-xdist."""
NOTHING_COLLECTED: Final = 5
"""Of pytest: arguments that choose tests of one row only."""


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
