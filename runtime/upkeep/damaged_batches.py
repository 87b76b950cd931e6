"""Batches in a damaged place of the log whose slots are not known.

A lost entry is learned again by its slot (runtime.disk.repair). But a restart only indexes slots
above a group's checkpoint, while batches of older slots stay in the log until they are tiered: they
cannot be found by slot. The state machine knows their places. So they are tiered early: the batches
before them are copied into cold data, and the damaged ones come from a peer, like any batch that
cannot be copied (broker.lifecycle.tiering). Simulated worlds found this (whole nodes, seed 31).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from broker.lifecycle.tiering import Tiering
from broker.state_machine.machine import GroupMachine
from paxos.ids import MS, GroupId
from runtime.engine.engine import Engine
from storage.format import Place

LOOK_EVERY_NS: Final = 1_000 * MS
"""How often they are searched for as long as there are any: peers may be away, or the disk full."""
LOOKS_PER_TICK: Final = 1_000
"""Checks of one partition against one damaged place: a millisecond's work."""


class DamagedBatches:
    def __init__(
        self, engine: Engine, machines: Mapping[GroupId, GroupMachine], tiering: Tiering
    ) -> None:
        self._wal, self._repairs = engine.wal, engine.repairs
        self._machines, self._tiering = machines, tiering
        self._looked_ns = -LOOK_EVERY_NS
        self._damage_seen = 0
        """The number of damaged places for which no batch was found at the last search."""
        self._looking: Iterator[None] = iter(())

    def tick(self, now_ns: int) -> None:
        """Do a part of the search: there may be many partitions and many damaged places."""
        for _ in self._looking:
            return
        if (
            len(self._wal.known_damage) != self._damage_seen
            and now_ns - self._looked_ns >= LOOK_EVERY_NS
        ):
            self._looked_ns = now_ns
            self._looking = self._look(sorted(self._wal.known_damage))
            next(self._looking, None)

    def _look(self, damage: Sequence[tuple[Place, Place]]) -> Iterator[None]:
        """Tier batches in these places early. Yields after every LOOKS_PER_TICK checks."""
        found, looks = False, 0
        machines = self._machines
        every = [(group, uid) for group, one in machines.items() for uid in one.partitions]
        for group, uid in every:
            below = 0
            for start, end in damage:
                machine = machines.get(group)  # again after each yield: it may be gone
                state = None if machine is None else machine.partitions.get(uid)
                if state is None:
                    break
                if state.index.lies_within(start, end):
                    below = max(below, end)
                looks += 1
                if looks % LOOKS_PER_TICK == 0:
                    yield
            if below:
                found = True
                if not self._repairs.learns_again(group):
                    self._tiering.tier_early(group, uid, below)
        if not found:
            self._damage_seen = len(damage)
