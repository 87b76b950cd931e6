"""A node that says one thing that is not so, where it matters, and then the truth again.

Each lie is one that a rule of ADR 4 or 39, or a limit, is there for (docs/peer-work.md): numbers of
slots that there are not, promises that nobody gave, ballots that nobody used, entries that nobody
asked for. The other strike (`machines`) spoils whatever comes along.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

import attrs

from paxos.entry import NOOP
from paxos.ids import MS, Ballot, GroupId, NodeId, Slot
from paxos.messages import Accepted, Learned, Message, Progress
from paxos.replica import Replica
from simulator.checkers.protocol import Agreement
from simulator.environment.dice import between
from simulator.environment.violation import Violation
from simulator.whole.host import Host
from simulator.whole.nemesis import Hurt, Strikes
from simulator.whole.options import Fault
from simulator.whole.strikes.holding import leads
from simulator.whole.strikes.machines import unspoilt

FAR: Final = 1_000
"""Rounds or slots: not so many that the message is refused for that."""
BEYOND: Final = 200
"""More slots than are under way."""
UNASKED_SLOTS: Final = 8
SOON_NS: Final = 150 * MS
CORRECTED_NS: Final = 3_000 * MS
"""Peers tell each other their numbers twice a second."""
QUIET_NS: Final = 2_500 * MS
"""One lie at a time: who lies is there and heard until the others have asked again."""
AGAIN: Final = (3, 8)


class Lied(Hurt, Protocol):
    agreement: Agreement


class Lying(Strikes):
    name = "lying"

    def __init__(self, world: Lied) -> None:
        super().__init__(world)
        self._lied_world = world
        self._kinds = (
            self._exaggerate,
            self._teach,
            self._accept,
            self._repeat,
            self._greet,
        )
        self._next = world.options.seed
        self._quiet_until_ns = 0

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {Fault.LIES: self._lie}

    def _lie(self) -> None:
        world = self._world
        up = [host for host in world.nodes.values() if host.node is not None]
        if world.loop.now_ns < self._quiet_until_ns or len(up) < len(world.nodes):
            return
        self._quiet_until_ns = world.loop.now_ns + QUIET_NS
        liar, victim = self._chance.sample(up, 2)
        group = GroupId(self._chance.randrange(world.options.groups + 1))
        kind = self._kinds[self._next % len(self._kinds)]
        self._next += 1
        self._note("lie", kind.__name__, liar.me, victim.me, group)
        world.statistics[f"lies: {kind.__name__.strip('_')}"] += 1
        kind(liar, victim, group)

    def _spoil(
        self, liar: Host, victim: Host, count: int, change: Callable[[Message], Message | None]
    ) -> None:
        """The next messages that can be changed."""
        life, left = liar.life, [count]

        def spoil(to: NodeId, message: Message) -> Message:
            if to != victim.me or not left[0] or liar.life != life:
                return message
            changed = change(message)
            left[0] -= changed is not None
            return message if changed is None else changed

        liar.spoil = spoil

    # -- lies ---------------------------------------------------------------------------------

    def _exaggerate(self, liar: Host, victim: Host, group: GroupId) -> None:
        """It knows of slots that there are not."""

        def change(message: Message) -> Message | None:
            if not isinstance(message, Progress) or message.group != group:
                return None
            return attrs.evolve(message, chosen_to=Slot(message.chosen_to + FAR))

        self._spoil(liar, victim, 1, change)
        self._world.loop.after(CORRECTED_NS, self._check_numbers, group)

    def _check_numbers(self, group: GroupId) -> None:
        """Nobody believes it any more."""
        there = len(self._lied_world.agreement.logs[group])
        for host in self._world.nodes.values():
            replica = _replica(host, group)
            if replica is not None and replica.learner.chosen_to > there + BEYOND:
                raise Violation(
                    f"numbers: node {host.me} goes on believing in slot "
                    f"{replica.learner.chosen_to} of group {group}, which has {there}"
                )

    def _teach(self, liar: Host, victim: Host, group: GroupId) -> None:
        """It sends an entry that nobody asked for, and nobody chose."""
        replica = _replica(victim, group)
        if replica is None or replica.peer(liar.me).asked:
            return
        start = Slot(replica.learner.applied + UNASKED_SLOTS)
        message = Learned(group, start, (NOOP,))
        assert liar.node is not None
        liar.do(partial(liar.node.peers.send, victim.me, message))

    def _accept(self, liar: Host, victim: Host, group: GroupId) -> None:
        """It has accepted a ballot that nobody used, it tells the group's master; then it is begun
        anew."""
        master = next((one for one in self._world.nodes.values() if leads(one, group)), None)
        if master is None:
            return
        if master is liar:
            liar = victim
        victim = master

        def change(message: Message) -> Message | None:
            if not isinstance(message, Accepted) or message.group != group:
                return None
            loop = self._world.loop
            loop.after(SOON_NS, liar.kill)
            loop.after(2 * SOON_NS, self._boot, liar)
            return attrs.evolve(message, ballot=_far(message.ballot))

        self._spoil(liar, victim, 1, change)

    def _repeat(self, liar: Host, victim: Host, group: GroupId) -> None:
        """It says again and again that the other has promised more, in a life that it has already
        told what it remembers."""

        def change(message: Message) -> Message | None:
            replica = _replica(victim, group)
            if replica is None or liar.me not in replica.witnesses:
                return None
            if not isinstance(message, Progress) or message.group != group:
                return None
            return attrs.evolve(message, witnessed=_far(replica.acceptor.promised))

        self._spoil(liar, victim, between(self._chance, *AGAIN), change)

    def _greet(self, liar: Host, victim: Host, group: GroupId) -> None:
        """The first that it tells another life is wrong; asked again it tells the truth."""
        life = victim.life

        def change(message: Message) -> Message | None:
            replica = _replica(victim, group)
            if replica is None or victim.life == life or liar.me in replica.witnesses:
                return None
            if not isinstance(message, Progress) or message.group != group:
                return None
            return attrs.evolve(message, witnessed=_far(replica.acceptor.promised))

        self._spoil(liar, victim, 1, change)
        victim.kill()
        self._world.loop.after(SOON_NS, self._boot, victim)

    def heal(self) -> None:
        if Fault.LIES in self._world.options.faults:
            for host in self._world.nodes.values():
                host.spoil = unspoilt


def _replica(host: Host, group: GroupId) -> Replica | None:
    return None if host.node is None else host.node.multi.replicas.get(group)


def _far(ballot: Ballot) -> Ballot:
    return Ballot(ballot.round + FAR, ballot.node)
