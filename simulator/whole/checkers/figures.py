"""What nodes do beside serving clients, seen from outside.

I11: a node that knows that its disk hangs is master of nothing for longer than a lease. `votes`:
where no node has lost anything of its disk, none gives up its vote. `waste`: nobody is sent the
same entries of a log again and again in one life. `unready`: where nothing hurts them nodes go on
knowing their masters. `numbers`: at the end nobody believes in slots that there are not, or uses
ballots up.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol

from paxos.entry import Entry
from paxos.ids import MS, GroupId, NodeId
from paxos.messages import Learned
from simulator.environment.loop import Loop
from simulator.environment.violation import Violation
from simulator.whole.checkers.contact import clock_of
from simulator.whole.host import Host
from simulator.whole.options import Fault, WholeOptions

GIVES_UP_NS: Final = 1_000 * MS
TAUGHT_MAX: Final = 12
"""Answers may be lost with their link, and asked for again of another member."""
AHEAD_MAX: Final = 10_000
"""More slots than any world has."""
ROUNDS_MAX: Final = 1 << 40
"""Each wrong word may use up 2**32 (paxos.timing.ROUND_AHEAD_MAX)."""
FOUNDED_NS: Final = 5_000 * MS
FORGETFUL: Final = frozenset(
    {
        Fault.LOST_DIRECTORY,
        Fault.OLD_DIRECTORY,
        Fault.DAMAGE,
        Fault.FORK,
        Fault.FORK_APART,
        Fault.OLD_TWICE,
        Fault.MOVE,
        Fault.ADD_NODE,
        Fault.REMOVE_NODE,
    }
)
"""Where a member has something to forget, or is a new one."""


class Watched(Protocol):
    options: WholeOptions
    loop: Loop
    nodes: dict[NodeId, Host]


class Figures:
    def __init__(self, world: Watched) -> None:
        self._world = world
        self._hung_since: dict[NodeId, int] = {}
        self._taught: Counter[tuple[NodeId, int, GroupId, int]] = Counter()
        self._was_ready: set[NodeId] = set()

    def look(self) -> None:
        hosts = self._world.nodes.values()
        calm = not self._world.options.faults and all(host.node is not None for host in hosts)
        for host in hosts:
            self._look_at_disk(host)
            if calm:
                self._look_whether_ready(host)

    def _look_at_disk(self, host: Host) -> None:
        node, true_ns = host.node, self._world.loop.now_ns
        if node is None or not node.engine.disk_health.hung:
            self._hung_since.pop(host.me, None)
            return
        since = self._hung_since.setdefault(host.me, true_ns)
        if true_ns - since <= self._world.options.lease_ms * MS + GIVES_UP_NS:
            return
        now = clock_of(host, true_ns)
        for group, replica in node.multi.replicas.items():
            if len(replica.members) > 1 and replica.acting(now):
                raise Violation(f"I11: node {host.me}'s disk hangs, and it acts for group {group}")

    def _look_whether_ready(self, host: Host) -> None:
        if host.node is None or self._world.loop.now_ns < FOUNDED_NS:
            return
        why = host.node.shell.not_ready()
        if not why:
            self._was_ready.add(host.me)
        elif host.me in self._was_ready and "has no master" in why:  # some are a little behind
            raise Violation(f"unready: node {host.me} is not ready any more: {why}")

    def said(self, node: NodeId, event: str, rest: Mapping[str, object]) -> None:
        """A line of a node's log."""
        if event == "non-voting" and not self._world.options.faults & FORGETFUL:
            raise Violation(f"votes: node {node} gives up its vote: {rest}")

    def taught(self, to: NodeId, message: object) -> None:
        """A node sends another one entries of its log."""
        if not isinstance(message, Learned):
            return
        life = self._world.nodes[to].life
        entries: tuple[Entry, ...] = message.entries
        place = to, life, message.group, message.start + len(entries) - 1
        self._taught[place] += 1
        if self._taught[place] > TAUGHT_MAX:
            raise Violation(f"waste: node {to} was sent slot {place[3]} {TAUGHT_MAX} times")

    def at_the_end(self, lengths: Mapping[GroupId, int]) -> None:
        """`lengths`: of the chosen logs."""
        for host in self._world.nodes.values():
            if host.node is None:
                continue
            for group, replica in host.node.multi.replicas.items():
                if replica.learner.chosen_to > lengths[group] + AHEAD_MAX:
                    raise Violation(
                        f"numbers: node {host.me} believes in slot {replica.learner.chosen_to} of "
                        f"group {group}, which has {lengths[group]}"
                    )
                if replica.acceptor.promised.round > ROUNDS_MAX:
                    raise Violation(
                        f"numbers: node {host.me} has promised {replica.acceptor.promised}"
                    )
