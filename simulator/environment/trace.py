"""What happened: a digest on which two runs of one seed must agree, and lines for the reader."""

import hashlib
from collections import deque
from typing import Final

TAIL_LINES: Final = 400
"""How many are kept, to be printed when a world fails."""


class Trace:
    def __init__(self, *, verbose: bool = False) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._verbose = verbose
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def note(self, at_ns: int, what: str, *values: object) -> None:
        line = f"{at_ns / 1e6:10.3f} {what} {' '.join(map(str, values))}"
        self._hash.update(line.encode())
        if self._verbose:
            print(line)
        else:
            self.tail.append(line)

    def mix(self, data: bytes) -> None:
        """Adds to the digest, not to the lines."""
        self._hash.update(data)

    def digest(self) -> str:
        return self._hash.hexdigest()
