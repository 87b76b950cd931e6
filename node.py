"""Composition root and command line of one node: configuration -> objects -> one nursery -> stop.

Exit codes: 0 after a clean stop, 2 for a bad configuration, 3 if the data directory is refused, 74
(EX_IOERR) if the disk failed: then nothing more is acknowledged, and nothing is retried.
"""

import gc
import os
import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

if __name__ == "__main__":
    # The imports make 750 classes, and nothing of them is garbage: looking for some took a quarter
    # of a node's start.
    gc.disable()

import trio
from prometheus_client import CollectorRegistry

from balancer.planning import Planning
from balancer.registry.load import ClusterLoad
from balancer.registry.registry import Registry
from balancer.stealing.steal import Balancing
from broker.api import ApiTable
from broker.delayed.delayed_fetches import DelayedFetches
from broker.groups.consumer_groups import ConsumerGroups, TopicsOf, paxos_group_of
from broker.requests.context import Broker
from broker.state_machine.machine import GroupMachine
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from coordinator.model import GroupNotice
from paxos.changes.membership import first_members
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId
from paxos.multigroup import MultiGroup
from runtime import live_settings, settings
from runtime.admin.balancer import BalancerAdmin
from runtime.admin.inspection import Admin
from runtime.admin.nodes import NodeAdmin
from runtime.authentication import authentication
from runtime.authorization import authorizer
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.draining import Draining, drain
from runtime.balancing.handovers import Handovers
from runtime.balancing.hosting import Hosting
from runtime.balancing.load_meter import LoadMeter
from runtime.balancing.planning_loop import BackgroundSolver, PlanningLoop
from runtime.clients.clients import Clients
from runtime.clients.doors import Entrances
from runtime.config.config import Config, ConfigError, load
from runtime.config.memory_limits import fit_to_limit
from runtime.config.options import options
from runtime.console.console import Console
from runtime.disk.log_dir import LogDir
from runtime.disk.log_writer import LogWriter
from runtime.disk.recovery import (
    as_paxos,
    log_bases,
    read_checkpoints,
    refuse_alone,
    replay,
    restore,
    say_what_was_found,
    scratch_machine,
)
from runtime.disk.scrubber import Scrubber
from runtime.engine.engine import Engine
from runtime.machine import LinuxMachine, Machine
from runtime.membership.local_records import LocalRecords, UnsafeOrder, ask_peers
from runtime.membership.registry_client import Joining, RegistryClient
from runtime.metrics.balancer import BalancerMetrics
from runtime.metrics.collector import NodeMetrics
from runtime.metrics.compaction import CompactionMetrics
from runtime.metrics.disk_usage import UsageMetrics
from runtime.metrics.status import node_status
from runtime.metrics.upkeep import UpkeepMetrics
from runtime.network.connect import TrioDialer
from runtime.network.dataplane import READ, DataPlane
from runtime.network.listener import Listening
from runtime.operators import http_server, open_to_this_machine
from runtime.peers.peers import Peers
from runtime.peers.security import links_of
from runtime.shell import Shell
from runtime.system.background_stream import BackgroundStream, in_background
from runtime.system.clock import Clock
from runtime.system.journal import Journal
from runtime.system.memory import Memory
from runtime.system.process import (
    RESERVED_MAX,
    collect_rarely,
    leaves,
    raise_descriptor_limit,
    watch_parent,
    watch_signals,
)
from runtime.upkeep.upkeep import Upkeep
from runtime.watch import Watch
from storage.checkpoints import CheckpointFiles
from storage.cold.store import ColdStore
from storage.disk.space import Space
from storage.errors import DirectoryRefused, StorageError, StorageFailed, WalDamaged
from storage.format import place_of
from storage.identity import boot
from storage.log.model import Recovered as RecoveredLog
from storage.log.model import RecoveredGroup
from storage.log.opening import open_wal
from storage.unsafe_recovery import take_order
from storage.witness import read_witness

REMOVED: Final = "removed from the cluster: this node has stopped, its directory can be deleted"
EXIT_CONFIG, EXIT_REFUSED, EXIT_IO = 2, 3, os.EX_IOERR
SWITCH_INTERVAL_S: Final = 1e-4
"""The log writer's thread gets the interpreter back sooner than with Python's default of 5 ms."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a node until it is asked to stop; returns the process's exit code."""
    if not __debug__:
        print("node: do not run with -O: assertions detect our own bugs", file=sys.stderr)
        return EXIT_CONFIG
    chosen = options(sys.argv[1:] if argv is None else argv)
    try:
        config = load(chosen.config, os.environ, chosen.overrides)
    except ConfigError as error:
        print(f"node: {error}", file=sys.stderr)
        return EXIT_CONFIG
    with in_background(sys.stderr) as log:
        journal = Journal(config.log.level, log, node=config.node.id)
        return _ended(config, chosen.parent_pid, journal, log)


