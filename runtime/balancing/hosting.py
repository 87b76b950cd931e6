"""Which groups this node hosts, and how a group gets the members that it should have.

The registry says which nodes should have a group (its replica set). The group's own log says which
nodes have it (Config entries), and its master notes them in the registry. This module leads from
one to the other, one change at a time (R10, docs/adr/0022):

* A node that should have a group starts it as non-voting, durably: it may have been a member
  before, and have forgotten what it promised (runtime.membership.admission). It learns the state
  from the log or from a member (broker.transfer), and votes when it is safe (paxos.changes.rejoin).
* Then the group's master adds it, and removes members that should go, except itself: another node
  steals the group first (`paxos.changes.membership.next_change`).
* A node that is no longer a member, and should not be, drops everything it has of the group. For
  this group that is like losing its disk, and it only happens once the registry says so: then the
  new set of members is chosen, a majority of them knows it for good, and they do not need this one.

Every node hosts the registry's group, even nodes that are not members of it: they learn it, because
they need what it says. After a restart, all of this is found in the logs.
"""

from collections.abc import Callable
from typing import Final

import attrs

from balancer.registry.commands import FinishRemoval, NoteMembers
from balancer.registry.registry import Registry
from broker.state_machine.machine import GroupMachine
from paxos.changes import membership
from paxos.ids import MS, REGISTRY_GROUP, SLOT_ZERO, GroupId, NodeId, Now, Slot
from paxos.replica import Replica
from paxos.state.core import Recovered
from paxos.step import VotingRecord
from runtime.engine.engine import Engine
from runtime.membership.registry_client import RegistryClient
from runtime.system.journal import Journal
from storage.log.model import RecoveredGroup

LOOK_EVERY_NS: Final = 200 * MS
"""Each time at most one change of members begins: every change costs its group a Prepare."""
NOTE_EVERY_NS: Final = 1_000 * MS
GIVE_AFTER_NS: Final = 3_000 * MS
"""A master that should not have the group waits this long for the balancer to steal it, and then
gives it away on its own initiative."""
PART_AFTER_NS: Final = 3_000 * MS
"""How long a node keeps a group that it should no longer have: its master may just have added it,
and needs this long to learn that it should not, and to note it."""


@attrs.define
class Parting:
    """The state of a group that this node should no longer have."""

    since_boot_ns: int
    chosen_to: Slot | None = None
    """The highest chosen slot that it knew after PART_AFTER_NS."""


