"""Work of one request that is done in steps, a round each, in turns with requests in portions."""

from collections.abc import Callable, Iterator
from typing import Final

from broker.ports import Reply

STEP: Final = 1_000
"""Partitions looked at in one step: a millisecond or two."""


class Steps:
    """`work` yields where others may have a turn; `done` answers, when it has ended. Meanwhile
    nothing more is read of the connection: else each of its requests would hold what it found."""

    def __init__(
        self,
        reply: Reply,
        work: Iterator[None],
        done: Callable[[], None],
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._reply, self._work, self._done, self._on_bug = reply, work, done, on_bug
        self._stopped_reading = False

    def next_portion(self) -> bool:
        """Whether more is left."""
        try:
            for _ in self._work:
                if not self._stopped_reading:
                    self._stopped_reading = True
                    self._reply.stop_reading()
                return True
            self._done()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self._on_bug("a step of a request", error)
            self._reply.close(f"internal error: {type(error).__name__}")
        if self._stopped_reading:
            self._reply.read_on()
        return False
