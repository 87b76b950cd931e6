"""Work for one request, done in steps of a round each, in turn with requests in portions."""

from collections.abc import Callable, Iterator
from typing import Final

from broker.ports import Reply

STEP: Final = 1_000
"""Partitions examined in one step: a millisecond or two."""


class Steps:
    """`work` yields where others may have a turn; `done` answers once it has ended. Meanwhile
    nothing more is read of the connection: otherwise each of its requests would hold its
    results."""

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
        """Do a step; return whether more are left."""
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
