"""Everything in which worlds differ: drawn from the seed, printed on failure.

Swarm testing (Groce et al., ISSTA 2012): each world switches off a random subset of the faults,
because a fault that is always on can hide what another would have shown. Some worlds are narrow on
purpose (`Temper`): a bug that needs a rare coincidence shows where little else happens.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias, TypedDict

import attrs

from paxos.ids import MS, GroupId
from paxos.timing import Strategy, Timing
from simulator.environment.dice import between, dice

HEAL_AT: Final = 0.72
"""The share of a world in which faults happen; then it heals, and must make progress."""
BROKER_SHARE: Final = 0.5
REBORN_SHARE: Final = 0.3
"""Of the worlds with brokers."""
"""This share of the worlds runs the production broker."""
JUDGED_SHARE: Final = 0.25
"""This share is judged by the specification. It does not know checkpoints: it sees slots."""
MEMBERS_SHARE: Final = 0.4
STALL_SHARE: Final = 0.4
WORDS_SHARE: Final = 0.3
CHECKPOINT_SLOTS: Final = (0, 20, 60, 200)
RECOVERY_LEASES_MAX: Final = 10
"""I10 as a number (exam.md D2): after so many lease times from the heal each group has a master."""


class Clocks(Enum):
    EXACT = "exact"
    WITHIN = "within"
    """Every clock stays within the bound: it steps, drifts or stands still there."""
    BEYOND = "beyond"
    """The bound is broken: I4 may fail, the log must not (I5)."""


class DiskKind(Enum):
    RECORDS = "records"
    WAL = "wal"


class Temper(Enum):
    """How a world hurts its nodes."""

    CALM = "calm"
    """A fault now and then: a recovery has time to go wrong."""
    HOSTILE = "hostile"
    """Short leases, faults and steals all the time, aimed at the moment after a Steal is sent."""
    NARROW = "narrow"
    """Hostile, with one group of three nodes and few open slots, for which all compete."""


class Workload(Enum):
    """What the nodes do with chosen entries, and who their clients are."""

    COMMANDS = "commands"
    """A stand-in that counts commands: cheap, and only about the protocol."""
    BROKER = "broker"
    """The production broker and coordinator, and clients that speak Kafka."""


class Fault(Enum):
    CRASH = "crash"
    CRASH_ALL = "crash everybody"
    DOOM = "crash between two effects"
    CUT_ONE = "cut one off"
    CUT_ONE_WAY = "cut one off one way"
    CUT_HALVES = "cut in two"
    CUT_RING = "each hears only its neighbours"
    CUT_MASTER = "cut a master off"
    CUT_CLIENTS = "cut clients off"
    SWIZZLE = "clog one by one, unclog in another order"
    LOSSY = "lossy network"
    BAD_LINK = "a bad link"
    ECHO = "frames of long ago"
    STALL = "a link holds what it carries"
    PAUSE = "stop the world"
    CLOCK = "clock"
    STROBE = "strobing clock"
    SET_BACK = "a master's wall clock set back"
    RIVAL = "rival prepares"
    MEMBERS = "member change"
    SLOW_DISK = "slow disk"
    FULL_DISK = "full disk"
    FAILED_DISK = "disk error"
    DAMAGE = "flipped bits"
    LOST_DISK = "lost or old directory"
    AMNESIA = "a vote is forgotten when it is needed"
    WORDS = "a peer says something wrong"


_DRAWN: Final = [fault for fault in Fault if fault not in (Fault.STALL, Fault.WORDS)]


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
    boot_ppm_max: int
    """Bound on the rate error of boot clocks; no promise depends on it within this bound."""
    disk: DiskKind
    faults: frozenset[Fault]
    fault_gap_ns: int
    steal_gap_ns: int
    temper: Temper
    delay_min_ns: int
    delay_max_ns: int
    fsync_max_ns: int
    clients_per_group: int
    client_window: int
    client_think_ns: int
    batch_wait_ns: int
    balancing: bool
    """Steals come from the production balancer with its token, not from a toy at random."""
    steals_max: int = 1
    """The policy's limit on steals at a time."""
    judged: bool = False
    """The executable specification (simulator/model/specification.py) sees every event."""
    workload: Workload = Workload.COMMANDS
    partitions: int = 1
    consumers: int = 0
    """Members of the one consumer group, not counting those that died."""
    writers: int = 0
    """Streaming jobs that write with tokens."""
    stall_every_ns: int = 0
    """How often the consumer group's coordinator freezes for STALL_NS; 0: never. Not drawn, because
    it spoils what else a world tests."""
    operators: int = 0
    """Clients that commit, create, configure and delete things of their own."""
    pipeliners: int = 0
    """Plain producers: only their connections keep their order."""
    reborn: bool = False
    """A topic is deleted and recreated while its clients go on (clients/recreated_topic.py)."""
    tail_bytes: int = 0
    """What a broker keeps in memory; it reads the rest from its log."""
    checkpoint_slots: int = 0
    """A node checkpoints a group whenever it has applied this many more slots, and retires the log
    behind the checkpoint before; 0: never."""
    kept: frozenset[int] | None = None
    """Only these strikes of the nemesis happen (simulator/shrink.py); None: all."""

    @property
    def hostile(self) -> bool:
        return self.temper is not Temper.CALM

    @property
    def heal_at_ns(self) -> int:
        return int(self.duration_ns * HEAL_AT)

    @property
    def round_trip_ns(self) -> int:
        return 2 * (self.delay_max_ns + self.fsync_max_ns)

    @property
    def handover_ns(self) -> int:
        """The longest time without an acting node while a steal goes wrong and all else is well."""
        timing = self.timing
        election_ns = 0
        if timing.strategy is not Strategy.DELEGATE:  # the clock, and rivals that outbid each other
            election_ns = self.recovery_ns
        return (
            timing.drain_ns
            + timing.settle_ns
            + 10 * self.round_trip_ns
            + 4 * self.tick_ns
            + election_ns
        )

    @property
    def recovery_ns(self) -> int:
        """I10: by this time after the heal a node acts in every group and none is suspended."""
        timing = self.timing
        return (
            timing.lease_ns
            + timing.lease_ns * self.boot_ppm_max // 1_000_000
            + 2 * timing.margin_ns
            + 10 * self.round_trip_ns
            + timing.settle_ns * (2 if timing.strategy.waits else 1)
            + max(timing.heard_ns, 2 * timing.renew_every_ns)
            + timing.backoff_cap_ns
            + 2 * self.tick_ns
        )

    def describe(self) -> str:
        lines = []
        for field in attrs.fields(Options):
            value = getattr(self, field.name)
            if field.name == "faults":
                value = sorted(fault.name for fault in value)
            lines.append(f"  {field.name} = {value}")
        return "\n".join(lines)


