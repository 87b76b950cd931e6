"""A world under observation: its nodes report the protocol's events as they happen.

Nothing in the node asks whether it is observed, and observing rolls no dice: the world is the same,
with the same digest. The order of events matters; it comes from the order of effects in a Step
(paxos/step.py): what a round applies is reported before what it sends, and that when it leaves.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import attrs

from broker.proposals.intake import Done, Outcome, Pending
from paxos.entry import Entry
from paxos.ids import SLOT_ZERO, Epoch, GroupId, NodeId, Now, Slot
from paxos.messages import Accept, Accepted, Commit, Learned, Message, Prepare, Progress, Promise
from paxos.replica import Replica
from paxos.step import AcceptRecord, PromiseRecord, Send, Step, VotingRecord
from simulator.environment.clock import Clock
from simulator.environment.options import Options, Workload
from simulator.model import events
from simulator.model.events import Event, Vote, value_of
from simulator.node.broker_node import BrokerNode
from simulator.node.command_node import CommandNode, Write
from simulator.node.disk import Disk
from simulator.node.group_state import Forwarded, Group
from simulator.node.node import SimNode
from simulator.world import World

Tell: TypeAlias = Callable[[Event], None]


def _votes(message: Promise) -> tuple[Vote, ...]:
    return tuple((slot, ballot, value_of(entry)) for slot, ballot, entry in message.votes)


class Observed(SimNode):
    """The part common to both kinds of node."""

    world: "ObservedWorld"

    _booting = False
    _applying = SLOT_ZERO
    """The slot whose commands are being answered; 0: none."""
    _relaying = False

    def boot(self) -> None:
        self._booting = True
        super().boot()

    def _end(self, how: str) -> None:
        for ident in self.groups:
            self.world.tell(events.Crashed(ident, self.me))
        super()._end(how)

    def _tell_boot(self, group: Group) -> None:
        replica = group.replica
        acceptor = replica.acceptor
        votes = tuple(
            (slot, ballot, value_of(entry)) for slot, (ballot, entry) in acceptor.votes.items()
        )
        self.world.tell(
            events.Booted(
                replica.group,
                self.me,
                replica.incarnation,
                acceptor.promised,
                replica.learner.applied,
                votes,
                tuple(map(value_of, group.log)),
                forgot=replica.group in self.lost,
            )
        )

    def _carry_out(self, now: Now, step: Step) -> None:
        if self._booting:
            self._booting = False
            for group in self.groups.values():
                self._tell_boot(group)
        for one in step.applied:
            self.world.tell(events.Applied(one.group, self.me, one.slot, value_of(one.entry)))
        try:
            super()._carry_out(now, step)
        finally:  # it may die on the way
            self._applying = SLOT_ZERO

    def _apply(self, group: Group, slot: Slot, entry: Entry, *, live: bool = True) -> list[bytes]:
        if live:
            self._applying = slot
        return super()._apply(group, slot, entry, live=live)

    def _received(self, source: NodeId, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(message, Promise):
                self._tell_received(source, message)
            elif isinstance(message, Progress):
                to = message.incarnation
                self.world.tell(events.Told(message.group, self.me, source, to))
        super()._received(source, messages)

    def _on_local(self, life: int) -> None:
        if self._alive(life):
            for message in self._local:
                if isinstance(message, Promise):
                    self._tell_received(self.me, message)
        super()._on_local(life)

    def _tell_received(self, source: NodeId, message: Promise) -> None:
        self.world.tell(
            events.PromiseReceived(message.group, self.me, source, message.ballot, _votes(message))
        )

    def _send(self, sends: list[Send]) -> None:
        told: set[int] = set()
        for send in sends:
            message = send.message
            if id(message) not in told:  # one message may go to several nodes
                told.add(id(message))
                self._tell_message(message)
        super()._send(sends)

    def _tell_message(self, message: object) -> None:
        me, tell = self.me, self.world.tell
        match message:
            case Prepare(group, ballot, start):
                tell(events.Prepared(group, me, ballot, start))
            case Promise(group, ballot, _):
                tell(events.Promised(group, me, ballot, _votes(message)))
            case Accepted(group, ballot, slot):
                tell(events.Accepted(group, me, ballot, slot))
            case Commit(group, ballot, first, last):
                tell(events.Counted(group, me, ballot, first, last))
            case Accept(group, ballot, slot, entry, first, last):
                suspended, wall_ns = self.groups[group].replica.suspended, self.now().wall_ns
                value = value_of(entry)
                tell(events.Proposed(group, me, ballot, slot, value, suspended, wall_ns))
                tell(events.Counted(group, me, ballot, first, last))
            case Learned(group, start, entries):
                for offset, entry in enumerate(entries):
                    tell(events.Taught(group, me, Slot(start + offset), value_of(entry)))
            case _:
                pass  # claims nothing

    def _note_durable(self) -> None:
        for record in self.disk.durable:
            if isinstance(record, PromiseRecord):
                self.world.tell(events.PromiseDurable(record.group, self.me, record.ballot))
            elif isinstance(record, VotingRecord) and record.voting:  # its floor is a promise
                self.world.tell(events.PromiseDurable(record.group, self.me, record.floor))
            elif isinstance(record, AcceptRecord):
                value = value_of(record.entry)
                self.world.tell(
                    events.VoteDurable(record.group, self.me, record.slot, record.ballot, value)
                )
        super()._note_durable()

    def _after_event(self, now: Now, touched: Iterable[Group]) -> None:
        touched = tuple(touched)
        for group in touched:
            replica = group.replica
            if replica.suspended != group.suspended_seen:
                self.world.tell(events.Suspended(replica.group, self.me, replica.suspended))
            if replica.acting(now):
                self.world.tell(events.Acts(replica.group, self.me, now.wall_ns))
        super()._after_event(now, touched)

    # -- answers ------------------------------------------------------------------------------

    def command(self, ident: GroupId, pending: Pending, *, anywhere: bool = False) -> None:
        done = pending.done

        def watched(outcome: Outcome) -> None:
            self._tell_outcome(ident, outcome)
            done(outcome)

        pending.done = watched
        super().command(ident, pending, anywhere=anywhere)

    def _answer_forwarded(self, source: NodeId, what: Forwarded, outcome: Outcome) -> None:
        self._tell_outcome(what.group, outcome)
        super()._answer_forwarded(source, what, outcome)

    def _settle(self, ident: int, outcome: Outcome) -> None:
        self._relaying = True
        try:
            super()._settle(ident, outcome)
        finally:
            self._relaying = False

    def _tell_outcome(self, group: GroupId, outcome: Outcome) -> None:
        """A node that relays an answer has applied nothing for it."""
        if isinstance(outcome, Done) and (self._applying or not self._relaying):
            wall_ns = self.now().wall_ns
            self.world.tell(events.Acknowledged(group, self.me, self._applying, wall_ns))


class ObservedCommandNode(Observed, CommandNode):
    def _answer(self, client: int, write: Write, outcome: Outcome) -> None:
        self._tell_outcome(write.group, outcome)
        super()._answer(client, write, outcome)

    def may_answer_read(self, replica: Replica, epoch: Epoch) -> bool:
        may = super().may_answer_read(replica, epoch)
        if may:
            wall_ns = self.now().wall_ns
            self.world.tell(events.ReadAnswered(replica.group, self.me, epoch, wall_ns))
        return may


class ObservedBrokerNode(Observed, BrokerNode):
    """The broker's own checkers judge reads and answers to clients. This reports the group's
    events, and the outcomes of the commands that the broker submits."""


class ObservedWorld(World):
    def __init__(self, options: Options, tell: Tell, *, verbose: bool = False) -> None:
        self.tell = tell
        options = attrs.evolve(options, checkpoint_slots=0)  # otherwise not everything can be seen
        super().__init__(options, verbose=verbose)

    def make_node(self, me: NodeId, disk: Disk, clock: Clock) -> SimNode:
        if self.options.workload is Workload.BROKER:
            return ObservedBrokerNode(self, me, disk, clock)
        return ObservedCommandNode(self, me, disk, clock)
