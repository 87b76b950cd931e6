"""What is held up and comes late: what a node tells another one, and a coordinator's own work.

A link that stalls loses nothing: what was sent on it arrives later, when its sender may have been
asked for something else, elsewhere. So one that stalls for less time than a forwarded command is
waited for decides what becomes of orders that come late.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from paxos.ids import MS, REGISTRY_GROUP, GroupId
from simulator.environment.dice import between
from simulator.whole.host import Host
from simulator.whole.nemesis import Hurt, Strikes
from simulator.whole.operations import MOVE_LOOK_NS, Moves
from simulator.whole.options import Fault

HELD_MS: Final = (1_600, 2_950)
"""Longer than an operator's node waits for the outcome of its order, and not so long that the
order comes too late to be carried out."""
GIVEN_MS: Final = (2_500, 2_800)
"""Longer than an operator waits."""
ANSWERED_MS: Final = (3_300, 4_500)
"""Longer than a forwarded command is waited for (runtime.engine.forwarding)."""
DRAINED_MS: Final = (220, 900)
"""A drain is called off after 200 ms (paxos.timing)."""
STALLED_MS: Final = (3_100, 3_900)
"""A coordinator takes less for no pause (coordinator.limits.pause_ms_max)."""
RUNS_MS: Final = (1_000, 1_900)
"""Less than a grace."""
STALLS: Final = (8, 14)
FLICKERS: Final = (5, 9)
DARK_NS: Final = 1_550 * MS
LIT_NS: Final = 210 * MS
"""Longer than what was sent waits at most to be sent again (simulator.whole.streams.RESEND_NS)."""


class Holding(Strikes):
    name = "holding"

    def __init__(self, world: Hurt) -> None:
        super().__init__(world)
        self._holds = self._stalls = False

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {
            Fault.HOLD: self._hold,
            Fault.STALLS: self._stall,
            Fault.FLICKER: partial(self._one, self._flicker),
        }

    def _hold(self) -> None:
        """What one node forwards to the registry's master is under way for long."""
        world = self._world
        master = next((one for one in world.nodes.values() if leads(one, REGISTRY_GROUP)), None)
        others = [one for one in world.nodes.values() if one.up and one is not master]
        if master is None or not others or self._holds:
            return
        host = self._chance.choice(others)
        link = host.address, master.address
        self._note("hold", link)
        self._holds = True
        world.links.cut.add(link)
        world.loop.after(between(self._chance, *HELD_MS) * MS, self._let_go, link)

    def _let_go(self, link: tuple[int, int]) -> None:
        self._holds = False
        self._world.links.cut.discard(link)

    def _flicker(self, host: Host) -> None:
        """It is cut off from all others, but for moments in which what waited comes through."""
        world, me = self._world, host.address
        others = [one.address for one in world.nodes.values() if one is not host]
        links = [(me, one) for one in others] + [(one, me) for one in others]
        if world.links.cut:
            return
        self._note("flicker", me)
        world.links.cut.update(links)
        self._light(links, between(self._chance, *FLICKERS))

    def _light(self, links: list[tuple[int, int]], left: int) -> None:
        """What it says comes through, and the next time what it is told: an answer is always old.
        (What has waited comes at once: in one moment there would be time for both.)"""
        links_now, loop = self._world.links, self._world.loop
        if not left or self._world.healed:
            links_now.cut.difference_update(links)
            return
        half = len(links) // 2
        lit = links[:half] if left % 2 else links[half:]
        loop.after(DARK_NS, links_now.ajar.update, lit)
        loop.after(DARK_NS + LIT_NS, links_now.ajar.difference_update, lit)
        loop.after(DARK_NS + LIT_NS, self._light, links, left - 1)

    # -- coordinators -------------------------------------------------------------------------

    def _stall(self) -> None:
        """The master of a group stops again and again, each time for less than its lease."""
        if not self._stalls:
            self._stalls = True
            group = GroupId(1 + self._chance.randrange(self._world.options.groups))
            self._again(group, between(self._chance, *STALLS))

    def _again(self, group: GroupId, left: int) -> None:
        world = self._world
        if world.healed or not left:
            self._stalls = False
            return
        ns = between(self._chance, *STALLED_MS) * MS
        runs_ns = between(self._chance, *RUNS_MS) * MS
        host = next((one for one in world.nodes.values() if leads(one, group)), None)
        if host is not None and host.process is not None:
            self._note("stall", host.me, ns)
            world.statistics["masters stalled"] += 1
            host.process.stand_still(world.loop.now_ns + ns)
            runs_ns += ns
        world.loop.after(runs_ns, self._again, group, left - 1)


class HeldGifts(Moves):
    """While a master gives its group away, what it tells the taker is held up: what it forwards
    comes when others have asked the taker for something else."""

    name = "held gifts"

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {Fault.HOLD_GIVER: self._move}

    def _wait(self, taker: Host, giver: Host, group: GroupId, until_ns: int) -> None:
        loop = self._world.loop
        if gives(giver, group):
            self._hit(taker, giver)
        elif loop.now_ns < until_ns and not self._world.healed:
            loop.after(MOVE_LOOK_NS, self._wait, taker, giver, group, until_ns)

    def _hit(self, taker: Host, giver: Host) -> None:
        world, link = self._world, (giver.address, taker.address)
        world.statistics["gifts held"] += 1
        self._note("held", link)
        world.links.cut.add(link)
        after_ns = between(self._chance, *GIVEN_MS) * MS
        world.loop.after(after_ns, partial(world.links.cut.discard, link))


class CutGifts(HeldGifts):
    """While a master gives its group away it is cut off, for longer than a drain may take: it keeps
    the group, and what it has forwarded is on its way."""

    name = "cut gifts"

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {Fault.CUT_GIVER: self._move}

    def _hit(self, taker: Host, giver: Host) -> None:
        world, me = self._world, giver.address
        others = [one for one in world.addresses if one != me]
        links = [(me, one) for one in others] + [(one, me) for one in others]
        world.statistics["gifts cut off"] += 1
        self._note("cut at its giving", me)
        world.links.cut.update(links)
        after_ns = between(self._chance, *DRAINED_MS) * MS
        world.loop.after(after_ns, partial(world.links.cut.difference_update, links))


class HeldAnswers(Moves):
    """Once a new master has its group, what it tells the old one is held up for longer than a
    forwarded command is waited for: it is done, and nobody there knows."""

    name = "held answers"

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {Fault.HOLD_ANSWERS: self._move}

    def _hit(self, taker: Host, giver: Host) -> None:
        world, link = self._world, (taker.address, giver.address)
        world.statistics["answers held"] += 1
        self._note("answers held", link)
        world.links.cut.add(link)
        after_ns = between(self._chance, *ANSWERED_MS) * MS
        world.loop.after(after_ns, partial(world.links.cut.discard, link))


def leads(host: Host, group: GroupId) -> bool:
    replica = None if host.node is None else host.node.multi.replicas.get(group)
    return replica is not None and replica.lease.holder == host.me


def gives(host: Host, group: GroupId) -> bool:
    replica = None if host.node is None else host.node.multi.replicas.get(group)
    return replica is not None and replica.handover is not None
