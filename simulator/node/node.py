"""One simulated node: the production core of its groups, and a shell that honours the Step order.

The two kinds of node define what their groups' entries mean and what their clients ask:
`simulator.node.command_node` (a stand-in) and `simulator.node.broker_node` (the production broker).

The shell's part is small and is itself tested by mutants: `before` leaves at once; `persist` is
appended; `after` leaves when everything appended so far is durable; chosen entries are applied and
answered. A crash forgets everything but the disk.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec

from broker.config import IntakeConfig
from broker.proposals.intake import FailureReason, Forward, NotDone, Outcome, Pending
from paxos import codec, invariants
from paxos.changes import handover, rejoin
from paxos.entry import Buffer, Entry
from paxos.ids import MS, NOBODY, GroupId, Incarnation, NodeId, Now, Slot
from paxos.messages import Learned, Message, Progress, StealAbort, StealRequest, Trimmed
from paxos.multigroup import MultiGroup
from paxos.state.core import Recovered
from paxos.step import Send, ServeLog, Step
from simulator.environment.clock import Clock
from simulator.environment.dice import between, dice
from simulator.environment.loop import Died
from simulator.node.balancing import SimBalancing
from simulator.node.checkpointing import Checkpoints
from simulator.node.crash_points import Boundary, CrashPoint
from simulator.node.disk import Disk, DiskFailed
from simulator.node.disk_watch import SimDiskWatch
from simulator.node.durable_state import DurableState
from simulator.node.group_state import (
    AskState,
    CatchUp,
    Forwarded,
    Frame,
    GiveState,
    Group,
    Settled,
)
from simulator.node.node_kind import NodeKind
from simulator.node.recovery import Restart
from simulator.node.surroundings import Surroundings

P = ParamSpec("P")
FORWARD_TIMEOUT_NS: Final = 1_500 * MS
FULL_RETRY_NS: Final = 50 * MS
"""How often a full disk is asked again whether it has room."""


class SimNode(NodeKind):
    def __init__(self, world: Surroundings, me: NodeId, disk: Disk, clock: Clock) -> None:
        self.world, self.me, self.disk, self.clock = world, me, disk, clock
        self.up = False
        self.life = 0
        """Boots so far: events of an earlier life are void."""
        self.paused_until = 0
        self.lost: frozenset[GroupId] = frozenset()
        """Groups of which this life's disk has lost something; only the world knows."""
        self.doom: CrashPoint | None = None
        """Where this life will end, if it ever gets there."""
        self.balancing: SimBalancing | None = None
        self.heard_at: dict[NodeId, int] = {}
        """When, in true time, a frame of each node was last delivered here."""
        self.told: set[tuple[GroupId, NodeId]] = set()
        """Peers that have told this life what they remember of the lives before it."""
        self.durable = DurableState(world, me)
        self.disk_watch = SimDiskWatch()
        self.groups: dict[GroupId, Group] = {}
        self.core = MultiGroup(me, Incarnation(0), world.options.timing, world.dice_for(me, 0))
        self._waiting: deque[tuple[int, list[Send]]] = deque()
        self._appended = self._synced = self._syncing_to = 0
        self._syncing = self._in_round = False
        self._local: deque[Message] = deque()
        self._forwarded: dict[int, Pending] = {}
        self._forwards = 0
        self._busy: dict[Group, None] = {}
        """Groups that got commands while a round was under way."""
        self._chance = dice(world.options.seed, "node", me)

    # -- life ---------------------------------------------------------------------------------

    def now(self) -> Now:
        return self.clock.read(self.world.loop.now_ns)

    def boot(self) -> None:
        """Begin a new life; a disk that fails at once leaves the node down."""
        world = self.world
        assert not self.up
        try:
            booted = self.disk.boot(world.members)
        except DiskFailed as failed:
            world.trace.note(world.loop.now_ns, "boot failed", self.me, failed)
            self.disk.kill()
            return
        self.up = True
        self.life += 1
        self.paused_until = 0
        self.doom = None
        self.lost = booted.lost
        incarnation, found = self.incarnation_of(booted.incarnation), booted.groups
        self.core = MultiGroup(
            self.me, incarnation, world.options.timing, world.dice_for(self.me, self.life)
        )
        self._waiting.clear()
        self._local.clear()
        self.told.clear()
        self._forwarded.clear()
        self._busy.clear()
        self._appended = self._synced = self._syncing_to = 0
        self._syncing = self._in_round = False
        self.disk_watch = SimDiskWatch()
        self.groups = {}
        world.trace.note(world.loop.now_ns, "boot", self.me, incarnation)
        now, step = self.now(), Step()
        config = IntakeConfig(batch_wait_ns=world.options.batch_wait_ns)
        self.begin_life()
        self.checkpoints = Checkpoints(self)
        for ident, members in world.members.items():
            restart = found.get(ident, Restart())
            recovered = self.recovered_of(restart.recovered)
            replica = self.core.add(ident, members, recovered)
            group = self.groups[ident] = Group(replica, config)
            if restart.chunks:
                self.checkpoints.began_with(group, restart.chunks)
            for slot, entry in enumerate(restart.chosen, start=group.log_start):
                replica.replay(now, Slot(slot), entry)
                self._apply(group, Slot(slot), entry, live=False)
            for slot, (ballot, entry) in recovered.votes.items():
                world.chosen.voted(self.me, ident, slot, ballot, entry)
            replica.replayed(now, step)
            self.durable.members[ident] = replica.members
            if ident in booted.forgotten and self.knows_it_forgot():
                rejoin.distrust(replica, now, (), "not the directory the peers know", step)
        self.booted()
        self._carry_out(now, step)
        self._after_event(now, self.groups.values())
        registry = self.registry if world.options.balancing else None
        self.balancing = None if registry is None else SimBalancing(self, registry)
        world.loop.after(between(self._chance, 0, world.options.tick_ns), self._tick, self.life)

    def incarnation_of(self, counted: Incarnation) -> Incarnation:
        """A mutant may forget to count."""
        return counted

    def recovered_of(self, recovered: Recovered) -> Recovered:
        """A mutant may forget a promise."""
        return recovered

    def knows_it_forgot(self) -> bool:
        """Peers compare what they know of this node with what its directory says (docs/adr/0004); a
        mutant does not ask them."""
        return True

    def crash(self, *, reboot: bool) -> None:
        """Lose everything volatile; `reboot`: the whole machine, and with it the boot clock."""
        world = self.world
        self._end("crash")
        self.disk.cut_power(self._chance)
        self._note_durable()
        if reboot:
            self.clock.reboot(world.loop.now_ns)

    def fail(self, why: object) -> None:
        """The disk failed: the process ends at once, as with exit code 74, and tells nobody."""
        self._end(f"failed: {why}")
        self.disk.kill()
        self._note_durable()
        self.world.statistics["disk failures"] += 1

    def _end(self, how: str) -> None:
        world = self.world
        world.trace.note(world.loop.now_ns, how, self.me)
        self.up = False
        self.life += 1
        self.doom = None
        world.steals.ended(self.me)

    def _reach(self, boundary: Boundary, step: Step) -> None:
        """If the node is doomed to die here, it does: `Died` ends the event."""
        assert self.doom is not None
        if self.doom.fits(boundary, step):
            self._die(boundary)

    def reach(self, boundary: Boundary) -> None:
        """Like `_reach`, for what is no effect of the core: a doomed node dies here."""
        if self.doom is not None and self.doom.boundary is boundary:
            self._die(boundary)

    def _die(self, boundary: Boundary) -> None:
        world = self.world
        world.trace.note(world.loop.now_ns, "doom", self.me, boundary.name)
        world.statistics[f"crash {boundary.name}"] += 1
        world.died(self.me)
        raise Died

    def pause(self, until_ns: int) -> None:
        """Stop the world: until then nothing runs on this node except its clocks and its disk."""
        self.paused_until = until_ns

    def _alive(self, life: int) -> bool:
        return self.up and self.life == life

    def _tick(self, life: int) -> None:
        if not self._alive(life):
            return
        loop = self.world.loop
        if loop.now_ns < self.paused_until:
            loop.at(self.paused_until, self._tick, life)
            return
        now, step = self.now(), Step()
        self.disk_watch.tick(now, self.core.replicas.values())
        self.core.tick(now, step)
        for group in self.groups.values():
            group.intake.tick(now)
        self.finish(now, step, self.groups.values())
        if self.balancing is not None:
            self.balancing.tick(now)
        self.enter(self.keep_house, now)
        self.checkpoints.tick()
        loop.after(self.world.options.tick_ns, self._tick, life)

    # -- what arrives -------------------------------------------------------------------------

    def deliver(self, source: int, what: object) -> None:
        loop = self.world.loop
        if not self.up:
            return
        if loop.now_ns < self.paused_until:
            loop.at(self.paused_until, self.deliver, source, what)
            return
        if type(what) is Frame:
            self._on_frame(NodeId(source), what)
        elif type(what) is Forwarded:
            self._on_forwarded(NodeId(source), what)
        elif type(what) is Settled:
            self._settle(what.ident, what.outcome)
        elif type(what) is AskState:
            self.checkpoints.asked(NodeId(source), what)
        elif type(what) is GiveState:
            self.checkpoints.given(what)
        elif type(what) is CatchUp:
            self.caught_up_with(NodeId(source), what.frame)
        else:
            self.asked(source, what)

    def _on_frame(self, source: NodeId, frame: Frame) -> None:
        now, step = self.now(), Step()
        self.heard_at[source] = self.world.loop.now_ns
        if frame.incarnation > self.core.incarnations.get(source, 0):
            self.core.peer_up(now, source, frame.incarnation)
        touched, messages = {}, [*codec.decode_all(memoryview(frame.data))]
        self._received(source, messages)
        for message in messages:
            if type(message) is StealRequest:
                if not self._admits(now, source, message):
                    continue
                self.before_handover(message.group)
            touched[message.group] = self.groups[message.group]
            if not self.world.said(self.core, now, source, message, step):
                break
            if type(message) is StealAbort:
                self._steal_aborted(now, message)
        self.finish(now, step, touched.values())

    def _received(self, source: NodeId, messages: Iterable[Message]) -> None:
        """Called before anything is done about the messages."""
        for message in messages:
            if type(message) is Progress and message.incarnation == self.core.incarnation:
                self.told.add((message.group, source))

    def _admits(self, now: Now, source: NodeId, request: StealRequest) -> bool:
        return self.balancing is None or self.balancing.admits(now, source, request)

    def admit(self, source: NodeId, request: StealRequest) -> None:
        """A request that had to wait for the registry's copy here."""
        self.before_handover(request.group)
        now, step = self.now(), Step()
        self.core.on_message(now, source, request, step)
        self.finish(now, step, (self.groups[request.group],))

    def before_handover(self, ident: GroupId) -> None:
        """Write to the log what the next master should know."""

    def _steal_aborted(self, now: Now, abort: StealAbort) -> None:
        self.world.statistics["steals aborted"] += 1
        self.groups[abort.group].intake.steal_refused(now)
        if self.balancing is not None:
            self.balancing.on_abort(now, abort)

    def command(self, ident: GroupId, pending: Pending, *, anywhere: bool = False) -> None:
        """A command of this node's own; joins the round that is under way, or begins one."""
        group, now = self.groups[ident], self.now()
        group.intake.submit(now, pending, anywhere=anywhere)
        self._busy[group] = None
        if not self._in_round:
            self.finish(now, Step(), ())

    def enter(self, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Something outside the core happens on this node; its commands share a round."""
        self._in_round = True
        act(*args, **kwargs)
        self._in_round = False
        if self._busy:
            self.finish(self.now(), Step(), ())

    def _on_local(self, life: int) -> None:
        """Deliver messages to ourselves, once what they say is durable."""
        if not self._alive(life):
            return
        now, step = self.now(), Step()
        touched = {}
        while self._local:
            message = self._local.popleft()
            self.core.on_message(now, self.me, message, step)
            touched[message.group] = self.groups[message.group]
        self.finish(now, step, touched.values())

    def _on_forwarded(self, source: NodeId, what: Forwarded) -> None:
        now, group = self.now(), self.groups[what.group]
        life = self.life

        def done(outcome: Outcome) -> None:
            if self._alive(life):
                self._answer_forwarded(source, what, outcome)

        pending = Pending(what.chunks, sum(map(len, what.chunks)), done)
        late = now.wall_ns > what.until_wall_ns
        group.intake.submit_forwarded(now, pending, origin=source, late=late, **what.flags())
        self.finish(now, Step(), (group,))

    def _answer_forwarded(self, source: NodeId, what: Forwarded, outcome: Outcome) -> None:
        self.world.network.send(self.me, source, Settled(what.ident, outcome))

    def _forward(self, group: GroupId, forward: Forward) -> None:
        world = self.world
        self._forwards += 1
        ident = self.life << 32 | self._forwards
        self._forwarded[ident] = forward.pending
        until_wall_ns = self.now().wall_ns + FORWARD_TIMEOUT_NS
        message = Forwarded.of(ident, group, forward, until_wall_ns)
        world.network.send(self.me, forward.to, self.numbered(forward.to, message))
        world.statistics["forwards"] += 1
        world.loop.after(FORWARD_TIMEOUT_NS, self._forward_timed_out, ident)

    def _forward_timed_out(self, ident: int) -> None:
        self._settle(ident, NotDone(FailureReason.UNKNOWN))

    def _settle(self, ident: int, outcome: Outcome) -> None:
        pending = self._forwarded.pop(ident, None)
        if pending is not None:
            self.enter(pending.done, outcome)

    # -- carrying out a Step ------------------------------------------------------------------

    def finish(self, now: Now, step: Step, stepped: Iterable[Group]) -> None:
        """End a round: carry out, propose what waits, until nothing more follows from it."""
        touched = dict.fromkeys(stepped)
        self._in_round = True
        while True:
            if self._busy:
                touched.update(self._busy)
                self._busy.clear()
            for group in touched:
                group.intake.handover_seen(now)
                if group.intake.busy:
                    group.intake.flush(now, step)
                if group.intake.forwards:
                    forwards, group.intake.forwards = group.intake.forwards, []
                    for forward in forwards:
                        self._forward(group.replica.group, forward)
            if any((step.before, step.persist, step.after, step.applied, step.serve, step.fetch)):
                done, step = step, Step()
                self._carry_out(now, done)
            elif not self._busy:
                break
        self._in_round = False
        self._notices(step)
        self._after_event(now, touched)

    def _notices(self, step: Step) -> None:
        for notice in step.notices:
            self.world.noticed(self.me, notice)

    def _carry_out(self, now: Now, step: Step) -> None:
        doomed = self.doom is not None
        if doomed:
            self._reach(Boundary.FIRST, step)
        if step.before:
            self._send(step.before)
            if doomed:
                self._reach(Boundary.SENT, step)
        if step.persist:
            self._appended += 1
            self.disk.append(step.persist)
            if doomed:
                self._reach(Boundary.APPENDED, step)
            if not self._syncing:
                self._begin_sync()
        if step.after:
            if self.may_send_after():
                self._send(step.after)
                if doomed:
                    self._reach(Boundary.TOLD, step)
            else:
                self._waiting.append((self._appended, step.after))
        if step.applied:
            self._apply_all(now, step, doomed=doomed)
        if step.serve or step.fetch:
            self._help(step)
        self._notices(step)

    def _help(self, step: Step) -> None:
        for serve in step.serve:
            self._send([Send(serve.to, self._answer_learn(self.groups[serve.group], serve))])
        for fetch in step.fetch:
            if not self.state_needed(fetch):
                self.checkpoints.fetch(fetch)

    def _answer_learn(self, group: Group, serve: ServeLog) -> Message:
        if serve.start < group.log_start:
            applied = group.replica.learner.applied
            return Trimmed(serve.group, group.log_start, applied)
        return Learned(serve.group, serve.start, group.entries(serve.start, serve.end))

    def _apply_all(self, now: Now, step: Step, *, doomed: bool) -> None:
        for applied in step.applied:
            group = self.groups[applied.group]
            results = self._apply(group, applied.slot, applied.entry)
            if doomed:
                self._reach(Boundary.APPLIED, step)
            group.intake.applied(now, applied.slot, applied.entry, results)

    def may_send_after(self) -> bool:
        """Only when everything persisted so far, by this step and earlier ones, is durable."""
        return self._synced == self._appended

    def _apply(self, group: Group, slot: Slot, entry: Entry, *, live: bool = True) -> list[bytes]:
        """`live`: not a replay after a restart."""
        ident = group.replica.group
        self.world.agreement.applied(self.me, ident, slot, entry)
        group.log.append(entry)
        results = self.apply(ident, slot, entry, live=live)
        self.world.executed(self.me, ident, slot, entry, results)
        return results

    def _send(self, sends: list[Send]) -> None:
        """One frame per peer; a message to several peers is encoded once."""
        encoded: dict[int, list[Buffer]] = {}
        frames: dict[NodeId, list[Buffer]] = {}
        for send in sends:
            message = send.message
            if send.to == self.me:
                if not self._local:
                    self.world.loop.after(0, self._on_local, self.life)
                self._local.append(message)
                continue
            parts = encoded.get(id(message))
            if parts is None:
                parts = encoded[id(message)] = []
                codec.encode(message, parts)
                self.world.leaving(message)
            frames.setdefault(send.to, []).extend(parts)
        incarnation, send_to = self.core.incarnation, self.world.network.send
        doom = self.doom
        left = -1  # how many frames leave before the node dies; below 0: all, and it lives
        if doom is not None and doom.boundary is Boundary.SENDING and doom.fits_sends(sends):
            left = min(doom.frames, len(frames) - 1)
        for target, parts in frames.items():
            if left == 0:
                self._die(Boundary.SENDING)
            left -= 1
            data = b"".join(parts)
            self.world.trace.mix(data)
            send_to(self.me, target, Frame(incarnation, data))

    def _begin_sync(self) -> None:
        self._syncing = self.disk.begin()
        if not self._syncing:
            self._synced = self._syncing_to = self._appended
        else:
            self._syncing_to = self._appended
            self.disk_watch.health.begun(self.now().boot_ns)
            delay = self.world.fsync_ns(self.me)
            self.world.loop.after(delay, self._sync_ended, self.life)

    def wrote(self) -> None:
        """Something that is not the core's was written to the log; what the node says next, it says
        when that is durable."""
        self._appended += 1
        if not self._syncing:
            self._begin_sync()

    @property
    def appended(self) -> int:
        """Counts what was given to the disk."""
        return self._appended

    def is_durable(self, appended: int) -> bool:
        return self._synced >= appended

    def _sync_ended(self, life: int) -> None:
        if not self._alive(life):
            return
        try:
            done = not self.disk.hung and self.disk.end()
        except DiskFailed as failed:
            self.fail(failed)
            return
        if not done:
            self.world.loop.after(FULL_RETRY_NS, self._sync_ended, life)
            return
        self._note_durable()
        self.disk_watch.health.ended(self.now().boot_ns)
        self._synced = self._syncing_to
        self._begin_sync()
        self._release(life)

    def _release(self, life: int) -> None:
        loop = self.world.loop
        if not self._alive(life):
            return
        if loop.now_ns < self.paused_until:
            loop.at(self.paused_until, self._release, life)
            return
        while self._waiting and self._waiting[0][0] <= self._synced:
            sends = self._waiting.popleft()[1]
            if self.doom is None:
                self._send(sends)
                continue
            released = Step(after=sends)
            self._reach(Boundary.SYNCED, released)
            self._send(sends)
            if self.doom is not None:
                self._reach(Boundary.TOLD, released)

    def _note_durable(self) -> None:
        self.durable.note(self.disk)

    # -- what others make it do ---------------------------------------------------------------

    def ask_for(
        self, ident: GroupId, incarnation: Incarnation, lease_ver: Slot, token: int
    ) -> None:
        """Act as the ideal node: ask the master for the group."""
        replica = self.groups[ident].replica
        holder = replica.lease.holder
        if holder in (self.me, NOBODY):
            return
        ask = StealRequest(ident, incarnation, lease_ver, replica.learner.applied, token)
        self._send([Send(holder, ask)])

    def place(self, ident: GroupId, entry: Entry) -> Slot:
        """For scripts: propose an entry at the current ballot without asking for a lease."""
        now, step, group = self.now(), Step(), self.groups[ident]
        slot = group.replica.place(now, entry, step)
        self.finish(now, step, (group,))
        return slot

    def act(self, ident: GroupId, what: str, target: NodeId = NOBODY) -> str:
        """What an operator or a rival may do to a replica at any time."""
        if what == "hand over":
            self.before_handover(ident)
        now, step, group = self.now(), Step(), self.groups[ident]
        replica, outcome = group.replica, ""
        if what == "prepare":
            replica.prepare(now, step)
        elif what == "hand over":
            outcome = handover.steal_away(replica, now, target)
        else:
            members = sorted(set(replica.members) ^ {target})
            outcome = replica.change_members(now, members, step)
        self.finish(now, step, (group,))
        return outcome

    # -- after every event --------------------------------------------------------------------

    def _after_event(self, now: Now, touched: Iterable[Group]) -> None:
        world, changed = self.world, False
        for group in touched:
            replica = group.replica
            invariants.check(replica, now)
            if replica.lease.ver != group.lease_seen:
                group.lease_seen = replica.lease.ver
                world.lease_changed(self.me, replica)
            if replica.suspended != group.suspended_seen:
                group.suspended_seen = replica.suspended
                if replica.suspended:
                    world.suspended(self.me, replica)
            acting = replica.acting(now)
            if acting:
                world.acts(replica.group, begins=not group.mastership_seen[0])
            changed |= group.see_mastership(acting, now)
            self.disk_watch.check(now, replica, group.since_boot_ns, world.options.timing)
        if changed:
            self.enter(self.masters_changed, now)
