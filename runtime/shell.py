"""The connections between the parts of one node: engine, broker, balancing loop and others.

node.py builds the parts and gives them to a Shell, the only place that knows them all. It runs in
the data plane: nothing here waits.
"""

from collections.abc import Callable, Sequence
from typing import Final

from balancer.registry.registry import Registry
from broker.groups.forwarded_requests import RequestForwarding
from broker.requests.context import Broker
from broker.security.users import Proof
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId, Now
from paxos.messages import StealRequest
from paxos.replica import Replica
from paxos.step import Notice
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.handovers import Arrivals, Handovers
from runtime.balancing.hosting import Hosting
from runtime.balancing.load_meter import LoadMeter
from runtime.balancing.planning_loop import PlanningLoop, views
from runtime.clients.clients import Clients
from runtime.clients.gate import WHY_LEARNING, Gate
from runtime.config.fields import Address
from runtime.console.console import Console
from runtime.engine.engine import Engine
from runtime.membership.local_records import LocalRecords
from runtime.membership.masters import MasterGossip, claims_for
from runtime.membership.raising import Raising, RaisingConfig
from runtime.membership.registry_client import Joining
from runtime.metrics.collector import NodeMetrics
from runtime.peers.peers import Peers
from runtime.settings import first_guess
from runtime.system.journal import Journal
from runtime.system.process import connections_for, descriptor_limit
from runtime.upkeep.upkeep import Upkeep
from storage.disk.descriptors import DESCRIPTORS, RESERVE

PING_EVERY_NS: Final = 200 * MS
HOUSEKEEPING_NS: Final = 1_000 * MS
LOUD: Final = frozenset(
    {
        *("diverged", "in-doubt", "out-of-doubt", "steal-settling"),
        *("non-voting", "voting-again", "written-again"),
    }
)
ALARMING: Final = frozenset({"hopeless", "unsafe-recovered"})
"""LOUD and ALARMING: notices of the core that an operator should see at the default log level."""


