"""How long a dead member of the consumer group is waited for: its session, and one grace in all.

Only the time in which a coordinator listens counts, and of a master that is lost only what its log
has. The watch stands still while there is no master, or while the master is paused, and goes back
to the recorded time when a master is replaced that did not hand over. It knows nothing of what
coordinators believe, except when they report that the member is gone.
"""

from abc import ABC, abstractmethod
from typing import Final, Generic, Protocol, TypeVar

import attrs

from broker.groups.consumer_groups import paxos_group_of
from coordinator.replicated.waits import TimeLeft
from paxos.ids import MS, GroupId, NodeId
from simulator.environment.loop import Loop
from simulator.environment.violation import Violation
from simulator.node.broker_node import BrokerNode
from simulator.node.node import SimNode

LOOK_NS: Final = 20 * MS
SLACK_MS: Final = 500
"""Ticks, proposals in flight, and the time a coordinator may have idled before a pause."""
RATE_SLACK: Final = 10
"""A tenth more: the rates of boot clocks are off."""


NodeT = TypeVar("NodeT")


@attrs.define(eq=False)
class _Dead:
    limit_ms: int
    waited_ms: int = 0
    kept_ms: int = 0
    """How much of it the log knows."""


class Watched(Protocol):
    """What this needs of the world."""

    loop: Loop
    nodes: dict[NodeId, SimNode]

    def runs(self, node: SimNode) -> bool: ...


class MemberWatch(ABC, Generic[NodeT]):
    """The part common to all worlds; `name`: of the consumer group."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop, self._name = loop, name
        self._dead: dict[str, _Dead] = {}
        self._gone: set[str] = set()
        self._group: GroupId | None = None
        self._looks = False
        """Whether `_look` is due: once every LOOK_NS, or time would count twice (seed 831)."""
        self._listened: tuple[NodeT, int] | None = None
        """The last node that listened, and in which life."""
        self.watched = self.gone_count = 0

    def died(self, member_id: str, session_ms: int, grace_ms: int) -> None:
        """The member will never be heard of again under this id; it may have lost its place
        already."""
        if member_id in self._gone:
            return
        limit_ms = session_ms + grace_ms
        limit_ms += limit_ms // RATE_SLACK + SLACK_MS
        self._dead[member_id] = _Dead(limit_ms)
        self.watched += 1
        if not self._looks:
            self._looks = True
            self._loop.after(LOOK_NS, self._look)

    @property
    def waits(self) -> bool:
        """Whether any member has died and is not gone yet."""
        return bool(self._dead)

    def heard(self, frame: bytes) -> None:
        """A request reached a node; a dead member may have sent it before."""
        for member_id, dead in self._dead.items():
            if member_id.encode() in frame:
                dead.waited_ms = dead.kept_ms = 0

    def notice(self, what: str, detail: str, grace_ms: int) -> None:
        """A coordinator's notice about its groups."""
        if what == "member_gone":
            member_id = detail.partition(":")[0]
            self._gone.add(member_id)
            self.gone_count += self._dead.pop(member_id, None) is not None
        elif what == "snapshot_lost":  # a member that was about to go is back, for a grace
            for dead in self._dead.values():
                dead.limit_ms += grace_ms

    def written(self, command: TimeLeft) -> None:
        """The remaining time of waits is in the log."""
        named = {what.member for _, _, waits in command.groups for what, _ in waits}
        for member_id in self._dead.keys() & named:
            self._dead[member_id].kept_ms = self._dead[member_id].waited_ms

    def moved(self, group: GroupId, *, stolen: bool) -> None:
        if group == self._group and not stolen:
            for dead in self._dead.values():
                dead.waited_ms = dead.kept_ms

    def _look(self) -> None:
        self._looks = bool(self._dead)
        if not self._looks:
            return
        self._loop.after(LOOK_NS, self._look)
        listens = self.coordinator()
        if listens is None:
            return
        if self._listened is not None:
            node, life = self._listened
            if self.life_of(node) != life:  # it crashed, and may still be master
                for dead in self._dead.values():
                    dead.waited_ms = dead.kept_ms
        self._listened = listens, self.life_of(listens)
        for member_id, dead in sorted(self._dead.items()):
            dead.waited_ms += LOOK_NS // MS
            if dead.waited_ms > dead.limit_ms:
                raise Violation(
                    f"dead-member: {member_id} was listened for during {dead.waited_ms} ms, "
                    f"and may be kept for {dead.limit_ms}"
                )

    @abstractmethod
    def coordinator(self) -> NodeT | None:
        """The node that listens to the group's members at this moment."""

    @abstractmethod
    def life_of(self, node: NodeT) -> int: ...


class DeadMembers(MemberWatch[BrokerNode]):
    def __init__(self, world: Watched, name: str) -> None:
        super().__init__(world.loop, name)
        self._world = world

    def life_of(self, node: BrokerNode) -> int:
        return node.core.incarnation

    def coordinator(self) -> BrokerNode | None:
        """The node that listens to the group's members at this moment."""
        brokers = [node for node in self._world.nodes.values() if isinstance(node, BrokerNode)]
        if self._group is None:
            known = (paxos_group_of(node.registry, self._name) for node in brokers if node.up)
            self._group = next((group for group in known if group is not None), None)
        group = self._group
        if group is None:
            return None
        for node in brokers:
            if self._world.runs(node) and node.acting(group) and node.caught_up(group):
                return node
        return None
