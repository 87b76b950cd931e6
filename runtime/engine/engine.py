"""The node's engine: every group's events in, one log batch and one frame per peer out, per round.

Theory of operation: callbacks of the data plane feed messages, commands and ticks into the pure
parts, which append effects to one Step. At the end of a round the engine carries out the Step in
the order on which safety depends: send `before`; stage `persist` into the log; hold back `after`
until everything staged so far is durable; apply what is chosen. One batch of the log is written at
a time, and everything staged meanwhile goes into the next one.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from broker.config import IntakeConfig
from broker.disk_watch import DiskWatch
from broker.proposals.intake import Intake
from broker.transfer.messages import Message as CatchUpMessage
from paxos.base import Base
from paxos.changes import rejoin
from paxos.codec import PeerError
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now, Slot
from paxos.liveness import timers
from paxos.messages import Message, StealRequest
from paxos.multigroup import MultiGroup
from paxos.replica import Replica
from paxos.step import Applied, Send, Step
from runtime.disk.log_server import LogServer
from runtime.disk.log_writer import LogWriter
from runtime.disk.repair import Repairs
from runtime.disk.scrubber import Scrubber
from runtime.engine.ports import CatchingUp, Hooks, Machine
from runtime.engine.submission import Submitting
from runtime.membership.admission import Admission, Life, Verdict
from runtime.membership.handshake import RefusalReason as RefusedFor
from runtime.membership.lease_terms import LeaseTerms, PeerLeaseTerms
from runtime.membership.local_records import UnsafeOrder
from runtime.membership.masters import MasterClaim
from runtime.membership.masterships import Masterships
from runtime.membership.quorum_contact import ANSWER_LASTS_NS
from runtime.system.clock import Clock
from runtime.system.journal import Journal
from storage.format import Place
from storage.log.wal import Wal
from storage.log.walk import Hole

PARKED_STEALS_MAX: Final = 64
"""Steal requests that wait for a newer registry; more are dropped, and their senders ask again."""
PARKED_STEAL_NS: Final = 200 * MS


class Engine(Submitting):
    def __init__(
        self,
        multi: MultiGroup,
        wal: Wal,
        writer: LogWriter,
        clock: Clock,
        intake_config: IntakeConfig,
        journal: Journal,
    ) -> None:
        super().__init__(multi, clock, intake_config, journal)
        self.wal, self.writer = wal, writer
        self.machines: dict[GroupId, Machine] = {}
        self.hooks: Hooks | None = None
        self.disk_watch = DiskWatch()
        self.disk_health = self.disk_watch.health
        self.disks_elsewhere: dict[NodeId, int] = {}
        """The class of each peer's disk (storage.disk.health)."""
        self.draining_peers: set[NodeId] = set()
        """Nodes that are giving their masters away: not targets for ours."""
        self._step = Step()
        self._durable: Place = wal.end
        """Everything below it is as durable as the configuration requires."""
        self._after: deque[tuple[Place, list[Send]]] = deque()
        self._parked_steals: list[tuple[int, NodeId, StealRequest]] = []
        self.masterships = Masterships(multi)
        self._ticked_boot_ns = 0
        self.admission: Admission | None = None
        self.unsafe: UnsafeOrder | None = None
        """Both None: there is no peer to ask (a cluster of one node, or a test)."""
        self._settles_at: Place | None = None
        self.removed_by: set[NodeId] = set()
        """Peers that have said twice that this node was removed from the cluster."""
        self._refused_by: set[NodeId] = set()
        """Peers that have said so at least once: one false message must not stop a node."""
        self.answered: dict[NodeId, int] = {}
        """When each peer last answered a request of ours: the link works in both directions."""
        self.terms = PeerLeaseTerms(LeaseTerms.of(multi.timing), journal)
        self.scrubber: Scrubber | None = None
        self.repairs = Repairs(multi, wal, self.machines, journal)
        self.catching_up: CatchingUp | None = None
        self.log_server = LogServer(wal, self._suspect, journal)
        self.log_server.applied = self._applied_in

    @property
    def step(self) -> Step:
        """The effects of this round so far; other parts of the shell may add some."""
        return self._step

    def add_group(self, replica: Replica, machine: Machine) -> None:
        group = replica.group
        intake = self.former.pop(group, None)
        if intake is None:
            intake = Intake(replica, self._intake_config, self.group_commit)
            intake.told = partial(self.master, group)
        intake.replica = replica
        self.intakes[group] = intake
        self.machines[replica.group] = machine
        self.masterships.add(replica.group)

    def remove_group(self, group: GroupId) -> None:
        """Forget a group that this node is not a member of; only between two rounds."""
        assert not self._step.applied
        self.multi.remove(group)
        self._leave(self.clock.now(), group, self.intakes.pop(group))
        del self.machines[group]
        self.masterships.remove(group)
        self._busy.discard(group)
        self._taking.pop(group, None)
        self.repairs.forget(group)

    # -- messages of peers ---------------------------------------------------------------------

    def peer_up(self, node: NodeId, incarnation: Incarnation) -> None:
        self.draining_peers.discard(node)
        self.removed_by.discard(node)
        self._refused_by.discard(node)
        self.disk_pressure.heard(node, False)
        self.disks_elsewhere.pop(node, None)
        self.multi.peer_up(self.clock.now(), node, incarnation)

    def peer_down(self, node: NodeId) -> None:
        self.clock.forget(node)
        self.disks_elsewhere.pop(node, None)
        self.forwards.lost(node)
        self.log_server.forget(node)
        if self.catching_up is not None:
            self.catching_up.peer_down(node)

    def on_message(self, sender: NodeId, message: Message) -> None:
        self.on_messages(sender, (message,))

    def on_messages(self, sender: NodeId, messages: Iterable[Message]) -> None:
        """Handle the messages of one frame, in order. If `messages` raises, the messages before
        that count. The clock is read once for all of them, and their entries are applied together.
        """
        if not self.takes_part:
            for _ in messages:  # dropped: the protocol allows that messages are lost
                pass
            return
        now = self.clock.now()
        multi, repairs, disk_pressure = self.multi, self.repairs, self.disk_pressure
        try:
            for message in messages:
                if disk_pressure.critical and disk_pressure.refuses(message):
                    continue
                if not repairs.idle:
                    repairs.on_message(sender, message)
                if type(message) is StealRequest and message.group in self.intakes:
                    self._on_steal_request(now, now.boot_ns, sender, message)
                else:
                    multi.on_message(now, sender, message, self._step)
        finally:
            self._level_ours()

    def on_clock(self, node: NodeId, offset_ns: int, error_ns: int) -> None:
        self.multi.heard[node] = now = self.clock.boot_ns()
        if 2 * error_ns < ANSWER_LASTS_NS:  # else it was long on its way: no proof that it works
            self.answered[node] = now
        self.clock.on_reading(node, offset_ns, error_ns)

    def on_time(self, node: NodeId, wall_ns: int) -> None:
        """A peer's wall clock showed this time when it sent the message, some time ago."""
        self.clock.on_told(node, wall_ns)

    def on_terms(self, node: NodeId, terms: LeaseTerms) -> None:
        self.terms.hear(node, terms)

    def on_low(self, node: NodeId, low: bool) -> None:
        self.disk_pressure.heard(node, low)

    def on_disk(self, node: NodeId, disk_class: int) -> None:
        self.disks_elsewhere[node] = disk_class

    def on_draining(self, node: NodeId, draining: bool) -> None:
        if draining:
            self.draining_peers.add(node)
        else:
            self.draining_peers.discard(node)

    def on_catch_up(self, node: NodeId, message: CatchUpMessage) -> None:
        if self.catching_up is not None:
            self.catching_up.on_message(node, message)

    def on_refused(self, node: NodeId, why: RefusedFor) -> None:
        if why is RefusedFor.REMOVED and node in self._refused_by:
            self.removed_by.add(node)
        elif why is RefusedFor.REMOVED:
            self._refused_by.add(node)

    def on_masters(self, node: NodeId, words: list[MasterClaim]) -> None:
        now = self.clock.now()
        if self.elsewhere.hear(now, node, words) and self.hooks is not None:
            self.hooks.masters_changed(now)

    def wall_ns(self) -> int:
        return self.clock.now().wall_ns

    def boot_ns(self) -> int:
        return self.clock.boot_ns()

    def no_peer(self, node: NodeId) -> None:
        """Forget a node that is no longer in the cluster."""
        self.clock.drop(node)
        self.answered.pop(node, None)
        self.terms.drop(node)
        for told in (self.draining_peers, self.removed_by, self.disk_pressure.low_peers):
            told.discard(node)

    # -- rounds -------------------------------------------------------------------------------

    def on_durable(self) -> None:
        """Handle the completion of a batch of the log writer.

        Raises:
            StorageFailed: the batch could not be written.
        """
        batch = self.writer.take_done()
        if batch is not None:
            self.disk_health.ended(self.clock.boot_ns())
            self.wal.written(batch)
            self._durable = batch.end
            self._try_to_settle()
            self._release()
            self._level_ours()

    def _level_ours(self) -> None:
        """Let the state machines apply what their replicas have applied before any client is
        served, if we are master: else a new master would say that offsets in its log are out of
        range. For groups of other masters this can wait until our votes are sent (end_round).
        """
        me, replicas = self.multi.me, self.multi.replicas
        for one in self._step.applied:
            if replicas[one.group].lease.holder == me:
                self._level()
                return

    def _level(self) -> None:
        while self._step.applied:
            step, self._step = self._step, Step()
            self._carry_out(step)

    def tick(self) -> None:
        now = self.clock.now()
        if self._ticked_boot_ns:
            lag = now.boot_ns - self._ticked_boot_ns
            self.statistics.loop_lag_ns_max = max(self.statistics.loop_lag_ns_max, lag)
        self._ticked_boot_ns = now.boot_ns
        self.clock.slew()
        replicas = self.multi.replicas.values()
        self.disk_watch.look(now, self.disks_elsewhere.values(), replicas)
        if self.scrubber is not None:
            for hole in self.scrubber.take():
                self._damaged(now, hole)
        self._look_at_claims(now)
        if self.takes_part:
            self.multi.tick(now, self._step)
            if self.unsafe is not None:
                self.unsafe.tick(now, self.multi.replicas, self._step)
            if not self.repairs.idle:
                for place in self.repairs.tick(now, self._step):
                    self._suspect(place)
            self._level()
        for group, intake in self.intakes.items():
            if intake.rests:
                continue
            intake.tick(now)
            if intake.busy:
                self._busy.add(group)
        if self._parked_steals:
            parked, self._parked_steals = self._parked_steals, []
            self._retry_steals(now, parked)
        self._tick_former(now)
        self.forwards.time_out(now)
        self.read_index.tick(now)
        self.log_server.tick()
        self._watch_masters(now)

    def end_round(self) -> None:
        """Carry out the effects of this round's events, until there are no more."""
        self.statistics.rounds += 1
        assert self.links is not None
        while True:
            if self._busy or self.group_commit.waits:
                self._flush_intakes()
            step = self._step
            if not self._has_effects(step):
                break
            self._step = Step()
            self._send_and_stage(step)
            if step.applied:  # peers and the disk need not wait for it
                self.links.flush()
                self._write()
                self._apply(step.applied)
            self._conclude(step)
        if self.read_index:
            self.read_index.look(self.clock.now())
        self.links.flush()  # first: the way to the followers' disks is longer than to our own
        self._write()

    def _write(self) -> None:
        """Start to write what is staged, unless a write is in progress."""
        if self.writer.busy:
            return
        batch = self.wal.take()
        if batch is not None:
            self.statistics.batches += 1
            self.disk_health.begun(self.clock.boot_ns(), batch.size)
            self.writer.submit(batch)
            if self.wal.wants_segment:
                self.writer.prepare_soon()

    def _flush_intakes(self) -> None:
        now = self.clock.now()
        busy, self._busy = self._busy, set()
        self._taking.clear()
        intakes = {group: self.intakes.get(group) or self.former[group] for group in busy}
        if self.group_commit.should_wait(now, intakes.values()):
            # but a handover does not wait
            self._busy = {one for one in busy if intakes[one].replica.handover is None}
        for group in busy - self._busy:
            intake = intakes[group]
            before = len(intake.proposed)
            intake.flush(now, self._step)
            self.statistics.proposals += len(intake.proposed) - before
            if intake.forwards:
                forwards, intake.forwards = intake.forwards, []
                self._send_forwards(now, group, forwards)

    @staticmethod
    def _has_effects(step: Step) -> bool:
        return bool(
            step.before
            or step.persist
            or step.after
            or step.applied
            or step.serve
            or step.fetch
            or step.notices
        )

    def _carry_out(self, step: Step) -> None:
        self._send_and_stage(step)
        if step.applied:
            self._apply(step.applied)
        self._conclude(step)

    def _send_and_stage(self, step: Step) -> None:
        assert self.links is not None
        send, stage = self.links.send, self.wal.stage
        for one in step.before:
            send(one.to, one.message)
        for record in step.persist:
            stage(record)
        if step.after:
            self._after.append((self.wal.end, step.after))

    def _conclude(self, step: Step) -> None:
        if step.serve:
            assert self.links is not None
            self.log_server.links = self.links
            for serve in step.serve:
                self.log_server.ask(serve)
            self.log_server.tick()
        for fetch in step.fetch:
            if self.catching_up is not None:
                self.catching_up.want(fetch)
        for notice in step.notices:
            if self.hooks is not None:
                self.hooks.on_notice(self.clock.now(), notice)
        self._release()

    def _release(self) -> None:
        """Send what has become durable; our own votes come back to us as messages."""
        durable, after = self._durable, self._after
        if not after or after[0][0] > durable:
            return
        multi, now = self.multi, self.clock.now()
        me = multi.me
        assert self.links is not None
        while after and after[0][0] <= durable:
            for send in after.popleft()[1]:
                if send.to == me:
                    multi.on_message(now, me, send.message, self._step)
                else:
                    self.links.send(send.to, send.message)

    def _apply(self, chosen: list[Applied]) -> None:
        machines, intakes, acts = self.machines, self.intakes, self.masterships.acts
        position_of = self.wal.payload_position
        touched: set[GroupId] = set()
        answers: list[tuple[Intake, Applied, list[bytes]]] = []
        for one in chosen:
            group, slot, entry = one.group, one.slot, one.entry
            # Consumers only read from the master, so only its newest data is kept in memory.
            keep = acts(group)
            position = position_of(group, slot)
            intake = intakes[group]
            waited_for = bool(intake.proposed)  # false on a follower
            results = machines[group].apply(
                slot, entry, position, keep_in_tail=keep, answer=waited_for
            )
            touched.add(group)
            if waited_for:
                answers.append((intake, one, results))
        self.statistics.applied += len(chosen)
        now = self.clock.now()  # after applying: only a node that acts now may answer (R14)
        for intake, one, results in answers:
            intake.applied(now, one.slot, one.entry, results)
        for group in touched:
            intake = intakes[group]
            if not intake.rests:
                intake.handover_seen(now)
                if intake.busy:
                    self._busy.add(group)
        self._watch_masters(now, touched)
        if self.hooks is not None:
            self.hooks.groups_applied(now, touched)

    def install(self, now: Now, group: GroupId, base: Base) -> None:
        """Continue from a peer's state, which the group's machine and a checkpoint here have."""
        self.wal.skip(group, base.slot)
        installed = self.multi.replicas[group].install(now, base, self._step)
        assert installed
        self.intakes[group].forget_proposed(now)
        if self.hooks is not None:
            self.hooks.groups_applied(now, {group})

    # -- damage and amnesia -------------------------------------------------------------------

    @property
    def takes_part(self) -> bool:
        """Whether this node may take part in its groups: its directory is known, and has room."""
        if self.disk_pressure.stuck:
            return False
        admission = self.admission
        return admission is None or (admission.settled and not admission.doubted)

    def _suspect(self, place: Place) -> None:
        if self.scrubber is not None:
            self.scrubber.suspect(place)

    def _damaged(self, now: Now, hole: Hole) -> None:
        """Damage was found in the log: stage the consequences first, then a note of it."""
        step = Step()
        if self.repairs.damaged(now, hole, step):
            self._carry_out(step)
            self.wal.note_damage(hole.start, hole.end, unattributed=hole.group is None)

    def on_life(self, node: NodeId, life: Life) -> None:
        """A peer says which directory it has, and may ask what we know about it.

        Raises:
            PeerError: its handshake named another incarnation.
        """
        greeted = self.multi.incarnations.get(node, life.incarnation)
        if life.incarnation != greeted:
            raise PeerError(f"a life {life.incarnation} of one that greeted as {greeted}")
        if self.admission is None:
            return
        if life.asks:  # judge before this life becomes known
            assert self.links is not None
            self.links.answer_life(node, self.admission.judge(node, life))
        self.admission.hear(node, life)

    def on_verdict(self, node: NodeId, verdict: Verdict) -> None:
        """A peer says whether it knows our directory.

        Raises:
            PeerError: no honest node gives this answer.
            DirectoryRefused: this node must not run.
        """
        admission = self.admission
        if admission is None:
            return
        now, was_doubted = self.clock.now(), admission.doubted
        admission.on_verdict(node, verdict, now.boot_ns, self.multi.incarnations.get(node))
        if admission.doubted and not was_doubted:
            self._journal.warning("peer does not know this directory: asked again", peer=node)
        self._stop_voting_if_forgetful(now)

    def _look_at_claims(self, now: Now) -> None:
        """Check peers that have said once that this directory is not ours, or do not answer."""
        admission = self.admission
        if admission is None or (admission.settled and not admission.doubted):
            return
        multi, heard_ns = self.multi, self.multi.timing.heard_ns

        def is_heard(node: NodeId, life: Incarnation | None) -> bool:
            since = multi.heard.get(node)
            heard = since is not None and now.boot_ns - since < heard_ns
            return heard and multi.incarnations.get(node) == life

        admission.tick(now.boot_ns, heard_ns, is_heard)
        self._stop_voting_if_forgetful(now)

    def _stop_voting_if_forgetful(self, now: Now) -> None:
        if self.admission is None or not self.admission.forgetful or self._settles_at is not None:
            return
        self._journal.error("directory is not the one the peers know")
        step = Step()
        for replica in self.multi.replicas.values():
            rejoin.distrust(replica, now, (), "forgotten, say the peers", step)
        self._carry_out(step)
        self._settles_at = self.wal.end
        self._try_to_settle()

    def _try_to_settle(self) -> None:
        """Once our not voting is durable, we may take part as a non-voting member."""
        if self.admission is not None and self._settles_at is not None:
            self.admission.settled |= self._durable >= self._settles_at

    def life(self, to: NodeId) -> Life | None:
        if self.admission is None:
            return None
        self.admission.asked(to)
        return self.admission.life(self.wal.reached)

    # -- masters ------------------------------------------------------------------------------

    def _watch_masters(self, now: Now, only: set[GroupId] | None = None) -> None:
        """Tell the broker that the master of a group has changed, or that we began or ceased to
        act."""
        if self.masterships.changed(now, only) and self.hooks is not None:
            self.hooks.masters_changed(now)

    def request_steal(self, group: GroupId, master: NodeId, lease_ver: Slot, token: int) -> None:
        """Ask a group's master to hand it over to us."""
        assert self.links is not None
        applied = self.multi.replicas[group].learner.applied
        request = StealRequest(group, self.multi.incarnation, lease_ver, applied, token)
        self.links.send(master, request)

    def steal_refused(self, group: GroupId) -> None:
        self.intakes[group].steal_refused(self.clock.now())

    def _on_steal_request(
        self, now: Now, since_boot_ns: int, sender: NodeId, request: StealRequest
    ) -> None:
        allowed = self.hooks is None or self.hooks.may_hand_over(now, sender, request)
        if allowed and self.hooks is not None:
            self.hooks.begin_handover(now, sender, request)
        elif allowed:
            self.hand_over(now, sender, request)
        elif (
            allowed is None
            and now.boot_ns - since_boot_ns < PARKED_STEAL_NS
            and len(self._parked_steals) < PARKED_STEALS_MAX
        ):
            self._parked_steals.append((since_boot_ns, sender, request))

    def hand_over(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        """Let the core begin the handover, or refuse it."""
        self.multi.on_message(now, sender, request, self._step)
        self._busy.add(request.group)

    def _retry_steals(self, now: Now, parked: list[tuple[int, NodeId, StealRequest]]) -> None:
        for since_boot_ns, sender, request in parked:
            if request.group in self.intakes:  # else this node has dropped the group since
                self._on_steal_request(now, since_boot_ns, sender, request)

    def spread(self, group: GroupId) -> None:
        """Tell the other members at once what we have applied, instead of periodically."""
        replica = self.multi.replicas.get(group)
        if replica is not None:
            timers.spread(replica, self.clock.now(), self._step)

    def retry_parked_steals(self) -> None:
        """Check parked steal requests again, because the registry has changed."""
        if self._parked_steals:
            parked, self._parked_steals = self._parked_steals, []
            self._retry_steals(self.clock.now(), parked)
