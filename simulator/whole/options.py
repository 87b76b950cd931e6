"""What makes one world of whole nodes different from another: drawn from its seed."""

from enum import Enum
from typing import Final

import attrs

from paxos.ids import MS
from simulator.environment.dice import between, dice
from simulator.whole.clients.families import CONSUMERS, FAMILIES

TIGHT_SHARE: Final = 0.2
"""So many worlds have low limits of memory and queues."""
HEAL_AT: Final = 0.6
"""The part of a world in which faults happen."""


class Fault(Enum):
    KILL = "kill"
    """SIGKILL: the kernel closes its connections."""
    POWER = "power"
    """Of what is not durable any part is lost, and nobody is told."""
    POWER_ALL = "power of all"
    CUT = "cut one off"
    CUT_ONE_WAY = "cut one off one way"
    BRIDGE = "two do not hear each other"
    CUT_CLIENTS = "clients do not reach one"
    SLOW_LINK = "a slow link"
    RESET = "connections of one are reset"
    PAUSE = "stop a process"
    SLOW_DISK = "slow disk"
    HUNG_DISK = "a disk hangs"
    FULL_DISK = "full disk"
    FAILED_DISK = "disk error"
    CLOCK = "a wall clock is set"
    PLACES = "masters are placed elsewhere"
    STOP = "stop a node"
    ROLL = "restart all, one by one"
    MEMBER_DIES = "a consumer dies"
    MEMBER_STALLS = "a consumer stalls"
    MOVE = "a group gets other members"
    ADD_NODE = "a node is added"
    REMOVE_NODE = "a node is removed"
    LOST_DIRECTORY = "a node's directory is lost"
    OLD_DIRECTORY = "an old copy of a node's directory"
    DAMAGE = "files below a running node"
    OTHER_VERSION = "a node is started with another version"
    WRONG_CLOCK = "a wall clock is far off"
    CUT_TAKER = "a new master is cut off as it takes its group"
    FREEZE = "a machine stands still"
    WORDS = "a node says wrong numbers"
    FORK = "a node's log differs"
    HOLD = "what a node forwards is held"
    HOLD_GIVER = "what a master that gives its group away forwards is held"
    HOLD_ANSWERS = "what a new master tells the old one is held"
    CUT_GIVER = "a master that gives its group away is cut off"
    STALLS = "a master stalls again and again"
    FLICKER = "a node is cut off but for moments"
    LIES = "a node says one thing that is not so"
    OLD_TWICE = "an old copy of a node's directory is started twice"
    FORK_APART = "a node's log differs from the only other one that is there"


FIRST: Final = tuple(Fault)[: tuple(Fault).index(Fault.PLACES) + 1]
"""Drawn from the first dice; those behind them came later."""
LATER: Final = tuple(Fault)[len(FIRST) : tuple(Fault).index(Fault.CUT_TAKER) + 1]
LATEST: Final = tuple(Fault)[len(FIRST) + len(LATER) :]
"""Not drawn: planted bugs are looked for with them."""


