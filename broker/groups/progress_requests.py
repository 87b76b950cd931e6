"""Asking consumers for their progress before the master of their partitions moves (E12, E13).

A consumer that supports this says so in each of its Fetches (docs/kafka.md, "Progress on request").
It gets the request with its next answer (a parked fetch at once), commits, and reports in its
following Fetch that it has done so. The collector waits for all such consumers seen lately, up to
its limit. Consumers that never announced support are neither known here nor waited for.
"""

from collections.abc import Callable, Iterable
from typing import Final

import attrs

from broker.ports import Groups, Timers
from paxos.ids import MS, GroupId
from wire.messages.fetch import ProgressReport, ReportProgress

SILENT_NS: Final = 2_000 * MS
"""A consumer counts as gone this long after its next fetch was due."""
CONSUMERS_MAX: Final = 16_384
"""Consumers times the Paxos groups they read, on this node; further ones are not asked."""
SWEEP_EVERY_NS: Final = 1_000 * MS
"""With this many consumers, this is how often those that are gone are removed."""


@attrs.frozen
class Collected:
    """The result of asking: how many were asked and have reported, and how long each part took."""

    asked: int
    reported: int
    notify_ns: int
    collect_ns: int


NOBODY_TO_ASK: Final = Collected(0, 0, 0, 0)


@attrs.define(eq=False)
class _Round:
    """One collection in one Paxos group; `unasked` is a subset of `waiting`."""

    number: int
    wait_ms: int
    began_boot_ns: int
    done: Callable[[Collected], None]
    waiting: set[int]
    unasked: set[int]
    asked: int
    notified_boot_ns: int = 0
    timer: object = None


class ProgressRequests:
    """`wake` lets the parked fetches of a Paxos group check whether they have something to say."""

    def __init__(self, groups: Groups, timers: Timers, wake: Callable[[GroupId], None]) -> None:
        self._groups, self._timers, self._wake = groups, timers, wake
        self._here: dict[GroupId, dict[int, int]] = {}
        """Until when (boot clock) each consumer of a Paxos group counts as present."""
        self._rounds: dict[GroupId, _Round] = {}
        self.first_fetch: dict[GroupId, Callable[[int], None]] = {}
        """Called once, with the boot time, when records of a Paxos group leave."""
        self._here_count = 0
        self._swept_boot_ns = 0
        self._number = groups.now().wall_ns // 1_000
        """Increases, even across restarts: microseconds pass faster than steals happen."""

    def heard(self, groups: Iterable[GroupId], report: ProgressReport, wait_ms: int) -> None:
        """Note a fetch of a consumer that supports requests; it may be parked for `wait_ms`."""
        now_ns = self._groups.now().boot_ns
        until = now_ns + wait_ms * MS + SILENT_NS
        for group in groups:
            here = self._here.get(group)
            if here is not None and report.consumer in here:
                here[report.consumer] = until
            elif self._has_room(now_ns):
                self._here.setdefault(group, {})[report.consumer] = until
                self._here_count += 1
            round_ = self._rounds.get(group)
            if round_ is not None and report.reported >= round_.number:
                round_.waiting.discard(report.consumer)
                round_.unasked.discard(report.consumer)
                if not round_.waiting:
                    self._end(group, round_)

    def _has_room(self, now_ns: int) -> bool:
        if self._here_count >= CONSUMERS_MAX and now_ns - self._swept_boot_ns >= SWEEP_EVERY_NS:
            self._swept_boot_ns = now_ns
            for group in list(self._here):
                self._forget_gone(group, now_ns)
        return self._here_count < CONSUMERS_MAX

    def _forget_gone(self, group: GroupId, now_ns: int) -> dict[int, int]:
        """Return those of the group that are still present."""
        before = self._here.pop(group, {})
        here = {one: until for one, until in before.items() if now_ns < until}
        self._here_count -= len(before) - len(here)
        if here:
            self._here[group] = here
        return here

    def is_wanted(self, groups: Iterable[GroupId], consumer: int) -> bool:
        """Whether an answer to this consumer would carry a request."""
        rounds = self._rounds
        return bool(rounds) and any(
            consumer in rounds[group].unasked for group in groups if group in rounds
        )

    def request(self, group: GroupId, consumer: int) -> ReportProgress | None:
        """The request for this consumer about the group, for an answer that is leaving; given
        once."""
        round_ = self._rounds.get(group)
        if round_ is None or consumer not in round_.unasked:
            return None
        round_.unasked.discard(consumer)
        if not round_.unasked and not round_.notified_boot_ns:
            round_.notified_boot_ns = self._groups.now().boot_ns
        return ReportProgress(round_.number, round_.wait_ms)

    def fetched(self, groups: Iterable[GroupId]) -> None:
        """Records of these groups are leaving."""
        for group in groups:
            on_first_fetch = self.first_fetch.pop(group, None)
            if on_first_fetch is not None:
                on_first_fetch(self._groups.now().boot_ns)

    def collect(self, group: GroupId, wait_ms: int, done: Callable[[Collected], None]) -> None:
        """Ask every consumer present in the group; `done` is called once, perhaps immediately."""
        assert group not in self._rounds
        now_ns = self._groups.now().boot_ns
        here = self._forget_gone(group, now_ns)
        if not here or wait_ms <= 0:
            done(NOBODY_TO_ASK)
            return
        self._number = max(self._number + 1, self._groups.now().wall_ns // 1_000)
        who = set(here)
        round_ = _Round(self._number, wait_ms, now_ns, done, who, set(who), len(who))
        self._rounds[group] = round_
        round_.timer = self._timers.call_at(now_ns + wait_ms * MS, lambda: self._end(group, round_))
        self._wake(group)

    def stop(self, group: GroupId) -> None:
        """Forget the collection: `done` is not called."""
        round_ = self._rounds.pop(group, None)
        if round_ is not None:
            self._timers.cancel(round_.timer)

    def _end(self, group: GroupId, round_: _Round) -> None:
        """All have reported, or time is up."""
        if self._rounds.get(group) is not round_:
            return
        del self._rounds[group]
        self._timers.cancel(round_.timer)
        now_ns = self._groups.now().boot_ns
        began_ns = round_.began_boot_ns
        notified_ns = round_.notified_boot_ns or now_ns
        round_.done(
            Collected(
                asked=round_.asked,
                reported=round_.asked - len(round_.waiting),
                notify_ns=notified_ns - began_ns,
                collect_ns=now_ns - notified_ns,
            )
        )
