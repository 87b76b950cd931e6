"""A consumer group with broker-side assignment (KIP-848): its stored state, and its one rule.

The rule: a member gets a partition only when no other member may still hold it. A member first
gives up the partitions that are no longer its own (`revoking`), confirms that, and only then moves
to the group's new epoch; another member gets the partition after that. So at no moment do all
members stop, and at no moment do two consume the same partition.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from coordinator.model import ConsumerGroupId, MemberId, Protocol
from coordinator.replicated.assignor import NOTHING, Part, Share

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
MEMBER_OVERHEAD_BYTES: Final = 128
AWAY_EPOCH: Final = -2
"""A static member that has left and will be back within its session (KIP-345)."""


@attrs.frozen
class Subscription:
    """What a member says about itself; the broker only writes it to the log."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = 300_000


@attrs.frozen
class ClassicMember:
    """What such a group knows of a member that still speaks the classic protocol: it goes on with
    JoinGroup, SyncGroup and Heartbeat, and its generation is its member epoch."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]

    def bytes_count(self) -> int:
        return sum(len(name.encode()) + len(metadata) + 6 for name, metadata in self.protocols)


@attrs.frozen(kw_only=True)
class AssignedMember:
    """A member as the log has it.

    It may consume `assigned`; it was asked to give up `revoking` and has not yet; `target` is its
    part of the group's plan. `epoch` is the group epoch that the member has reached, AWAY_EPOCH for
    a static member that is away.
    """

    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: Subscription
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    assigned: Share = NOTHING
    revoking: Share = NOTHING
    target: Share = NOTHING
    since: Mapping[Part, int] = attrs.field(factory=dict, hash=False)
    """The epoch in which each part was assigned, as far as known (KIP-1251)."""
    classic: ClassicMember | None = None
    """None: it speaks the new protocol."""

    def held_since(self, part: Part) -> int | None:
        """The first epoch of the member in which it held the part; None if it does not hold it."""
        if part not in self.assigned and part not in self.revoking:
            return None
        return self.since.get(part, self.epoch)

    def text_bytes(self) -> int:
        """Bytes of the member's own texts in a snapshot, with lengths and numbers rounded up."""
        said = self.subscription
        names = (self.member_id, self.instance_id, self.client_id, self.client_host, said.pattern)
        texts = sum(len((name or "").encode()) for name in names)
        texts += self.classic.bytes_count() if self.classic is not None else 0
        return MEMBER_OVERHEAD_BYTES + texts + sum(len(topic.encode()) + 2 for topic in said.topics)

    def settled(self, group_epoch: int) -> bool:
        return self.epoch == group_epoch and self.assigned == self.target and not self.revoking

    def reconciled(self, group_epoch: int, taken: Share, owned: Share | None) -> "AssignedMember":
        """The next step towards the target, if there is one.

        `taken` is what other members hold or have not given up yet; `owned` what the member reports
        to hold (None: unchanged since its last answer).
        """
        revoking = self.revoking
        if revoking:
            if owned is None or owned & revoking:
                return self
            revoking = NOTHING
        kept = self.assigned & self.target
        dropped = self.assigned - self.target
        if owned is not None:
            dropped &= owned
        if dropped:
            since = self._since(kept | dropped, group_epoch)
            return attrs.evolve(self, assigned=kept, revoking=dropped, since=since)
        assigned = kept | (self.target - taken)
        if assigned == self.assigned and self.epoch == group_epoch and not self.revoking:
            return self
        previous = self.previous_epoch if self.epoch == group_epoch else self.epoch
        return attrs.evolve(
            self,
            assigned=assigned,
            revoking=NOTHING,
            epoch=group_epoch,
            previous_epoch=previous,
            since=self._since(assigned, group_epoch),
        )

    def _since(self, held: Share, group_epoch: int) -> dict[Part, int]:
        """New parts are held from the group's epoch on."""
        known = {part: self.held_since(part) for part in held}
        return {part: group_epoch if at is None else max(0, at) for part, at in known.items()}

    def left_statically(self) -> "AssignedMember":
        """A static member that will return under another id: it keeps its partitions, and whoever
        returns to them counts as having held them all along."""
        since = dict.fromkeys(self.assigned, JOINING_EPOCH)
        return attrs.evolve(self, epoch=AWAY_EPOCH, revoking=NOTHING, since=since)

    def replaced_by(self, member_id: MemberId) -> "AssignedMember":
        """The static member's next process joins: in the same place, with the same partitions."""
        return attrs.evolve(self.left_statically(), member_id=member_id, epoch=JOINING_EPOCH)


@attrs.frozen
class AssignedSnapshot:
    """The whole of such a group except its offsets; replaces the previous snapshot.

    `prev_revision` as in GroupSnapshot (R8). `epoch` counts the changes of members, subscriptions
    and topics; the plan in the members' targets is the one for this epoch. `topics` are the
    partitions of the topics that the plan was made for.
    """

    group: ConsumerGroupId
    prev_revision: int
    epoch: int
    assignor: str
    members: tuple[AssignedMember, ...] = ()
    topics: Mapping[bytes, int] = attrs.field(factory=dict)
    converts: bool = False
    """It takes over a group of classic members, and may only replace those (`prev_revision` names
    the snapshot that it was made from)."""

    @property
    def mixed(self) -> bool:
        return any(member.classic is not None for member in self.members)

    def flaw(self) -> str | None:
        """What makes this snapshot impossible, if anything."""
        instances = [m.instance_id for m in self.members if m.instance_id is not None]
        if len({m.member_id for m in self.members}) != len(self.members):
            return "a member is there twice"
        if len(set(instances)) != len(instances):
            return "an instance is there twice"
        if self.epoch < 0 or self.prev_revision < 0:
            return "a negative epoch or revision"
        if any(not AWAY_EPOCH <= m.epoch <= self.epoch for m in self.members):
            return "a member is ahead of its group"
        if any(not m.since.keys() <= m.assigned | m.revoking for m in self.members):
            return "a member has an epoch for a partition that it does not hold"
        if any(not 0 <= at <= self.epoch for m in self.members for at in m.since.values()):
            return "a member has held a partition since an epoch that is still to come"
        if self.mixed and all(m.classic is not None for m in self.members):
            return "all members are classic, so the group is"
        held = [part for m in self.members for part in m.assigned | m.revoking]
        if len(set(held)) != len(held):
            return "two members hold the same partition"
        planned = [part for m in self.members for part in m.target]
        return "a partition is planned for two" if len(set(planned)) != len(planned) else None


def held_by_others(members: Iterable[AssignedMember], member_id: MemberId) -> Share:
    """The partitions that the other members hold or have not given up yet."""
    return frozenset(
        part
        for one in members
        if one.member_id != member_id
        for part in one.assigned | one.revoking
    )


def by_topic(share: Iterable[Part]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic, partition in sorted(share):
        topics.setdefault(topic, []).append(partition)
    return topics
