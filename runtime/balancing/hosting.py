"""Which groups this node keeps, and how its groups come to the members they should have.

The registry says which nodes should have a group (its replica set); which nodes have it, its own
log says (Config entries), and its master notes them in the registry. This is the way from the one
to the other, one change at a time (R10, docs/adr/0022):

* a node that should have a group begins it as one that does not vote, durably so: it may have been
  a member once, and have forgotten what it promised (runtime.membership.admission). It learns what
  there is, from the log or from a member's state (broker.transfer), and votes when it is safe
  (paxos.changes.rejoin);
* the group's master adds it then, and removes whoever should go, itself excepted: it is stolen
  away first (`paxos.changes.membership.next_change`);
* whoever is no member any more, and shall not be one, drops all it has of the group. That is as a
  lost disk is, for this one group, and it is only done when the registry tells of it: so the
  members without it are chosen, known to a majority of them for good, and will not need it.

The registry's group itself is kept by every node, by those that are no members of it as well: they
learn it, for it says what they have to know. A restart in between finds all of it in logs.
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
"""And at most one change of members is begun each time: every one costs its group a Prepare."""
NOTE_EVERY_NS: Final = 1_000 * MS
GIVE_AFTER_NS: Final = 3_000 * MS
"""A master that should not even have the group waits so long for the balancer to steal it, and then
gives it away of its own accord."""
PART_AFTER_NS: Final = 3_000 * MS
"""A node that should not have a group any more keeps it for so long: as it takes a master that has
just added it to hear that, and to note it."""


@attrs.define
class Parting:
    """Of a group that this node should not have any more."""

    since_boot_ns: int
    chosen_to: Slot | None = None
    """What was chosen, as far as it knew, when it had waited."""


class Hosting:
    """`make` builds a group's state machine, `first` says where a group began; `give` hands a group
    over ("" or why not); `dropped` is told of every group whose data may go."""

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
        """Told when this node has other groups than before."""
        self.changes = 0
        """Of members, begun by this node as a master."""
        self._looked = 0
        self._noted: dict[GroupId, int] = {}
        self._finishing: dict[NodeId, int] = {}
        self._unwanted: dict[GroupId, int] = {}
        """Groups this node is master of and should not have, and since when that is all."""
        self._parting: dict[GroupId, Parting] = {}

    @property
    def me(self) -> NodeId:
        return self._engine.multi.me

    # -- which groups there are ---------------------------------------------------------------

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        """The nodes that have a group, as far as the registry tells."""
        return self._registry.members(group) or self._first(group)

    def is_wanted(self, group: GroupId) -> bool:
        """Whether this node has the group or is to have it, as far as the registry tells."""
        if group == REGISTRY_GROUP:
            return True
        if self.me in self._registry.removed:
            return False
        wanted = self._registry.replica_set(group) or self._first(group)
        return self.me in wanted or self.me in self.members(group)

    def at_boot(self, group: GroupId, found: RecoveredGroup | None) -> tuple[NodeId, ...] | None:
        """The members a group of this node's starts with, before its checkpoint and its log say
        more; None where this node starts without the group, or begins it anew (`tick`)."""
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
        """Have the group from now on; its log is to be replayed by whoever calls this."""
        replica = self._engine.multi.add(group, members, recovered)
        self._machines[group] = machine
        self._engine.add_group(replica, machine)
        return replica

    def begin(self, group: GroupId, members: tuple[NodeId, ...]) -> Replica:
        """Have a group of which there is nothing here, or nothing any more: it does not vote."""
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
        """Tell a group whom to ask beside the members its log knows of. These may all have left it
        while this node was away, or may have been replaced since where it has got to by now; nobody
        else would ever tell it so. Who counts in a quorum its own log alone says."""
        noted = self._registry.members(replica.group)
        replica.ask_also(node for node in noted if node not in replica.members)

    @property
    def _is_current(self) -> bool:
        """Whether our copy of the registry is not one of long ago: enough members have told this
        life how far they are, and we are as far. After a restart that takes a moment."""
        replica = self._engine.multi.replicas[REGISTRY_GROUP]
        return replica.speaks_for_the_chosen() and not replica.learner.behind

    def _is_over(self, group: GroupId, now: Now) -> bool:
        """Whether this node's part in a group is over: it is no member, and shall not be one."""
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
        """Whether no Config makes this node a member of which neither its log nor the registry has
        told yet. It may have been wanted until a moment ago: then its master may have added it,
        which the registry hears of a second later, and such a member must not forget anything."""
        if now.boot_ns - parting.since_boot_ns < PART_AFTER_NS:
            return False
        if (self._registry.members_since(replica.group) or SLOT_ZERO) > replica.configured:
            return True  # what lies between need not be learned to be dropped
        if parting.chosen_to is None:
            parting.chosen_to = replica.learner.chosen_to
        return replica.learner.applied >= parting.chosen_to

    def _drop(self, group: GroupId) -> None:
        """Forget the group: its replica, its state machine, its data and its part of the log."""
        engine = self._engine
        self._journal.info("group dropped", group=group, members=self.members(group))
        engine.remove_group(group)
        self.dropped(group, self._machines.pop(group))
        self._parting.pop(group, None)  # else it would not wait when it has the group once more
        engine.wal.forget_group(group)
        self.changed()

    # -- as a master --------------------------------------------------------------------------

    def _drive(self, now: Now) -> None:
        """Note the members of our groups, and begin at most one change of them."""
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
        """Nobody has stolen the group from us although we should not have it."""
        ideal = self._registry.placement.get(group)
        for node in sorted(wanted, key=lambda node: (node != ideal, node)):
            if not self.give(now, group, node):
                return

    def _note(self, now: Now, replica: Replica) -> None:
        """Tell the registry which members the log says."""
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
        """As the registry's master: who leaves and has nothing any more is gone for good."""
        registry = self._registry
        for node in [one.node for one in registry.nodes.values() if one.leaving]:
            used = node in registry.placement.values() or any(
                node in registry.members(group) or node in registry.replica_set(group)
                for group in map(GroupId, registry.groups)
            )
            if not used and now.boot_ns - self._finishing.get(node, 0) >= NOTE_EVERY_NS:
                self._finishing[node] = now.boot_ns
                self._client.propose(FinishRemoval(node), lambda _result: None)
