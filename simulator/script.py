"""Scenarios by hand: a world without chance, in which the test decides about every message.

A Script is a World (the same nodes, shell and checkers) without clients, faults and balancer. Its
network drops and holds what the test names. By default every message takes a millisecond, every
fsync half of one.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import attrs

from balancer.registry.registry import Registry
from paxos import codec
from paxos.entry import Buffer, EntryKind, batch
from paxos.ids import MS, Ballot, GroupId, Incarnation, NodeId, Slot
from paxos.messages import Accept, Message, StealAbort
from paxos.replica import Replica
from paxos.timing import Timing
from simulator.clients.command_client import CLIENT_ADDRESS
from simulator.environment.dice import dice
from simulator.environment.network import GOOD, Network
from simulator.environment.options import Clocks, DiskKind, Options, Temper
from simulator.node.command_node import CommandNode, Read, Write, Written
from simulator.node.disk import RecordDisk
from simulator.node.group_state import Frame, Group
from simulator.node.state_machine import Machine, command
from simulator.world import World

DELAY_NS: Final = 1 * MS
FSYNC_NS: Final = MS // 2
TICK_NS: Final = 20 * MS
WAIT_NS: Final = 20_000 * MS
"""A condition that is not true after this time never will be."""
GROUP: Final = GroupId(1)
FIRST_CLIENT: Final = CLIENT_ADDRESS


class Sent(NamedTuple):
    """One message on its way, or long gone."""

    at_ns: int
    source: NodeId
    target: NodeId
    message: Message
    incarnation: Incarnation


@attrs.define(eq=False)
class Rule:
    """What happens to matching messages until the rule is lifted; `caught` are those so far."""

    matches: Callable[[Sent], bool]
    keep: bool
    active: bool = True
    caught: list[Sent] = attrs.Factory(list)

    def lift(self) -> None:
        self.active = False


class Wire(Network):
    """A network under the script's control; it unpacks frames so that rules see messages."""

    def __init__(self, script: "Script") -> None:
        super().__init__(script.loop, dice(0, "wire"), DELAY_NS, DELAY_NS)
        self.quality = GOOD
        self._script = script
        self._rules: list[Rule] = []
        self.history: list[Sent] = []

    def send(self, source: int, target: int, what: object) -> None:
        if not isinstance(what, Frame):
            super().send(source, target, what)
            return
        for message in codec.decode_all(memoryview(what.data)):
            now_ns = self._script.loop.now_ns
            sent = Sent(now_ns, NodeId(source), NodeId(target), message, what.incarnation)
            self.history.append(sent)
            for rule in self._rules:
                if rule.active and rule.matches(sent):
                    rule.caught.append(sent)
                    break
            else:
                self.deliver(sent)

    def deliver(self, sent: Sent) -> None:
        """Send a message that no rule looks at: a held one, an old one, a forged one."""
        parts: list[Buffer] = []
        codec.encode(sent.message, parts)
        super().send(sent.source, sent.target, Frame(sent.incarnation, b"".join(parts)))

    def add(self, rule: Rule) -> Rule:
        self._rules.append(rule)
        return rule

    def release(self, rule: Rule) -> None:
        """Lift the rule and deliver what it held, in order."""
        rule.lift()
        caught, rule.caught = rule.caught, []
        for sent in caught:
            self.deliver(sent)


@attrs.define(eq=False)
class Ticket:
    """What a client was told: nothing so far, a slot, or where to ask."""

    answers: list[Written] = attrs.Factory(list)

    @property
    def slot(self) -> int:
        """Where it was executed; 0 while nobody has acknowledged it."""
        return max((answer.slot for answer in self.answers), default=0)

    @property
    def refused(self) -> bool:
        return bool(self.answers) and not self.slot