def _ended(config: Config, parent_pid: int | None, journal: Journal, log: BackgroundStream) -> int:
    """Run the node to its end, and report how it ended; returns the exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_descriptor_limit(config.limits.connections_max + RESERVED_MAX, journal)
    config = fit_to_limit(config, journal)
    try:
        return _run(config, parent_pid, journal)
    except ConfigError as error:
        log.write(f"node: {error}\n")
        return EXIT_CONFIG
    except (DirectoryRefused, WalDamaged) as error:
        journal.error("data directory refused", reason=str(error))
        log.write(f"node: {error}\n")
        return EXIT_REFUSED
    except StorageFailed as error:
        journal.error("disk failed: stopping, nothing more is acknowledged", reason=str(error))
        return EXIT_IO


def _run(config: Config, parent_pid: int | None, journal: Journal) -> int:
    """Run the node; raises a storage failure by itself, which trio wraps into exception groups."""
    failed: list[StorageError] = []
    try:
        trio.run(partial(run_node, config, parent_pid, journal))
    except* (StorageFailed, WalDamaged, DirectoryRefused) as group:
        failed += leaves(group)
    if failed:
        raise failed[0]
    return 0


# -- building ---------------------------------------------------------------------------------


class Node:
    """The parts of one node, built in order; `shell` connects them."""

    def __init__(self, config: Config, journal: Journal, machine: Machine) -> None:
        self.config, self.journal, self.machine = config, journal, machine
        others = len(config.peers) // 2
        self.clock = Clock(config.lease.clock_margin_ms * MS, machine.clock, others_needed=others)
        self.started_boot_ns = self.clock.now().boot_ns
        self.disk = disk = machine.disk(config)
        first = self.clock.now().wall_ns // 1_000_000_000
        identity = boot(disk, config.node.cluster_id, config.node.id, first=first)
        groups = [GroupId(number) for number in range(config.groups.count + 1)]
        files = CheckpointFiles(disk, identity)
        self.cold = ColdStore(disk, identity)
        self.checkpoints = read_checkpoints(files, journal)
        bases = log_bases(self.checkpoints)
        self.wal, recovered = open_wal(disk, identity, settings.wal(config), groups, bases)
        say_what_was_found(journal, identity, recovered, checkpoints=len(bases))
        ordered = take_order(disk)
        refuse_alone(config, recovered, read_witness(disk), ordered)
        self.plane = DataPlane(self.clock.boot_ns, journal.bug, machine.poller())
        self.entrances = Entrances(config, self.plane, journal)
        self.links = links_of(config, self.plane, journal)
        self.wakeup = machine.signal()
        space = Space(disk, settings.space(config))
        self.writer = LogWriter(self.wal, self.wakeup, space, disk.threads)
        dice = random.Random(f"{config.node.cluster_id} {identity.node} {identity.incarnation}")
        self.multi = MultiGroup(identity.node, identity.incarnation, settings.timing(config), dice)
        self.engine = Engine(
            self.multi, self.wal, self.writer, self.clock, settings.intake(config), journal
        )
        self.engine.unsafe = UnsafeOrder(ordered, self.wal, journal)
        self.engine.scrubber = Scrubber(
            self.wal,
            self.wakeup.set,
            journal,
            bytes_per_s=config.storage.scrub_bytes_per_s,
            every_s=config.storage.scrub_every_s,
            threads=disk.threads,
        )
        self.registry = Registry()
        self.statistics = BrokerStatistics()
        self.tail = Tail(config.limits.tail_bytes)
        self.machines: dict[GroupId, GroupMachine] = {}
        self.listeners: list[Listening] = []
        self.client = RegistryClient(self.engine, self.registry)
        self.hosting = Hosting(
            self.engine,
            self.client,
            self.machines,
            self._make_machine,
            self._first_members,
            journal,
        )
        self._recover(recovered)
        self._keep(files)
        self.engine.admission = self.local_records.admission = ask_peers(
            config, identity, self.wal, self.registry, self.multi.replicas, disk, recovered
        )
        self._wire()

    def _keep(self, files: CheckpointFiles) -> None:
        """Build and start the background jobs."""
        self.upkeep = Upkeep(
            self.engine,
            self.machines,
            files,
            self.cold,
            settings.upkeep(self.config),
            self.statistics,
            self.registry,
            scratch_machine,
            self.machine.signal(),
            self.journal,
        )
        self.upkeep.begin(self.clock.now(), self.checkpoints)
        self.local_records = LocalRecords(
            self.disk, self.config.node.data_dir, self.upkeep.reader, self.journal
        )
        self.checkpoints.clear()
        scrubber = self.engine.scrubber
        assert scrubber is not None
        scrubber.cold, scrubber.checkpoints = self.cold, files
        scrubber.start()

    def _recover(self, recovered: RecoveredLog) -> None:
        """Bring every group's replica and state machine to the end of the log."""
        self.engine.repairs.at_boot(recovered.damage)
        for group in map(GroupId, range(self.config.groups.count + 1)):
            found = recovered.groups.get(group)
            members = self.hosting.at_boot(group, found)
            if members is not None:
                self._open(group, members, found)
            elif group == REGISTRY_GROUP:
                self.hosting.begin(group, self._teachers())
            if group == REGISTRY_GROUP:
                self._check_founding()

    def _open(
        self, group: GroupId, members: tuple[NodeId, ...], found: RecoveredGroup | None
    ) -> None:
        """Restore the group's checkpoint, and replay the log above it."""
        machine = self._make_machine(group)
        checkpoint = None if found is None else self.checkpoints.get(group)
        log_from = place_of(self.wal.kept().start, 0)
        base = None if checkpoint is None else restore(machine, checkpoint, log_from)
        replica = self.hosting.open(group, members, as_paxos(found, base), machine)
        if found is not None:
            replay(self.wal, self.clock.now(), replica, machine, found.applied)
            if found.proven > found.applied:
                self.engine.repairs.recall_to(group, found.proven)
        replica.replayed(self.clock.now(), self.engine.step)

    def _teachers(self) -> tuple[NodeId, ...]:
        """The nodes that a node without data asks for the registry: the founders, or all others if
        no founder is left."""
        others = [node for node in self.config.peers if node != self.config.node.id]
        founders = self.config.founders
        return founders if set(founders) & set(others) else tuple(others)

    def _check_founding(self) -> None:
        """ConfigError, with what to write, if the logs say that it was founded otherwise."""
        problem = settings.founding_problem(self.config, self.registry.cluster)
        if problem:
            if self.writer.stop():  # else its threads may still write to the directory
                self.disk.close()
            raise ConfigError([problem])

    def _make_machine(self, group: GroupId) -> GroupMachine:
        return GroupMachine(
            group,
            tail=self.tail,
            statistics=self.statistics,
            registry=self.registry if group == REGISTRY_GROUP else None,
            is_gone=self.registry.is_gone,
            cold=self.cold,
        )

    def _wire(self) -> None:
        config, engine, journal = self.config, self.engine, self.journal
        self.broker = build_broker(self)
        self.disk_use = self.upkeep.watch(self.disk, self.broker, settings.disk(config))
        balancing = Balancing(settings.balancing(config)) if config.balancer.enabled else None
        self.loop = BalancingLoop(engine, self.client, balancing, journal)
        self._wire_planner(ClusterLoad())
        self.joining = Joining(
            self.client,
            settings.found_cluster(config),
            settings.register_node(config, self.multi.incarnation),
            config.founders,
            settings.set_listeners(config),
        )
        limits = config.limits
        self.memory = Memory(limits.pending_bytes_per_node, limits.answer_bytes_per_node)
        self.peers = Peers(
            self.plane,
            engine,
            settings.hello(config, self.multi.incarnation),
            dict(config.peers),
            limits.peer_queue_bytes,
            journal,
            self.memory,
            self.links,
        )
        engine.links = self.upkeep.catching_up.links = self.peers
        engine.members_elsewhere = self.hosting.members
        self.hosting.dropped = self._dropped
        self._wire_clients()
        self.metrics_registry = CollectorRegistry()
        self.metrics = NodeMetrics(
            self.metrics_registry, engine, self.broker, self.loop, self.clients, self.peers
        )
        wait_ms, requests = config.balancer.progress_wait_ms, self.broker.progress_requests
        self.handovers = Handovers(engine, requests, wait_ms, self.loop, journal)
        UpkeepMetrics(self.metrics_registry, engine, self.upkeep)
        CompactionMetrics(self.metrics_registry, self.upkeep.compactor)
        UsageMetrics(self.metrics_registry, self.disk_use)
        BalancerMetrics(self.metrics_registry, engine, self.loop, self.planner, self.meter)
        self.shell = Shell(
            engine=engine,
            broker=self.broker,
            loop=self.loop,
            planner=self.planner,
            meter=self.meter,
            joining=self.joining,
            clients=self.clients,
            peers=self.peers,
            metrics=self.metrics,
            handovers=self.handovers,
            hosting=self.hosting,
            founders=config.founders,
            balance_every_ns=config.balancer.interval_ms * MS,
            upkeep=self.upkeep,
            raising=settings.raising(config),
            journal=journal,
        )
        engine.hooks, self.shell.local_records = self.shell, self.local_records
        live_settings.wire(config, journal, self.shell)
        watched = self.entrances, self.links.contexts, self.broker, self.shell
        self.watch = Watch(*watched, self.metrics_registry, journal)
        self.shell.prefer()
        self.shell.follow_nodes()  # those that our own log knows
        self._wire_admin()

    def _wire_clients(self) -> None:
        api = ApiTable(self.broker)
        self.clients = Clients(
            self.plane,
            api.handle_frame,
            settings.clients(self.config),
            self.journal,
            self.clock.boot_ns,
            self.memory,
            api.handle_over,
        )
        self.engine.producer_connections = self.clients.producer_connections

    def _wire_admin(self) -> None:
        engine = self.engine
        self.admin = Admin(
            self.metrics_registry,
            status=lambda: node_status(
                self.config,
                engine,
                self.broker,
                self.loop,
                self.handovers,
                self.upkeep,
                self.started_boot_ns,
            ),
            not_ready=self.shell.not_ready,
        )
        self.balancer_admin = BalancerAdmin(
            self.client, self.loop, self.planner, now=engine.now, wake=self.wakeup.set
        )
        self.node_admin = NodeAdmin(
            engine, self.shell.raising, self.hosting.members, self.balancer_admin.propose
        )
        self.shell.console = self.console = Console(
            engine,
            self.broker,
            self.loop,
            self.planner,
            self.peers,
            cluster_id=self.config.node.cluster_id,
            durability=self.config.storage.durability,
            not_ready=self.shell.not_ready,
            connections=lambda: len(self.clients.connections),
            wake=self.wakeup.set,
            on_bug=self.journal.bug,
        )
        admins = (self.admin, self.balancer_admin, self.node_admin, self.disk_use, self.console)
        routes = {key: route for admin in admins for key, route in admin.routes().items()}
        parts = self.broker, self.entrances.contexts, engine.now, self.journal, self.memory
        self.http = http_server(self.config, routes, *parts)

    def _first_members(self, group: GroupId) -> tuple[NodeId, ...]:
        return first_members(group, self.config.founders, self.config.groups.replicas)

    def _dropped(self, group: GroupId, machine: GroupMachine) -> None:
        """Stop serving a group that this node no longer has; waiting clients retry elsewhere."""
        self.upkeep.dropped(group, machine)
        self.handovers.dropped(group)
        self.broker.consumer_groups.forget(group)
        uids = list(machine.partitions)
        for uid in uids:
            machine.drop(uid)
        self.broker.delayed_fetches.appended(uids)

    def _wire_planner(self, book: ClusterLoad) -> None:
        config, engine, client = self.config, self.engine, self.client
        self.meter = LoadMeter(
            engine,
            self.broker,
            client,
            book,
            config.balancer.load_interval_ms * MS,
            self.disk.threads.cpu_ns,
            self.machine.new_id,
        )
        self.machines[REGISTRY_GROUP].on_records = self.meter.on_records
        self.planner = PlanningLoop(
            engine,
            client,
            Planning(settings.planning(config)) if config.balancer.enabled else None,
            book,
            hold_down_ms=config.balancer.hold_down_ms,
            lag_slots_max=settings.balancing(config).lag_slots_max,
            journal=self.journal,
            solver=BackgroundSolver(self.upkeep.searcher),
        )
        self.loop.slow = self.planner.slow

    def group_notice(self, group: GroupId, notice: GroupNotice) -> None:
        self.journal.info(
            notice.what, group=group, consumer_group=notice.group, detail=notice.detail
        )

    def leave(self) -> Draining:
        """Begin to hand over the groups that this node is master of."""
        tell = partial(self.peers.ping, draining=True)
        ends = self.clients.stop_reading, self.engine.owes_answers, self.shell.end_of_round
        return Draining(self.loop, tell, *ends, self.clock.now, self.journal)

    def close(self) -> None:
        """Close the sockets, wait for writes in progress, and release the data directory."""
        self.clients.close_all("this node stops")
        self.peers.close()
        for listener in self.listeners:
            listener.close()
        assert self.engine.scrubber is not None
        self.engine.scrubber.stop()
        kept = self.upkeep.stop()
        if self.writer.stop() and kept:
            self.local_records.close()
            self.disk.close()


