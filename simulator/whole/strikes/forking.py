"""A log that differs while only two of three are there: neither can know which one is wrong.

Both may doubt, and must not act or vote until the third is back, which tells who is right.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from paxos.ids import MS
from simulator.whole.host import Host
from simulator.whole.options import Fault
from simulator.whole.strikes.machines import Machines

APART_NS: Final = 5_000 * MS
"""Longer than a difference may go unnoticed (machines.NOTICED_NS), and shorter than the node that
differs is left with its log."""
MEMBERS: Final = 3


class ForkedApart(Machines):
    name = "forked apart"

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {Fault.FORK_APART: partial(self._one, self._fork_apart)}

    def _fork_apart(self, host: Host) -> None:
        world = self._world
        others = [one for one in world.nodes.values() if one is not host and one.up]
        if len(world.nodes) != MEMBERS or len(others) < MEMBERS - 1 or self._differs():
            return
        self._fork(host)
        if not self._differs():
            return
        away = self._chance.choice(others).address
        self._note("apart", away)
        rest = [one for one in world.addresses if one != away]
        links = [(away, one) for one in rest] + [(one, away) for one in rest]
        world.links.cut.update(links)
        world.loop.after(APART_NS, partial(world.links.cut.difference_update, links))

    def _differs(self) -> bool:
        return self._forked is not None
