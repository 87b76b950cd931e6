"""The log's state of one consumer group: data, which only `store` changes."""

from typing import Final, NamedTuple

import attrs

from coordinator.model import ConsumerGroupId, MemberId
from coordinator.replicated.assigned_group import AssignedSnapshot
from coordinator.replicated.commands import GroupSnapshot, MemberRecord
from coordinator.replicated.waits import WaitFor
from coordinator.states import GroupState
from coordinator.timers import Wait
from coordinator.topics import ANY_TOPIC


class StoredOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_wall_ms: int
    uid: int = ANY_TOPIC
    """Of the partition it was committed for: a later topic of that name has others."""


NO_REVISION: Final = 0
"""The revision of a group that was never written, or that only has offsets."""


@attrs.define(eq=False)
class StoredGroup:
    """A group as the log has it. `offsets`: topic -> partition -> what was committed (D12)."""

    name: ConsumerGroupId
    revision: int = NO_REVISION
    generation: int = 0
    state: GroupState = GroupState.EMPTY
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId | None = None
    members: dict[MemberId, MemberRecord] = attrs.Factory(dict)
    assigned: AssignedSnapshot | None = None
    """Set for a group with broker-side assignment (KIP-848); `members` is empty then."""
    offsets: dict[str, dict[int, StoredOffset]] = attrs.Factory(dict)
    offsets_count: int = 0
    empty_since_wall_ms: int | None = None
    oldest_wall_ms: int | None = None
    """No offset that a sweep may remove was committed before; None: to be found again. It is no
    part of the state: it spares sweeps the groups in which nothing is old enough."""
    waits: dict[WaitFor, Wait] = attrs.Factory(dict)
    """What was left of its waits, as the last coordinator recorded; all others have their full
    time."""

    @property
    def occupied(self) -> bool:
        """Whether it has members, of either kind."""
        return bool(self.members) or (self.assigned is not None and bool(self.assigned.members))

    def snapshot(self) -> GroupSnapshot:
        return GroupSnapshot(
            self.name,
            self.revision,
            self.generation,
            self.state,
            self.protocol_type,
            self.protocol_name,
            self.leader,
            tuple(self.members.values()),
        )
