"""The node's engine: every group's events in, one WAL batch and one frame per peer out, per round.

Theory of operation (design.md "One node"). Callbacks of the data plane feed messages, commands and
ticks into the pure parts, which append effects to one Step. At the end of a round the Step is
carried out in the order that is the safety argument: send `before`; stage `persist` into the one
log; hold `after` until everything staged so far is durable; apply what is chosen. One batch of the
log becomes durable at a time, and everything staged meanwhile shares the next one.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from broker.catchup.messages import Message as CatchUpMessage
from broker.commands import trims
from broker.gathering import Gathering
from broker.homes import Homes
from broker.intake import Done, Elsewhere, Forward, Intake, IntakeConfig, Outcome, Pending, Why
from paxos import rejoin
from paxos.base import Base
from paxos.entry import Buffer
from paxos.ids import MS, REGISTRY_GROUP, GroupId, Incarnation, NodeId, Now, Slot
from paxos.messages import Message, StealRequest
from paxos.multigroup import MultiGroup
from paxos.replica import Replica
from paxos.step import Applied, Send, ServeLog, Step
from runtime import forwarded
from runtime.admission import Admission, Life, Verdict
from runtime.clock import Clock
from runtime.engine_ports import CatchingUp, Hooks, Links, Machine
from runtime.greeting import Why as RefusedFor
from runtime.journal import Journal
from runtime.known_groups import KnownGroups
from runtime.log_writer import LogWriter
from runtime.masters import Word
from runtime.masterships import Masterships
from runtime.repair import Repairs
from runtime.scarcity import Scarcity
from runtime.scrubber import Scrubber
from runtime.serving import serve_log
from runtime.statistics import EngineStatistics
from storage.format import Place
from storage.wal import Wal
from storage.walk import Hole

ROOM_ELSEWHERE: Final = 1 << 62
"""What is refused takes no room."""
PARKED_STEALS_MAX: Final = 64
"""Requests ahead of our copy of the registry; more are dropped, whoever sent them asks again."""
PARKED_STEAL_NS: Final = 200 * MS


class Engine(KnownGroups):
    def __init__(
        self,
        multi: MultiGroup,
        wal: Wal,
        writer: LogWriter,
        clock: Clock,
        intake_config: IntakeConfig,
        journal: Journal,
    ) -> None:
        super().__init__(multi, clock)
        self.wal, self.writer = wal, writer
        self._intake_config, self._journal = intake_config, journal
        self.intakes: dict[GroupId, Intake] = {}
        self.machines: dict[GroupId, Machine] = {}
        self.links: Links | None = None
        self.hooks: Hooks | None = None
        self.statistics = EngineStatistics()
        self.homes = Homes()
        self.draining_peers: set[NodeId] = set()
        """Nodes that are giving their masters away: no good targets for ours."""
        self._step = Step()
        self._busy: set[GroupId] = set()
        """Groups whose intake has queued commands."""
        self._taking: dict[GroupId, Intake] = {}
        """Those that have taken a command in this round: the next one goes behind it."""
        self.gathering = Gathering(intake_config.gather_ns)
        self._durable: Place = wal.end
        """Everything below is as durable as the configuration asks for."""
        self._after: deque[tuple[Place, list[Send]]] = deque()
        self.forwards = forwarded.Forwards(multi.incarnation, journal)
        self._parked_steals: list[tuple[int, NodeId, StealRequest]] = []
        self.masterships = Masterships(multi)
        self._ticked_boot_ns = 0
        self.admission: Admission | None = None
        """None: there is nobody to ask (a cluster of one, or a test)."""
        self._settles_at: Place | None = None
        self.removed_by: NodeId | None = None
        """A peer has said that this node was removed from the cluster."""
        self.scrubber: Scrubber | None = None
        self.repairs = Repairs(multi, wal, self.machines, journal)
        self.scarcity = Scarcity()
        self.catching_up: CatchingUp | None = None

    @property
    def step(self) -> Step:
        """Where effects of this round are collected; for parts of the shell that add some."""
        return self._step

    def add_group(self, replica: Replica, machine: Machine) -> None:
        self.intakes[replica.group] = Intake(replica, self._intake_config, self.gathering)
        self.machines[replica.group] = machine
        self.masterships.add(replica.group)

    def remove_group(self, group: GroupId) -> None:
        """Forget a group this node is no member of; between two rounds only."""
        assert not self._step.applied
        self.multi.remove(group)
        self.intakes.pop(group).close(self.clock.now())
        del self.machines[group]
        self.masterships.remove(group)
        self._busy.discard(group)
        self._taking.pop(group, None)
        self.repairs.forget(group)

    # -- broker.ports.Groups ------------------------------------------------------------------

    def submit(
        self,
        group: GroupId,
        chunks: tuple[Buffer, ...],
        done: Callable[[Outcome], None],
        *,
        anywhere: bool = False,
    ) -> None:
        self._submit(group, Pending(chunks, sum(map(len, chunks)), done), anywhere=anywhere)

    def take(self, group: GroupId, pending: Pending) -> bool:
        intake = self._taking.get(group)
        if intake is None or not intake.queue:
            self._submit(group, pending, anywhere=False)
            intake = self.intakes.get(group)
            if intake is None:
                return False
            if intake.queue and intake.queue[-1] is pending:
                self._taking[group] = intake
        else:  # whether the group is ours was asked a moment ago, and its flush will ask again
            pending.since_boot_ns = intake.queue[-1].since_boot_ns
            intake.enqueue(pending)
            self.statistics.commands += 1
        return intake.crowded

    def room(self, group: GroupId) -> int:
        """How many more bytes a group's clients may send that were held back."""
        intake = self.intakes.get(group)
        return ROOM_ELSEWHERE if intake is None else intake.room

    def _submit(self, group: GroupId, pending: Pending, *, anywhere: bool) -> None:
        intake = self.intakes.get(group)
        now = self.clock.now()
        if intake is None or intake.replica.me not in intake.replica.members:
            self._submit_elsewhere(now, group, pending, anywhere=anywhere)
            return
        scarcity = self.scarcity
        if (scarcity.low or scarcity.low_peers) and self._no_room(group, pending.chunks[0]):
            pending.done(Elsewhere(Why.OVERLOADED, self.multi.me))
            return
        intake.submit(now, pending, anywhere=anywhere)
        self.statistics.commands += 1
        self._busy.add(group)

    def _submit_elsewhere(
        self, now: Now, group: GroupId, pending: Pending, *, anywhere: bool
    ) -> None:
        """A command for a group this node is no member of."""
        master = self.master(group)
        if not anywhere or master in (None, self.multi.me):
            pending.done(Elsewhere(Why.NOT_MASTER, master))
            return
        assert master is not None
        self._forward(now, group, master, pending, handing=False)

    # -- what peers say ------------------------------------------------------------------------

    def peer_up(self, node: NodeId, incarnation: Incarnation) -> None:
        self.draining_peers.discard(node)
        self.scarcity.heard(node, False)
        self.multi.peer_up(self.clock.now(), node, incarnation)

    def peer_down(self, node: NodeId) -> None:
        self.clock.forget(node)
        self.forwards.lost(node)
        if self.catching_up is not None:
            self.catching_up.peer_down(node)

    def on_message(self, sender: NodeId, message: Message) -> None:
        self.on_messages(sender, (message,))

    def on_messages(self, sender: NodeId, messages: Iterable[Message]) -> None:
        """What a frame of a peer says, in its order; where `messages` raises, what came before that
        counts. One reading of the clock for all, and what is applied is applied together."""
        if not self.takes_part:
            for _ in messages:  # as legal as losing them
                pass
            return
        now = self.clock.now()
        multi, repairs, scarcity = self.multi, self.repairs, self.scarcity
        try:
            for message in messages:
                if scarcity.scarce and scarcity.refuses(message):
                    continue
                if not repairs.idle:
                    repairs.on_message(sender, message)
                if type(message) is StealRequest and message.group in self.intakes:
                    self._on_steal_request(now, now.boot_ns, sender, message)
                else:
                    multi.on_message(now, sender, message, self._step)
        finally:
            self._level_ours()

    def on_forward(
        self, sender: NodeId, number: int, group: GroupId, handing: bool, command: memoryview
    ) -> None:
        def answer(outcome: Outcome) -> None:
            assert self.links is not None
            if type(outcome) is Done and self.homes.has(command):
                outcome = Done(outcome.result, at_home=True)
            self.links.answer_forward(sender, number, outcome)

        intake = self.intakes.get(group)
        if intake is None:
            answer(Elsewhere(Why.NOT_MASTER, self.master(group)))
            return
        problem = forwarded.problem(group, command)
        if problem:
            self._journal.warning("forwarded command refused", peer=sender, reason=problem)
            answer(Elsewhere(Why.NOT_MASTER))
            return
        if self._no_room(group, command):
            answer(Elsewhere(Why.OVERLOADED, self.multi.me))
            return
        self.statistics.forwarded_in += 1
        pending = Pending((command,), len(command), answer)
        intake.submit_forwarded(self.clock.now(), pending, handing=handing)
        self._busy.add(group)

    def _no_room(self, group: GroupId, command: Buffer) -> bool:
        """Whether a command is refused because disks are nearly full. Not where we are not the
        master: the client would come back here for ever, and never hear who is."""
        members = self.multi.replicas[group].members
        if group == REGISTRY_GROUP or not self.scarcity.refuses_commands(members) or trims(command):
            return False
        if not self.acting(group):
            return False
        self.statistics.refused_disk_full += 1
        return True

    def on_forwarded(self, sender: NodeId, number: int, outcome: Outcome) -> None:
        self.forwards.answered(sender, number, outcome)

    def on_clock(self, node: NodeId, offset_ns: int, error_ns: int) -> None:
        self.multi.heard[node] = self.clock.now().boot_ns
        self.clock.on_reading(node, offset_ns, error_ns)

    def on_low(self, node: NodeId, low: bool) -> None:
        self.scarcity.heard(node, low)

    def on_draining(self, node: NodeId, draining: bool) -> None:
        if draining:
            self.draining_peers.add(node)
        else:
            self.draining_peers.discard(node)

    def on_catch_up(self, node: NodeId, message: CatchUpMessage) -> None:
        if self.catching_up is not None:
            self.catching_up.on_message(node, message)

    def on_refused(self, node: NodeId, why: RefusedFor) -> None:
        if why is RefusedFor.REMOVED:
            self.removed_by = node

    def on_masters(self, node: NodeId, words: list[Word]) -> None:
        now = self.clock.now()
        if self.elsewhere.hear(now, node, words) and self.hooks is not None:
            self.hooks.masters_changed(now)

    def wall_ns(self) -> int:
        return self.clock.now().wall_ns

    def boot_ns(self) -> int:
        return self.clock.now().boot_ns

    # -- rounds -------------------------------------------------------------------------------

    def on_durable(self) -> None:
        """The log writer has finished a batch.

        Raises:
            StorageFailed: it could not.
        """
        batch = self.writer.take_done()
        if batch is not None:
            self.wal.written(batch)
            self._durable = batch.end
            self._try_to_settle()
            self._release()
            self._level_ours()

    def _level_ours(self) -> None:
        """What a replica has applied its state machine applies before any client is served: else a
        new master calls offsets out of range that are in its log. Of a group that another node is
        master of nobody is served here, so that can wait until our vote is on its way (end_round).
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
        if self.scrubber is not None:
            for hole in self.scrubber.take():
                self._damaged(now, hole)
        if self.takes_part:
            self.multi.tick(now, self._step)
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
        self.forwards.time_out(now)
        self._watch_masters(now)

    def end_round(self) -> None:
        """Carry out what this round's events want done, until nothing more follows from it."""
        self.statistics.rounds += 1
        assert self.links is not None
        while True:
            if self._busy or self.gathering.waits:
                self._flush_intakes()
            step = self._step
            if not self._has_effects(step):
                break
            self._step = Step()
            self._send_and_stage(step)
            if step.applied:  # our peers and the disk need not wait for that
                self.links.flush()
                self._write()
                self._apply(step.applied)
            self._conclude(step)
        self.links.flush()  # first: the followers' way is longer than that to our own disk
        self._write()

    def _write(self) -> None:
        """Let the disk begin with what is staged, unless it is at work: then that has to wait."""
        if self.writer.busy:
            return
        batch = self.wal.take()
        if batch is not None:
            self.statistics.batches += 1
            self.writer.submit(batch)
            if self.wal.wants_segment:
                self.writer.prepare_soon()

    def _flush_intakes(self) -> None:
        now = self.clock.now()
        busy, self._busy = self._busy, set()
        self._taking.clear()
        if self.gathering.should_wait(now, map(self.intakes.__getitem__, busy)):
            # but a steal waits for nobody
            self._busy = {one for one in busy if self.intakes[one].replica.handover is None}
        for group in busy - self._busy:
            intake = self.intakes[group]
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
        for serve in step.serve:
            self._serve(serve)
        for fetch in step.fetch:
            if self.catching_up is not None:
                self.catching_up.want(fetch)
        for notice in step.notices:
            if self.hooks is not None:
                self.hooks.on_notice(self.clock.now(), notice)
        self._release()

    def _release(self) -> None:
        """Send what waited for the log; our own votes come back to us as messages."""
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
            # Consumers come to the master only, so only its newest data is kept in memory.
            keep = acts(group)
            position = position_of(group, slot)
            intake = intakes[group]
            waited_for = bool(intake.proposed)  # not on a follower
            results = machines[group].apply(
                slot, entry, position, keep_in_tail=keep, answer=waited_for
            )
            touched.add(group)
            if waited_for:
                answers.append((intake, one, results))
        self.statistics.applied += len(chosen)
        now = self.clock.now()  # after the work: whoever acts now may answer for all of it (R14)
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
        """Go on from a peer's state, which the group's machine has and a checkpoint here."""
        self.wal.skip(group, base.slot)
        installed = self.multi.replicas[group].install(now, base, self._step)
        assert installed
        self.intakes[group].forget_proposed(now)
        if self.hooks is not None:
            self.hooks.groups_applied(now, {group})

    def _serve(self, serve: ServeLog) -> None:
        replica = self.multi.replicas.get(serve.group)
        if replica is not None:
            assert self.links is not None
            applied = replica.learner.applied
            serve_log(self.wal, self.links, serve, applied, self._suspect, self._journal)

    # -- damage and amnesia -------------------------------------------------------------------

    @property
    def takes_part(self) -> bool:
        """Whether this node may say anything in its groups, and could write it down."""
        return not self.scarcity.stuck and (self.admission is None or self.admission.settled)

    def _suspect(self, place: Place) -> None:
        if self.scrubber is not None:
            self.scrubber.suspect(place)

    def _damaged(self, now: Now, hole: Hole) -> None:
        """Damage was found in the log: what follows from it, and only then that it is known."""
        step = Step()
        if self.repairs.damaged(now, hole, step):
            self._carry_out(step)
            self.wal.note_damage(hole.start, hole.end)

    def on_life(self, node: NodeId, life: Life) -> None:
        """A peer says whose directory it has, and may want to know what we know of that."""
        if self.admission is None:
            return
        if life.asks:  # before this very life is what we know
            assert self.links is not None
            self.links.answer_life(node, self.admission.judge(node, life))
        if life.settled:
            self.admission.witness(node, life)

    def on_verdict(self, node: NodeId, verdict: Verdict) -> None:
        """A peer says whether it knows our directory.

        Raises:
            DirectoryRefused: this node must not run.
        """
        admission = self.admission
        if admission is None:
            return
        admission.on_verdict(node, verdict)
        if admission.forgetful and self._settles_at is None:
            self._journal.error("directory is not the one the peers know", peer=node)
            now, step = self.clock.now(), Step()
            for replica in self.multi.replicas.values():
                rejoin.distrust(replica, now, (), f"forgotten, says node {node}", step)
            self._carry_out(step)
            self._settles_at = self.wal.end
            self._try_to_settle()

    def _try_to_settle(self) -> None:
        """Once it is durable that we do not vote, we may take part as one that does not."""
        if self.admission is not None and self._settles_at is not None:
            self.admission.settled |= self._durable >= self._settles_at

    def life(self) -> Life | None:
        return None if self.admission is None else self.admission.life(self.wal.reached)

    # -- masters ------------------------------------------------------------------------------

    def _watch_masters(self, now: Now, only: set[GroupId] | None = None) -> None:
        """Tell the broker when a group began or ceased to be ours, or changed hands."""
        if self.masterships.changed(now, only) and self.hooks is not None:
            self.hooks.masters_changed(now)

    def request_steal(self, group: GroupId, master: NodeId, lease_ver: Slot, token: int) -> None:
        """Ask the master for a group that should be ours."""
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
        """Let the core begin, or refuse."""
        self.multi.on_message(now, sender, request, self._step)
        self._busy.add(request.group)

    def _retry_steals(self, now: Now, parked: list[tuple[int, NodeId, StealRequest]]) -> None:
        for since_boot_ns, sender, request in parked:
            self._on_steal_request(now, since_boot_ns, sender, request)

    def retry_parked_steals(self) -> None:
        """The registry has changed: what waited for it may go on."""
        if self._parked_steals:
            parked, self._parked_steals = self._parked_steals, []
            self._retry_steals(self.clock.now(), parked)

    # -- forwarding ---------------------------------------------------------------------------

    def _send_forwards(self, now: Now, group: GroupId, forwards: list[Forward]) -> None:
        for forward in forwards:
            self._forward(now, group, forward.to, forward.pending, handing=forward.handing)

    def _forward(
        self, now: Now, group: GroupId, to: NodeId, pending: Pending, *, handing: bool
    ) -> None:
        assert self.links is not None
        number = self.forwards.begin(now, to, pending)
        self.statistics.forwarded_out += 1
        if not self.links.forward(to, number, group, handing, pending.chunks, pending.size):
            self.forwards.settle(number, Elsewhere(Why.NOT_MASTER))