def build_broker(node: Node) -> Broker:
    """The broker and its parts; the engine is its view of the Paxos groups."""
    config = settings.broker(node.config)
    return Broker(
        me=node.config.node.id,
        config=config,
        groups=node.engine,
        log=node.wal,
        timers=node.plane,
        background=node.upkeep.searcher,
        fetcher=node.upkeep.fetcher,
        registry=node.registry,
        machines=node.machines,
        tail=node.tail,
        delayed_fetches=DelayedFetches(
            node.engine, node.plane, config.parked_fetches_max, config.parked_bytes_max
        ),
        consumer_groups=ConsumerGroups(
            node.engine,
            node.machines,
            settings.coordinator(node.config),
            node.group_notice,
            TopicsOf(node.registry),
            node.machine.new_id,
            partial(paxos_group_of, node.registry),
            node.engine.gate,
        ),
        statistics=node.statistics,
        new_topic_id=node.machine.new_id,
        log_dir=LogDir(str(node.config.node.data_dir)),
        on_bug=node.journal.bug,
        authorizer=authorizer(node.config, node.registry, node.engine.now, node.journal),
        authentication=authentication(
            node.config, node.registry, node.machine.new_id, node.engine.now, node.journal
        ),
    )


# -- running ----------------------------------------------------------------------------------


