"""Worlds about trust in clocks: each node has its own `paxos.clock.Clock`, and machines' clocks
fail.

Machines freeze with both their clocks (their host stopped them), drift, have their wall clock set,
and restart a process with it; others are only paused. Links are cut and come back, are slow, or
hold what they carry. At any time only a minority's clocks are wrong, so the others are right.

A node acts whenever its clock is trusted: the other thing it needs, a lease, is checked in the same
step (`paxos.lease.Lease.safely_before_expiry`). Three things must hold (ADR 43). They are judged by
what the clocks truly were, never by what a `Trust` concluded:

* `stop`: a node whose clock is off by more than the margin does not act once a peer whose clock is
  right, and that had answered before, has said, asked or not, that it is suddenly far ahead;
* `doubt`: nor once so many peers with right clocks have answered it, each fast enough to prove it,
  that the others are no majority together with the node;
* `fresh`: no node is trusted, the first time or again, unless a majority has answered it since it
  was last not trusted. And at the end, when everything is repaired, every node is trusted.
"""

import argparse
import sys
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from paxos.clocks.clock import Clock, reading
from paxos.clocks.trust import STOPS_TOLD_EVERY_NS, SUSPECT_SHARE, WIDENING_PER_SECOND_NS
from paxos.ids import MS, NodeId
from simulator.environment.clock import EPOCH_NS
from simulator.environment.dice import between, dice, exponential
from simulator.environment.loop import Loop
from simulator.environment.violation import Violation

SECOND_NS: Final = 1_000 * MS
TICK_NS: Final = 20 * MS
PING_EVERY_NS: Final = 200 * MS
HURT_UNTIL_NS: Final = 150 * SECOND_NS
END_NS: Final = 160 * SECOND_NS
MARGINS_NS: Final = (100 * MS, 200 * MS, 500 * MS)
RIGHT_SHARE: Final = 10
"""A clock that is off by no more than the margin divided by this is right."""
KNOWN_FOR_NS: Final = 25 * SECOND_NS
"""A peer that answered is remembered for at least this long."""
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000


class Machine:
    """A machine's two clocks as functions of true time."""

    def __init__(self, loop: Loop, boot_ns: int, wall_off_ns: int) -> None:
        self._loop = loop
        self._boot_ns, self._since_ns = boot_ns, loop.now_ns
        self.stands = False
        self.ppm = 0
        self._ahead_ns = EPOCH_NS + loop.now_ns + wall_off_ns - boot_ns

    def boot_ns(self) -> int:
        if self.stands:
            return self._boot_ns
        passed = self._loop.now_ns - self._since_ns
        return self._boot_ns + passed + passed * self.ppm // _MILLION

    def wall_ns(self) -> int:
        return self.boot_ns() + self._ahead_ns

    def change(self, *, stands: bool, ppm: int) -> None:
        self._boot_ns, self._since_ns = self.boot_ns(), self._loop.now_ns
        self.stands, self.ppm = stands, ppm

    def set_wall(self, off_ns: int) -> None:
        self._ahead_ns = EPOCH_NS + self._loop.now_ns + off_ns - self.boot_ns()


@attrs.frozen
class Ping:
    wall_ns: int
    boot_ns: int
    true_ns: int
    off_ns: int
    """How far the sender's clock is truly ahead."""


@attrs.frozen
class Pong:
    ping: Ping
    theirs_ns: int
    off_ns: int


@attrs.frozen
class Answer:
    """The truth about a peer's last answer."""

    ahead_ns: int
    most_ns: int
    """No interval derived from it can say that the peer is further ahead."""
    boot_ns: int


@attrs.define(eq=False)
class Node:
    me: NodeId
    machine: Machine
    clock: Clock
    life: int = 0
    halted: bool = False
    inbox: deque[tuple[NodeId, int, Ping | Pong]] = attrs.Factory(deque)
    pinged_boot_ns: int = -(1 << 60)
    # the truth about it
    trusted: bool = False
    answered: set[NodeId] = attrs.Factory(set)
    """Since it was last not trusted."""
    answers: dict[NodeId, Answer] = attrs.Factory(dict)
    proofs: dict[NodeId, tuple[int, int]] = attrs.Factory(dict)
    """Who has proved that its clock is wrong: by how much more than needed, and when."""
    knows_it_stopped: bool = False
    cried: dict[NodeId, int] = attrs.Factory(dict)
    """Peers that seemed suddenly ahead without being right, and when: not believed at once."""


