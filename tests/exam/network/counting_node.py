"""A whole node that writes down every ballot it begins: `... FILE --config ...`.

One line for each: the time (monotonic nanoseconds) and the group.
"""

import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import node
from paxos.replica import Replica


def main(arguments: list[str]) -> int:
    prepare = Replica.prepare
    with Path(arguments[0]).open("a", buffering=1, encoding="ascii") as file:

        def counted(self: Replica, *args: Any) -> None:
            file.write(f"{time.monotonic_ns()} {self.group}\n")
            prepare(self, *args)

        setattr(Replica, "prepare", counted)  # noqa: B010
        return node.main(list(islice(arguments, 1, None)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