@attrs.frozen(kw_only=True)
class WholeOptions:
    seed: int
    nodes: int
    replicas: int
    groups: int
    """Of partitions; the registry has one of its own."""
    lease_ms: int
    duration_ns: int
    recovery_ns: int
    """After the heal, until everybody must be ready: boots, elections, catching up."""
    faults: frozenset[Fault]
    fault_gap_ns: int
    delay_min_ns: int
    delay_max_ns: int
    sync_min_ns: int
    sync_max_ns: int
    reads_late: float
    """So many reads are not in memory."""
    partitions: int
    producers: int
    pipeliners: int
    consumers: int
    writers: int
    operators: int
    client_window: int
    client_think_ns: int
    tail_bytes: int
    segment_bytes: int
    checkpoint_records: int
    reborn: bool
    """A topic is deleted and made anew again and again while a client works with it."""
    trimmed: bool
    """The clients' topic has retention, which changes, and records of it are deleted."""
    compacted: bool
    """There is a topic that is compacted."""
    replace_after_s: int
    dead_after_ms: int
    families: tuple[str, ...] = ()
    """Producers that behave as well-known ones do (simulator.whole.clients.families)."""
    readers: tuple[str, ...] = ()
    """Consumers that behave as well-known ones do, without a group."""
    liars: int = 0
    vandals: int = 0
    """Clients whose batches cannot be read."""
    squatters: int = 0
    """Clients that hold connections, and requests that do not end."""
    namers: int = 0
    """Clients that make topics and ask for them at other nodes."""
    newcomers: int = 0
    """Producers that begin anew under another id all the time."""
    tight: bool = False
    """Limits are low: as a rule only squatters meet them."""
    patience_ms: int = 1_500
    """So long producers wait for an answer. Clients wait for 30 s: only who waits for longer
    than a node waits for another one hears what it makes of that."""

    older: int = 0
    """So many of the founders run a program of before, which tells nothing of its versions."""
    answer_ms: int = 1_000
    """So long plain producers let a node wait for what becomes of a batch: only who lets it wait
    for longer than nodes wait for each other hears of that from it."""

    @property
    def heal_at_ns(self) -> int:
        return int(self.duration_ns * HEAL_AT)

    def describe(self) -> str:
        lines = []
        for field in attrs.fields(WholeOptions):
            value = getattr(self, field.name)
            if field.name == "faults":
                value = ", ".join(sorted(fault.name for fault in value))
            lines.append(f"  {field.name} = {value}")
        return "\n".join(lines)


def draw(seed: int) -> WholeOptions:
    """What came later has dice of its own, so that seeds keep their worlds otherwise."""
    d, more, later = (dice(seed, *names) for names in (["whole"], ["more faults"], ["later"]))
    nodes = d.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 7, 9))
    share = d.choice((0.0, 0.15, 0.4, 0.7))
    slow = d.random() < 0.3
    kinds, reading = dice(seed, "families"), dice(seed, "readers")
    return WholeOptions(
        seed=seed,
        nodes=nodes,
        replicas=min(nodes, d.choice((1, 2, 3, 3, 3, 5, 7))),
        groups=d.choice((1, 2, 3, 4)),
        lease_ms=d.choice((800, 1_500, 2_000, 4_000)),
        duration_ns=between(d, 40_000, 60_000) * MS,
        recovery_ns=20_000 * MS,
        faults=frozenset(fault for fault in FIRST if d.random() < share)
        | frozenset(fault for fault in LATER if more.random() < share),
        fault_gap_ns=between(d, 500, 4_000) * MS,
        delay_min_ns=between(d, 50, 300) * 1_000,
        delay_max_ns=between(d, 400, 8_000) * 1_000,
        sync_min_ns=100_000,
        sync_max_ns=between(d, 300, 30_000 if slow else 4_000) * 1_000,
        reads_late=d.choice((0.0, 0.05, 0.5)),
        partitions=d.choice((1, 2, 3)),
        producers=d.choice((1, 1, 2, 3)),
        pipeliners=d.choice((0, 1, 2)),
        consumers=d.choice((0, 1, 2, 3)),
        writers=d.choice((0, 0, 1)),
        operators=d.choice((0, 1, 2)),
        client_window=d.choice((1, 2, 4)),
        client_think_ns=between(d, 50, 400) * MS,
        tail_bytes=d.choice((0, 4_000, 1_000_000)),
        segment_bytes=d.choice((64 << 10, 64 << 10, 256 << 10, 1 << 20)),
        checkpoint_records=d.choice((100, 400, 4_000)),
        reborn=later.random() < 0.4,
        trimmed=later.random() < 0.4,
        compacted=later.random() < 0.4,
        replace_after_s=later.choice((5, 20, 600)),
        dead_after_ms=later.choice((2_000, 5_000)),
        families=tuple(kinds.sample(sorted(FAMILIES), kinds.choice((0, 1, 1, 2, 2, 3)))),
        readers=tuple(reading.sample(CONSUMERS, reading.choice((0, 0, 1, 1, 2)))),
        liars=kinds.choice((0, 0, 1)),
        tight=dice(seed, "tight").random() < TIGHT_SHARE,
        older=dice(seed, "older").choice((0, 0, 0, 0, 1, nodes)),
        patience_ms=dice(seed, "patience").choice((1_500, 1_500, 5_000)),
    )