class ClockWorld:
    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self._chance = chance = dice(seed, "clock world")
        self.loop = Loop()
        self.statistics: Counter[str] = Counter()
        self._verbose = verbose
        self.margin_ns = chance.choice(MARGINS_NS)
        self._right_ns = self.margin_ns // RIGHT_SHARE
        self._suspect_ns = int(SUSPECT_SHARE * self.margin_ns)
        count = chance.choice((3, 3, 5))
        self._majority = count // 2  # of others
        self.nodes: dict[NodeId, Node] = {}
        for index in range(1, count + 1):
            off_ns = between(chance, -self._right_ns // 2, self._right_ns // 2)
            machine = Machine(self.loop, between(chance, 1, 1 << 50), off_ns)
            self.nodes[NodeId(index)] = Node(NodeId(index), machine, self._clock_of(machine))
        self._wrong: set[NodeId] = set()
        self._wrong_max = (count - 1) // 2
        self._cut: set[tuple[NodeId, NodeId]] = set()
        self._slow: dict[tuple[NodeId, NodeId], tuple[int, int]] = {}
        self._held: dict[tuple[NodeId, NodeId], int] = {}
        """Until when a link holds what it carries."""
        self._last: dict[tuple[NodeId, NodeId], int] = {}
        self._links: Counter[tuple[NodeId, NodeId]] = Counter()
        """How often each was cut."""
        self._strikes: tuple[Callable[[Random, Node], None], ...] = (
            *(2 * (self._freeze, self._freeze_with_an_answer_under_way, self._cut_links)),
            *(2 * (self._slow_links, self._repair)),
            self._pause,
            self._hold_link,
            self._set_and_restart,
            self._set_wall,
            self._bad_crystal,
            self._restart_only,
        )
        self._gap_ns = chance.choice((300, 1_000, 3_000)) * MS

    def _clock_of(self, machine: Machine) -> Clock:
        return Clock(self.margin_ns, machine, others_needed=self._majority)

    def run(self) -> None:
        for node in self.nodes.values():
            self.loop.after(between(self._chance, 0, TICK_NS), self._tick, node)
        self.loop.after(5 * SECOND_NS, self._strike)
        self.loop.at(HURT_UNTIL_NS, self._heal)
        self.loop.run_until(END_NS)
        for node in self.nodes.values():
            if not node.clock.trusted:
                raise Violation(f"trust: node {node.me} is right, and not trusted at the end")

    # -- what a node does ---------------------------------------------------------------------

    def _tick(self, node: Node) -> None:
        self.loop.after(TICK_NS, self._tick, node)
        if node.halted:
            return
        node.clock.slew()
        boot, trust = node.machine.boot_ns(), node.clock.trust
        if boot - node.pinged_boot_ns >= PING_EVERY_NS or trust.asks:
            trust.asks = False
            node.pinged_boot_ns = boot
            wall = node.clock.now().wall_ns
            ping = Ping(wall, boot, self.loop.now_ns, self._off(node))
            for other in self.nodes:
                if other != node.me:
                    self._send(node.me, other, ping)
        self._judge(node)

    def _on_frame(self, node: Node, sender: NodeId, frame: Ping | Pong) -> None:
        clock = node.clock
        if isinstance(frame, Ping):
            clock.on_told(sender, frame.wall_ns)
            self._note_word(node, sender, frame.wall_ns - clock.now().wall_ns, frame.off_ns)
            self._send(node.me, sender, Pong(frame, clock.now().wall_ns, self._off(node)))
        else:
            ping, boot = frame.ping, node.machine.boot_ns()
            offset, error = reading(ping.wall_ns, ping.boot_ns, frame.theirs_ns, boot)
            clock.on_reading(sender, offset, error)
            self._note_word(node, sender, offset - error, frame.off_ns)
            self._note_answer(node, sender, frame, error)
        self._judge(node)

    # -- the truth, and what must follow from it ------------------------------------------------

    def _off(self, node: Node) -> int:
        """How far its clock is truly ahead."""
        return node.clock.now().wall_ns - EPOCH_NS - self.loop.now_ns

    def _note_word(self, node: Node, sender: NodeId, least_ns: int, off_ns: int) -> None:
        """A peer is ahead by at least `least_ns`."""
        before, boot = node.answers.get(sender), node.machine.boot_ns()
        if before is None:
            return
        age = boot - before.boot_ns
        most = before.most_ns + WIDENING_PER_SECOND_NS * age // _BILLION
        if age >= KNOWN_FOR_NS or before.ahead_ns >= self._suspect_ns:
            return
        if abs(off_ns) > self._right_ns or abs(self._off(node)) <= self.margin_ns:
            if least_ns >= self._suspect_ns - MS:
                node.cried[sender] = boot
            return
        cried = node.cried.get(sender)
        if cried is not None and boot - cried < STOPS_TOLD_EVERY_NS:
            return
        if least_ns > max(most, self._suspect_ns) + MS:
            node.knows_it_stopped = True
            self.statistics["stops told"] += 1

    def _note_answer(self, node: Node, sender: NodeId, pong: Pong, error_ns: int) -> None:
        node.answered.add(sender)
        off, boot, ping = self._off(node), node.machine.boot_ns(), pong.ping
        took = self.loop.now_ns - ping.true_ns
        ahead = pong.off_ns - off
        node.answers[sender] = Answer(ahead, ahead + 2 * error_ns + MS, boot)
        if abs(pong.off_ns) > self._right_ns or off * ping.off_ns <= 0:
            node.proofs.pop(sender, None)
            return
        spare = min(abs(off), abs(ping.off_ns)) - self._right_ns - took - self._suspect_ns - MS
        if min(abs(off), abs(ping.off_ns)) > self.margin_ns and spare > 0:
            node.proofs[sender] = spare, boot
            self.statistics["proofs of a wrong clock"] += 1
            self.statistics["slow proofs"] += 2 * error_ns > self._suspect_ns

    def _judge(self, node: Node) -> None:
        trusted, off = node.clock.now().trusted, self._off(node)
        if trusted and not node.trusted:
            self.statistics["trusted"] += 1
            if len(node.answered) < self._majority:
                raise self._violation(node, "is trusted, and no majority has answered it since")
        if trusted != node.trusted:
            node.trusted = trusted
            node.answered.clear()
            self.statistics["doubted"] += not trusted
        if abs(off) <= self.margin_ns:
            node.knows_it_stopped = False
            node.proofs.clear()
            return
        if not trusted:
            return
        self.statistics["looks at who acts with a wrong clock"] += 1
        if node.knows_it_stopped:
            raise self._violation(node, "acts, and a peer has told it that its clocks stood still")
        boot, wrong = node.machine.boot_ns(), 0
        for spare, since in node.proofs.values():
            wrong += spare > 2 * WIDENING_PER_SECOND_NS * (boot - since) // _BILLION
        if len(self.nodes) - 1 - wrong < self._majority:
            raise self._violation(node, "acts, and a majority has proved its clock wrong")

    def _violation(self, node: Node, what: str) -> Violation:
        at = self.loop.now_ns / SECOND_NS
        return Violation(
            f"trust: at {at:.3f} s node {node.me}, off by {self._off(node) / MS:.1f} ms of "
            f"{self.margin_ns / MS:.0f}, {what}"
        )

    # -- the network --------------------------------------------------------------------------

    def _send(self, source: NodeId, target: NodeId, frame: Ping | Pong) -> None:
        """Delivers in order; a frame is lost only with its link."""
        link = (source, target)
        if link in self._cut:
            return
        now = self.loop.now_ns
        delay = between(self._chance, MS // 10, 2 * MS)
        if link in self._slow:
            delay += between(self._chance, *self._slow[link])
        at = max(now + delay, self._held.get(link, 0), self._last.get(link, 0))
        self._last[link] = at
        life = self.nodes[target].life
        self.loop.at(at, self._arrive, link, self._links[link], life, frame)

    def _arrive(
        self, link: tuple[NodeId, NodeId], lost: int, life: int, frame: Ping | Pong
    ) -> None:
        source, target = link
        node = self.nodes[target]
        if self._links[link] != lost or node.life != life:
            return
        if node.halted:
            node.inbox.append((source, lost, frame))
        else:
            self._on_frame(node, source, frame)

    # -- what goes wrong ----------------------------------------------------------------------

    def _strike(self) -> None:
        if self.loop.now_ns >= HURT_UNTIL_NS:
            return
        chance = self._chance
        node = self.nodes[chance.choice(sorted(self.nodes))]
        chance.choice(self._strikes)(chance, node)
        self.loop.after(exponential(chance, self._gap_ns), self._strike)

    def _tell(self, what: str, node: Node) -> None:
        self.statistics[what] += 1
        if self._verbose:
            print(f"{self.loop.now_ns / SECOND_NS:9.3f} {what}: node {node.me}")

    def _may_be_wrong(self, node: Node) -> bool:
        if node.me not in self._wrong and len(self._wrong) >= self._wrong_max:
            return False
        self._wrong.add(node.me)
        return True

    def _freeze(self, chance: Random, node: Node) -> None:
        """Nothing runs on the machine, not even its clocks; what arrives stays in its sockets."""
        if node.halted or self.loop.now_ns >= HURT_UNTIL_NS or not self._may_be_wrong(node):
            return
        self._tell("frozen", node)
        node.halted = True
        node.machine.change(stands=True, ppm=node.machine.ppm)
        length = between(chance, 50, 400) if chance.random() < 0.4 else between(chance, 400, 9_000)
        if chance.random() < 0.4:  # and wakes up with one link, or none
            self._cut_links(chance, node)
        self.loop.after(length * MS, self._go_on, node)

    def _freeze_with_an_answer_under_way(self, chance: Random, node: Node) -> None:
        """The answer, requested before, lies in the socket behind what others have said since."""
        other = chance.choice(sorted(set(self.nodes) - {node.me}))
        self._held[other, node.me] = self.loop.now_ns + between(chance, 500, 2_000) * MS
        self.loop.after(between(chance, 50, 300) * MS, self._freeze, chance, node)

    def _pause(self, chance: Random, node: Node) -> None:
        """Nothing runs on the machine except its clocks: SIGSTOP, or a machine that sleeps."""
        if not node.halted:
            self._tell("paused", node)
            node.halted = True
            self.loop.after(between(chance, 50, 5_000) * MS, self._go_on, node)

    def _go_on(self, node: Node) -> None:
        node.machine.change(stands=False, ppm=node.machine.ppm)
        node.halted = False
        waiting, node.inbox = node.inbox, deque()
        for source, lost, frame in waiting:
            if self._links[source, node.me] == lost:
                self._on_frame(node, source, frame)

    def _restart(self, node: Node) -> None:
        node.life += 1
        node.halted = False
        node.machine.change(stands=False, ppm=node.machine.ppm)
        node.inbox.clear()
        node.clock = self._clock_of(node.machine)
        node.trusted = node.knows_it_stopped = False
        node.answered.clear()
        node.answers.clear()
        node.proofs.clear()
        node.cried.clear()
        for other in self.nodes.values():
            if other is not node:
                other.clock.forget(node.me)

    def _restart_only(self, _chance: Random, node: Node) -> None:
        self._tell("restarted", node)
        self._restart(node)
        if abs(self._off(node)) > self._right_ns:
            self._wrong.add(node.me)  # and it was one of them before

    def _set_wall(self, chance: Random, node: Node) -> None:
        if self._may_be_wrong(node):
            self._tell("set wrong", node)
            node.machine.set_wall(between(chance, -20_000, 20_000) * MS)

    def _set_and_restart(self, chance: Random, node: Node) -> None:
        if self._may_be_wrong(node):
            self._tell("set wrong and restarted", node)
            off = between(chance, self.margin_ns // 2, 20 * self.margin_ns)
            node.machine.set_wall(off * chance.choice((-1, 1)))
            self._restart(node)

    def _bad_crystal(self, chance: Random, node: Node) -> None:
        """Half of the time no answer comes quickly any more."""
        if not self._may_be_wrong(node):
            return
        self._tell("bad crystal", node)
        ppm = between(chance, 500, 20_000) * chance.choice((-1, 1))
        node.machine.change(stands=node.machine.stands, ppm=ppm)
        if chance.random() < 0.5:
            least = between(chance, self.margin_ns // 2, self.margin_ns)
            for other in self.nodes:
                if other != node.me:
                    self._slow[node.me, other] = self._slow[other, node.me] = least, least + MS
            self.loop.after(40 * SECOND_NS, self._fast, node.me)

    def _cut_links(self, chance: Random, node: Node) -> None:
        """All links of a node or all but one, in both directions or in one."""
        self._tell("cut off", node)
        others = sorted(set(self.nodes) - {node.me})
        chance.shuffle(others)
        both = chance.random() < 0.7
        for other in others[chance.choice((0, 1, 1)) :]:
            for link in ((node.me, other), (other, node.me))[: 2 if both else 1]:
                self._lose(link)
        length = between(chance, 500, 40_000) if chance.random() < 0.3 else 2_000
        self.loop.after(length * MS, self._join, node.me)

    def _lose(self, link: tuple[NodeId, NodeId]) -> None:
        self._cut.add(link)
        self._links[link] += 1
        self._last.pop(link, None)
        self.nodes[link[1]].clock.forget(link[0])

    def _join(self, me: NodeId) -> None:
        self._cut = {link for link in self._cut if me not in link}

    def _slow_links(self, chance: Random, node: Node) -> None:
        """Links to and from one node, or between two."""
        self._tell("slow", node)
        others = sorted(set(self.nodes) - {node.me})
        slow = 0, between(chance, 50, 1_500) * MS
        for other in others if chance.random() < 0.6 else others[:1]:
            self._slow[node.me, other] = self._slow[other, node.me] = slow
        self.loop.after(between(chance, 1_000, 30_000) * MS, self._fast, node.me)

    def _fast(self, me: NodeId) -> None:
        self._slow = {link: slow for link, slow in self._slow.items() if me not in link}

    def _hold_link(self, chance: Random, node: Node) -> None:
        self._tell("held", node)
        other = chance.choice(sorted(set(self.nodes) - {node.me}))
        link = chance.choice(((node.me, other), (other, node.me)))
        self._held[link] = self.loop.now_ns + between(chance, 200, 5_000) * MS

    def _repair(self, chance: Random, node: Node) -> None:
        """The machine's time is synchronised again; the process restarts, or is slewed."""
        if node.halted:
            return
        node.machine.change(stands=False, ppm=0)
        node.machine.set_wall(between(chance, -self._right_ns // 2, self._right_ns // 2))
        if abs(self._off(node)) > self._right_ns and chance.random() < 0.7:
            self._tell("repaired", node)
            self._restart(node)
        if abs(self._off(node)) <= self._right_ns:
            self._wrong.discard(node.me)

    def _heal(self) -> None:
        self._cut.clear()
        self._slow.clear()
        self._held.clear()
        for node in self.nodes.values():
            node.machine.change(stands=False, ppm=0)
            node.machine.set_wall(0)
            if abs(self._off(node)) > self._right_ns or node.halted:
                self._restart(node)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.clock_world")
    parser.add_argument("--seeds", default="0:200", metavar="FROM:TO", help="seeds, TO excluded")
    parser.add_argument("--verbose", action="store_true", help="print what goes wrong")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition(":")
    total: Counter[str] = Counter()
    failed = []
    for seed in range(int(first), int(last)):
        world = ClockWorld(seed, verbose=arguments.verbose)
        try:
            world.run()
        except Violation as violation:
            failed.append(seed)
            print(f"seed {seed}: {violation}", flush=True)
        total += world.statistics
    for name, number in sorted(total.items()):
        print(f"  {name}: {number:,}")
    print(f"{int(last) - int(first)} worlds, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