class Hosting:
    """`make` builds a group's state machine, `first` gives a group's first members, `give` hands a
    group over (and returns "", or why it cannot), `dropped` is called for every dropped group."""

    def __init__(
        self,
        engine: Engine,
        client: RegistryClient,
        machines: dict[GroupId, GroupMachine],
        make: Callable[[GroupId], GroupMachine],
        first: Callable[[GroupId], tuple[NodeId, ...]],
        journal: Journal,
    ) -> None:
        self._engine, self._client = engine, client
        self._registry: Registry = client.registry
        self._machines, self._make, self._first = machines, make, first
        self._journal = journal
        self.give: Callable[[Now, GroupId, NodeId], str] = lambda _now, _group, _to: "nobody gives"
        self.dropped: Callable[[GroupId, GroupMachine], None] = lambda _group, _machine: None
        self.changed: Callable[[], None] = lambda: None
        """Called when the groups of this node have changed."""
        self.changes = 0
        """Changes of members that this node has begun as a master."""
        self._looked = 0
        self._noted: dict[GroupId, int] = {}
        self._finishing: dict[NodeId, int] = {}
        self._unwanted: dict[GroupId, int] = {}
        """Groups that this node is master of and should not have, and since when that is the only
        difference from the replica set."""
        self._parting: dict[GroupId, Parting] = {}

    @property
    def me(self) -> NodeId:
        return self._engine.multi.me

    # -- the groups of this node --------------------------------------------------------------

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        """The nodes that have a group, according to the registry."""
        return self._registry.members(group) or self._first(group)

    def is_wanted(self, group: GroupId) -> bool:
        """Whether this node has the group or should have it, according to the registry."""
        if group == REGISTRY_GROUP:
            return True
        if self.me in self._registry.removed:
            return False
        wanted = self._registry.replica_set(group) or self._first(group)
        return self.me in wanted or self.me in self.members(group)

    def at_boot(self, group: GroupId, found: RecoveredGroup | None) -> tuple[NodeId, ...] | None:
        """The members that a group starts with, before its checkpoint and log say more; None if
        this node starts without the group, or begins it from nothing (`tick`)."""
        first = self._first(group)
        if found is None or not (found.applied or found.base or found.votes or found.learned):
            begins = self.me in first and self._registry.members_since(group) is None
            never_had = found is None or found.voting
            return first if begins and never_had and self.is_wanted(group) else None
        return first if found.founded else self.members(group)

    def open(
        self,
        group: GroupId,
        members: tuple[NodeId, ...],
        recovered: Recovered | None,
        machine: GroupMachine,
    ) -> Replica:
        """Add the group; the caller must replay its log."""
        replica = self._engine.multi.add(group, members, recovered)
        self._machines[group] = machine
        self._engine.add_group(replica, machine)
        return replica

    def begin(self, group: GroupId, members: tuple[NodeId, ...]) -> Replica:
        """Add a group without any data here, as non-voting."""
        promised, _, floor = self._engine.wal.acceptor(group)
        floor = max(promised, floor)
        known = Recovered(promised, voting=False, floor=floor)
        replica = self.open(group, members, known, self._make(group))
        self._engine.step.persist.append(VotingRecord(group, False, floor))
        replica.replayed(self._engine.now(), self._engine.step)
        return replica

    # -- as time passes -----------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        if self._registry.cluster is None or now.boot_ns - self._looked < LOOK_EVERY_NS:
            return
        self._looked = now.boot_ns
        replicas = self._engine.multi.replicas
        for group in map(GroupId, self._registry.groups):
            if group not in replicas and self.is_wanted(group):
                self._journal.info("group begun", group=group, members=self.members(group))
                self.begin(group, self.members(group))
                self.changed()
            elif group in replicas and self._is_over(group, now):
                self._drop(group)
            elif group in replicas:
                self._introduce(replicas[group])
        self._drive(now)
        if self._engine.acting(REGISTRY_GROUP):
            self._finish_removals(now)

    def _introduce(self, replica: Replica) -> None:
        """Tell a group which nodes to ask, besides the members in its log. Those may all have left
        while this node was away, or been replaced after the slot that it has reached, and would
        never tell it. Only the group's own log says who counts in a quorum."""
        noted = self._registry.members(replica.group)
        replica.ask_also(node for node in noted if node not in replica.members)

    @property
    def _is_current(self) -> bool:
        """Whether our copy of the registry is current: since the start, enough members have said
        how far they are, and we have applied that much."""
        replica = self._engine.multi.replicas[REGISTRY_GROUP]
        return replica.speaks_for_the_chosen() and not replica.learner.behind

    def _is_over(self, group: GroupId, now: Now) -> bool:
        """Whether to drop a group: this node is not a member, and should not be one."""
        replica = self._engine.multi.replicas[group]
        out = replica.me not in replica.members or replica.rejoin is not None
        out = out and group != REGISTRY_GROUP
        out = out and not self.is_wanted(group) and not replica.acting(now)
        parting = self._parting.pop(group, None)
        if not out:
            return False
        parting = self._parting[group] = parting or Parting(now.boot_ns)
        return self._is_current and self._knows_all(replica, parting, now)

    def _knows_all(self, replica: Replica, parting: "Parting", now: Now) -> bool:
        """Whether there can be no Config entry, unknown to our log and to the registry, that makes
        this node a member. Until a moment ago it may have been wanted: then the master may have
        added it, the registry learns of that a second later, and a member must not forget
        anything."""
        if now.boot_ns - parting.since_boot_ns < PART_AFTER_NS:
            return False
        if (self._registry.members_since(replica.group) or SLOT_ZERO) > replica.configured:
            return True  # the slots in between need not be learned before they are dropped
        if parting.chosen_to is None:
            parting.chosen_to = replica.learner.chosen_to
        return replica.learner.applied >= parting.chosen_to

    def _drop(self, group: GroupId) -> None:
        """Drop the group: its replica, its state machine, its data and its part of the log."""
        engine = self._engine
        self._journal.info("group dropped", group=group, members=self.members(group))
        engine.remove_group(group)
        self.dropped(group, self._machines.pop(group))
        self._parting.pop(group, None)  # so that it waits again if the group comes back
        engine.wal.forget_group(group)
        self.changed()

    # -- as a master --------------------------------------------------------------------------

    def _drive(self, now: Now) -> None:
        """Note the members of our groups in the registry, and begin at most one change."""
        begun = False
        unwanted, self._unwanted = self._unwanted, {}
        for group, replica in sorted(self._engine.multi.replicas.items()):
            if not replica.acting(now):
                continue
            self._note(now, replica)
            wanted = self._registry.replica_set(group)
            if not wanted or set(wanted) == set(replica.members):
                continue
            if set(replica.members) - set(wanted) == {self.me} and set(wanted) < {*replica.members}:
                since = self._unwanted[group] = unwanted.get(group, now.boot_ns)
                if now.boot_ns - since >= GIVE_AFTER_NS:
                    self._give_away(now, group, wanted)
            elif not begun:
                begun = self._change(now, replica, wanted)

    def _change(self, now: Now, replica: Replica, wanted: tuple[NodeId, ...]) -> bool:
        concerned = {*wanted, *replica.members} - {self.me}
        able = [node for node in sorted(concerned) if membership.is_able(replica, now, node)]
        members = membership.next_change(replica.members, wanted, me=self.me, able=able)
        if members is None or replica.changing is not None:
            return False
        why = replica.change_members(now, members, self._engine.step)
        if why:
            self._journal.debug("members not changed", group=replica.group, reason=why)
            return False
        self.changes += 1
        self._journal.info(
            "members change", group=replica.group, before=replica.members, after=members
        )
        return True

    def _give_away(self, now: Now, group: GroupId, wanted: tuple[NodeId, ...]) -> None:
        """Give away a group that we should not have and that no node has stolen."""
        ideal = self._registry.placement.get(group)
        for node in sorted(wanted, key=lambda node: (node != ideal, node)):
            if not self.give(now, group, node):
                return

    def _note(self, now: Now, replica: Replica) -> None:
        """Note in the registry the members that the log says."""
        group, since = replica.group, self._registry.members_since(replica.group)
        known = SLOT_ZERO if since is None else since
        if replica.configured <= known or not membership.is_settled(replica):
            return
        if now.boot_ns - self._noted.get(group, 0) < NOTE_EVERY_NS:
            return
        self._noted[group] = now.boot_ns
        command = NoteMembers(group, replica.configured, replica.members)
        self._client.propose(command, lambda _result: None)

    def _finish_removals(self, now: Now) -> None:
        """As the registry's master: finish the removal of leaving nodes without groups."""
        registry = self._registry
        for node in [one.node for one in registry.nodes.values() if one.leaving]:
            used = node in registry.placement.values() or any(
                node in registry.members(group) or node in registry.replica_set(group)
                for group in map(GroupId, registry.groups)
            )
            if not used and now.boot_ns - self._finishing.get(node, 0) >= NOTE_EVERY_NS:
                self._finishing[node] = now.boot_ns
                self._client.propose(FinishRemoval(node), lambda _result: None)
