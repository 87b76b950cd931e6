"""Batches that are still read from a damaged place of the log, and of whose slot nothing is known.

A lost entry is learned again by its slot (runtime.disk.repair). But a restart indexes only the
slots above a group's checkpoint, while the batches of older ones stay in the log until they are
tiered: no slot leads to those. The state machine knows where they lie. So they leave the log early:
what lies before them is copied into cold data, and they come from a peer, as any batch does that
cannot be copied (broker.lifecycle.tiering). Found by the worlds (whole nodes, seed 31).
"""

from collections.abc import Mapping, Set
from typing import Final

from broker.lifecycle.tiering import Tiering
from broker.state_machine.machine import GroupMachine
from paxos.ids import MS, GroupId
from runtime.engine.engine import Engine
from storage.format import Place

LOOK_EVERY_NS: Final = 1_000 * MS
"""While there are any: peers may be away, and the disk full."""


class DamagedBatches:
    def __init__(
        self, engine: Engine, machines: Mapping[GroupId, GroupMachine], tiering: Tiering
    ) -> None:
        self._wal, self._repairs = engine.wal, engine.repairs
        self._machines, self._tiering = machines, tiering
        self._looked_ns = -LOOK_EVERY_NS
        self._damage_seen = 0
        """So many damaged places, and no batch is read from any of them."""

    def tick(self, now_ns: int) -> None:
        damage = self._wal.known_damage
        if len(damage) == self._damage_seen or now_ns - self._looked_ns < LOOK_EVERY_NS:
            return
        self._looked_ns = now_ns
        if not self._look(damage):
            self._damage_seen = len(damage)

    def _look(self, damage: Set[tuple[Place, Place]]) -> bool:
        """Whether any batch is read from these places; those that are shall leave the log."""
        found = False
        for group, machine in self._machines.items():
            for uid, state in machine.partitions.items():
                ends = [end for start, end in damage if state.index.lies_within(start, end)]
                if ends:
                    found = True
                    if not self._repairs.learns_again(group):
                        self._tiering.tier_early(group, uid, max(ends))
        return found
