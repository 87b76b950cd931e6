"""When each thing in the registry was last decided on: later arrivals of older decisions are
refused.

A change may reach the log long after it was requested: it was on a link that stalled, or in a slot
of an earlier master. If another change was acknowledged meanwhile, the late one would undo it
(F1). So a change comes as Decided, with the slot of its author's copy of the registry,
and is refused if the same thing was decided on in a later slot: even if that changed nothing,
because its client was told that this is the state.

Slots are remembered from the first Decided on, in new clusters from the founding on; anything
decided before that is refused. A state written by an older version has no slots, and replicas that
continue from it must judge like those that have the log.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from balancer.registry.commands import (
    AddNode,
    AdoptPlan,
    Command,
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    Decided,
    DeleteTopic,
    DrainNode,
    MergePlacement,
    PauseBalancer,
    PinGroup,
    Refusal,
    Refused,
    RemoveNode,
    Result,
    SetPlacement,
    SetPolicy,
    SetReplicaSets,
    TopicDeleted,
)
from balancer.registry.credentials import AlterCredentials
from balancer.registry.quotas import AlterQuotas
from balancer.registry.rules import CreateRules, DeleteRules
from balancer.registry.versions import HoldClusterVersion, RaiseClusterVersion
from paxos.ids import SLOT_ZERO, Slot

_DELETED: Final = "deleted"
"""The last time that any topic was deleted: it leaves nothing behind to compare with."""
_PLACEMENT: Final = "placement"
_POLICY: Final = "policy"
_CLUSTER_VERSION: Final = "cluster version"
_SECURITY: Final[Mapping[type, str]] = {
    CreateRules: "rules",
    DeleteRules: "rules",
    AlterCredentials: "credentials",
    AlterQuotas: "quotas",
}


@attrs.define
class Fences:
    since: Slot = SLOT_ZERO
    """0: there has been no request yet, and nothing is remembered."""
    decided: dict[str, Slot] = attrs.Factory(dict)
    """Thing -> the slot of the last decision on it."""

    def problem(self, command: Decided, slot: Slot) -> Refused | None:
        """Why a decision in this slot is too late; None if nothing came between."""
        self.since = self.since or slot
        decision = command.command
        things = [_DELETED] if isinstance(decision, CreateTopic) else _things(decision)
        if things and command.seen < self.since:
            return Refused(Refusal.OVERTAKEN, f"nothing is known of slot {command.seen}")
        if isinstance(decision, PinGroup):
            things = [*things, _PLACEMENT]
        for thing in things:
            last = self.decided.get(thing, SLOT_ZERO)
            if last > command.seen:
                return Refused(Refusal.OVERTAKEN, f"{thing}: slot {last} after {command.seen}")
        return None

    def note(self, command: Command, result: Result, slot: Slot) -> None:
        """Remember what `command` decided in this slot."""
        if not self.since or isinstance(result, Refused):
            return
        if isinstance(result, TopicDeleted):
            self.decided.pop(_topic(result.topic.name), None)
            self.decided[_DELETED] = slot
        else:
            self.decided |= dict.fromkeys(_things(command), slot)


def _topic(name: str) -> str:
    return f"topic {name}"


def _things(command: Command) -> list[str]:
    """What a command decides on; empty if it has a fence of its own."""
    match command:
        case CreateTopic() | CreatePartitions() | ConfigureTopic():
            return [_topic(command.name)]
        case DeleteTopic():
            return [] if command.name is None else [_topic(command.name)]
        case AddNode() | RemoveNode() | DrainNode():
            return [f"node {command.node}"]
        case PauseBalancer():
            return ["pauses" if command.group is None else f"pause of group {command.group}"]
        case PinGroup():
            return [f"pin of group {command.group}"]
        case SetReplicaSets():
            return [f"replicas of group {group}" for group in command.sets]
        case SetPlacement() | MergePlacement() | AdoptPlan():
            return [_PLACEMENT]
        case SetPolicy():
            return [_POLICY]
        case RaiseClusterVersion() | HoldClusterVersion():
            return [_CLUSTER_VERSION]
        case CreateRules() | DeleteRules() | AlterCredentials() | AlterQuotas():
            return [_SECURITY[type(command)]]
        case _:
            return []
