"""`max.compaction.lag.ms`: records older than that become compactable, wherever they are.

Only files that are no longer appended to are compacted, and a quiet partition's newest records may
be in the node's log for days, or in a file that never fills up. So the partitions of topics with a
limit are checked: records older than the limit are moved out of the log early, and then their file
is ended. The compactor does the rest: it considers a file with such a record overdue, however
little of the partition is dirty.

Records younger than `min.compaction.lag.ms` stay where they are, or the file would have to wait for
them. Everything older moves along with the overdue record, so the partition is left alone until the
next one is due; where both limits are nearly the same, for at least a part of the limit. As
everywhere in compaction, ages are by the timestamps of batches, set by their producers or the log,
so a batch without one never gets old.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from broker.lifecycle.compaction_plan import Waiting
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import PartitionState
from paxos.ids import MS, GroupId, Now
from storage.format import Place, place_of

LOOKS_PER_TICK: Final = 500
EVERY_NS: Final = 1_000 * MS
"""Between two passes over all partitions."""
PEACE: Final = 16
"""Two files ended for this reason are at least one such part of the limit apart."""
EVERYTHING: Final = place_of(1 << 31, 0)
"""Above every position of the log."""


class Mover(Protocol):
    """The part of broker.lifecycle.tiering.Tiering that is needed here."""

    def tier_early(self, group: GroupId, uid: int, below: Place) -> None: ...

    def end_file(self, uid: int) -> None: ...


class CompactionLag:
    """`written_since_ms`: the time of the first batch in the partition's file that is still
    appended to; None if there is none."""

    def __init__(
        self,
        machines: Mapping[GroupId, GroupMachine],
        mover: Mover,
        written_since_ms: Callable[[int], int | None],
    ) -> None:
        self._machines, self._mover, self._written_since_ms = machines, mover, written_since_ms
        self._partitions: Sequence[Waiting] = ()
        self._at = 0
        self._not_before_ns = 0
        self._moved_ns: dict[int, int] = {}
        """When data of a partition was last moved."""

    def assign(self, partitions: Iterable[Waiting]) -> None:
        """Replace the partitions that have a limit."""
        self._partitions = tuple(partitions)
        self._at = 0
        known = self._moved_ns
        self._moved_ns = {one.uid: known[one.uid] for one in self._partitions if one.uid in known}

    def tick(self, now: Now) -> None:
        """Look at the next partitions; only call it with a trusted clock."""
        if now.boot_ns < self._not_before_ns:
            return
        some = self._partitions[self._at : self._at + LOOKS_PER_TICK]
        for waiting in some:
            self._look(waiting, now)
        self._at += len(some)
        if self._at >= len(self._partitions):
            self._at = 0
            self._not_before_ns = now.boot_ns + EVERY_NS

    def _look(self, waiting: Waiting, now: Now) -> None:
        machine = self._machines.get(waiting.group)
        state = None if machine is None else machine.partitions.get(waiting.uid)
        if state is None or state.dropped:
            return
        now_ms, rules = now.wall_ns // MS, waiting.rules
        oldest_ms = now_ms - rules.lag_ms_max
        moved_ns = self._moved_ns.get(waiting.uid)
        if moved_ns is None or now.boot_ns - moved_ns >= rules.lag_ms_max * MS // PEACE:
            below = _too_old_in_log(state, oldest_ms, now_ms - rules.lag_ms_min)
            if below is not None:
                self._moved_ns[waiting.uid] = now.boot_ns
                self._mover.tier_early(waiting.group, waiting.uid, below)
        since_ms = self._written_since_ms(waiting.uid)
        if since_ms is not None and 0 <= since_ms <= oldest_ms:
            self._mover.end_file(waiting.uid)


def _too_old_in_log(state: PartitionState, oldest_ms: int, youngest_ms: int) -> Place | None:
    """The place below which there are batches that are too old, and none that are too young; None
    if nothing in the log is to be moved."""
    index = state.index
    if not len(index) or not 0 <= index.timestamp(index.first) <= oldest_ms:
        return None
    number = index.reaching(youngest_ms + 1)
    return EVERYTHING if number is None else Place(index.position(number))
