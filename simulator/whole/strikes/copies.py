"""An old copy of a node's directory that is started twice, and the first time reaches nobody.

The second start must not take the first one for the directory's past (storage.lives): the node has
forgotten what it promised since the copy was made, and may not vote before it has been told so.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from paxos.ids import MS, GroupId
from simulator.environment.violation import Violation
from simulator.whole.host import Host
from simulator.whole.membership import Membership
from simulator.whole.nemesis import Hurt, Strikes
from simulator.whole.options import Fault

SOON_NS: Final = 200 * MS
ADMITTED_NS: Final = 2_500 * MS
ALONE_NS: Final = 1_500 * MS
"""The first start of the copy lasts so long, and nobody hears of it."""
LOOK_NS: Final = 10 * MS
WATCHED_NS: Final = 5_000 * MS


class OldCopies(Strikes):
    name = "copies"

    def __init__(self, world: Hurt, membership: Membership) -> None:
        super().__init__(world)
        self._membership = membership
        self._busy = False

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {Fault.OLD_TWICE: partial(self._one, self._begin)}

    def _begin(self, host: Host) -> None:
        """A copy is made; the node is begun anew, and admitted with the directory it has."""
        if self._busy or host.node is None:
            return
        self._busy = True
        self._note("a copy is made", host.me)
        files = host.disk.keep()
        host.kill()
        loop = self._world.loop
        loop.after(SOON_NS, self._boot, host)
        loop.after(SOON_NS + ADMITTED_NS, self._put, host, files)

    def _put(self, host: Host, files: dict[str, bytes]) -> None:
        world = self._world
        if world.healed or host.node is None or not self._membership.may_lose(host):
            self._busy = False
            return
        self._note("an old copy, started alone", host.me)
        world.statistics["old copies started twice"] += 1
        host.may_be_refused = True
        host.kill()
        host.disk.put(files)
        others = [one for one in world.addresses if one != host.address]
        links = [(host.address, one) for one in others] + [(one, host.address) for one in others]
        world.links.cut.update(links)
        host.boot()
        world.loop.after(ALONE_NS, self._again, host, links)

    def _again(self, host: Host, links: list[tuple[int, int]]) -> None:
        world = self._world
        host.kill()
        world.links.cut.difference_update(links)
        self._boot(host)
        self._watch(host, set(), world.loop.now_ns + WATCHED_NS)

    def _watch(self, host: Host, told: set[GroupId], until_ns: int) -> None:
        """It gives up its vote in every group before it votes there."""
        node, loop = host.node, self._world.loop
        if node is not None:
            for group, replica in node.multi.replicas.items():
                if replica.rejoin is not None:
                    told.add(group)
                elif replica.can_vote() and group not in told and len(replica.members) > 1:
                    raise Violation(f"forgetful: node {host.me} votes in group {group}")
        if loop.now_ns < until_ns:
            loop.after(LOOK_NS, self._watch, host, told, until_ns)
        else:
            self._busy = False
