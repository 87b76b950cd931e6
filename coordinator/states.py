"""The life of a consumer group: Kafka's five states and the only transitions between them."""

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class GroupState(IntEnum):
    """The numbers are part of the format of snapshots in the log."""

    EMPTY = 0
    PREPARING_REBALANCE = 1
    COMPLETING_REBALANCE = 2
    STABLE = 3
    DEAD = 4


STATE_NAMES: Final[Mapping[GroupState, str]] = {
    GroupState.EMPTY: "Empty",
    GroupState.PREPARING_REBALANCE: "PreparingRebalance",
    GroupState.COMPLETING_REBALANCE: "CompletingRebalance",
    GroupState.STABLE: "Stable",
    GroupState.DEAD: "Dead",
}

RECONCILING: Final = "Reconciling"
"""Only of groups with broker-side assignment; those have some of the other names as well."""


class GroupEvent(Enum):
    REBALANCE = "members or their metadata changed"
    JOINED = "everyone who will take part has joined"
    EMPTIED = "no member is left"
    ASSIGNED = "the leader has shared the work out"
    DELETED = "an operator deletes the group"


class IllegalTransitionError(AssertionError):
    """A bug of ours: the table has no transition from this state by this event."""


NEXT_STATE: Final[Mapping[tuple[GroupState, GroupEvent], GroupState]] = {
    (GroupState.EMPTY, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.STABLE, GroupEvent.REBALANCE): GroupState.PREPARING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, GroupEvent.JOINED): GroupState.COMPLETING_REBALANCE,
    (GroupState.PREPARING_REBALANCE, GroupEvent.EMPTIED): GroupState.EMPTY,
    (GroupState.COMPLETING_REBALANCE, GroupEvent.ASSIGNED): GroupState.STABLE,
    (GroupState.EMPTY, GroupEvent.DELETED): GroupState.DEAD,
}


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    try:
        return NEXT_STATE[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{event.name} in state {state.name}") from None
