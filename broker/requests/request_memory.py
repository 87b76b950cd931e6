"""Memory that requests take beyond their bytes: decoded, decompressed, parked, partly answered.

One byte may become a hundred: a name of one letter an object, a few kilobytes of Zstandard a
hundred megabytes. Each kind is counted in advance, at the most it may take, and has a limit that
fits the node's memory (runtime.settings.broker). Beyond a limit:

| kind | what happens |
|---|---|
| decoded | a large request waits, undecoded, until those before it are done with |
| decompressed | a batch that would be larger is told MESSAGE_TOO_LARGE; there is one at a time |
| parked | a fetch is answered at once, and its client asked to pause |
| portions | requests are served one after the other, and not in turns |
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

DECODED_PER_BYTE: Final = 32
"""An empty item of two or three bytes becomes an object of a hundred."""


@attrs.define(eq=False)
class RequestMemory:
    """What a node's requests hold now; the first one is always admitted."""

    decoded_max: int
    decoded: int = 0
    unpacked: int = 0
    """For the batch being decompressed in the background: the most it may take."""
    _waiting: deque[tuple[int, Callable[[], None]]] = attrs.Factory(deque)

    @property
    def waiting(self) -> int:
        """Requests that wait to be decoded."""
        return len(self._waiting)

    def decode(self, size: int, begin: Callable[[], None]) -> None:
        """Call `begin` when there is room for a request of `size` bytes; then `decoded_end`."""
        self._waiting.append((size * DECODED_PER_BYTE, begin))
        self._go_on()

    def decoded_end(self, size: int) -> None:
        """Such a request has been served and freed."""
        self.decoded -= size * DECODED_PER_BYTE
        self._go_on()

    def _go_on(self) -> None:
        waiting = self._waiting
        while waiting and (not self.decoded or self.decoded + waiting[0][0] <= self.decoded_max):
            size, begin = waiting.popleft()
            self.decoded += size
            begin()
