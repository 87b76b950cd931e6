"""One deterministic world from a seed: nodes, network, disks, clocks, clients, faults, checkers.

First safety under faults, then everything heals and the world must make progress (I10). Everything
runs in one thread in virtual time; what happens is a function of the options alone.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, Protocol

from balancer.registry.registry import Registry
from paxos.codec import PeerError
from paxos.entry import Config, Entry, EntryKind
from paxos.ids import MS, REGISTRY_GROUP, Ballot, GroupId, NodeId, Now, Slot
from paxos.messages import Accept, Message, Prepare
from paxos.multigroup import MultiGroup
from paxos.quorum import is_quorum
from paxos.replica import Replica
from paxos.step import Notice, Step
from paxos.timing import WINDOW_MAX
from simulator.checkers.bases import Bases
from simulator.checkers.copies import Copies
from simulator.checkers.dead_members import DeadMembers
from simulator.checkers.groups import GroupLogs
from simulator.checkers.orders import Orders
from simulator.checkers.partition_logs import PartitionLogs
from simulator.checkers.protocol import (
    Acknowledged,
    Agreement,
    Chosen,
    Leases,
    OneMaster,
    OneValuePerBallot,
    Reads,
    Results,
    encoding,
)
from simulator.checkers.steals import StealAim
from simulator.clients.admin import Admin
from simulator.clients.command_client import CLIENT_ADDRESS, Client
from simulator.clients.kafka_client import Caller
from simulator.clients.member import GROUP as READERS
from simulator.clients.member import Member
from simulator.clients.operator import Operator
from simulator.clients.plain_producer import PlainProducer
from simulator.clients.producer import Producer
from simulator.clients.reader import Reader
from simulator.clients.recreated_topic import RecreatedTopic
from simulator.clients.token_writer import Writer
from simulator.environment.clock import Clock
from simulator.environment.dice import between, dice, exponential
from simulator.environment.loop import Loop
from simulator.environment.network import Network
from simulator.environment.options import Clocks, DiskKind, Fault, Options, Workload
from simulator.environment.trace import Trace
from simulator.environment.violation import Violation
from simulator.nemesis.nemesis import Nemesis
from simulator.node.balancing import StealBudget
from simulator.node.broker_node import BrokerNode
from simulator.node.command_node import CommandNode
from simulator.node.disk import Disk, RecordDisk
from simulator.node.node import SimNode
from simulator.node.state_machine import Machine
from simulator.node.wal_disk import WalDisk

ADMIN_ADDRESS, READER_ADDRESS, PRODUCERS, MEMBERS, WRITERS = 100, 101, 110, 120, 130
OPERATORS: Final = 140
PIPELINERS: Final = 160
REBORN_ADDRESS: Final = 102
PROGRESS_MIN: Final = 2
"""How many steps each kind of client makes at least once everything has healed. A single client may
have to wait for an answer from a node that heals last, and for a rebalance; and a single reader
asks some seven times, often a node that was master of the partition it read before."""
HEALED_STEAL_GAP_NS: Final = 5_000 * MS
"""Consumer groups cannot rebalance while their coordinator moves faster than their members join."""
QUIET_NS: Final = 3_000 * MS
"""The last part of a world, without clients and steals: all members must reach the same log."""
SETTLED_NS: Final = QUIET_NS // 2
"""In a quiet world every member has applied what was chosen this long ago, whether it votes or not:
one that does not vote yet learns by asking, while its master fills slots for it."""
TOLD_NS: Final = QUIET_NS // 6
"""Members that vote are told sooner. How many slots that may be, nobody can say: while one that
does not vote is helped, a whole window is chosen at once (seed 705)."""
REJOIN_WINDOWS: Final = 2
"""A node that had forgotten votes again before its group has advanced by this many windows, and one
more for each node on its way back: a node that votes again answers the others for the first time,
and raises their bar to the group's position at that time (seed 862)."""
THINKS_PER_ROUND: Final = 3
"""The longest pause of a client between two rounds of questions."""
STALE_CHANCE: Final = 0.1
"""The share of the toy balancer's requests with an old incarnation or lease version (R6, R8)."""


