"""`python -m tests`: all tests, in two halves side by side, as `make test` runs them.

Tests with real node processes or Spark mostly wait; the others compute, on one core and with less
priority, so that they take what the first half leaves. What they say is shown when both are
done. Arguments go to pytest in both halves; the exit code is 0 if both passed.
"""

import os
import subprocess
import sys
import tempfile
import time

REAL = "cluster or spark"
POLITENESS = 5
"""Of those who compute: they get a third of a core at least."""
NOTHING_COLLECTED = 5
"""Of pytest: arguments that choose tests of one half only."""


def half(expression: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-m", expression, *arguments]


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        computing = subprocess.Popen(
            half(f"not ({REAL})", *arguments),
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.nice(POLITENESS),
        )
        try:
            codes = [subprocess.run(half(REAL, *arguments), check=False).returncode]
            codes.append(computing.wait())
        finally:
            computing.kill()
            computing.wait()
        said.seek(0)
        print(f"\n=== and at the same time, what needs no processes:\n\n{said.read()}", flush=True)
    bad = [code for code in codes if code not in (0, NOTHING_COLLECTED)]
    failed = bool(bad) or codes.count(NOTHING_COLLECTED) == len(codes)
    print(f"both halves {'did not pass' if failed else 'passed'}, {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
