"""`python -m tests.exam.load.quiet_client PORT`: a record every few milliseconds, each timed.

It is a process of its own: inside the flood's process it would measure that interpreter's load. It
prints a line per record, with milliseconds and error, until its output is closed.
"""

import sys
import time

from tests.exam.load.flooded_node import PAUSE_S, Caller, produce_one
from wire.error_codes import ErrorCode


def main(port: int) -> None:
    caller = Caller(port, "127.0.0.200")
    while True:
        time.sleep(PAUSE_S)
        began = time.monotonic()
        error = produce_one(caller)
        took_ms = (time.monotonic() - began) * 1e3
        print(f"{took_ms:.3f} {ErrorCode(error).name}", flush=True)  # noqa: T201 (its output)


if __name__ == "__main__":
    main(int(sys.argv[1]))