Parser: TypeAlias = Callable[[str], object]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


PARSERS: Final[Mapping[str, Parser]] = {
    "nodes": int,
    "groups": lambda text: tuple(map(GroupId, _numbers(text))),
    "members": int,
    "duration_ns": int,
    "clocks": Clocks,
    "boot_ppm_max": int,
    "disk": DiskKind,
    "faults": lambda text: frozenset(Fault[name] for name in text.split(",") if name),
    "fault_gap_ns": int,
    "steal_gap_ns": int,
    "temper": Temper,
    "clients_per_group": int,
    "client_window": int,
    "client_think_ns": int,
    "batch_wait_ns": int,
    "balancing": lambda text: bool(int(text)),
    "steals_max": int,
    "judged": lambda text: bool(int(text)),
    "workload": Workload,
    "partitions": int,
    "consumers": int,
    "writers": int,
    "stall_every_ns": int,
    "operators": int,
    "pipeliners": int,
    "reborn": lambda text: bool(int(text)),
    "tail_bytes": int,
    "checkpoint_slots": int,
    "kept": lambda text: frozenset(_numbers(text)),
}
"""The options that `--set name=value` may change."""


def changed(options: Options, settings: Iterable[str]) -> Options:
    """The options with `name=value` settings applied.

    Raises:
        ValueError: no such name, or no such value.
    """
    changes: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in PARSERS:
            raise ValueError(f"{setting!r} is no setting; settings are {', '.join(PARSERS)}")
        changes[name] = PARSERS[name](value)
    return attrs.evolve(options, **changes)  # type: ignore[arg-type] # parsed by their names


def as_settings(before: Options, after: Options) -> tuple[str, ...]:
    """The settings that turn `before` into `after`."""
    names = [name for name in PARSERS if getattr(before, name) != getattr(after, name)]
    return tuple(f"{name}={_as_text(getattr(after, name))}" for name in names)


def _as_text(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, tuple | frozenset):
        parts = [part.name if isinstance(part, Fault) else str(part) for part in value]
        return ",".join(sorted(parts, key=lambda part: (len(part), part)))
    return str(value)


