"""The part of the engine that takes commands: for this node's own intakes, or to be forwarded.

runtime.engine.engine proposes them in rounds.
"""

from collections.abc import Callable
from itertools import chain
from typing import Final

import attrs

from broker.config import IntakeConfig
from broker.formats import FormatGate
from broker.producers.producer_connections import ProducerConnections
from broker.proposals.commands import trims
from broker.proposals.group_commit import GroupCommit
from broker.proposals.intake import (
    ASKS,
    FIRST,
    HANDING,
    LATE,
    ORDERED,
    Done,
    FailureReason,
    Forward,
    Intake,
    NotDone,
    Outcome,
    Pending,
)
from paxos.entry import Buffer
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId, Now, Slot
from paxos.multigroup import MultiGroup
from runtime.disk.disk_pressure import DiskPressure
from runtime.engine import forwarding as forwarded
from runtime.engine.former import former_member
from runtime.engine.ports import Links
from runtime.engine.read_index import ReadIndex
from runtime.engine.read_index import answer as read_index_answer
from runtime.membership.known_groups import KnownGroups
from runtime.system.clock import Clock
from runtime.system.journal import Journal, LogLimit


@attrs.define(eq=False)
class EngineStatistics:
    rounds: int = 0
    proposals: int = 0
    commands: int = 0
    forwarded_out: int = 0
    forwarded_unaware: int = 0
    """Those of them whose client did not know that the group had moved (ADR 50)."""
    forwarded_in: int = 0
    applied: int = 0
    batches: int = 0
    loop_lag_ns_max: int = 0
    """The longest gap between two ticks since the metrics took it."""
    refused_disk_full: int = 0


ROOM_ELSEWHERE: Final = 1 << 62
"""For groups that this node does not have: their commands are refused and take no room."""


