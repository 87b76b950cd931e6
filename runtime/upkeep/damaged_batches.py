"""Batches that are still read from a damaged place of the log, and of whose slot nothing is known.

A lost entry is learned again by its slot (runtime.disk.repair). But a restart indexes only the
slots above a group's checkpoint, while the batches of older ones stay in the log until they are
tiered: no slot leads to those. The state machine knows where they lie. So they leave the log early:
what lies before them is copied into cold data, and they come from a peer, as any batch does that
cannot be copied (broker.lifecycle.tiering). Found by the worlds (whole nodes, seed 31).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from broker.lifecycle.tiering import Tiering
from broker.state_machine.machine import GroupMachine
from paxos.ids import MS, GroupId
from runtime.engine.engine import Engine
from storage.format import Place

LOOK_EVERY_NS: Final = 1_000 * MS
"""While there are any: peers may be away, and the disk full."""
LOOKS_PER_TICK: Final = 1_000
"""Whether a batch of one partition lies in one damaged place: a millisecond's work."""


class DamagedBatches:
    def __init__(
        self, engine: Engine, machines: Mapping[GroupId, GroupMachine], tiering: Tiering
    ) -> None:
        self._wal, self._repairs = engine.wal, engine.repairs
        self._machines, self._tiering = machines, tiering
        self._looked_ns = -LOOK_EVERY_NS
        self._damage_seen = 0
        """So many damaged places, and no batch is read from any of them."""
        self._looking: Iterator[None] = iter(())

    def tick(self, now_ns: int) -> None:
        """A piece of the work: there may be many partitions, and many damaged places."""
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
        """Batches that are read from these places shall leave the log. Yields now and then."""
        found, looks = False, 0
        machines = self._machines
        every = [(group, uid) for group, one in machines.items() for uid in one.partitions]
        for group, uid in every:
            below = 0
            for start, end in damage:
                machine = machines.get(group)  # what was there before others had their turn
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
