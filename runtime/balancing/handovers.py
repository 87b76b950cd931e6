"""The master's side of a steal in the shell: ask the consumers, sync, let the core hand over.

    notify    every consumer that can be asked has been told (parked fetches are completed for it)
    collect   they have reported, or `progress_wait_ms` is over
    sync      what was waiting then, their commits above all, is applied as ordinary entries
    freeze    producers' commands are forwarded, what is proposed is applied and answered
    propose   the last entry is on its way

Nothing is given up before the last of these, and the core checks everything anew when it begins;
a renewal of our own meanwhile does not make the request stale. Whatever goes wrong, the steal goes
on without the consumers, or ends by the watchdogs of the core and of the one who asked.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from broker.groups.progress_requests import Collected, ProgressRequests
from broker.proposals.intake import Pending
from paxos.changes import handover
from paxos.ids import MS, Epoch, GroupId, NodeId, Now
from paxos.messages import StealRequest
from paxos.state.handover import Handover
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.engine.engine import Engine
from runtime.system.journal import Journal

KEPT: Final = 64
SYNC_NS_MAX: Final = 100 * MS
"""So long at most what the consumers reported is waited for, while producers go on undisturbed."""


@attrs.frozen
class HandedOver:
    """One finished handover of this node's, for metrics, status and the journal."""

    group: GroupId
    target: NodeId
    outcome: str
    """`handed-over`, or `kept`: called off, or decided otherwise."""
    finished_wall_ns: int
    asked: int
    reported: int
    phases_ns: dict[str, int]


@attrs.define(eq=False)
class _Open:
    group: GroupId
    target: NodeId
    request: StealRequest | None
    """None where this node gives the group away of its own accord (drain)."""
    epoch: Epoch
    began_boot_ns: int
    collected: Collected | None = None
    last: Pending | None = None
    """What has to be applied before the group is frozen."""
    synced_boot_ns: int = 0
    handover: Handover | None = None


class Arrivals:
    """The other side's last two phases: how soon a group that has come is produced to and read.

    `served` hears of each once: (phase, group, nanoseconds since this node acts for it).
    """

    def __init__(
        self, progress: ProgressRequests, served: Callable[[str, GroupId, int], None]
    ) -> None:
        self._progress, self._served = progress, served
        self._since: dict[GroupId, int] = {}
        """Groups that nobody has produced to yet."""

    def came(self, now: Now, group: GroupId) -> None:
        self._since[group] = now.boot_ns
        self._progress.first_fetch[group] = partial(self._fetched, group, now.boot_ns)

    def _fetched(self, group: GroupId, since_boot_ns: int, boot_ns: int) -> None:
        self._served("first-fetch", group, boot_ns - since_boot_ns)

    def grown(self, now: Now, group: GroupId) -> None:
        """Something was appended to the group."""
        since_boot_ns = self._since.pop(group, None)
        if since_boot_ns is not None:
            self._served("first-produce", group, now.boot_ns - since_boot_ns)


class Handovers:
    def __init__(
        self,
        engine: Engine,
        progress: ProgressRequests,
        progress_wait_ms: int,
        loop: BalancingLoop,
        journal: Journal,
    ) -> None:
        self.write_down: Callable[[GroupId], bool] = lambda _: False
        """Called before a group goes: submits what the target should know, says whether there is
        anything. Set by the shell."""
        self._engine, self._progress, self._loop = engine, progress, loop
        self._wait_ms, self._journal = progress_wait_ms, journal
        self._open: dict[GroupId, _Open] = {}
        self.finished: list[HandedOver] = []
        """The last KEPT."""

    def begin(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        """A request that the registry allows. What the core would refuse it refuses at once."""
        group = request.group
        replica = self._engine.multi.replicas[group]
        if group in self._open or handover.refusal(replica, now, sender, request):
            self._engine.hand_over(now, sender, request)
            return
        self._collect(_Open(group, sender, request, replica.lease.epoch, now.boot_ns))

    def give(self, now: Now, group: GroupId, target: NodeId) -> str:
        """The same of our own accord, for a drain; returns "" or why not."""
        replica = self._engine.multi.replicas[group]
        why = "busy" if group in self._open else handover.away_refusal(replica, now, target)
        if not why:
            self._collect(_Open(group, target, None, replica.lease.epoch, now.boot_ns))
        return why

    def _collect(self, one: _Open) -> None:
        self._open[one.group] = one
        self._progress.collect(one.group, self._wait_ms, partial(self._collected, one))

    @property
    def targets(self) -> list[NodeId]:
        """Where groups are on their way to."""
        return [one.target for one in self._open.values()]

    def _collected(self, one: _Open, collected: Collected) -> None:
        one.collected = collected
        now = self._engine.now()
        if self.write_down(one.group) or collected.asked:
            one.last = self._engine.intakes[one.group].last_waiting()
        self._sync(now, one)

    def _sync(self, now: Now, one: _Open) -> None:
        """Hand over once what was waiting is applied; what comes after it is not waited for."""
        group = one.group
        replica = self._engine.multi.replicas[group]
        assert one.collected is not None
        collected_ns = one.began_boot_ns + one.collected.notify_ns + one.collected.collect_ns
        late = now.boot_ns - collected_ns > SYNC_NS_MAX
        waiting = one.last is not None and self._engine.intakes[group].waits(one.last)
        if waiting and not late:
            return
        one.synced_boot_ns = now.boot_ns
        if one.request is None:
            handover.steal_away(replica, now, one.target)
        else:
            request = one.request
            if replica.lease.epoch == one.epoch:
                request = attrs.evolve(request, lease_ver=replica.lease.ver)
            self._engine.hand_over(now, one.target, request)
        one.handover = replica.handover
        if one.handover is None:
            del self._open[group]  # refused after all: who asked has been told; a drain asks again

    def look(self, now: Now) -> None:
        """Call at the end of each round: go on with what has become possible."""
        for group, one in list(self._open.items()):
            if one.collected is None:
                continue
            if one.handover is None:
                self._sync(now, one)
            elif self._engine.multi.replicas[group].handover is not one.handover:
                self._finish(now, one, one.handover)

    @property
    def busy(self) -> bool:
        return bool(self._open)

    def _finish(self, now: Now, one: _Open, handed: Handover) -> None:
        group, collected = one.group, one.collected
        assert collected is not None
        del self._open[group]
        lease = self._engine.multi.replicas[group].lease
        kept = lease.holder == self._engine.multi.me
        sent_ns = handed.sent_boot_ns or now.boot_ns
        phases = {
            "notify": collected.notify_ns,
            "collect": collected.collect_ns,
            "sync": one.synced_boot_ns
            - one.began_boot_ns
            - collected.notify_ns
            - collected.collect_ns,
            "freeze": sent_ns - one.synced_boot_ns,
            "propose": now.boot_ns - sent_ns,
        }
        done = HandedOver(
            group,
            one.target,
            "kept" if kept else "handed-over",
            now.wall_ns,
            collected.asked,
            collected.reported,
            phases,
        )
        self.finished = [*self.finished[-KEPT + 1 :], done]
        self._loop.phases_s += [(phase, ns / 1e9) for phase, ns in phases.items()]
        self._journal.info(
            "handover finished",
            group=group,
            target=one.target,
            outcome=done.outcome,
            consumers_asked=collected.asked,
            consumers_reported=collected.reported,
            **{f"{phase}_ms": round(ns / MS, 3) for phase, ns in phases.items()},
        )