class AnyClient(Protocol):
    """`progress` counts what went well."""

    address: int
    name: str
    progress: int
    stopped: bool

    def start(self) -> None: ...


class World:
    def __init__(self, options: Options, *, verbose: bool = False) -> None:
        self.options = options
        self.loop = Loop()
        self.trace = Trace(verbose=verbose)
        self.statistics: Counter[str] = Counter()
        seed = options.seed
        self.network = self.make_network()
        layout = dice(seed, "layout")
        self.addresses = list(range(options.nodes))
        self.members: dict[GroupId, tuple[NodeId, ...]] = {
            group: tuple(NodeId(n) for n in sorted(layout.sample(self.addresses, options.members)))
            for group in options.groups
        }
        if options.workload is Workload.BROKER:  # a node is a member of the registry's group
            self.members[REGISTRY_GROUP] = tuple(map(NodeId, self.addresses))
        within = options.clocks is not Clocks.BEYOND
        self.value = OneValuePerBallot()
        self.chosen = Chosen(self.members)
        self.brokers = options.workload is Workload.BROKER
        self.agreement = Agreement(
            {group: None if self.brokers else self.new_machine(group) for group in options.groups}
        )
        self.group_logs = GroupLogs(fresh=within)
        self.fresh = within
        """Whether clocks are good enough for I7."""
        self.orders = Orders()
        self.partition_logs = PartitionLogs(self.group_logs, self.orders, fresh=within)
        self.producer_ids: list[tuple[int, int]] = []
        """Ids and epochs in use, in the order in which they appeared: a liar may name them."""
        self.deaths = DeadMembers(self, READERS)
        self._epochs: dict[GroupId, int] = {}
        """That of the newest lease of each group."""
        self.group_logs.time_left = self.deaths.written
        self.member_names: list[tuple[str, int]] = []
        """Members and generations, as clients were told them: a liar may name them, too."""
        self.results = Results()
        self.steals = StealBudget(options.steals_max, enforced=within)
        self.steal_aim = StealAim(tick_ns=options.tick_ns)
        self.one_master = OneMaster(enforced=within)
        self.acknowledged = Acknowledged(self.agreement)
        self.reads = Reads(enforced=within)
        self.checkpoint_slots = options.checkpoint_slots
        real = self.brokers and options.disk is DiskKind.WAL
        damaged = Fault.DAMAGE in options.faults
        if real and damaged:
            self.checkpoint_slots = 0  # no world has what repairs data that has left the log
        self.settles = real and self.checkpoint_slots > 0
        """Batches leave the log for cold segments, and come from peers with the state."""
        self.leases = Leases()
        self.bases = Bases(self.agreement.logs, self.members)
        self.nodes: dict[NodeId, SimNode] = {}
        for address in self.addresses:
            self._add_node(NodeId(address), layout)
        self.clients = self._kafka_clients() if self.brokers else self._command_clients()
        self.nemesis = Nemesis(self)
        self._changes: dict[GroupId, dict[tuple[Slot, tuple[NodeId, ...]], bytes]] = {
            group: {} for group in self.members
        }
        """Membership changes that were proposed, and how each is encoded."""
        self._steal_chance = dice(seed, "steals")
        self._fsync_chance = dice(seed, "fsync")
        self.last_acted: dict[GroupId, int] = {}
        self._served_at_heal: dict[GroupId, int] = {}
        self._recovered_at: dict[GroupId, int] = {}
        """How long each log was when the world had recovered."""
        self._returning: dict[GroupId, int] = {}
        """How many members did not vote then."""

    def caller(self, address: int) -> Caller:
        return Caller(self, address)

    def topic_id(self, node: NodeId, name: str) -> bytes | None:
        asked = self.nodes[node]
        assert isinstance(asked, BrokerNode)
        topic = asked.registry.topic(name) if asked.up else None
        return None if topic is None else topic.topic_id

    def make_network(self) -> Network:
        options = self.options
        chance = dice(options.seed, "network")
        return Network(self.loop, chance, options.delay_min_ns, options.delay_max_ns)

    def fsync_ns(self, node: NodeId) -> int:
        """How long the fsync takes that `node` begins now."""
        longest = self.nodes[node].disk.slow_ns or self.options.fsync_max_ns
        return between(self._fsync_chance, 100_000, longest)

    def _add_node(self, me: NodeId, layout: random.Random) -> None:
        ppm = self.options.boot_ppm_max
        clock = Clock(boot_ppm=between(layout, -ppm, ppm))
        disk: Disk = RecordDisk(self.agreement.logs)
        if self.options.disk is DiskKind.WAL:
            disk = WalDisk(me, settles=self.settles)
        node = self.nodes[me] = self.make_node(me, disk, clock)
        self.network.attach(me, node.deliver)

    def make_node(self, me: NodeId, disk: Disk, clock: Clock) -> SimNode:
        if self.options.workload is Workload.BROKER:
            return BrokerNode(self, me, disk, clock)
        return CommandNode(self, me, disk, clock)

    def _command_clients(self) -> Sequence[AnyClient]:
        options = self.options
        return [
            self._add_client(group, index)
            for group in options.groups
            for index in range(options.clients_per_group)
        ]

    def _kafka_clients(self) -> Sequence[AnyClient]:
        options = self.options
        self.admin = Admin(self, ADMIN_ADDRESS)
        self.loop.after(0, self.admin.start)
        producers = range(PRODUCERS, PRODUCERS + options.clients_per_group)
        members = range(MEMBERS, MEMBERS + options.consumers)
        return [
            *(Producer(self, address) for address in producers),
            Reader(self, READER_ADDRESS),
            *(Member(self, address) for address in members),
            *(Writer(self, WRITERS + 2 * number) for number in range(options.writers)),
            *(Operator(self, OPERATORS + number) for number in range(options.operators)),
            *(PlainProducer(self, PIPELINERS + number) for number in range(options.pipeliners)),
            *([RecreatedTopic(self, REBORN_ADDRESS)] if options.reborn else []),
        ]

    def _add_client(self, group: GroupId, index: int) -> Client:
        address = CLIENT_ADDRESS + 10 * group + index
        client = Client(self, address, group)
        self.network.attach(address, client.deliver)
        return client

    def new_machine(self, group: GroupId) -> Machine:
        with_registry = self.options.balancing and group == REGISTRY_GROUP
        return Machine(Registry() if with_registry else None)

    def dice_for(self, node: NodeId, life: int) -> random.Random:
        return dice(self.options.seed, "election", node, life)

    # -- a run --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the whole world; raises Violation or AssertionError if something is wrong."""
        options, loop = self.options, self.loop
        self.nemesis.start()
        for node in self.nodes.values():
            node.boot()
        for client in self.clients:
            client.start()
        loop.at(2_000 * MS, self._steal_something)
        loop.run_until(options.heal_at_ns)
        for group, highest in self.acknowledged.highest.items():
            self._served_at_heal[group] = sum(highest.values())
        at_heal = [client.progress for client in self.clients]
        floors = [self.partition_logs.floor(number) for number in range(options.partitions)]
        loop.run_until(options.heal_at_ns + self.recovery_ns)
        self._check_recovered()
        loop.run_until(loop.now_ns + self.patience_ns)
        if not self.brokers:
            self._check_served()
        self.nemesis.heal_rest()
        for group in self.members:
            replicas = [node.groups[group].replica for node in self.nodes.values()]
            self._returning[group] = sum(one.rejoin is not None for one in replicas)
        loop.run_until(max(loop.now_ns, options.duration_ns - QUIET_NS))
        for client in self.clients:
            client.stopped = True
        end_ns = max(options.duration_ns, loop.now_ns + QUIET_NS)
        loop.run_until(end_ns - SETTLED_NS)
        settled = self._due(voting_only=False)
        loop.run_until(end_ns - TOLD_NS)
        told = self._due(voting_only=True)
        loop.run_until(end_ns)
        self._check_progress(at_heal)
        self._check_end({**settled, **told})
        if self.brokers:
            self._check_produced(floors)
            self._check_copies()
        self._count()

    @property
    def recovery_ns(self) -> int:
        """Clocks that were beyond the bound may have left expiries that far ahead in the log."""
        return self.options.recovery_ns + 2 * self.nemesis.clocks.offset_max_ns

    @property
    def patience_ns(self) -> int:
        """Once there is a master, each client may ask all left-out nodes in vain, then one that
        names the master, then the master; and it gets its answer before it asks again."""
        rounds = len(self.nemesis.left_out) + 3
        return rounds * THINKS_PER_ROUND * self.options.client_think_ns

    def _check_recovered(self) -> None:
        for group in self.members:
            idle_ns = self.loop.now_ns - self.last_acted.get(group, 0)
            if idle_ns > self.options.handover_ns:
                raise Violation(f"I10: nobody acts for group {group} {self.recovery_ns / 1e9} s on")
            for node in self.nodes.values():
                if node.me in self.nemesis.left_out:
                    continue
                replica = node.groups[group].replica
                since = node.now().boot_ns - replica.settle_since
                if replica.suspended and since > self.recovery_ns and self.is_member(replica):
                    raise Violation(f"I10: node {node.me} is still suspended in group {group}")
            self._recovered_at[group] = len(self.agreement.logs[group])

    def _check_served(self) -> None:
        """exam.md D2: it is not enough that a node acts, clients must notice it."""
        for group, served in self._served_at_heal.items():
            if self.clients and sum(self.acknowledged.highest[group].values()) == served:
                raise Violation(f"I10: nothing was acknowledged in group {group} since the heal")

    def is_member(self, replica: Replica) -> bool:
        return replica.me in self.members_now(replica.group)

    def may_be_member(self, replica: Replica) -> bool:
        return any(replica.me in some for some in self.configurations(replica.group))

    def members_now(self, group: GroupId) -> tuple[NodeId, ...]:
        """According to the most advanced log of all nodes that ever ran."""
        return self._most_advanced(group).members

    def configurations(self, group: GroupId) -> list[tuple[NodeId, ...]]:
        """The members now; those that a change under way may bring at any time, or never; and,
        until a majority has heard of the last change, the previous members in whom the others
        believe (seed 1005 with brokers: all crashed when one had heard, and it was left out)."""
        most, log = self._most_advanced(group), self.agreement.logs[group]
        believed = {node: self._believed_members(self.nodes[node], group) for node in most.members}
        know = [node for node, members in believed.items() if members == most.members]
        older = set() if is_quorum(know, most.members) else set(believed.values())
        return [most.members, *sorted(older - {most.members})] + [
            members
            for (slot, members), value in self._changes[group].items()
            if slot > most.learner.applied and (slot > len(log) or log[slot - 1] == value)
        ]

    def _believed_members(self, node: SimNode, group: GroupId) -> tuple[NodeId, ...]:
        """According to what it knows, or will know when it is up again."""
        return node.groups[group].replica.members if node.up else node.durable.members[group]

    def _most_advanced(self, group: GroupId) -> Replica:
        replicas = (node.groups[group].replica for node in self.nodes.values() if node.groups)
        return max(replicas, key=lambda one: one.learner.applied)

    def _check_progress(self, at_heal: list[int]) -> None:
        steps = Counter({type(client).__name__: 0 for client in self.clients})
        for client, before in zip(self.clients, at_heal, strict=True):
            steps[type(client).__name__] += client.progress - before
        for kind, made in steps.items():
            if made < PROGRESS_MIN:
                raise Violation(f"I10: the {kind}s made {made} steps after everything healed")

    def _check_produced(self, floors: Sequence[int]) -> None:
        """D2 again: no partition is left behind by the progress of the others."""
        for number, before in enumerate(floors):
            if self.partition_logs.floor(number) == before:
                raise Violation(f"I10: nothing was acknowledged in partition {number} any more")

    def _due(self, *, voting_only: bool) -> dict[tuple[GroupId, NodeId], int]:
        """How far each member must have got when the world ends."""
        return {
            (group, node.me): len(log)
            for group, log in self.agreement.logs.items()
            for node in self.nodes.values()
            if not voting_only or node.groups[group].replica.rejoin is None
        }

    def _check_end(self, due: dict[tuple[GroupId, NodeId], int]) -> None:
        for group, log in self.agreement.logs.items():
            returning = max(1, self._returning[group])
            may_vote_at = self._recovered_at[group] + (REJOIN_WINDOWS + returning) * WINDOW_MAX
            for node in self.nodes.values():
                replica = node.groups[group].replica
                if not self.is_member(replica):
                    continue
                if replica.learner.applied < due[group, node.me]:
                    lag = len(log) - replica.learner.applied
                    raise Violation(f"I10: node {node.me} is {lag} behind in group {group}")
                if replica.rejoin is not None and len(log) > may_vote_at:
                    raise Violation(f"I10: node {node.me} does not vote again in group {group}")

    def _check_copies(self) -> None:
        copies = Copies(self.partition_logs)
        for node in self.nodes.values():
            assert isinstance(node, BrokerNode)
            for group, log in self.agreement.logs.items():
                if node.groups[group].replica.learner.applied == len(log):
                    copies.check(node.broker, group)

    def executed(
        self, node: NodeId, group: GroupId, slot: Slot, entry: Entry, results: list[bytes]
    ) -> None:
        """A node has applied an entry to its state machine."""
        if self.brokers and entry.control is not None:
            self.partition_logs.lease_entry(group, slot, entry.control)
        if self.brokers and entry.kind == EntryKind.NOOP:
            self.partition_logs.no_op(group, slot)
        if self.results.applied(node, group, slot, results) and self.brokers:
            self.partition_logs.applied(group, slot, entry, results)

    def _count(self) -> None:
        statistics = self.statistics
        statistics["slots"] = sum(map(len, self.agreement.logs.values()))
        statistics["acknowledged"] = self.acknowledged.count
        statistics["reads"] = self.reads.count
        if self.brokers:
            self._count_brokers()
        statistics["worlds with steals side by side"] = int(self.steals.together > 1)
        statistics["frames"] = self.network.sent
        statistics["events"] = self.loop.events
        statistics["two masters seen"] = self.one_master.seen_two
        statistics["stale reads seen"] = self.reads.stale

    def _count_brokers(self) -> None:
        statistics, logs, groups = self.statistics, self.partition_logs, self.group_logs
        statistics["broker worlds"] += 1
        statistics["acknowledged"] = logs.acknowledged
        statistics["batches duplicate"] = logs.duplicates
        statistics["batches refused"] = logs.refused
        statistics["fetches"] = logs.fetches
        statistics["commits"] = groups.commits
        statistics["commits and snapshots refused"] = groups.fenced
        statistics["commands of earlier masters refused"] = groups.late
        statistics["orders carried out"] = self.orders.carried_out
        statistics["generations"] = groups.generations
        statistics["dead members watched"] = self.deaths.watched
        statistics["dead members found out"] = self.deaths.gone_count
        statistics["stale answers seen"] = logs.stale + groups.stale

    # -- steals -------------------------------------------------------------------------------

    def _steal_something(self) -> None:
        """The toy balancer: a random node finds that it is the ideal master of a random group."""
        chance, loop = self._steal_chance, self.loop
        if loop.now_ns > self.options.duration_ns - QUIET_NS:
            return
        gap_ns = self.options.steal_gap_ns
        if self.brokers and loop.now_ns > self.options.heal_at_ns:
            gap_ns = max(gap_ns, HEALED_STEAL_GAP_NS)
        loop.after(exponential(chance, gap_ns), self._steal_something)
        node = self.nodes[NodeId(chance.choice(self.addresses))]
        group = chance.choice(self.options.groups)
        since_heal = loop.now_ns - self.options.heal_at_ns
        recovering = 0 <= since_heal <= self.recovery_ns  # a steal would be a pause, too
        able = self.runs(node) and not recovering
        if able and node.balancing is not None:
            node.balancing.place(group, NodeId(chance.choice(self.members[group])))
        elif able:
            replica = node.groups[group].replica
            incarnation, ver = node.core.incarnation, replica.lease.ver
            if chance.random() < STALE_CHANCE:
                incarnation = type(incarnation)(max(0, incarnation - chance.randrange(2)))
                ver = type(ver)(max(0, ver - chance.randrange(2)))
            if chance.random() < STALE_CHANCE:
                target = NodeId(chance.choice(self.addresses))
                if target != node.me:
                    node.act(group, "hand over", target)
            else:
                node.ask_for(group, incarnation, ver, 0)
            self.statistics["steals asked"] += 1

    # -- reports of the nodes -----------------------------------------------------------------

    def leaving(self, message: Message) -> None:
        """A message of the core leaves a node, perhaps to several nodes."""
        if type(message) is Accept:
            self.proposed(message)
        elif type(message) is Prepare:
            self.statistics["prepares"] += 1

    def proposed(self, accept: Accept) -> None:
        self.proposal_seen(accept.group, accept.slot, accept.ballot, accept.entry)

    def proposal_seen(self, group: GroupId, slot: Slot, ballot: Ballot, entry: Entry) -> None:
        """The proposal has left a node, or is on a disk."""
        self.value.seen(group, slot, ballot, entry)
        if isinstance(entry.control, Config):
            self._changes[group][slot, entry.control.members] = encoding(entry)

    def died(self, node: NodeId) -> None:
        """It has reached the point where it was doomed to die."""
        self.nemesis.died(self.nodes[node])

    def said(self, core: MultiGroup, now: Now, peer: NodeId, message: Message, step: Step) -> bool:
        """Whether a peer may go on: a message that no honest peer sends costs it the link, and the
        rest of its frame is lost."""
        try:
            core.on_message(now, peer, message, step)
        except PeerError as why:
            self.statistics["frames refused"] += 1
            self.trace.note(self.loop.now_ns, "refused", core.me, peer, why)
            return False
        return True

    def noticed(self, node: NodeId, notice: Notice) -> None:
        self.statistics[f"notice {notice.what}"] += 1
        self.trace.note(self.loop.now_ns, "notice", node, notice.group, notice.what, notice.detail)

    def lease_changed(self, node: NodeId, replica: Replica) -> None:
        lease = replica.lease
        by = self.agreement.logs[replica.group][lease.ver - 1][0]
        stolen = by == EntryKind.STEAL
        is_new = self.leases.seen(node, replica.group, lease, stolen=stolen)
        self.statistics["steals done"] += is_new and stolen
        if is_new and lease.epoch != self._epochs.get(replica.group):
            self._epochs[replica.group] = lease.epoch
            self.deaths.moved(replica.group, stolen=stolen)
        self.trace.note(
            self.loop.now_ns, "lease", node, replica.group, lease.ver, lease.holder, lease.epoch
        )

    def suspended(self, node: NodeId, replica: Replica) -> None:
        self.statistics["steals sent"] += 1
        assert replica.handover is not None
        target = self.nodes[replica.handover.target]
        self.steal_aim.proposed(self.nodes[node], target, replica)
        self.nemesis.suspended(self.nodes[node], replica)

    def somebody(self, chance: random.Random) -> SimNode:
        return self.nodes[NodeId(chance.choice(self.addresses))]

    def runs(self, node: SimNode) -> bool:
        return node.up and node.paused_until <= self.loop.now_ns

    def all_masters(self) -> list[tuple[SimNode, GroupId]]:
        """All current masters, with their groups."""
        return [
            (node, ident)
            for node in self.nodes.values()
            if self.runs(node)
            for ident, held in node.groups.items()
            if held.replica.acting(node.now())
        ]

    def acts(self, group: GroupId, *, begins: bool) -> None:
        """A node acts for the group; two at a time are noticed when the second one begins."""
        if begins:
            self.check_one_master(group)
        else:
            self.last_acted[group] = self.loop.now_ns

    def check_one_master(self, group: GroupId) -> None:
        acting = [
            node.me
            for node in self.nodes.values()
            if node.up and node.groups[group].replica.acting(node.now())
        ]
        if acting:
            self.last_acted[group] = self.loop.now_ns
        self.one_master.acting(group, acting)

    def check_all_masters(self) -> None:
        for group in self.members:
            self.check_one_master(group)
