"""What one node knows when it decides about a steal: frozen snapshots, filled in by the shell.

A view may be outdated or wrong about other nodes. That costs a refused request, never safety: the
registry compares plan and incarnation, the master compares its lease version, and the log decides.
"""

from collections.abc import Mapping

import attrs

from balancer.registry.records import StealRecord, StealToken
from balancer.registry.registry import Registry
from paxos.ids import Epoch, GroupId, Incarnation, NodeId, Now, Slot


@attrs.frozen
class GroupView:
    """One group as this node's replica sees it."""

    group: GroupId
    master: NodeId | None
    """The holder of the lease unless that is safely past its expiry, else None."""
    lease_ver: Slot
    epoch: Epoch
    renewals: int
    """Valid renewals since `epoch` (paxos.lease)."""
    applied: Slot
    """The last slot this node has applied, ..."""
    chosen_to: Slot
    """... and the last one it knows to be chosen, here or at any member."""
    voting: bool
    """Whether this node may vote in it: otherwise it would be a master that can decide nothing."""

    @property
    def lag(self) -> int:
        return max(0, self.chosen_to - self.applied)


@attrs.frozen(kw_only=True)
class ClusterView:
    """All groups at one moment."""

    now: Now
    """When the snapshot was taken."""
    me: NodeId
    incarnation: Incarnation
    alive: frozenset[NodeId]
    """Nodes heard from lately; this one included."""
    registry_reachable: bool
    """Whether group 0 has a reachable master."""
    groups: Mapping[GroupId, GroupView]
    placement: Mapping[GroupId, NodeId]
    placement_version: int
    draining: frozenset[NodeId] = frozenset()
    """And those that are leaving."""
    members: Mapping[GroupId, frozenset[NodeId]] = attrs.field(factory=dict)
    """The nodes that have a group, if not all of them do."""
    paused: bool = False
    paused_groups: frozenset[GroupId] = frozenset()
    token: StealToken | None = None
    """This node's own steal, else one that blocks any other: the budget is used up."""
    others: tuple[StealToken, ...] = ()
    """The other steals in progress, if the policy allows several."""
    history: tuple[StealRecord, ...] = ()
    slow: frozenset[NodeId] = frozenset()
    """Nodes whose produce requests take longer than the policy allows: steals are paced."""

    @classmethod
    def of_registry(
        cls,
        registry: Registry,
        *,
        now: Now,
        me: NodeId,
        incarnation: Incarnation,
        alive: frozenset[NodeId],
        registry_reachable: bool,
        groups: Mapping[GroupId, GroupView],
        slow: frozenset[NodeId] = frozenset(),
    ) -> "ClusterView":
        """Take from the local copy of the registry what it knows, and the rest as given."""
        token = _token_for(me, registry.tokens, registry.policy.steals_max, now)
        return cls(
            now=now,
            me=me,
            incarnation=incarnation,
            alive=alive,
            registry_reachable=registry_reachable,
            groups=groups,
            placement=registry.placement,
            placement_version=registry.versions.placement,
            draining=frozenset(
                node.node for node in registry.nodes.values() if node.draining or node.leaving
            ),
            members={
                group: frozenset(members)
                for group in registry.placement
                if (members := registry.members(group))
            },
            paused=registry.paused,
            paused_groups=registry.paused_groups,
            token=token,
            others=tuple(one for one in registry.tokens if one is not token),
            history=registry.history,
            slow=slow,
        )


def _token_for(
    me: NodeId, tokens: tuple[StealToken, ...], budget: int, now: Now
) -> StealToken | None:
    """The token that concerns a node: its own, one that is in its way, or an expired one."""
    for one in tokens:
        if one.target == me:
            return one
    held = [one for one in tokens if not one.free_at(now.wall_ns)]
    if held:
        return held[0] if len(held) >= budget else None
    return tokens[0] if tokens else None
