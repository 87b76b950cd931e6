"""Everything that makes one world different from another: drawn from its seed, printed on failure.

Swarm testing (Groce et al., ISSTA 2012): each world switches a random subset of the faults off, for
a fault that is always on can hide what another would have shown.
"""

import random
from enum import Enum
from typing import Final

import attrs

from paxos.ids import MS, GroupId
from paxos.timing import Timing
from simulator.dice import between, dice

HEAL_AT: Final = 0.72
"""The part of a world in which faults happen; then it heals, and must make progress."""


class Clocks(Enum):
    EXACT = "exact"
    WITHIN = "within"
    """Every clock within the bound, stepping and drifting there."""
    BEYOND = "beyond"
    """The bound is broken: I4 may fail, the log may not (I5)."""


class DiskKind(Enum):
    RECORDS = "records"
    WAL = "wal"


class Fault(Enum):
    CRASH = "crash"
    CUT_ONE = "cut one off"
    CUT_ONE_WAY = "cut one off one way"
    CUT_HALVES = "cut in two"
    LOSSY = "lossy network"
    PAUSE = "stop the world"
    CLOCK = "clock"
    RIVAL = "rival prepares"
    MEMBERS = "member change"
    CRASH_ALL = "crash everybody"


@attrs.frozen(kw_only=True)
class Options:
    seed: int
    nodes: int
    groups: tuple[GroupId, ...]
    members: int
    timing: Timing
    duration_ns: int
    tick_ns: int
    clocks: Clocks
    disk: DiskKind
    faults: frozenset[Fault]
    fault_gap_ns: int
    steal_gap_ns: int
    hostile: bool
    """Short leases, faults and steals all the time, and aimed at the moment a Steal leaves."""
    delay_min_ns: int
    delay_max_ns: int
    fsync_max_ns: int
    clients_per_group: int
    client_window: int
    client_think_ns: int
    batch_wait_ns: int
    balancing: bool
    """Steals come from the production balancer with its token, not from a toy that asks at will."""

    @property
    def heal_at_ns(self) -> int:
        return int(self.duration_ns * HEAL_AT)

    @property
    def round_trip_ns(self) -> int:
        return 2 * (self.delay_max_ns + self.fsync_max_ns)

    @property
    def handover_ns(self) -> int:
        """Nobody acts for so long at most while a steal goes wrong and everything else is well."""
        timing = self.timing
        return timing.drain_ns + timing.settle_ns + 10 * self.round_trip_ns + 4 * self.tick_ns

    @property
    def recovery_ns(self) -> int:
        """I10: so long after the heal somebody acts in every group and nobody is suspended."""
        timing = self.timing
        return (
            timing.lease_ns
            + 2 * timing.margin_ns
            + 10 * self.round_trip_ns
            + timing.settle_ns
            + timing.heard_ns
            + timing.backoff_cap_ns
            + 2 * self.tick_ns
        )

    def describe(self) -> str:
        lines = []
        for field in attrs.fields(Options):
            value = getattr(self, field.name)
            if isinstance(value, frozenset):
                value = sorted(fault.value for fault in value)
            lines.append(f"  {field.name} = {value}")
        return "\n".join(lines)


def draw(seed: int, *, disk: DiskKind | None = None) -> Options:
    """The options of world `seed`; `disk` overrides the one drawn."""
    d = dice(seed, "options")
    nodes = d.choice((3, 3, 3, 4, 5, 5))
    groups = tuple(GroupId(g) for g in range(d.choice((1, 2, 2, 3, 4))))
    faults = frozenset(fault for fault in Fault if d.random() < 0.7)
    drawn = d.choice((DiskKind.RECORDS, DiskKind.RECORDS, DiskKind.WAL))
    hostile = d.random() < 0.5
    return Options(
        seed=seed,
        nodes=nodes,
        groups=groups,
        members=nodes if d.random() < 0.4 else 3,
        timing=_timing(d, hostile=hostile),
        duration_ns=between(d, 30_000, 40_000) * MS,
        tick_ns=between(d, 20, 50) * MS,
        clocks=d.choice((Clocks.EXACT, Clocks.WITHIN, Clocks.WITHIN, Clocks.WITHIN, Clocks.BEYOND)),
        disk=drawn if disk is None else disk,
        faults=faults,
        fault_gap_ns=between(d, 100, 600 if hostile else 2_500) * MS,
        steal_gap_ns=between(d, 50, 400 if hostile else 1_500) * MS,
        hostile=hostile,
        delay_min_ns=between(d, 50, 500) * 1_000,
        delay_max_ns=between(d, 1_000, 12_000) * 1_000,
        fsync_max_ns=between(d, 300, 15_000) * 1_000,
        clients_per_group=d.choice((1, 2, 3)),
        client_window=d.choice((1, 2, 4)),
        client_think_ns=between(d, 30, 200) * MS,
        batch_wait_ns=d.choice((0, 0, 5 * MS)),
        balancing=GroupId(0) in groups and d.random() < 0.25,
    )


def _timing(d: random.Random, *, hostile: bool) -> Timing:
    margin = between(d, 20, 80 if hostile else 150) * MS
    renew = 2 * margin + between(d, 20, 100 if hostile else 500) * MS
    return Timing(
        lease_ns=2 * renew + 2 * margin + between(d, 50, 300 if hostile else 1_000) * MS,
        renew_every_ns=renew,
        margin_ns=margin,
        retransmit_ns=between(d, 50, 150) * MS,
        settle_ns=between(d, 100, 150 if hostile else 600) * MS,
        window=d.choice((1, 2, 4, 8, 16)),
        progress_every_ns=between(d, 100, 500) * MS,
    )
