"""When a consumer commits automatically: periodically, from each assignment on, and sooner after a
failure.

As in Kafka, an assignment restarts the interval, because what was read before it was committed when
partitions were taken away. A commit that failed for a transient reason is retried after a short
pause, which doubles. Endless rebalances do not postpone it for ever: two intervals after the last
commit it is due in any case.
"""

from collections.abc import Awaitable, Callable

import attrs
import trio

from evenkeel.errors import EvenkeelError


@attrs.define(eq=False)
class AutoCommit:
    """`commit` returns why it failed, if it did; `pause_s` the pause after so many failures."""

    every_s: float
    pause_s: Callable[[int], float]
    commit: Callable[[], Awaitable[EvenkeelError | None]]
    _due: float = 0.0
    _latest: float = 0.0

    def restart(self) -> None:
        """The assignment has changed: the interval restarts."""
        self._due = min(trio.current_time() + self.every_s, self._latest)

    async def run(self) -> None:
        failures = 0
        self._plan(self.every_s)
        while True:
            await self._until_due()
            failed = await self.commit()
            failures = failures + 1 if failed is not None and failed.retriable else 0
            self._plan(min(self.every_s, self.pause_s(failures - 1)) if failures else self.every_s)

    def _plan(self, after_s: float) -> None:
        now = trio.current_time()
        self._due, self._latest = now + after_s, now + 2 * self.every_s

    async def _until_due(self) -> None:
        while trio.current_time() < self._due:  # noqa: ASYNC110 (the deadline may move meanwhile)
            await trio.sleep_until(self._due)
