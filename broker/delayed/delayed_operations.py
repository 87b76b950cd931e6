"""Answers that wait for something to become true, or for their deadline.

A client that asks during an election gets its answer a little later instead of an error: after an
error it would only retry after a backoff that is longer than the election (docs/kafka.md). The
conditions are checked every few milliseconds; the more operations wait, the less often, so that a
crowd of clients in an outage costs no more than a few percent of a core.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.ports import Groups, Timers
from paxos.ids import MS

DELAYED_MAX: Final = 10_000
"""Beyond this no operation waits: the answer is what is known now."""
RECHECK_NS: Final = 5 * MS
RECHECK_NS_PER_OPERATION: Final = MS // 10


class _DelayedOperation(NamedTuple):
    ready: Callable[[], bool]
    deadline_boot_ns: int
    act: Callable[[], None]


class DelayedOperations:
    def __init__(self, groups: Groups, timers: Timers) -> None:
        self._groups = groups
        self._timers = timers
        self._held: list[_DelayedOperation] = []
        self._armed = False

    def __len__(self) -> int:
        return len(self._held)

    def until(
        self, ready: Callable[[], bool], deadline_boot_ns: int, act: Callable[[], None]
    ) -> None:
        """Call `act` once: now if `ready()`, else soon after it becomes true, or at the deadline.

        Neither may raise.
        """
        now = self._groups.now()
        if ready() or now.boot_ns >= deadline_boot_ns or len(self._held) >= DELAYED_MAX:
            act()
            return
        self._held.append(_DelayedOperation(ready, deadline_boot_ns, act))
        self._arm(now.boot_ns)

    def look(self) -> None:
        """Act on all that are ready or due; called by our timer and on every relevant change."""
        boot_ns = self._groups.now().boot_ns
        held, self._held = self._held, []
        due = []
        for hold in held:
            if boot_ns >= hold.deadline_boot_ns or hold.ready():
                due.append(hold)
            else:
                self._held.append(hold)
        for hold in due:
            hold.act()
        self._arm(boot_ns)

    def _arm(self, boot_ns: int) -> None:
        if self._armed or not self._held:
            return
        self._armed = True
        pause_ns = RECHECK_NS + len(self._held) * RECHECK_NS_PER_OPERATION
        self._timers.call_at(boot_ns + pause_ns, self._on_timer)

    def _on_timer(self) -> None:
        self._armed = False
        self.look()