def draw(
    seed: int,
    *,
    disk: DiskKind | None = None,
    strategy: Strategy = Strategy.DELEGATE,
    workload: Workload | None = None,
) -> Options:
    """The options of world `seed`; `disk` and `workload` override the draw."""
    d = dice(seed, "options")
    temper = d.choice((Temper.CALM, Temper.HOSTILE, Temper.NARROW))
    hostile, narrow = temper is not Temper.CALM, temper is Temper.NARROW
    nodes = 3 if narrow else d.choice((3, 3, 3, 3, 4, 5, 5, 7))
    few = 1 if narrow else d.choice((1, 1, 2, 2, 3, 4)) if nodes < 5 else d.choice((1, 1, 2))
    drawn = d.choice((DiskKind.RECORDS, DiskKind.RECORDS, DiskKind.RECORDS, DiskKind.WAL))
    timing = _timing(d, hostile=hostile, window=d.choice((1, 2, 4) if narrow else (1, 2, 4, 8, 16)))
    most = timing.lease_ns // 100  # 10 round trips, and the rest, within RECOVERY_LEASES_MAX leases
    return Options(
        seed=seed,
        nodes=nodes,
        groups=tuple(GroupId(g) for g in range(few)),
        members=min(nodes, 5) if d.random() < 0.4 else 3,
        timing=attrs.evolve(timing, strategy=strategy),
        duration_ns=between(d, 55_000, 65_000) * MS,
        tick_ns=min(between(d, 25, 60) * MS, timing.lease_ns // 8),
        clocks=d.choice((Clocks.EXACT, Clocks.WITHIN, Clocks.WITHIN, Clocks.WITHIN, Clocks.BEYOND)),
        boot_ppm_max=d.choice((0, 200, 200, 20_000)),
        disk=drawn if disk is None else disk,
        faults=_faults(d, narrow=narrow) | _members_change(seed, narrow=narrow) | _on_top(seed),
        fault_gap_ns=between(d, 100, 600 if hostile else 2_500) * MS,
        steal_gap_ns=between(d, 50, 400 if hostile else 1_500) * MS,
        temper=temper,
        delay_min_ns=between(d, 50, 500) * 1_000,
        delay_max_ns=min(between(d, 1_000, 12_000) * 1_000, most),
        fsync_max_ns=min(between(d, 300, 15_000) * 1_000, most),
        clients_per_group=d.choice((1, 1, 2, 3)),
        client_window=d.choice((1, 2, 4)),
        client_think_ns=between(d, 50, 400) * MS,
        batch_wait_ns=d.choice((0, 0, 5 * MS)),
        balancing=not narrow and d.random() < 0.25,
        judged=(judged := d.random() < JUDGED_SHARE),
        checkpoint_slots=0 if judged else dice(seed, "checkpoints").choice(CHECKPOINT_SLOTS),
        steals_max=dice(seed, "steals_max").choice((1, 2, 3)) if nodes > 3 else 1,
        writers=dice(seed, "writers").choice((0, 0, 1, 2)),
        operators=dice(seed, "operators").choice((0, 1, 2)),
        pipeliners=dice(seed, "pipeliners").choice((0, 1, 2)),
        reborn=dice(seed, "reborn").random() < REBORN_SHARE,
        **_workload(dice(seed, "workload"), few, workload),
    )


class _Drawn(TypedDict):
    workload: Workload
    partitions: int
    consumers: int
    tail_bytes: int


def _workload(d: random.Random, groups: int, asked: Workload | None) -> _Drawn:
    drawn = Workload.BROKER if d.random() < BROKER_SHARE else Workload.COMMANDS
    return _Drawn(
        workload=drawn if asked is None else asked,
        partitions=d.choice((1, 2, max(2, groups))),
        consumers=d.choice((0, 1, 2, 3)),
        tail_bytes=d.choice((0, 4_000, 1_000_000)),
    )


def _faults(d: random.Random, *, narrow: bool) -> frozenset[Fault]:
    if narrow:
        return frozenset(d.sample(_DRAWN, d.randint(1, 4)))
    share = d.choice((0.15, 0.5, 0.7))
    chosen = frozenset(fault for fault in _DRAWN if d.random() < share)
    return chosen or frozenset((Fault.CRASH,))


def _members_change(seed: int, *, narrow: bool) -> frozenset[Fault]:
    """Added to the other faults: a new configuration changes the rules for all the rest."""
    often = not narrow and dice(seed, "membership").random() < MEMBERS_SHARE
    return frozenset((Fault.MEMBERS,) if often else ())


def _on_top(seed: int) -> frozenset[Fault]:
    """With their own dice: worlds still draw what they drew before these faults existed."""
    shares = {Fault.STALL: ("stalls", STALL_SHARE), Fault.WORDS: ("words", WORDS_SHARE)}
    return frozenset(
        fault for fault, (name, share) in shares.items() if dice(seed, name).random() < share
    )


def _timing(d: random.Random, *, hostile: bool, window: int) -> Timing:
    margin = between(d, 20, 80 if hostile else 150) * MS
    renew = 2 * margin + between(d, 20, 100 if hostile else 500) * MS
    lease = 2 * renew + 2 * margin + between(d, 50, 300 if hostile else 1_000) * MS
    heard = between(d, min(lease, 300 * MS), max(lease, 301 * MS))
    return Timing(
        lease_ns=lease,
        renew_every_ns=renew,
        margin_ns=margin,
        retransmit_ns=between(d, 50, 150) * MS,
        settle_ns=between(d, 100, 150 if hostile else 600) * MS,
        window=window,
        heard_ns=heard,
        backoff_cap_ns=max(201 * MS, min(2 * lease, 2_000 * MS)),
        progress_every_ns=min(between(d, 100, 500) * MS, heard // 3),
    )
