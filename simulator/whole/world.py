"""One deterministic world of whole nodes: machines, links, clients, faults, and what must hold.

First safety under faults; then everything heals, and every kind of client must get on, every node
must be ready, and all copies must come to the same log. The checkers of what clients were told are
those of the other worlds (`simulator.checkers`): they take the chosen log and what clients sent for
the truth.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from broker.reads.reader import UnreadableError
from coordinator.model import GroupNotice
from paxos.entry import Entry, EntryKind
from paxos.ids import MS, GroupId, NodeId, Slot
from runtime import settings
from runtime.config.config import Config
from runtime.config.fields import Address
from runtime.config.sections import (
    BalancerSection,
    BrokerSection,
    GroupsSection,
    LeaseSection,
    LimitsSection,
    ListenSection,
    NodeSection,
    StorageSection,
)
from runtime.config.security import SecuritySection
from runtime.system.journal import Journal
from simulator.checkers.copies import Copies
from simulator.checkers.groups import GroupLogs
from simulator.checkers.orders import Orders
from simulator.checkers.partition_logs import PartitionLogs
from simulator.checkers.protocol import Acknowledged, Agreement, Results
from simulator.clients.admin import Admin
from simulator.clients.keyed_topic import KeyedTopic
from simulator.clients.member import GROUP as READERS
from simulator.clients.member import Member
from simulator.clients.operator import Operator
from simulator.clients.plain_producer import PlainProducer
from simulator.clients.producer import Producer
from simulator.clients.reader import Reader
from simulator.clients.recreated_topic import RecreatedTopic
from simulator.clients.token_writer import Writer
from simulator.clients.trimmer import Trimmer
from simulator.environment.clock import EPOCH_NS, Clock
from simulator.environment.dice import between, dice
from simulator.environment.loop import Loop
from simulator.environment.trace import Trace
from simulator.environment.violation import Violation
from simulator.whole.calls import StreamCalls
from simulator.whole.clients.consuming import FamilyConsumer
from simulator.whole.clients.liar import Liar
from simulator.whole.clients.namer import Namer
from simulator.whole.clients.newcomer import Newcomer
from simulator.whole.clients.producing import FamilyProducer
from simulator.whole.clients.squatter import Squatter
from simulator.whole.clients.vandal import Vandal
from simulator.whole.damage import Damage
from simulator.whole.deaths import WholeDeaths
from simulator.whole.disk import SimDisk
from simulator.whole.host import HTTP_PORT, KAFKA_PORT, PEER_PORT, Host, is_of_disk
from simulator.whole.links import WorldLinks
from simulator.whole.machine import Lan
from simulator.whole.membership import Membership
from simulator.whole.nemesis import Nemesis, Strikes, Struck
from simulator.whole.operations import Moves, Operations
from simulator.whole.options import Fault, WholeOptions
from simulator.whole.strikes.copies import OldCopies
from simulator.whole.strikes.forking import ForkedApart
from simulator.whole.strikes.holding import CutGifts, HeldAnswers, HeldGifts, Holding
from simulator.whole.strikes.lying import Lying
from simulator.whole.strikes.machines import Machines
from simulator.whole.watch import Watch
from storage.errors import DirectoryRefused, DiskFull, StorageError, StorageFailed, WalDamaged

CLUSTER: Final = "simulated"
ADMIN, READER, PRODUCERS, MEMBERS, WRITERS = 100, 101, 110, 120, 130
OPERATORS, PIPELINERS, REBORN, TRIMMER, KEYED = 140, 160, 102, 103, 104
OF_FAMILIES, LIARS, VANDALS, SQUATTERS, NAMERS, READING = 180, 190, 192, 194, 196, 200
NEWCOMERS: Final = 210
LATE_NS: Final = 15_000 * MS
"""So long what a client sent may be held by a link, or a stopped process, and come then."""
RESTART_NS: Final = 500 * MS
"""After a process has ended by itself it is started anew, as a supervisor does."""
QUIET_NS: Final = 5_000 * MS
TOLD_NS: Final = 1_500 * MS
"""What was chosen so long ago every member has applied."""
PROGRESS_MIN: Final = 3
RAISE_AFTER_S: Final = 2
PROGRESS_NS: Final = 10_000 * MS
"""In short worlds, clients have so long for that: a third of the world is a few thoughts of theirs.
(What is `starved` or a `hole` is found meanwhile.)"""
LOOK_NS: Final = 500 * MS
HOLDS: Final = frozenset({Fault.HOLD, Fault.HOLD_GIVER})
"""Where nothing else happens, what a client sends is at its node at once."""
OF_DAMAGE: Final = ("UnreadableError", "ColdDamaged")
KIB, MIB = 1 << 10, 1 << 20
TIGHT: Final = {
    "connections_max": 60,
    "connections_per_ip_max": 60,
    "frame_bytes_max": 256 * KIB,
    "pending_bytes_per_group": 128 * KIB,
    "pending_bytes_per_node": 512 * KIB,
    "answer_bytes_per_node": MIB,
    "peer_queue_bytes": 2 * MIB,
}
RETENTION_CHECK_MS, COMPACT_CHECK_MS = 1_000, 1_000


class AnyClient(Protocol):
    address: int
    name: str
    progress: int
    stopped: bool

    def start(self) -> None: ...


class World:
    def __init__(self, options: WholeOptions, *, verbose: bool = False) -> None:
        self.options, self.loop = options, Loop()
        self.trace, self.statistics = Trace(verbose=verbose), Counter[str]()
        seed = options.seed
        self.links = WorldLinks(dice(seed, "links"), options.delay_min_ns, options.delay_max_ns)
        self.lan = Lan(self.loop, self.links)
        self.addresses = list(range(1, options.nodes + 1))
        self.founders = ",".join(map(str, self.addresses))
        groups = [GroupId(number) for number in range(options.groups + 1)]
        self.agreement = Agreement({group: None for group in groups})
        self.results = Results()
        self.acknowledged = Acknowledged(self.agreement)
        self.fresh = True
        self.orders = Orders(judges_unheard=bool(options.faults) and options.faults <= HOLDS)
        self.group_logs = GroupLogs(fresh=True)
        self.partition_logs = PartitionLogs(self.group_logs, self.orders, fresh=True)
        self.producer_ids: list[tuple[int, int]] = []
        self.member_names: list[tuple[str, int]] = []
        self.deaths = WholeDeaths(self, READERS, settings.coordinator(self.config(NodeId(1))))
        self.group_logs.time_left = self.deaths.written
        self.nodes: dict[NodeId, Host] = {
            node: self._host(node) for node in map(NodeId, self.addresses)
        }
        self.links.hosts = {host.address: host for host in self.nodes.values()}
        self.wrong: Violation | None = None
        self.healed = self.quiet = False
        self.healed_ns: int | None = None
        self.struck: list[Struck] = []
        self.proofs: dict[int, tuple[int, int, int]] = {}
        self.admin = Admin(self, ADMIN)  # type: ignore[arg-type]
        self.clients: Sequence[AnyClient] = self._clients()
        self.nemesis, self.operations = Nemesis(self), Operations(self)
        self.membership = Membership(self)
        damage = Damage(self, self.membership)
        self.watch = Watch(self)
        others = damage, Moves(self), Machines(self, self.membership)
        of_hunts: tuple[Strikes, ...] = (
            *(of_moves(self) for of_moves in (Holding, HeldGifts, HeldAnswers, CutGifts)),
            Lying(self),
            ForkedApart(self, self.membership),
            OldCopies(self, self.membership),
        )
        self.strikes = (self.nemesis, self.operations, self.membership, *others, *of_hunts)

    def _host(self, node: NodeId) -> Host:
        options, seed = self.options, self.options.seed
        chance = dice(seed, "disk", node)
        disk = SimDisk(self.loop, chance, lambda: self._sync_ns(disk))
        disk.reads_late = lambda: chance.random() < options.reads_late
        host = Host(self, node, disk, Clock(boot_ppm=between(chance, -100, 100)))
        host.older = node <= options.older
        return host

    def add_host(self, node: NodeId) -> Host:
        """simulator.whole.nemesis.Hurt."""
        host = self.nodes[node] = self._host(node)
        self.links.hosts[host.address] = host
        self.addresses.append(host.address)
        return host

    def _sync_ns(self, disk: SimDisk) -> int:
        options = self.options
        longest = disk.slow_ns or options.sync_max_ns
        return disk.sync_time(options.sync_min_ns, longest)

    def _clients(self) -> Sequence[AnyClient]:
        options = self.options
        world: Any = self
        patience_ns = options.patience_ms * MS
        return [
            *(
                Producer(world, PRODUCERS + number, timeout_ns=patience_ns)
                for number in range(options.producers)
            ),
            Reader(world, READER),
            *(Member(world, MEMBERS + number) for number in range(options.consumers)),
            *(Writer(world, WRITERS + 2 * number) for number in range(options.writers)),
            *(Operator(world, OPERATORS + number) for number in range(options.operators)),
            *([RecreatedTopic(world, REBORN, LATE_NS)] if options.reborn else []),
            *([KeyedTopic(world, KEYED)] if options.compacted else []),
            *([Trimmer(world, TRIMMER)] if options.trimmed else []),
            *(
                PlainProducer(
                    world,
                    PIPELINERS + number,
                    timeout_ns=patience_ns,
                    answer_ms=options.answer_ms,
                )
                for number in range(options.pipeliners)
            ),
            *(
                FamilyProducer(world, OF_FAMILIES + number, family)
                for number, family in enumerate(options.families)
            ),
            *(
                FamilyConsumer(world, READING + number, family)
                for number, family in enumerate(options.readers)
            ),
            *(Liar(world, LIARS + number) for number in range(options.liars)),
            *(Vandal(world, VANDALS + number) for number in range(options.vandals)),
            *(Squatter(world, SQUATTERS + number) for number in range(options.squatters)),
            *(Namer(world, NAMERS + number) for number in range(options.namers)),
            *(Newcomer(world, NEWCOMERS + number) for number in range(options.newcomers)),
        ]

    # -- what its parts ask for ---------------------------------------------------------------

    def caller(self, address: int) -> StreamCalls:
        return StreamCalls(self.loop, self.lan, self.trace, address, software="evenkeel")

    def topic_id(self, node: NodeId, name: str) -> bytes | None:
        asked = self.nodes[node].node
        topic = None if asked is None else asked.registry.topic(name)
        return None if topic is None else topic.topic_id

    def config(self, node: NodeId) -> Config:
        options, host = self.options, f"n{node}"
        return Config(
            node=NodeSection(
                id=node,
                cluster_id=CLUSTER,
                data_dir=Path(f"/simulated/{host}"),
                raise_after_s=RAISE_AFTER_S,
            ),
            listen=ListenSection(
                kafka=Address(host, KAFKA_PORT),
                peer=Address(host, PEER_PORT),
                http=Address("127.0.0.1", HTTP_PORT),
            ),
            security=SecuritySection(insecure_listeners=True),  # nobody else is in the world
            peers={
                NodeId(one): Address(f"n{one}", PEER_PORT)
                for one in self.addresses
                if one <= max(options.nodes, node)  # nobody edits the file when one is added
            },
            groups=GroupsSection(
                count=options.groups, replicas=options.replicas, founders=self.founders
            ),
            lease=LeaseSection(
                duration_ms=options.lease_ms,
                renew_every_ms=options.lease_ms // 4,
                clock_margin_ms=options.lease_ms // 16,
            ),
            storage=small_log(
                StorageSection(
                    low_water_bytes=MIB,
                    reserve_bytes=0,
                    checkpoint_records=options.checkpoint_records,
                    checkpoint_bytes=64 << 10,
                    scrub_every_s=15,
                    retention_check_ms=RETENTION_CHECK_MS,
                    compact_check_ms=COMPACT_CHECK_MS,
                ),
                options.segment_bytes,
            ),
            balancer=BalancerSection(
                load_interval_ms=0,
                dead_after_ms=options.dead_after_ms,
                replace_after_s=600 if Fault.DAMAGE in options.faults else options.replace_after_s,
            ),
            broker=BrokerSection(retention_ms=-1),  # records carry no times of this world
            limits=limits(options),
        )

    def journal(self, node: NodeId) -> Journal:
        return Journal("info", _Lines(self, node), lambda: EPOCH_NS / 1e9 + self.loop.now_ns / 1e9)

    def is_new(self, group: GroupId, slot: Slot) -> bool:
        return slot > len(self.agreement.logs[group])

    def executed(
        self, node: NodeId, group: GroupId, slot: Slot, entry: Entry, results: list[bytes]
    ) -> None:
        """A node has applied an entry."""
        self.agreement.applied(node, group, slot, entry)
        if entry.control is not None:
            self.partition_logs.lease_entry(group, slot, entry.control)
            self.deaths.lease_entry(group, slot, entry.control)
        if entry.kind == EntryKind.NOOP:
            self.partition_logs.no_op(group, slot)
        if self.results.applied(node, group, slot, results):
            self.partition_logs.applied(group, slot, entry, results)

    def group_told(self, node: NodeId, group: GroupId, notice: GroupNotice) -> None:
        self.deaths.told(notice)

    def taught(self, to: NodeId, message: object) -> None:
        self.watch.figures.taught(to, message)

    def reached(self, frame: memoryview) -> None:
        self.deaths.reached(frame)

    def waited_on_loop(self, node: NodeId, operation: str, name: str) -> None:
        raise Violation(f"loop: node {node}'s event loop waits for the disk: {operation} of {name}")

    def stopped(self, host: Host, masters_left: int) -> None:
        """A node was told to stop, and has."""
        self.trace.note(self.loop.now_ns, "stopped", host.me, masters_left)
        self.operations.stopped(host, masters_left)

    def ended(self, host: Host, why: BaseException | None) -> None:
        """A node's process has ended by itself."""
        self.trace.note(self.loop.now_ns, "ended", host.me, repr(why))
        self.statistics["processes ended"] += 1
        refused = isinstance(why, DiskFull) and not host.served  # no room even for a start
        if isinstance(why, DirectoryRefused | WalDamaged) and host.me == self.membership.victim:
            self.membership.refused(host)
            return
        refused |= isinstance(why, DirectoryRefused) and host.may_be_refused
        refused |= isinstance(why, StorageFailed) and host.me == self.membership.victim
        if not (refused or (is_of_disk(why) and host.disk.may_fail)):
            self.wrong = why if isinstance(why, Violation) else Violation(f"ended: {why!r}")
            self.wrong.__cause__ = why
            return
        self.loop.after(RESTART_NS, self._restart, host, host.life)

    def _restart(self, host: Host, life: int) -> None:
        if not host.up and host.life == life:
            host.disk.may_fail = False
            host.boot()

    def said(self, node: NodeId, line: dict[str, object]) -> None:
        """A line of a node's log."""
        event, text = str(line["event"]), str(line.get("trace"))
        if event == "peer up":
            self._check_formats(self.nodes[node], line)
        if event == "cluster version raised":
            self._check_raise(node, line["version"])
        rest = {key: value for key, value in line.items() if key not in ("time", "event", "level")}
        self.trace.note(self.loop.now_ns, f"n{node}", event, rest)
        self.statistics[f"said: {event}"] += 1
        try:
            self.watch.figures.said(node, event, rest)
        except Violation as wrong:
            self.wrong = self.wrong or wrong
        if node == self.membership.victim and any(one in text for one in OF_DAMAGE):
            return  # told with its traceback, and answered as what it is
        if event == "request handler failed" or "trace" in line:
            self.wrong = self.wrong or Violation(f"bug: node {node}: {rest}")

    def _check_formats(self, host: Host, line: dict[str, object]) -> None:
        peer = self.nodes[NodeId(int(str(line["peer"])))]
        lives = peer.node is not None and peer.node.multi.incarnation == line["incarnation"]
        if lives and host.ahead_of(peer.me):
            self.wrong = Violation(f"formats: node {host.me} talks to {peer.me}, another version")

    # -- a run --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Machines are switched on, and clients and the nemesis begin."""
        for host in self.nodes.values():
            self.loop.at(self.nemesis.start_ns(), host.boot)
        self.loop.at(0, self.admin.start)
        for client in self.clients:
            client.start()
        for strikes in self.strikes:
            strikes.start()
        self.watch.start()

    def run(self) -> None:
        """Raises Violation where something is wrong."""
        self.begin()
        self.go_on()

    def go_on(self) -> None:
        """From wherever it is: faults until the heal, and what must be true then."""
        options, loop = self.options, self.loop
        self._until(options.heal_at_ns)
        for strikes in self.strikes:
            strikes.heal()
        self.healed = True
        self._until(options.heal_at_ns + options.recovery_ns)
        self._check_ready()
        before = [client.progress for client in self.clients]
        floors = [self.partition_logs.floor(number) for number in range(options.partitions)]
        self.healed_ns = loop.now_ns
        self._until(loop.now_ns + options.duration_ns // 3)
        while loop.now_ns < self.healed_ns + PROGRESS_NS and self._lacks(before, floors):
            self._until(loop.now_ns + LOOK_NS)
        if lacks := self._lacks(before, floors):
            raise Violation(f"I10: {lacks}")
        self.quiet = True
        for client in self.clients:
            client.stopped = True
        self._until(loop.now_ns + QUIET_NS - TOLD_NS)
        due = {group: len(log) for group, log in self.agreement.logs.items()}
        self._until(loop.now_ns + TOLD_NS)
        self._check_copies(due)
        self._count_versions()
        self._check_contents()
        self._count()

    def _until(self, end_ns: int) -> None:
        loop = self.loop
        while loop.now_ns < end_ns:
            loop.run_until(min(end_ns, loop.now_ns + 50 * MS))
            if self.wrong is not None:
                raise self.wrong

    def staying(self) -> list[Host]:
        """All but those that were removed for good. One that had no time to learn so goes on: none
        of the cluster's (seed 174: of its two peers one was never started)."""
        up = [host.node for host in self.nodes.values() if host.node is not None]
        gone = frozenset[NodeId]().union(*(node.registry.removed for node in up))
        return [one for one in self.nodes.values() if not one.retired and one.me not in gone]

    def _check_raise(self, node: NodeId, version: object) -> None:
        """The cluster version never rises above what a member can read."""
        older = [host.me for host in self.staying() if host.older]
        if older and self.wrong is None:
            self.wrong = Violation(f"version: {version} at node {node}, not at node {older[0]}")

    def _count_versions(self) -> None:
        for host in self.staying():
            assert host.node is not None
            version = host.node.registry.cluster_version.version
            self.statistics[f"nodes at cluster version {version}"] += 1

    def _check_ready(self) -> None:
        for host in self.staying():
            why = "it is not up" if host.node is None else host.node.shell.not_ready()
            if why:
                raise Violation(f"I10: node {host.me} is not ready after the heal: {why}")

    def _lacks(self, before: list[int], floors: list[int]) -> str:
        """What has not got on since everybody is ready, or ""."""
        steps = Counter({type(client).__name__: 0 for client in self.clients})
        for client, then in zip(self.clients, before, strict=True):
            steps[type(client).__name__] += client.progress - then
        for kind, made in steps.items():
            if made < PROGRESS_MIN:
                return f"the {kind}s made {made} steps after everything healed"
        for number, floor in enumerate(floors):
            if self.partition_logs.floor(number) == floor:
                return f"nothing was acknowledged in partition {number} any more"
        return ""

    def _check_copies(self, due: dict[GroupId, int]) -> None:
        """Every member has applied everything but the latest."""
        self.watch.figures.at_the_end(due)
        for host in self.staying():
            assert host.node is not None
            for group, replica in host.node.multi.replicas.items():
                lag = due[group] - replica.learner.applied
                if host.me in replica.members and lag > 0:
                    raise Violation(f"I10: node {host.me} is {lag} behind in group {group}")

    def _check_contents(self) -> None:
        """Of all that have applied the same: read back from their logs and cold data."""
        copies = Copies(self.partition_logs)
        for host in self.staying():
            assert host.node is not None
            for group, replica in host.node.multi.replicas.items():
                if replica.learner.applied == len(self.agreement.logs[group]):
                    try:
                        copies.check(host.node.broker, group)
                    except (UnreadableError, StorageError) as damage:
                        raise Violation(f"lost-on-node: node {host.me}: {damage}") from damage
        self.statistics["batches read back"] = copies.count

    def _count(self) -> None:
        statistics, logs = self.statistics, self.partition_logs
        statistics["slots"] = sum(map(len, self.agreement.logs.values()))
        statistics["acknowledged"] = logs.acknowledged
        statistics["trims"] = logs.trims.deleted
        statistics["trims by retention"] = logs.trims.by_retention
        statistics["fetches"] = logs.fetches
        statistics["commits"] = self.group_logs.commits
        statistics["dead members watched"] = self.deaths.watched
        statistics["dead members found out"] = self.deaths.gone_count
        statistics["events"] = self.loop.events
        statistics["longest hole, ms, summed"] = self.watch.longest_ns // MS


def limits(options: WholeOptions) -> LimitsSection:
    """`tight`: below what a configuration allows, for the same reason."""
    section = LimitsSection(tail_bytes=options.tail_bytes)
    for name, value in TIGHT.items() if options.tight else ():
        object.__setattr__(section, name, value)
    return section


def small_log(section: StorageSection, segment_bytes: int) -> StorageSection:
    """With segments below what a configuration allows: else a world's minute of data would fit in
    the first one, nothing would leave the log, and nobody would have to catch up."""
    object.__setattr__(section, "segment_bytes", segment_bytes)
    object.__setattr__(section, "log_bytes", 2 * segment_bytes)
    return section


class _Lines:
    """Where a node's log goes (runtime.system.journal.Stream)."""

    def __init__(self, world: World, node: NodeId) -> None:
        self._world, self._node = world, node

    def write(self, text: str, /) -> int:
        self._world.said(self._node, json.loads(text))
        return len(text)

    def flush(self) -> None:
        """It is not held back."""