class Script(World):
    wire: Wire

    def __init__(
        self,
        *,
        nodes: int = 3,
        groups: tuple[GroupId, ...] = (GROUP,),
        timing: Timing | None = None,
        clocks: Clocks = Clocks.WITHIN,
        members: int = 0,
        balancing: bool = False,
        checkpoint_slots: int = 0,
    ) -> None:
        self._stalled: set[NodeId] = set()
        self._tickets: dict[tuple[int, int], Ticket] = {}
        options = _options(nodes, groups, timing or Timing(), clocks, members or nodes)
        super().__init__(
            attrs.evolve(options, balancing=balancing, checkpoint_slots=checkpoint_slots)
        )
        for group in groups:
            self.members[group] = tuple(NodeId(n) for n in range(members or nodes))
        self.chosen.set_members(self.members)
        for node in self.nodes.values():
            node.boot()

    def make_network(self) -> Network:
        self.wire = Wire(self)
        return self.wire

    def fsync_ns(self, node: NodeId) -> int:
        return 10**15 if node in self._stalled else FSYNC_NS

    # -- time and nodes -----------------------------------------------------------------------

    def wait(self, ms: float) -> None:
        self.loop.run_until(self.loop.now_ns + int(ms * MS))

    def until(self, condition: Callable[[], bool], within_ns: int = WAIT_NS) -> None:
        """Run until the condition holds.

        Raises:
            AssertionError: it does not hold within that time.
        """
        end_ns = self.loop.now_ns + within_ns
        while not condition():
            assert self.loop.now_ns < end_ns, f"waited {within_ns / 1e9} s in vain"
            self.wait(0.25)

    def node(self, ident: int) -> CommandNode:
        node = self.nodes[NodeId(ident)]
        assert isinstance(node, CommandNode)
        return node

    def held(self, ident: int, group: GroupId = GROUP) -> Group:
        return self.node(ident).groups[group]

    def machine(self, ident: int, group: GroupId = GROUP) -> Machine:
        return self.node(ident).machines[group]

    def replica(self, ident: int, group: GroupId = GROUP) -> Replica:
        return self.held(ident, group).replica

    def acting(self, ident: int, group: GroupId = GROUP) -> bool:
        node = self.node(ident)
        return node.up and node.groups[group].replica.acting(node.now())

    def masters(self, group: GroupId = GROUP) -> list[int]:
        return [ident for ident in self.addresses if self.acting(ident, group)]

    def elect(self, ident: int, group: GroupId = GROUP) -> None:
        """Let this node become the first master: the others hold back until it is."""
        others = [self.replica(n, group) for n in self.addresses if n != ident]
        for replica in others:
            replica.election.abstaining = True
        self.until(lambda: self.acting(ident, group))
        for replica in others:
            replica.election.abstaining = False
        self.wait(50)

    def crash(self, ident: int, *, keep: int | None = None, reboot: bool = False) -> None:
        """`keep`: how many unsynced records survive; all if not given."""
        node = self.node(ident)
        disk = node.disk
        if isinstance(disk, RecordDisk):
            disk.keep_at_cut = 10**9 if keep is None else keep
        node.crash(reboot=reboot)

    def boot(self, ident: int) -> None:
        self.node(ident).boot()

    def pause(self, ident: int, ms: float) -> None:
        self.node(ident).pause(self.loop.now_ns + int(ms * MS))

    def set_clock(self, ident: int, offset_ms: float) -> None:
        self.node(ident).clock.step(self.loop.now_ns, int(offset_ms * MS))
        self.check_all_masters()

    def stall_disk(self, ident: int) -> None:
        """From now on no fsync of this node ends (until it is crashed and `heal_disk`ed)."""
        self._stalled.add(NodeId(ident))

    def heal_disk(self, ident: int) -> None:
        self._stalled.discard(NodeId(ident))

    # -- messages -----------------------------------------------------------------------------

    def drop(self, *kinds: type, **where: int | Callable[[Message], bool]) -> Rule:
        return self.wire.add(Rule(_matcher(kinds, **where), keep=False))

    def hold(self, *kinds: type, **where: int | Callable[[Message], bool]) -> Rule:
        """Like `drop`, but the messages may be `release`d later."""
        return self.wire.add(Rule(_matcher(kinds, **where), keep=True))

    def release(self, rule: Rule) -> None:
        self.wire.release(rule)

    def cut(self, source: int, target: int) -> None:
        self.wire.cut.add((source, target))

    def isolate(self, ident: int, *, inbound: bool = True, outbound: bool = True) -> None:
        self.wire.isolate(ident, self.addresses, inbound=inbound, outbound=outbound)

    def mend(self) -> None:
        self.wire.cut.clear()

    def sent(self, *kinds: type, since_ns: int = 0) -> Iterator[Sent]:
        for one in self.wire.history:
            if one.at_ns >= since_ns and isinstance(one.message, kinds):
                yield one

    # -- clients and steals -------------------------------------------------------------------

    def write(
        self,
        ident: int,
        seq: int,
        *,
        client: int = FIRST_CLIENT,
        anywhere: bool = False,
        group: GroupId = GROUP,
    ) -> Ticket:
        """A client of node `ident` asks for its command `seq`."""
        ticket = self._tickets.setdefault((client, seq), Ticket())
        self.wire.attach(client, self._answered(client))
        self.node(ident).deliver(client, Write(group, seq, anywhere))
        return ticket

    def _answered(self, client: int) -> Callable[[int, object], None]:
        def deliver(_source: int, what: object) -> None:
            assert isinstance(what, Written)
            self._tickets[client, what.seq].answers.append(what)

        return deliver

    def write_all(
        self, ident: int, count: int, *, client: int = FIRST_CLIENT, start: int = 1
    ) -> None:
        """`count` commands, one after the other, each acknowledged."""
        for seq in range(start, start + count):
            self.until_acknowledged(self.write(ident, seq, client=client))

    def until_acknowledged(self, ticket: Ticket) -> int:
        self.until(lambda: ticket.slot > 0)
        return ticket.slot

    def read(self, ident: int, *, client: int = FIRST_CLIENT, group: GroupId = GROUP) -> None:
        """Begin a read; the Reads checker checks its answer, if any."""
        floor = self.acknowledged.floor(group)
        self.node(ident).deliver(client, Read(group, 1, floor))

    def steal(self, ident: int, group: GroupId = GROUP) -> None:
        """Node `ident` asks the master for the group."""
        node, replica = self.node(ident), self.replica(ident, group)
        node.ask_for(group, node.core.incarnation, replica.lease.ver, 0)

    def place_master(self, group: int, ident: int) -> None:
        """Make `ident` the group's ideal master, through the registry."""
        balancing = self.node(0).balancing
        assert balancing is not None
        balancing.place(GroupId(group), NodeId(ident))

    def registry(self, ident: int) -> Registry:
        """The node's copy of the registry."""
        registry = self.node(ident).registry
        assert registry is not None
        return registry

    def handed_over(self, ident: int, target: int, group: GroupId = GROUP) -> str:
        """Node `ident` gives the group away of its own accord; returns "" or why not."""
        return self.node(ident).act(group, "hand over", NodeId(target))

    def prepare(self, ident: int, group: GroupId = GROUP) -> Ballot:
        """A rival prepares now, whatever the lease says."""
        self.node(ident).act(group, "prepare")
        return self.replica(ident, group).proposer.ballot

    def place(self, ident: int, seq: int, *, client: int = FIRST_CLIENT) -> Slot:
        """Propose a command at the node's ballot, whether or not it may act."""
        return self.node(ident).place(GROUP, batch((command(client, seq),)))

    def aborts(self) -> list[str]:
        """The reasons of all StealAborts so far."""
        return [
            sent.message.reason
            for sent in self.sent(StealAbort)
            if isinstance(sent.message, StealAbort)
        ]

    def ballots(self, *kinds: type, since_ns: int = 0) -> set[Ballot]:
        """The ballots in which such messages were sent."""
        return {sent.message.ballot for sent in self.sent(*kinds, since_ns=since_ns)}  # type: ignore[union-attr] # kinds with a ballot

    def same_everywhere(self, group: GroupId = GROUP) -> None:
        """Run until all nodes that are up have applied the same log."""
        nodes = [node for node in self.nodes.values() if node.up]
        self.until(lambda: len({node.groups[group].replica.learner.applied for node in nodes}) == 1)

    def noticed_count(self, what: str) -> int:
        return self.statistics[f"notice {what}"]


