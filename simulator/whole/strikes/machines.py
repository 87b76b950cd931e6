"""Machines that stand still as a whole, nodes that say what is not so, logs that differ.

A frozen machine notices nothing: neither of its clocks went on. Its wall clock is behind until
somebody sets it right. A node that lies says wrong numbers (simulator.nemesis.false_messages). One
whose chain of entries differs has gone another way than the others: it may not act in that group,
nor be ready, and gets an empty directory later, as an operator would give it one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final

from paxos.ids import MS, GroupId, NodeId, Slot
from paxos.messages import Message
from simulator.environment.dice import between
from simulator.environment.violation import Violation
from simulator.nemesis.false_messages import WORDS
from simulator.whole.host import Host
from simulator.whole.membership import Membership
from simulator.whole.nemesis import Hurt, Strikes
from simulator.whole.options import Fault

WORDS_MAX: Final = 3
FROZEN_MS: Final = (200, 6_000)
SET_RIGHT_MS: Final = 3_000
NOTICED_NS: Final = 3_000 * MS
"""So soon a difference is known: members compare with every Progress."""
LOOK_NS: Final = 100 * MS
NEVER: Final = Slot(1 << 62)
MEMBERS_MIN: Final = 3
"""Of whom two can tell which one is wrong."""


class Machines(Strikes):
    name = "machines"

    def __init__(self, world: Hurt, membership: Membership) -> None:
        super().__init__(world)
        self._membership = membership
        self._forked: Host | None = None
        self._stopped_at = NEVER
        """The last slot that the one that differs had applied when it knew that it is wrong."""

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {
            Fault.FREEZE: partial(self._one, self._freeze),
            Fault.WORDS: partial(self._one, self._words),
            Fault.FORK: partial(self._one, self._fork),
        }

    # -- machines that stand still ------------------------------------------------------------

    def _freeze(self, host: Host) -> None:
        world = self._world
        assert host.process is not None
        if any(one.clock.offset_ns for one in world.nodes.values()) or world.options.nodes < 3:
            return  # the wrong clocks are a minority
        ns = between(self._chance, *FROZEN_MS) * MS
        self._note("freeze", host.me, ns)
        host.process.stand_still(world.loop.now_ns + ns)
        host.clock.stand_still(world.loop.now_ns, ns)
        world.loop.after(ns + between(self._chance, 20, SET_RIGHT_MS) * MS, self._set_right, host)

    def _set_right(self, host: Host) -> None:
        """And begun anew: it would follow by a millisecond a second."""
        if host.clock.offset_ns:
            host.clock.step(self._world.loop.now_ns, 0)
            host.kill()
            self._boot(host)

    # -- wrong words --------------------------------------------------------------------------

    def _words(self, host: Host) -> None:
        """The next messages of some kinds, to some of the others."""
        assert host.node is not None or host.process is not None
        chance = Random(self._chance.random())
        left = [between(self._chance, 1, WORDS_MAX)]
        life = host.life
        self._note("words", host.me, left[0])

        def spoil(to: NodeId, message: Message) -> Message:
            change = WORDS.get(type(message))
            if change is None or not left[0] or host.life != life or chance.random() < 0.7:
                return message
            left[0] -= 1
            self._world.statistics["words spoilt"] += 1
            self._note("spoilt", host.me, to, type(message).__name__)
            return change(chance, message)

        host.spoil = spoil

    # -- logs that differ ---------------------------------------------------------------------

    def _fork(self, host: Host) -> None:
        """What it has applied last was another entry, as far as anybody can tell."""
        node = host.node
        if node is None or self._forked is not None or not self._membership.may_lose(host):
            return
        groups = [
            group
            for group, replica in node.multi.replicas.items()
            if host.me in replica.members
            and len(replica.members) >= MEMBERS_MIN
            and replica.learner.applied > 1
        ]
        if not groups:
            return
        group = self._chance.choice(groups)
        self._forked = host
        self._note("fork", host.me, group)
        self._world.statistics["logs made to differ"] += 1
        chain = node.multi.replicas[group].chain
        chain.value ^= 1
        chain.begin_after(chain.slot, chain.value)
        until_ns = self._world.loop.now_ns + between(self._chance, 5_000, 7_000) * MS
        self._watch(host, host.life, group, self._world.loop.now_ns + NOTICED_NS, until_ns)

    def _watch(self, host: Host, life: int, group: GroupId, due_ns: int, until_ns: int) -> None:
        now, loop = self._world.loop.now_ns, self._world.loop
        if host.life != life or host.node is None:
            self._replace(host)
            return
        replica = host.node.multi.replicas.get(group)
        if replica is not None and replica.hopeless:
            self._stopped_at = min(self._stopped_at, replica.learner.applied)
            if replica.learner.applied > self._stopped_at:
                raise Violation(f"fork: node {host.me} goes on applying, {group}")
        if replica is not None and now >= due_ns:
            at_odds = replica.doubt or replica.hopeless
            if not at_odds or not host.node.shell.not_ready():
                raise Violation(f"fork: node {host.me} goes on with a log of its own, {group}")
        if now >= until_ns or self._world.healed:
            self._replace(host)
        else:
            loop.after(LOOK_NS, self._watch, host, life, group, due_ns, until_ns)

    def _replace(self, host: Host) -> None:
        """`evenkeel node replace`, as its log says."""
        self._forked = None
        self._stopped_at = NEVER
        self._note("replaced", host.me)
        self._membership.empty(host)

    def heal(self) -> None:
        for host in self._world.nodes.values():
            host.spoil = unspoilt
            if Fault.FREEZE in self._world.options.faults:
                self._set_right(host)
        if self._forked is not None:
            self._replace(self._forked)


def unspoilt(_to: NodeId, message: Message) -> Message:
    return message
