"""Disk faults: disks get slow, run full, fail, flip bits, lose a directory, forget a vote.

Only a minority loses anything: what everyone who knew it has forgotten, nobody can bring back. A
node that has lost something counts as impaired until it votes again. If neither a checksum nor the
directory shows a loss, some node must be left that can tell: a node that has witnessed what its
peer has forgotten is spared until that peer has heard it (docs/adr/0004, "Consequences").
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from paxos.ids import MS, GroupId, NodeId
from simulator.environment.dice import between
from simulator.environment.network import Quality
from simulator.environment.options import Fault
from simulator.nemesis.surroundings import Conductor, Surroundings
from simulator.node.disk import RecordDisk

if TYPE_CHECKING:
    from simulator.node.node import SimNode

HALF: Final = Quality(loss=0.5)
SLOW_MS: Final = (50, 200, 2_000)
HANGS: Final = 0
"""In place of a time: no fsync ends."""
APART_NS: Final = 300 * MS
"""How long a plot lets slots be chosen by the nodes that will fail."""
HEARD_NS: Final = 400 * MS
"""How long it waits until the forgetful node has heard what the master remembers of it."""
POLL_NS: Final = 1 * MS


class DiskFaults:
    def __init__(self, world: Surroundings, nemesis: Conductor) -> None:
        self._world, self._nemesis = world, nemesis
        self._impaired: set[NodeId] = set()

    def strikes(self) -> Mapping[Fault, Callable[[Random], None]]:
        return {
            Fault.SLOW_DISK: self._slow,
            Fault.FULL_DISK: self._fill,
            Fault.FAILED_DISK: self._fail,
            Fault.DAMAGE: self._damage,
            Fault.LOST_DISK: self._lose,
            Fault.AMNESIA: self._plot_amnesia,
        }

    def _slow(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        slow_ms = chance.choice((*SLOW_MS, HANGS))
        if slow_ms == HANGS:
            self._hang(node, chance)
            return
        node.disk.slow_ns = slow_ms * MS
        self._nemesis.note("slow disk", node.me, node.disk.slow_ns)
        self._nemesis.later(between(chance, 200, 3_000) * MS, node.disk.mend)

    def _hang(self, node: "SimNode", chance: Random) -> None:
        """Half of the time under a master, and often as the only fault: then the others can go on,
        and only the node's own judgement ends its masterships."""
        world, nemesis = self._world, self._nemesis
        masters = world.all_masters()
        if masters and chance.random() < 0.5:
            node, _ = chance.choice(masters)
        for_ns = between(chance, 200, 12_000) * MS
        end_ns = world.loop.now_ns + for_ns
        if chance.random() < 0.5 and end_ns < world.options.heal_at_ns:
            nemesis.busy_until = max(nemesis.busy_until, end_ns)
            world.network.heal()
        node.disk.hung = True
        world.statistics["disks hung"] += 1
        nemesis.note("hung disk", node.me, for_ns)
        nemesis.later(for_ns, node.disk.mend)

    def _fill(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        node.disk.fill()
        self._nemesis.note("full disk", node.me)
        self._nemesis.later(between(chance, 200, 4_000) * MS, node.disk.mend)

    def _fail(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        node.disk.fail_next()
        self._nemesis.note("failing disk", node.me)

    # -- losses -------------------------------------------------------------------------------

    def impaired(self) -> set[NodeId]:
        """Nodes that do not vote in all their groups: each has lost something, or finds out only
        now, or must first learn again what its log has lost."""
        for node in self._world.nodes.values():
            if node.up and self._rejoins(node):
                self._impaired.add(node.me)
            elif node.up and not node.disk.unsettled:
                self._impaired.discard(node.me)
        return self._impaired

    def _rejoins(self, node: "SimNode") -> bool:
        return any(
            (
                held.replica.rejoin is not None
                or held.replica.has_gap()
                or held.replica.incomplete_to
            )
            and self._world.may_be_member(held.replica)
            for held in node.groups.values()
        )

    def may_lose(self, node: "SimNode") -> bool:
        """Whether in every group those who have lost something remain a minority of its members,
        and of those it may have soon; or are one of two (paxos.changes.rejoin)."""
        would_be = self.impaired() | {node.me}
        return all(
            len(would_be.intersection(members))
            <= (1 if len(members) == 2 else (len(members) - 1) // 2)
            for group in self._world.members
            for members in self._world.configurations(group)
        )

    def _impair(self, node: "SimNode", how: str, chance: Random) -> None:
        """Crash it, and let it lose something."""
        if node.up:
            self._nemesis.crash(node, chance)
        self._impaired.add(node.me)
        self._world.statistics[f"disks {how}"] += 1
        self._nemesis.note("loss", node.me, how)
        if how == "damaged":
            node.disk.damage(chance)
        elif how == "old":
            node.disk.roll_back()
        else:
            node.disk.wipe()

    def _damage(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        if self.may_lose(node):
            self._impair(node, "damaged", chance)

    def _lose(self, chance: Random) -> None:
        """Copy one node's directory; then a node's is lost, or replaced by its old copy."""
        self._world.somebody(chance).disk.remember()
        node = self._world.somebody(chance)
        if self.may_lose(node):
            self._impair(node, chance.choice(("old", "wiped")), chance)

    # -- the plot -----------------------------------------------------------------------------

    def _plot_amnesia(self, chance: Random) -> None:
        """Slots are chosen without some members; then one of those who chose them forgets, the
        master dies, and those who were cut off meet the forgetful one."""
        world = self._world
        masters = [one for one in world.all_masters() if self._all_well(one[1])]
        if not masters:
            return
        master, group = chance.choice(masters)
        members = master.groups[group].replica.members
        others = [world.nodes[n] for n in members if n != master.me]
        chance.shuffle(others)
        victim, apart = others[0], others[len(members) // 2 :]
        lease_ns = world.options.timing.lease_ns
        end_ns = APART_NS + HEARD_NS + 3 * lease_ns + 1_500 * MS
        if world.loop.now_ns + end_ns >= world.options.heal_at_ns:
            return
        self._nemesis.busy_until = world.loop.now_ns + end_ns
        self._nemesis.note("plot", master.me, victim.me, [node.me for node in apart])
        world.network.heal()
        for node in apart:
            world.network.isolate(node.me, world.addresses)
        world.loop.after(APART_NS, self._forget, chance, master, victim, group)
        world.loop.after(end_ns, self._end_plot)

    def _all_well(self, group: GroupId) -> bool:
        """Every node is up and votes, so one may lose what it has."""
        world = self._world
        return not self.impaired() and all(
            world.runs(node) and node.groups[group].replica.rejoin is None
            for node in world.nodes.values()
        )

    def _forget(self, chance: Random, master: "SimNode", victim: "SimNode", group: GroupId) -> None:
        if not (master.up and victim.up):
            return
        ours, theirs = master.groups[group].replica, victim.groups[group].replica
        witnessed = ours.peer(victim.me).witnessed >= theirs.acceptor.promised
        disk = victim.disk
        if witnessed and isinstance(disk, RecordDisk) and chance.random() < 0.5:
            self._nemesis.crash(victim, chance)
            if disk.lose_promise(group):
                self._impaired.add(victim.me)
                self._world.statistics["disks lying"] += 1
                self._nemesis.note("loss", victim.me, "lying", group)
                self._world.network.links[master.me, victim.me] = HALF
                for node in (master, victim):  # no earlier strike ends them now
                    node.doom = None
                    node.disk.mend()
            victim.boot()
            until_ns = self._world.loop.now_ns + HEARD_NS
            self._meet_once_heard(chance, master, victim, group, until_ns)
        else:
            self._impair(victim, chance.choice(("old", "wiped")), chance)
            victim.boot()
            self._meet(chance, master, victim)

    def _meet_once_heard(
        self, chance: Random, master: "SimNode", victim: "SimNode", group: GroupId, until_ns: int
    ) -> None:
        """Only the master can tell that the disk has lied. So it lives, and nothing else happens,
        until this life of the victim has heard it; what it sent to the life before does not count,
        because that may come late or again (seed 122). Half of the time what it teaches meanwhile
        is lost, but not for ever: the victim must meet nobody before it has heard the master."""
        world, nemesis = self._world, self._nemesis
        late = world.loop.now_ns >= until_ns
        if nemesis.stopped:
            return
        if (group, master.me) in victim.told:
            if late:
                world.network.heal()
            else:
                self._meet(chance, master, victim)
            return
        if late:
            world.network.links.pop((master.me, victim.me), None)
        nemesis.busy_until = max(nemesis.busy_until, world.loop.now_ns + 2 * POLL_NS)
        world.loop.after(POLL_NS, self._meet_once_heard, chance, master, victim, group, until_ns)

    def _meet(self, chance: Random, master: "SimNode", victim: "SimNode") -> None:
        """From here on only the forgetful one and those who were cut off take part."""
        self._nemesis.note("meet", master.me, victim.me)
        if master.up:
            self._nemesis.crash(master, chance)
        self._world.network.heal()

    def _end_plot(self) -> None:
        for node in self._world.nodes.values():
            if not node.up and not self._nemesis.stopped:
                node.boot()