class Submitting(KnownGroups):
    def __init__(
        self, multi: MultiGroup, clock: Clock, intake_config: IntakeConfig, journal: Journal
    ) -> None:
        super().__init__(multi, clock)
        self._intake_config, self._journal = intake_config, journal
        self.intakes: dict[GroupId, Intake] = {}
        self.links: Links | None = None
        self.statistics = EngineStatistics()
        self.producer_connections = ProducerConnections()
        self.disk_pressure = DiskPressure()
        self.former: dict[GroupId, Intake] = {}
        """Of groups that have left this node; bounded by their number, and by how long clients may
        not know it (`IntakeConfig.forward_unaware_ns`)."""
        self._busy: set[GroupId] = set()
        """Groups whose intake has queued commands."""
        self._taking: dict[GroupId, Intake] = {}
        """Groups that have taken a command in this round: the next one is queued after it."""
        self.gate = FormatGate()
        """Says which registry commands may be written; those of consumer groups ask it
        themselves."""
        self.group_commit = GroupCommit(intake_config.group_commit_ns)
        self.forwards = forwarded.Forwards(multi.incarnation, journal)
        self._refused_of: dict[NodeId, LogLimit] = {}
        self.read_index = ReadIndex(self._ask_master, self._readable_to)
        self.on_forwarded_in: Callable[[GroupId, int], None] = lambda _group, _size: None
        """Told of commands that other nodes forward: they are load of the group, too."""

    # -- broker.ports.Groups ------------------------------------------------------------------

    def submit(
        self,
        group: GroupId,
        chunks: tuple[Buffer, ...],
        done: Callable[[Outcome], None],
        *,
        anywhere: bool = False,
    ) -> None:
        refusal = self.gate.refusal(chunks[0]) if group == REGISTRY_GROUP else None
        if refusal is not None:
            done(Done(refusal))
            return
        self._submit(group, Pending(chunks, sum(map(len, chunks)), done), anywhere=anywhere)

    def take(self, group: GroupId, pending: Pending) -> bool:
        intake = self._taking.get(group)
        if intake is None or not intake.queue:
            self._submit(group, pending, anywhere=pending.anywhere)
            intake = self.intakes.get(group)
            if intake is None:
                return False
            if intake.queue and intake.queue[-1] is pending:
                self._taking[group] = intake
        else:  # that the group is ours was checked a moment ago, and `flush` checks it again
            pending.since_boot_ns = intake.queue[-1].since_boot_ns
            intake.enqueue(pending)
            self.statistics.commands += 1
        return intake.backlogged

    def moved_ns(self, group: GroupId) -> int:
        intake = self.intakes.get(group) or self.former.get(group)
        return 0 if intake is None else intake.successor.moved_ns(self.clock.now())

    def passes_on(self, group: GroupId) -> bool:
        intake = self.intakes.get(group)
        if intake is None:
            return False
        return intake.successor.gets_all(self.clock.now(), intake.replica, self.master(group))

    def owes_answers(self) -> bool:
        """Whether the outcome of a command is awaited here."""
        intakes = chain(self.intakes.values(), self.former.values())
        waits = (intake.queue or intake.proposed for intake in intakes)
        return bool(self.forwards.under_way) or any(waits)

    def ask_index(self, group: GroupId, told: Callable[[bool], None]) -> None:
        self.read_index.ask(self.clock.now(), group, told)

    def _ask_master(self, now: Now, group: GroupId, pending: Pending) -> bool:
        """Send a question of ours to whoever is master now; we may be it again."""
        master = self.master(group)
        if master == self.multi.me:
            return self._answer_reader(group, pending.done)
        if master is None or self.links is None:
            return False
        return self._forward(now, group, master, pending, ASKS)

    def _answer_reader(self, group: GroupId, answer: Callable[[Outcome], None]) -> bool:
        """Say how far we have applied the group, if we are its master (R14)."""
        replica = self.multi.replicas.get(group)
        if replica is None:
            return False
        applied = replica.learner.applied
        if not replica.ready() or not replica.acting(self.clock.now()):
            return False
        answer(read_index_answer(applied))
        return True

    def _readable_to(self, group: GroupId) -> Slot | None:
        """How far our copy of a group may be read; not at all while it may differ from others'."""
        replica = self.multi.replicas.get(group)
        return None if replica is None or replica.doubt else replica.learner.applied

    def _applied_in(self, group: GroupId) -> Slot | None:
        replica = self.multi.replicas.get(group)
        return None if replica is None else replica.learner.applied

    def room(self, group: GroupId) -> int:
        """How many more bytes the paused clients of a group may send."""
        intake = self.intakes.get(group)
        return ROOM_ELSEWHERE if intake is None else intake.room

    def _submit(self, group: GroupId, pending: Pending, *, anywhere: bool) -> None:
        intake = self.intakes.get(group)
        now = self.clock.now()
        if intake is None or intake.replica.me not in intake.replica.members:
            self._submit_elsewhere(now, group, pending, anywhere=anywhere)
            return
        disk_pressure = self.disk_pressure
        if (disk_pressure.low or disk_pressure.low_peers) and self._no_room(
            group, pending.chunks[0]
        ):
            pending.done(NotDone(FailureReason.OVERLOADED, self.multi.me))
            return
        intake.submit(now, pending, anywhere=anywhere)
        self.statistics.commands += 1
        self._busy.add(group)

    def _submit_elsewhere(
        self, now: Now, group: GroupId, pending: Pending, *, anywhere: bool
    ) -> None:
        """Handle a command for a group that this node is not a member of."""
        intake = self.intakes.get(group) or self.former.get(group)
        if pending.ordered and intake is not None:
            intake.submit(now, pending)
            self._busy.add(group)
            return
        master = self.master(group)
        if not anywhere or pending.ordered or master in (None, self.multi.me):
            pending.done(NotDone(FailureReason.NOT_MASTER, master))
            return
        assert master is not None
        self._forward(now, group, master, pending, 0)

    def _leave(self, now: Now, group: GroupId, intake: Intake) -> None:
        """The group has other members: stand in for them, if there are clients that need that."""
        if intake.successor.moved_ns(now):
            intake.forget_proposed(now)
            intake.steal_refused(now)  # what other nodes forwarded goes back to them
            intake.replica = former_member(self.multi.me)
            self.former[group] = intake
        else:
            intake.close(now)

    def _tick_former(self, now: Now) -> None:
        for group, intake in list(self.former.items()):
            if not intake.rests:
                intake.tick(now)
                self._busy.add(group)
            elif not intake.forwarded and not intake.successor.moved_ns(now):
                del self.former[group]
                self._busy.discard(group)

    # -- commands that peers forward ----------------------------------------------------------

    def on_forward(
        self, sender: NodeId, number: int, group: GroupId, flags: int, command: memoryview
    ) -> None:
        def answer(outcome: Outcome) -> None:
            assert self.links is not None
            if type(outcome) is Done and self.producer_connections.has(command):
                outcome = Done(outcome.result, at_home=True)
            self.links.answer_forward(sender, number, outcome)

        intake = self.intakes.get(group)
        if flags & ASKS and self._answer_reader(group, answer):
            return
        if intake is None or flags & ASKS:
            answer(NotDone(FailureReason.NOT_MASTER, self.master(group)))
            return
        refusal = None
        if group == REGISTRY_GROUP and self.gate.refusal(command) is not None:
            # From an older node, which asks no gate and does not know the reason; or from a newer
            # one that has not heard of us. Their clients try again.
            answer(NotDone(FailureReason.OVERLOADED, self.multi.me))
            return
        problem = forwarded.problem(group, command)
        if problem:
            self._log_refused(sender, problem)
            refusal = NotDone(FailureReason.NOT_MASTER)
        elif self._no_room(group, command):
            refusal = NotDone(FailureReason.OVERLOADED, self.multi.me)
        else:
            self.statistics.forwarded_in += 1
            self.on_forwarded_in(group, len(command))
        pending = Pending((command,), len(command), answer)
        intake.submit_forwarded(
            self.clock.now(),
            pending,
            refusal,
            handing=bool(flags & HANDING),
            origin=sender,
            ordered=bool(flags & ORDERED),
            first=bool(flags & FIRST),
            late=bool(flags & LATE),
        )
        self._busy.add(group)

    def _log_refused(self, sender: NodeId, problem: str) -> None:
        limit = self._refused_of.setdefault(sender, LogLimit())
        count = limit.due(self.clock.boot_ns())
        if count:
            self._journal.warning(
                "forwarded command refused", peer=sender, reason=problem, refused=count
            )

    def _no_room(self, group: GroupId, command: Buffer) -> bool:
        """Whether a command is refused because disks are nearly full. Only the master refuses:
        otherwise the client would retry here for ever, and never learn who is master."""
        members = self.multi.replicas[group].members
        if (
            group == REGISTRY_GROUP
            or not self.disk_pressure.refuses_commands(members)
            or trims(command)
        ):
            return False
        if not self.acting(group):
            return False
        self.statistics.refused_disk_full += 1
        return True

    def on_forwarded(self, sender: NodeId, number: int, outcome: Outcome) -> None:
        self.forwards.answered(sender, number, outcome)

    # -- forwarding ---------------------------------------------------------------------------

    def _send_forwards(self, now: Now, group: GroupId, forwards: list[Forward]) -> None:
        """Send forwards in order. If one cannot be sent, later ordered ones fail as well, so that
        they do not overtake it."""
        sent = True
        for forward in forwards:
            if forward.pending.overtakes():  # the link was lost meanwhile
                forward.pending.done(NotDone(FailureReason.OVERLOADED, self.multi.me))
            elif sent or not forward.ordered:
                sent &= self._forward(now, group, forward.to, forward.pending, forward.flags)
                self.statistics.forwarded_unaware += forward.unaware
            else:
                forward.pending.done(NotDone(FailureReason.NOT_MASTER))

    def _forward(self, now: Now, group: GroupId, to: NodeId, pending: Pending, flags: int) -> bool:
        assert self.links is not None
        number = self.forwards.begin(now, to, pending)
        self.statistics.forwarded_out += not flags & ASKS
        sent = self.links.forward(to, number, group, flags, pending.chunks, pending.size)
        if not sent:
            self.forwards.settle(number, NotDone(FailureReason.NOT_MASTER))
        return sent
