"""Who the members of a group are, and how one is added or removed (docs/adr/0022).

A Config entry adds or removes one node. From the next slot on the members are others, and a ballot
belongs to those it was prepared with (R10). Like a Steal, a Config is proposed when everything
before it is applied and nothing is in flight. So its proposer knows every earlier change, and two
changes that did not know of each other never take effect one after the other.

The log says who the members are. Before its first Config they follow from what all founders'
configurations agree on (`first_members`). The registry says who they should be, and `next_change`
leads from the one to the other.
"""

from collections.abc import Collection, Iterable

from paxos import entry as entries
from paxos.changes import rejoin
from paxos.entry import CONFIG_MEMBERS_MAX, Config
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId, Now
from paxos.quorum import is_quorum
from paxos.state.core import Core
from paxos.state.membership import Change
from paxos.step import Step
from paxos.timing import STEAL_LAG_SLOTS_MAX


def first_members(group: GroupId, founders: Iterable[NodeId], replicas: int) -> tuple[NodeId, ...]:
    """The members of a group's first configuration, ascending.

    The registry's group is on every founder. Any other group is on `replicas` of them: its number
    selects its first master, and the others follow that one in a circle. So groups and first
    masters are spread evenly, and more than two other nodes share the groups of one node.
    """
    assert replicas > 0, "a group without members"
    nodes = sorted(set(founders))
    if group == REGISTRY_GROUP or replicas >= len(nodes):
        return tuple(nodes)
    first = group % len(nodes)
    return tuple(sorted(nodes[(first + step) % len(nodes)] for step in range(replicas)))


def next_change(
    members: Collection[NodeId],
    wanted: Collection[NodeId],
    *,
    me: NodeId,
    able: Collection[NodeId],
) -> tuple[NodeId, ...] | None:
    """The members that the master `me` should ask for next, or None if it can do nothing now.

    `able`: nodes that are heard, caught up and voting (`is_able`). Nodes are added before others
    are removed, so that there are never fewer copies than wanted. Failed nodes are removed first.
    The master is never removed: a steal has to move the group away from it first.
    """
    have, want, fit = set(members), set(wanted), {*able, me}
    missing = want - have
    for node in sorted(missing & fit):
        if len(have) < CONFIG_MEMBERS_MAX and is_quorum(fit, have | {node}):
            return tuple(sorted(have | {node}))
    if missing:
        return None
    for node in sorted(have - want - {me}, key=lambda node: (node in fit, node)):
        if is_quorum(fit, have - {node}):
            return tuple(sorted(have - {node}))
    return None


def is_able(replica: Core, now: Now, node: NodeId) -> bool:
    """Whether the node has the group, is caught up in it, and votes, as far as we know."""
    told, timing = replica.peer(node).progress_boot_ns, replica.timing
    return (
        told is not None
        and now.boot_ns - told <= timing.heard_ns + timing.progress_every_ns
        and replica.is_heard(node, now)
        and replica.learner.applied - replica.peer(node).applied <= STEAL_LAG_SLOTS_MAX
        and not rejoin.is_asking(replica, now, node)
    )


def is_settled(replica: Core) -> bool:
    """Whether a majority of the members has told us that it applied the Config that made them so.

    Only then may a node that left forget its votes. Otherwise the members might have to elect a
    master by the older members, with a quorum that needs the node that left (simulator seed 128).
    This is about progress, not safety. ADR 22, "Who left forgets nothing", says what stays open.
    """
    known = [
        node
        for node in replica.members
        if node == replica.me or replica.peer(node).applied >= replica.configured
    ]
    return is_quorum(known, replica.members)


def change(replica: Core, now: Now, members: Iterable[NodeId], step: Step) -> str:
    """Begin to add or remove one node; returns "" or why not."""
    wanted = tuple(sorted(members))
    why = _refusal(replica, now, wanted)
    if not why:
        replica.wake()
        replica.changing = Change(wanted, now.boot_ns)
        try_to_place(replica, now, step)
    return why


def _refusal(replica: Core, now: Now, wanted: tuple[NodeId, ...]) -> str:
    if not replica.can_propose(now):
        return "not master or busy"
    if replica.handover is not None:
        return "the group is being handed over"
    differing = set(wanted) ^ set(replica.members)
    if len(differing) != 1 or len(set(wanted)) != len(wanted):
        return "members change one node at a time"
    if replica.me not in wanted:
        return "the master does not remove itself"
    able = [node for node in wanted if node == replica.me or is_able(replica, now, node)]
    if not differing.isdisjoint(wanted) and differing.isdisjoint(able):
        return "the new member is not heard, not caught up, or does not vote"
    if not is_quorum(able, wanted):
        return "too few of the members are heard, caught up and vote"
    return ""


def try_to_place(replica: Core, now: Now, step: Step) -> None:
    """Propose the Config once everything before it is applied.

    Lemma (ADR 22, "Why one node, and why drained"): between two configurations whose ballots may
    meet there is never more than one step. We have applied every slot below this one: the Config
    that made these the members, and all that phase 1 among them has found. So no older Config that
    was not chosen can turn up below, and make of one step two.
    """
    changing, proposer = replica.changing, replica.proposer
    drained = not proposer.in_flight and replica.learner.applied == proposer.next - 1
    if changing is not None and drained and replica.ready() and replica.acting(now):
        replica.changing = None
        slot = replica.place(now, entries.config(Config(changing.members)), step)
        proposer.close_at(slot)  # R10


def tick(replica: Core, now: Now, step: Step) -> None:
    """Call off a change that cannot be proposed: nothing has happened yet."""
    changing = replica.changing
    if changing is None:
        return
    try_to_place(replica, now, step)
    if replica.changing is not None and (
        now.boot_ns - changing.since_boot_ns > replica.timing.drain_ns or not replica.acting(now)
    ):
        replica.call_off_change("drain timed out", step)