class Shell:
    """Implements runtime.engine.ports.Hooks."""

    def __init__(
        self,
        *,
        engine: Engine,
        broker: Broker,
        loop: BalancingLoop,
        planner: PlanningLoop,
        meter: LoadMeter,
        joining: Joining,
        clients: Clients,
        peers: Peers,
        metrics: NodeMetrics,
        handovers: Handovers,
        hosting: Hosting,
        founders: Sequence[NodeId],
        balance_every_ns: int,
        upkeep: Upkeep,
        raising: RaisingConfig,
        journal: Journal,
    ) -> None:
        self.engine, self.broker, self.loop, self.joining = engine, broker, loop, joining
        self.clients, self.peers, self.metrics = clients, peers, metrics
        self.handovers, self.hosting, self.upkeep = handovers, hosting, upkeep
        self.gate = Gate(engine, broker, clients, journal)
        peers.terms, metrics.facts.contact = engine.terms.ours, self.gate.contact
        metrics.facts.not_ready = self.not_ready
        clients.rate.quota = broker.quotas.connections_per_s
        clients.room, engine.on_forwarded_in = engine.room, broker.traffic.produced
        hosting.give, hosting.changed = handovers.give, self._groups_changed
        self.arrivals = Arrivals(broker.progress_requests, self._served)
        loop.on_stolen = self._stolen
        loop.give, loop.given = handovers.give, lambda: handovers.targets
        handovers.write_down = broker.consumer_groups.handing_over
        self._forward_group_requests()
        self.raising = Raising(engine.multi.me, joining.client, peers.versions, raising, journal)
        engine.gate.version = lambda: self.raising.version
        engine.gate.waits_for = self.raising.waits_for
        self.planner, self.meter = planner, meter
        self._founders, self._journal = founders, journal
        self._gossip = MasterGossip(engine.multi.timing.renew_every_ns)
        self._balance_every_ns = balance_every_ns
        self._pinged = self._last_housekeeping = self._balanced = 0
        self._look_soon = True
        self._placement_seen = -1
        self._topics_seen = -1
        self._spread = (-1, -1, -1)
        """The versions of the documents that clients change, when this node last told its peers
        that it has applied them."""
        self._disk_told = (False, False)
        self._nodes_seen = -1
        self._security_seen = self.registry.security
        self.console: Console | None = None
        self.look_at_files: Callable[[int], None] = lambda _boot_ns: None
        """For files that are read again when they change: those of TLS, keys of tokens."""
        self.cut_off_revoked: Callable[[Callable[[Proof], bool]], int] = lambda _holds: 0
        """Closes the connections of those whose proof does not hold; returns how many."""
        self.local_records: LocalRecords | None = None
        self.removed = ""
        """Why this node is no longer part of the cluster, and stops; "" if it is."""
        self.on_removed: Callable[[], None] = lambda: None

    def _forward_group_requests(self) -> None:
        """Pass requests for coordinators that have moved to the nodes where they are now."""
        multi, here = self.engine.multi, self.broker.consumer_groups
        links = self.peers.group_requests
        here.forwarding = links.asking = RequestForwarding(
            multi.me, multi.incarnation, self.engine, here, links
        )

    @property
    def registry(self) -> Registry:
        return self.broker.registry

    # -- rounds -------------------------------------------------------------------------------

    def end_of_round(self) -> bool:
        """Finish a round; returns whether something must be checked again within a millisecond."""
        self.peers.go_on()
        self.engine.end_round()
        if self.handovers.busy:
            self.handovers.look(self.engine.now())
            self.engine.end_round()
        if self._look_soon and self.loop.busy:
            self._balance(self.engine.now())
            self.engine.end_round()
        self.clients.flush()
        return self.engine.group_commit.waits or self.peers.waits

    def tick(self) -> None:
        """Do everything that depends on time; called every runtime.network.dataplane.TICK_S."""
        engine = self.engine
        self._look_at_disk()
        removed_by = engine.removed_by
        if 2 * len(removed_by) > len(self.peers.outgoing) and not self.removed:
            self._remove(f"nodes {sorted(removed_by)} say so")  # a single node may be wrong
        engine.tick()
        now = engine.now()
        self.peers.dial()
        if now.boot_ns - self._pinged >= PING_EVERY_NS or engine.clock.trust.asks:
            engine.clock.trust.asks = False
            self._pinged = now.boot_ns
            low, health = engine.disk_pressure.low, engine.disk_health
            self.peers.ping(
                draining=self.loop.draining or low or health.degraded,
                low=low,
                disk_class=health.own_class,
            )
        self.gate.tick(now.boot_ns)
        self._tell_masters(now)
        if (
            self._look_soon
            or self.loop.busy
            or engine.disk_health.hung  # while others can still take over at once
            or now.boot_ns - self._balanced >= self._balance_every_ns
        ):
            self._balance(now)
        if engine.takes_part:
            if self.local_records is None or self.local_records.admission_is_durable():
                self.joining.tick(now)
            self.hosting.tick(now)
            self.meter.tick(now)
            self.broker.retention.tick(now)
        self.broker.consumer_groups.tick(now)
        self.upkeep.tick(now)
        self.clients.look()
        if DESCRIPTORS.scarce:
            self._spare_descriptors()
        if now.boot_ns - self._last_housekeeping >= HOUSEKEEPING_NS:
            self._last_housekeeping = now.boot_ns
            self._fit_descriptors()
            DESCRIPTORS.fill()
            self.clients.tick()
            self.peers.tick()
            self.metrics.tick()
            self.look_at_files(now.boot_ns)
            if engine.takes_part:
                self.raising.tick(now, master=engine.acting(REGISTRY_GROUP))
            if self.local_records is not None:
                self.local_records.cluster_version = self.raising.version
                self.local_records.tick()
            if self.console is not None:
                self.console.tick(now)
        self.end_of_round()

    def _spare_descriptors(self) -> None:
        """Close connections, because this process needed one more descriptor than it may have."""
        DESCRIPTORS.scarce = False
        self._fit_descriptors()
        if not DESCRIPTORS.fill():
            self.clients.close_idlest(RESERVE)
            DESCRIPTORS.fill()

    def _fit_descriptors(self) -> None:
        """Adapt to the descriptor limit, which may have been changed from outside."""
        limit = descriptor_limit()
        DESCRIPTORS.fit(limit)
        self.clients.fit(connections_for(limit))

    def _tell_masters(self, now: Now) -> None:
        """Tell nodes that are not members of our groups that we are their master."""
        replicas = self.engine.multi.replicas
        for node in self._gossip.due(now, self.peers.linked):
            self.peers.tell_masters(node, claims_for(node, replicas, now))

    def _look_at_disk(self) -> None:
        """Take over what the writing threads know about free space, and the damage that readers
        found."""
        engine, room = self.engine, self.engine.writer.room
        was_low, was_stuck = engine.disk_pressure.low, engine.disk_pressure.stuck
        unwritten, now_ns = engine.wal.bytes_unwritten, engine.clock.boot_ns()
        engine.disk_pressure.seen(now_ns, room, unwritten, starved=engine.writer.starved)
        self._tell_of_disk()
        if engine.disk_pressure.low != was_low:
            self._pinged = 0  # tell peers at once
            free = 0 if room is None else room.free_bytes
            if engine.disk_pressure.overloaded:
                self._journal.error("disk too slow: writes are refused", unwritten=unwritten)
            elif not was_low:
                self._journal.error("disk nearly full: clients' writes are refused", free=free)
            else:
                self._journal.warning("disk has room again", free=free)
        if engine.disk_pressure.stuck != was_stuck:
            log = self._journal.error if engine.disk_pressure.stuck else self._journal.warning
            pauses = "disk full: this node pauses"
            if engine.disk_pressure.overloaded:
                pauses = "disk too slow: this node pauses"
            log(pauses if engine.disk_pressure.stuck else "this node goes on")
        damaged_at = self.broker.statistics.damaged_at
        while damaged_at and engine.scrubber is not None:
            engine.scrubber.suspect(damaged_at.popleft())

    def _tell_of_disk(self) -> None:
        """Tell peers and the operator at once if the disk hangs, is slow, or is healthy again."""
        health = self.engine.disk_health
        now = (health.hung, health.slow)
        if now == self._disk_told:
            return
        self._disk_told = now
        self._pinged = 0
        usual_ms = round(health.usual_ns / MS)
        if health.hung:
            self._journal.error("disk hangs: masters are given up", ms=health.waited_ns // MS)
        elif health.slow:
            self._journal.error("disk slow: masters are given away", usual_ms=usual_ms)
        else:
            self._journal.warning("disk is healthy again", usual_ms=usual_ms)

    def _balance(self, now: Now) -> None:
        self._look_soon = False
        self._balanced = now.boot_ns
        groups = views(self.engine, now)
        self.planner.tick(now, groups)
        self.loop.tick(now, groups)
        cramped = self.engine.disk_pressure.low or self.engine.disk_health.degraded
        if cramped and not self.loop.draining:
            self.loop.drain_next(now)  # hand our masters to healthier nodes, if there are any

    # -- hooks of the engine ------------------------------------------------------------------

    def on_notice(self, now: Now, notice: Notice) -> None:
        log = self._journal.warning if notice.what in LOUD else self._journal.debug
        if notice.what in ALARMING:
            log = self._journal.error
        if notice.what == "hopeless" and self.local_records is not None:
            self.local_records.keep_evidence(notice.group)
        log(notice.what, group=notice.group, detail=notice.detail)
        self.loop.on_notice(now, notice)

    def may_hand_over(self, now: Now, sender: NodeId, request: StealRequest) -> bool | None:
        return self.loop.may_hand_over(now, sender, request)

    def begin_handover(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        self.handovers.begin(now, sender, request)

    def _stolen(self, group: GroupId) -> None:
        self.arrivals.came(self.engine.now(), group)

    def _served(self, phase: str, group: GroupId, ns: int) -> None:
        self.loop.phases_s.append((phase, ns / 1e9))
        self._journal.info("stolen group served", group=group, phase=phase, ms=round(ns / MS, 3))

    def masters_changed(self, now: Now) -> None:
        self._gossip.masters_changed()
        self.broker.consumer_groups.masters_changed(now)
        self.broker.unknown_producers.masters_changed(now)
        self.broker.delayed_fetches.masters_changed()
        self.broker.delayed_operations.look()
        self._look_soon = True
        if self.console is not None:
            self.console.masters_changed()

    def groups_applied(self, now: Now, groups: set[GroupId]) -> None:
        if REGISTRY_GROUP in groups:
            self._registry_changed()
        broker = self.broker
        for group in groups:
            grown = broker.machines[group].take_grown()
            if grown:
                self.arrivals.grown(now, group)
                broker.delayed_fetches.appended(grown)

    def _registry_changed(self) -> None:
        versions = self.registry.versions
        self.engine.retry_parked_steals()
        self.broker.delayed_operations.look()
        self._look_soon = True
        if versions.placement != self._placement_seen:
            self._placement_seen = versions.placement
            self.prefer()
        if versions.nodes != self._nodes_seen:
            self._nodes_seen = versions.nodes
            self.follow_nodes()
        if versions.topics != self._topics_seen:
            self._topics_seen = versions.topics
            self._drop_deleted()
        before, self._security_seen = self._security_seen, self.registry.security
        if self._security_seen is not before:
            self.engine.spread(REGISTRY_GROUP)  # who is revoked or denied is so everywhere soon
            if self._security_seen.credentials is not before.credentials:
                self._cut_off_revoked()
        clients_changes = versions.topics, versions.replicas, versions.policy
        if clients_changes != self._spread:
            self._spread = clients_changes
            self.engine.spread(REGISTRY_GROUP)  # the node that answers the client waits for all

    def _cut_off_revoked(self) -> None:
        """Close the connections of users that are gone or have other credentials."""
        authentication = self.broker.authentication
        if authentication is not None:
            closed = self.cut_off_revoked(authentication.users.holds)
            self._journal.info("credentials changed", connections_closed=closed)

    def follow_nodes(self) -> None:
        """Connect to the nodes in the registry; stop if it says that this node was removed."""
        registry, me = self.registry, self.engine.multi.me
        if me in registry.removed:
            self._remove("the registry says so")
        peers = {node: Address(*one) for node, one in registry.peers.items()}
        for node in self.peers.follow(peers, registry.removed):
            self.engine.no_peer(node)
        self.peers.cluster_version_is(registry.cluster_version.version)
        self.engine.clock.needs((1 + len(self.peers.outgoing)) // 2)

    def _remove(self, why: str) -> None:
        self.removed = why
        self.on_removed()

    def _groups_changed(self) -> None:
        self.prefer()
        self._look_soon = True

    def _drop_deleted(self) -> None:
        """Drop partitions that are no longer in the registry, also those from before a restart."""
        for machine in self.broker.machines.values():
            gone = [uid for uid in machine.partitions if self.registry.is_gone(uid)]
            for uid in gone:
                machine.drop(uid)
            self.broker.delayed_fetches.appended(gone)

    def prefer(self) -> None:
        """Let the ideal master of a group without one try first: better liveness, fewer moves."""
        me = self.engine.multi.me
        placement = self.registry.placement
        for group, replica in self.engine.multi.replicas.items():
            ideal = placement.get(group, first_guess(group, self._founders))
            replica.election.preferred = ideal == me

    @property
    def _directory_complaint(self) -> str:
        admission = self.engine.admission
        if admission is not None and not admission.settled:
            number = admission.waits_for
            if number == 0:
                return "waiting a moment for nodes that start later: all that answered are new, too"
            if number == 1:
                return "waiting for 1 node to say that it knows this directory"
            return f"waiting for {number} nodes to say that they know this directory"
        if admission is not None and admission.doubted:
            return "a node says that this directory is not the one it knew: it is asked again"
        return ""

    @property
    def _disk_complaint(self) -> str:
        health, disk_pressure = self.engine.disk_health, self.engine.disk_pressure
        if health.hung:
            waited_s = health.waited_ns / 1e9
            return f"the disk hangs: nothing has become durable for {waited_s:.1f} s"
        if disk_pressure.stuck:
            return (
                "the disk is slower than the incoming data"
                if disk_pressure.overloaded
                else "the disk is full"
            )
        return ""

    # -- readiness ----------------------------------------------------------------------------

    def not_ready(self) -> str:
        """Why clients should not be sent to this node yet; "" if they may."""
        if self.loop.draining:
            return "draining"
        complaint = self._directory_complaint or self._disk_complaint
        if complaint:
            return complaint
        for doubtful in self.engine.multi.replicas.values():
            if doubtful.doubt:
                return what_is_in_doubt(doubtful)
        complaint = self.engine.clock.complaint or self.gate.complaint
        if complaint:  # before the masters: a node whose clock is ahead sees no lease, so no master
            return complaint
        if not self.joining.registered:
            return self._not_registered()
        for group in map(GroupId, self.registry.groups):
            if self.engine.master(group) is None:
                return why_no_master(group, self.engine.multi.replicas.get(group))
            replica = self.engine.multi.replicas.get(group)
            if replica is None or replica.me not in replica.members:
                continue  # other nodes have it, or this node is still learning it
            behind = replica.learner.chosen_to - replica.learner.applied
            if behind > replica.timing.window:
                return f"group {group} is {behind} slots behind"
        return WHY_LEARNING if self.gate.learning else ""

    def _not_registered(self) -> str:
        registrar = self.engine.multi.replicas.get(REGISTRY_GROUP)
        if registrar is not None and registrar.rejoin is not None:
            return why_no_master(REGISTRY_GROUP, registrar)
        refusals = self.joining.refusal, *self.peers.refusals
        why = "; ".join(filter(None, refusals)) or "is a majority of the nodes up?"
        return f"not registered with the cluster yet: {why}"


def what_is_in_doubt(replica: Replica) -> str:
    nodes = ", ".join(map(str, sorted(replica.diverged)))
    more = "" if replica.hopeless else ", until a majority is known to have this node's log"
    return (
        f"the log of group {replica.group} differs from that of node {nodes}: this node neither "
        f'acts nor votes in it{more} (docs/operations.md, "A log that differs")'
    )


def why_no_master(group: GroupId, replica: Replica | None) -> str:
    """Why a group has no master; tells an operator whether that may last for ever."""
    text = f"group {group} has no master yet"
    if replica is not None and replica.rejoin is None and replica.has_gap():
        first, last = replica.learner.applied + 1, replica.proven
        if replica.members == (replica.me,):
            return (
                f"{text}: this node's log has lost entries between {first} and {last}, and no "
                'other node has them (docs/operations.md, "Recovering with a loss")'
            )
        return f"{text}: this node learns again what its log has lost between {first} and {last}"
    if replica is None or replica.rejoin is None:
        return text
    answered = sorted(replica.rejoin.answers)
    silent = [node for node in replica.others(replica.members) if node not in answered]
    return (
        f"{text}: this node may have forgotten what it promised, and does not vote in it until "
        f"enough others have answered that have not ({len(answered)} have; not: "
        f'{", ".join(map(str, silent)) or "nobody"}; docs/operations.md, "Recovering with a loss")'
    )
