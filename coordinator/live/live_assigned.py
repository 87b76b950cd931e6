"""A consumer group with broker-side assignment, as its coordinator sees it: at times ahead of the
log.

Data only; `assigning` changes it.
"""

from typing import NamedTuple

import attrs

from coordinator.live.pending import Pending
from coordinator.model import ConsumerGroupId, MemberId, Request, Response
from coordinator.replicated.assigned_group import AWAY_EPOCH, AssignedMember, AssignedSnapshot
from coordinator.replicated.assignor import ASSIGNORS, Share
from coordinator.replicated.stored import NO_REVISION, StoredGroup
from coordinator.states import RECONCILING


class Waiting(NamedTuple):
    """An answer that may be sent once the log has this version."""

    version: int
    pending: Pending[Request]
    response: Response


@attrs.define(eq=False)
class LiveAssigned:
    """The coordinator's view, at times ahead of the log. `announced`: the last assignment sent to
    each member."""

    name: ConsumerGroupId
    revision: int = NO_REVISION
    epoch: int = 0
    assignor: str = ASSIGNORS[0]
    members: dict[MemberId, AssignedMember] = attrs.Factory(dict)
    static: dict[str, MemberId] = attrs.Factory(dict)
    topics: dict[bytes, int] = attrs.Factory(dict)
    topics_version: int = -1
    announced: dict[MemberId, Share] = attrs.Factory(dict)
    waiting: list[Waiting] = attrs.Factory(list)
    version: int = 0
    durable: int = 0
    snapshot_under_way: bool = False
    converts: bool = False
    """The log still has it as a group of classic members."""

    @classmethod
    def from_stored(cls, stored: StoredGroup) -> "LiveAssigned":
        group = cls(stored.name, stored.revision, stored.generation)
        if stored.assigned is not None:
            group.epoch, group.assignor = stored.assigned.epoch, stored.assigned.assignor
            group.topics = dict(stored.assigned.topics)
            for member in stored.assigned.members:
                group.put(member)
        return group

    def put(self, member: AssignedMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def discard(self, member: AssignedMember) -> None:
        del self.members[member.member_id]
        self.announced.pop(member.member_id, None)
        if member.instance_id is not None:
            del self.static[member.instance_id]

    def checkpoint(self) -> "LiveAssigned":
        """The state that `restore` returns to if a request is refused half way."""
        return attrs.evolve(
            self, members=dict(self.members), static=dict(self.static), topics=dict(self.topics)
        )

    def restore(self, before: "LiveAssigned") -> None:
        self.members, self.static, self.topics = before.members, before.static, before.topics
        self.epoch, self.assignor, self.version = before.epoch, before.assignor, before.version
        self.topics_version = before.topics_version

    def text_bytes(self) -> int:
        """Bytes of the members' own texts in a snapshot."""
        return sum(member.text_bytes() for member in self.members.values())

    def snapshot(self) -> AssignedSnapshot:
        members = tuple(self.members.values())
        return AssignedSnapshot(
            self.name,
            self.revision,
            self.epoch,
            self.assignor,
            members,
            dict(self.topics),
            self.converts,
        )

    def only_classic(self, without: MemberId | None = None) -> bool:
        """Whether all members, or all but one, speak the classic protocol: there is nobody left
        who needs the group to be of this kind."""
        others = [one for name, one in self.members.items() if name != without]
        return bool(others) and all(one.classic is not None for one in others)

    def state(self) -> str:
        """Kafka's name for it; the plan is always made with the epoch, so never "Assigning"."""
        if not self.members:
            return "Empty"
        done = all(
            member.epoch == AWAY_EPOCH or member.settled(self.epoch)
            for member in self.members.values()
        )
        return "Stable" if done else RECONCILING
