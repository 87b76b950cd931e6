"""Which nodes there are and which groups they have: said in the registry, as the admin pages do.

Nothing is done that the tools would refuse: a node is removed where `POST /admin/node` allows it,
and loses its directory where `evenkeel node replace` would take it away.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from balancer.registry.commands import AddNode, Done, RemoveNode, SetReplicaSets
from balancer.registry.records import Address
from paxos.ids import MS, GroupId, NodeId
from runtime.membership.lost_directory import what_would_be_lost
from runtime.metrics.status import group_members
from simulator.environment.dice import between
from simulator.whole.host import PEER_PORT, Host
from simulator.whole.nemesis import Hurt, Strikes, nothing
from simulator.whole.options import Fault

NODES_MAX: Final = 9
ADDED_MAX: Final = 2
REMOVED_MAX: Final = 2
LOOK_NS: Final = 200 * MS
UNHEARD_NS: Final = 10_000 * MS
"""What an operator said before the heal is chosen by then, or never."""
COPY_NS_MAX: Final = 8_000 * MS


class Membership(Strikes):
    name = "membership"

    def __init__(self, world: Hurt) -> None:
        super().__init__(world)
        self._next_id = max(world.addresses) + 1
        self._added = self._removed = 0
        self.victim: NodeId | None = None
        """Whose files were damaged: nobody else loses anything."""

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        changes = {
            Fault.MOVE: self._move,
            Fault.ADD_NODE: self._add,
            Fault.REMOVE_NODE: self._remove,
        }
        if Fault.DAMAGE in self._world.options.faults:
            changes = {}
        return changes | {
            Fault.LOST_DIRECTORY: partial(self._one, self._lose),
            Fault.OLD_DIRECTORY: partial(self._one, self._copy),
        }

    def _serving(self) -> list[Host]:
        return [host for host in self._world.nodes.values() if host.node is not None]

    def _somebody(self) -> Host | None:
        serving = self._serving()
        return self._chance.choice(serving) if serving else None

    # -- said in the registry -----------------------------------------------------------------

    def _move(self) -> None:
        """An operator says which nodes keep a group."""
        host = self._somebody()
        there = [one.me for one in self._world.nodes.values() if not one.retired]
        count = min(len(there), between(self._chance, 1, 2) + self._world.options.replicas // 2)
        nodes = tuple(sorted(self._chance.sample(there, count)))
        group = GroupId(between(self._chance, 1, self._world.options.groups))
        if host is not None and host.node is not None and host.node.registry.cluster is not None:
            self._note("replicas", group, nodes)
            said = SetReplicaSets(None, {group: nodes}, by_hand=True)
            host.do(partial(host.node.client.propose, said, nothing))

    def _add(self) -> None:
        """The node is started when the registry knows it."""
        host = self._somebody()
        if host is None or host.node is None or host.node.registry.cluster is None:
            return
        if self._added >= ADDED_MAX or len(self._world.nodes) >= NODES_MAX:
            return
        self._added += 1
        node, self._next_id = NodeId(self._next_id), self._next_id + 1
        self._note("add", node)
        said = AddNode(node, Address(f"n{node}", PEER_PORT))

        def told(result: object) -> None:
            if isinstance(result, Done):
                self._world.loop.after(0, self._begin, node)

        host.do(partial(host.node.client.propose, said, told))

    def heal(self) -> None:
        self._begin_all(self._world.loop.now_ns + UNHEARD_NS)

    def _begin_all(self, until_ns: int) -> None:
        """A node whose addition was chosen without its operator's hearing of it is begun too: it
        counts for majorities of clocks, and of two nodes and two such ones none is ready (802)."""
        loop = self._world.loop
        for host in self._serving():
            assert host.node is not None
            for node in sorted(host.node.registry.peers.keys() - self._world.nodes.keys()):
                self._begin(node)
        if loop.now_ns < until_ns:
            loop.after(LOOK_NS, self._begin_all, until_ns)

    def _begin(self, node: NodeId) -> None:
        if node in self._world.nodes:
            return
        self._world.statistics["nodes added"] += 1
        self._boot(self._world.add_host(node))

    def _remove(self) -> None:
        host = self._somebody()
        if host is None or host.node is None or self._removed >= REMOVED_MAX:
            return
        node = host.node
        known = sorted(node.registry.nodes)
        if not known:
            return
        going = self._chance.choice(known)
        if node.node_admin.removal_problem(going):
            return
        self._removed += 1
        self._note("remove", going)
        host.do(partial(node.client.propose, RemoveNode(going), nothing))

    # -- directories --------------------------------------------------------------------------

    def may_lose(self, host: Host) -> bool:
        """Whether the others can do without its directory."""
        if self.victim not in (None, host.me):
            return False
        views = {int(one.me): _status(one) for one in self._serving()}
        return not what_would_be_lost(int(host.me), views)

    def _lose(self, host: Host) -> None:
        """`evenkeel node replace`."""
        if not self.may_lose(host):
            return
        self._note("lost directory", host.me)
        self._world.statistics["directories lost"] += 1
        self.empty(host)

    def empty(self, host: Host) -> None:
        self._put(host, {})

    def _copy(self, host: Host) -> None:
        """A copy is made, and later somebody takes it for the directory."""
        self._world.loop.after(
            between(self._chance, 100, COPY_NS_MAX // MS) * MS, self._back, host, host.disk.keep()
        )

    def _back(self, host: Host, files: dict[str, bytes]) -> None:
        if self._world.healed or not host.up or not self.may_lose(host):
            return
        self._note("old directory", host.me)
        self._world.statistics["old directories"] += 1
        host.may_be_refused = True
        self._put(host, files)

    def refused(self, host: Host) -> None:
        """It will not start with its directory, which is damaged: so it gets an empty one."""
        if host.up:
            return
        if self.may_lose(host):
            self._note("given up", host.me)
            self._put(host, {})
        else:
            self._world.loop.after(LOOK_NS, self.refused, host)

    def _put(self, host: Host, files: dict[str, bytes]) -> None:
        host.kill()
        host.disk.put(files)
        self._soon(3_000, partial(self._boot, host))


def _status(host: Host) -> dict[str, Any]:
    """What /status says, as far as it is asked for."""
    assert host.node is not None
    replicas = host.node.multi.replicas
    return {
        "groups": [
            {
                "group": group,
                "members": list(replica.members),
                "voting": replica.speaks_for_the_chosen(),
            }
            for group, replica in sorted(replicas.items())
        ],
        "group_members": group_members(host.node.registry),
    }
