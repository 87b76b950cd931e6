"""The master's side of a steal in the shell: ask the consumers, sync, let the core hand over.

    notify    all consumers that can be asked get a progress request (delayed fetches complete)
    collect   they have reported, or `progress_wait_ms` is over
    sync      commands that waited then, above all their commits, are applied as ordinary entries
    freeze    producers' commands are forwarded; proposed ones are applied and answered
    propose   the last entry, the Steal, is being chosen

This node stays master until the last phase, and the core checks everything again when it begins. A
renewal by this node meanwhile does not make the request stale. If something goes wrong, the steal
continues without the consumers, or a watchdog of the core or of the target ends it.
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
"""How long the phase sync lasts at most; producers are served normally meanwhile."""


@attrs.frozen
class HandedOver:
    """A finished handover of this node, for metrics, status and the journal."""

    group: GroupId
    target: NodeId
    outcome: str
    """`handed-over`, or `kept`: aborted, or the Steal was not chosen."""
    finished_wall_ns: int
    asked: int
    reported: int
    phases_ns: dict[str, int]


@attrs.define(eq=False)
class _Open:
    group: GroupId
    target: NodeId
    request: StealRequest | None
    """None if this node gives the group away on its own initiative (drain)."""
    epoch: Epoch
    began_boot_ns: int
    collected: Collected | None = None
    last: Pending | None = None
    """The last command to be applied before the group is frozen."""
    synced_boot_ns: int = 0
    handover: Handover | None = None


class Arrivals:
    """The target's last two phases: how soon a stolen group is produced to and fetched from.

    `served` is called once for each: (phase, group, nanoseconds since this node acts for it).
    """

    def __init__(
        self, progress: ProgressRequests, served: Callable[[str, GroupId, int], None]
    ) -> None:
        self._progress, self._served = progress, served
        self._since: dict[GroupId, int] = {}
        """Groups without a produce so far, and since when this node acts for them."""

    def came(self, now: Now, group: GroupId) -> None:
        self._since[group] = now.boot_ns
        self._progress.first_fetch[group] = partial(self._fetched, group, now.boot_ns)

    def _fetched(self, group: GroupId, since_boot_ns: int, boot_ns: int) -> None:
        self._served("first-fetch", group, boot_ns - since_boot_ns)

    def grown(self, now: Now, group: GroupId) -> None:
        """Records were appended to the group."""
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
        """Called before a group is handed over: submits what the target should know; returns
        whether there is anything. Set by the shell."""
        self._engine, self._progress, self._loop = engine, progress, loop
        self._wait_ms, self._journal = progress_wait_ms, journal
        self._open: dict[GroupId, _Open] = {}
        self.finished: list[HandedOver] = []
        """The last KEPT handovers."""

    def begin(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        """Begin with a request that the registry allows. If the core would refuse it, it does so at
        once."""
        group = request.group
        replica = self._engine.multi.replicas[group]
        if group in self._open or handover.refusal(replica, now, sender, request):
            self._engine.hand_over(now, sender, request)
            return
        self._collect(_Open(group, sender, request, replica.lease.epoch, now.boot_ns))

    def give(self, now: Now, group: GroupId, target: NodeId) -> str:
        """Begin a handover on our own initiative, for a drain; returns "", or why it cannot."""
        replica = self._engine.multi.replicas[group]
        why = "busy" if group in self._open else handover.away_refusal(replica, now, target)
        if not why:
            self._collect(_Open(group, target, None, replica.lease.epoch, now.boot_ns))
        return why

    def _collect(self, one: _Open) -> None:
        self._open[one.group] = one
        self._progress.collect(one.group, self._wait_ms, partial(self._collected, one))

    def dropped(self, group: GroupId) -> None:
        """This node no longer has the group: consumers may report for longer than that takes."""
        if self._open.pop(group, None) is not None:
            self._progress.stop(group)

    @property
    def targets(self) -> list[NodeId]:
        """The targets of the handovers in progress."""
        return [one.target for one in self._open.values()]

    def _collected(self, one: _Open, collected: Collected) -> None:
        one.collected = collected
        now = self._engine.now()
        if self.write_down(one.group) or collected.asked:
            one.last = self._engine.intakes[one.group].last_waiting()
        self._sync(now, one)

    def _sync(self, now: Now, one: _Open) -> None:
        """Hand over once the waiting commands are applied; later ones do not delay it."""
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
            del self._open[group]  # refused: the requester was told, and a drain tries again

    def look(self, now: Now) -> None:
        """Continue with open handovers; call it at the end of each round."""
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