async def run_node(config: Config, parent_pid: int | None, journal: Journal) -> None:
    """Serve until a signal, the parent's death, a failure of the disk, or this node's removal."""
    node, stop = Node(config, journal, LinuxMachine()), trio.Event()
    collect_rarely()
    try:
        begin(node)
        async with trio.open_nursery() as nursery:
            node.http.nursery = nursery
            await _start(node, nursery, stop, parent_pid)
            await stop.wait()
            await drain(node.leave())
            await node.console.hub.close()
            nursery.cancel_scope.cancel()
        if node.shell.removed:
            journal.info(REMOVED, reason=node.shell.removed)
    finally:
        node.close()


def begin(node: Node) -> None:
    """Listen on all ports, in the data plane; on Kafka's once the gate opens it. From now on
    everything happens in rounds and ticks; the peers still need a dialer.

    Raises:
        ConfigError: an address is not this machine's, or is in use.
    """
    plane, listen = node.plane, node.config.listen
    plane.register(node.wakeup.fd, READ, lambda _: node.engine.on_durable(), urgent=True)
    plane.register(node.upkeep.wakeup.fd, READ, lambda _: node.upkeep.take(), urgent=True)
    for where, address, on_accept in (
        ("listen.peer", listen.peer, node.peers.accept),
        *node.entrances.ports(node.clients.accept),
        ("listen.http", listen.http, node.http.accept),
    ):
        try:
            listener = node.machine.listen(plane, address, on_accept, node.journal)
        except OSError as error:
            raise ConfigError([f'{where} = "{address}": {error.strerror}']) from error
        node.listeners.append(listener)
        if where in node.entrances.names:
            node.shell.gate.guard(listener, node.entrances.names[where])


async def _start(
    node: Node, nursery: trio.Nursery, stop: trio.Event, parent_pid: int | None
) -> None:
    config, shell = node.config, node.shell
    node.peers.dialer = TrioDialer(nursery, node.journal)
    await nursery.start(node.plane.run, shell.end_of_round)
    nursery.start_soon(node.plane.run_ticks, shell.tick)
    await nursery.start(watch_signals, stop, node.watch.on_hangup)
    if parent_pid is not None:
        nursery.start_soon(watch_parent, parent_pid, stop)
    nursery.start_soon(node.console.run)
    open_to_this_machine(config, node.http, node.journal)
    shell.on_removed = stop.set
    if shell.removed:
        stop.set()
    node.journal.info(
        "node started",
        kafka=",".join(str(one.bind) for one in config.for_clients),
        peer=str(config.listen.peer),
        http=str(config.listen.http),
        durability=config.storage.durability,
    )


if __name__ == "__main__":
    gc.enable()
    sys.exit(main())