def is_kind(kind: EntryKind) -> Callable[[Message], bool]:
    """For rules: Accepts of such an entry."""
    return lambda message: isinstance(message, Accept) and message.entry.kind == kind


def _matcher(
    kinds: tuple[type, ...], **where: int | Callable[[Message], bool]
) -> Callable[[Sent], bool]:
    which = where.get("where")

    def matches(sent: Sent) -> bool:
        return (
            (not kinds or isinstance(sent.message, kinds))
            and where.get("source", sent.source) == sent.source
            and where.get("target", sent.target) == sent.target
            and (not callable(which) or which(sent.message))
        )

    return matches


def _options(
    nodes: int, groups: tuple[GroupId, ...], timing: Timing, clocks: Clocks, members: int
) -> Options:
    return Options(
        seed=0,
        nodes=nodes,
        groups=groups,
        members=members,
        timing=timing,
        duration_ns=WAIT_NS,
        tick_ns=TICK_NS,
        clocks=clocks,
        boot_ppm_max=200,
        disk=DiskKind.RECORDS,
        faults=frozenset(),
        fault_gap_ns=WAIT_NS,
        steal_gap_ns=WAIT_NS,
        temper=Temper.CALM,
        delay_min_ns=DELAY_NS,
        delay_max_ns=DELAY_NS,
        fsync_max_ns=FSYNC_NS,
        clients_per_group=0,
        client_window=1,
        client_think_ns=WAIT_NS,
        batch_wait_ns=0,
        balancing=False,
    )
