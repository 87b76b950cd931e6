"""Which of its waits a coordinator records, and when, so that a move does not restart them.

It records all of them once before a group is handed over (`Coordinator.handing_over`). Otherwise,
in case the coordinator dies, it records only unusual ones, and only as long as they are unusual: a
member that is silent for longer than usual, a rebalance in progress, a member that returns. A
healthy group costs the log nothing, one with a dead member costs a small command each second.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from coordinator.limits import COMMAND_BYTES_MAX, WAITS_MAX
from coordinator.live.tenure import Tenure, WaitRecordsUnderWay
from coordinator.model import ConsumerGroupId
from coordinator.replicated.waits import KIND_NUMBERS, GroupWaits, TimeLeft, WaitFor
from coordinator.timers import (
    NOTHING_LEFT,
    SESSION_KINDS,
    Running,
    TimerKey,
    TimerKind,
    Wait,
)

SPENT_MS_MIN: Final = 100
"""A wait that began just now is as good as one that begins with the move."""
WAITS_PER_MS: Final = 20
"""Examining a hundred thousand waits takes a good part of 100 ms. With many waits it is done less
often, so that it takes no more than a few hundredths of the time."""
BYTES_MAX: Final = COMMAND_BYTES_MAX // 2
WAIT_BYTES: Final = 32
"""The numbers of one wait in a command, rounded up."""


class WaitRecords:
    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure
        self._under_way = False
        self.next_ms = tenure.now_ms + tenure.config.wait_records_every_ms
        """When to call `look` next, if there are waits."""

    def look(self) -> None:
        """Record unusual waits, if the log does not have them yet."""
        tenure = self._tenure
        if tenure.now_ms < self.next_ms:
            return
        every_ms = tenure.config.wait_records_every_ms
        self.next_ms = tenure.now_ms + max(every_ms, len(tenure.timers) // WAITS_PER_MS)
        if self._under_way:
            return
        unusual = self._waits(every_ms)
        if _differ(unusual, self._known(), every_ms):
            self._write(unusual)

    def hand_over(self) -> None:
        """Record all waits: the next mastership continues from here."""
        waits = self._waits(None)
        if _differ(waits, self._known(), 0):
            self._write(waits)

    def left(self) -> dict[TimerKey, Wait]:
        """The remaining time of all waits, which this node knows better than the log, in case the
        same mastership continues. Members that the log has and that were expelled have no time
        left."""
        tenure = self._tenure
        waits = self._waits(None)
        for group in tenure.groups.values():
            stored = tenure.store.get(group.name)
            for member in stored.members if stored is not None else ():
                if member not in group.members:
                    waits[TimerKey(TimerKind.SESSION, group.name, member)] = NOTHING_LEFT
        return waits

    def on_written(self) -> None:
        """Called also if it failed: the next look compares with the log again."""
        self._under_way = False

    def _waits(self, every_ms: int | None) -> dict[TimerKey, Wait]:
        """The remaining time of each wait worth recording: all but the youngest if `every_ms` is
        None.

        If that is more than a command may hold, those that end first.
        """
        now_ms = self._tenure.now_ms
        found, size = [], 0
        for key, running in self._tenure.timers.items():
            spent_ms = running.spent_ms(now_ms)
            if not running.graced and spent_ms < _worth_ms(key, running, every_ms):
                continue
            if key.kind in KIND_NUMBERS and not self._is_here(key):
                found.append((running, key))
                size += _size(key)
        if len(found) > WAITS_MAX or size > BYTES_MAX:
            found.sort(key=lambda one: one[0].deadline_ms)
            sizes = accumulate(_size(key) for _, key in found[:WAITS_MAX])
            found = found[: sum(size <= BYTES_MAX for size in sizes)]
        return {key: running.left(now_ms) for running, key in found}

    def _is_here(self, key: TimerKey) -> bool:
        """Its connection waits for our answer; or it is the short first delay of a group."""
        if key.kind is TimerKind.SESSION:
            member = self._tenure.groups[key.group].members[key.member]
            return member.join is not None or member.sync is not None
        return key.kind is TimerKind.REBALANCE and self._tenure.groups[key.group].initial

    def _known(self) -> dict[TimerKey, Wait]:
        return {
            TimerKey(kind, group.name, member): wait
            for group in self._tenure.store.waiting()
            for (kind, member), wait in group.waits.items()
        }

    def _write(self, waits: Mapping[TimerKey, Wait]) -> None:
        groups: dict[ConsumerGroupId, list[tuple[WaitFor, Wait]]] = {}
        for (kind, name, member), wait in waits.items():
            groups.setdefault(name, []).append((WaitFor(kind, member), wait))
        command = TimeLeft(
            tuple(
                GroupWaits(name, self._generation(name), tuple(groups[name]))
                for name in sorted(groups)
            )
        )
        self._under_way = True
        self._tenure.propose(None, command, WaitRecordsUnderWay())

    def _generation(self, name: ConsumerGroupId) -> int:
        group = self._tenure.groups.get(name)
        return group.generation if group is not None else 0


def _worth_ms(key: TimerKey, running: Running, every_ms: int | None) -> int:
    """How long a wait has to last before it is worth recording."""
    if every_ms is None:
        return SPENT_MS_MIN
    if key.kind not in SESSION_KINDS or running.rhythm_ms is None:
        return every_ms
    return max(every_ms, running.rhythm_ms + every_ms // 2)


def _differ(
    now: Mapping[TimerKey, Wait], known: Mapping[TimerKey, Wait], tolerance_ms: int
) -> bool:
    return now.keys() != known.keys() or any(
        wait.graced != known[key].graced or abs(wait.left_ms - known[key].left_ms) >= tolerance_ms
        for key, wait in now.items()
    )


def _size(key: TimerKey) -> int:
    return WAIT_BYTES + 4 * (len(key.group) + len(key.member))
