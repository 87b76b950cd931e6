"""A planning problem as JSON: how a node passes it to a planner outside of the node.

GET /problem shows it (`runtime.admin.balancer`). The placement job reads it, inserts its own
weights and asks the planner what the balancer would do (`pipeline.placement`). Reader and writer
may have different versions: unknown fields are ignored, and nonsense is refused with a message,
because the plan would be for a different cluster.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from balancer.planner.problem import (
    CAPACITY_NORMAL,
    TOLERANCE_PERCENT,
    WEIGHT_NORMAL,
    Evenness,
    GroupNeed,
    NodeOffer,
    Objectives,
    Problem,
    Unfit,
)
from balancer.registry.policy import PERCENT_MAX, WEIGHT_MAX
from balancer.registry.records import GROUPS_MAX, NODES_MAX, PARTITIONS_MAX
from paxos.ids import GroupId, NodeId

NODE_ID_MAX: Final = 2**31 - 1


class ProblemError(ValueError):
    """The value is not a planning problem."""


def to_json(problem: Problem) -> dict[str, Any]:
    """All of the problem; keys of dictionaries are strings."""
    objectives = attrs.asdict(problem.objectives)
    return {
        "nodes": [
            {
                "id": one.node,
                "zone": one.zone,
                "capacity": one.capacity,
                "unfit": None if one.unfit is None else one.unfit.value,
            }
            for one in problem.nodes
        ],
        "groups": [
            {
                "group": one.group,
                "weight": one.weight,
                "topics": dict(one.topics),
                "members": None if one.members is None else sorted(one.members),
            }
            for one in problem.groups
        ],
        "current": _texts(problem.current),
        "pinned": _texts(problem.pinned),
        "paused": sorted(problem.paused),
        "wishes": {
            **objectives,
            "evenness": problem.objectives.evenness.name.lower(),
            "preferred_zones": list(problem.objectives.preferred_zones),
        },
    }


def _texts(places: Mapping[GroupId, NodeId]) -> dict[str, int]:
    return {str(group): node for group, node in sorted(places.items())}


def from_json(value: Any) -> Problem:  # noqa: ANN401 # JSON
    """The problem that the value describes.

    Raises:
        ProblemError: if it does not describe one.
    """
    value = _object(value, "a problem")
    nodes = tuple(_offer(_object(one, "a node")) for one in _list(value, "nodes", NODES_MAX))
    groups = tuple(_need(_object(one, "a group")) for one in _list(value, "groups", GROUPS_MAX + 1))
    if len({one.node for one in nodes}) < len(nodes):
        raise ProblemError("a node is there twice")
    if len({one.group for one in groups}) < len(groups):
        raise ProblemError("a group is there twice")
    paused = _list(value, "paused", GROUPS_MAX + 1)
    return Problem(
        nodes=nodes,
        groups=groups,
        current=_places(value, "current"),
        pinned=_places(value, "pinned"),
        paused=frozenset(GroupId(_whole(one, "a paused group", GROUPS_MAX)) for one in paused),
        objectives=_objectives(_object(value.get("wishes", {}), "wishes")),
    )


def _offer(value: Mapping[str, Any]) -> NodeOffer:
    zone, unfit = value.get("zone", ""), value.get("unfit")
    if not isinstance(zone, str):
        raise ProblemError("a zone is a text")
    if unfit is not None and unfit not in tuple(Unfit):
        raise ProblemError(f"a node is unfit for a reason we do not know: {str(unfit)[:40]!r}")
    return NodeOffer(
        NodeId(_whole(value.get("id"), "a node's id", NODE_ID_MAX)),
        zone,
        _whole(value.get("capacity", CAPACITY_NORMAL), "a capacity", PERCENT_MAX),
        None if unfit is None else Unfit(unfit),
    )


def _need(value: Mapping[str, Any]) -> GroupNeed:
    members = None if value.get("members") is None else _list(value, "members", NODES_MAX)
    topics = _object(value.get("topics", {}), "topics")
    return GroupNeed(
        GroupId(_whole(value.get("group"), "a group's number", GROUPS_MAX)),
        _whole(value.get("weight", WEIGHT_NORMAL), "a weight", WEIGHT_MAX),
        {name: _whole(count, "partitions", PARTITIONS_MAX) for name, count in topics.items()},
        None
        if members is None
        else frozenset(NodeId(_whole(one, "a member", NODE_ID_MAX)) for one in members),
    )


def _objectives(value: Mapping[str, Any]) -> Objectives:
    evenness, zones = value.get("evenness", "count"), value.get("preferred_zones", [])
    excess, spread = value.get("topic_excess_max"), value.get("spread_zones", False)
    if evenness not in ("count", "weight"):
        raise ProblemError("masters are evened by count or by weight")
    if not isinstance(zones, list) or not all(isinstance(one, str) for one in zones):
        raise ProblemError("preferred zones are a list of texts")
    if not isinstance(spread, bool):
        raise ProblemError("spread_zones is true or false")
    tolerance = value.get("tolerance_percent", TOLERANCE_PERCENT)
    return Objectives(
        evenness=Evenness[evenness.upper()],
        spread_zones=spread,
        preferred_zones=tuple(zones),
        tolerance_percent=_whole(tolerance, "a tolerance", PERCENT_MAX),
        topic_excess_max=None if excess is None else _whole(excess, "an excess", PERCENT_MAX),
    )


def _places(value: Mapping[str, Any], name: str) -> dict[GroupId, NodeId]:
    places = {}
    for group, node in _object(value.get(name, {}), name).items():
        if not (group.isascii() and group.isdigit() and len(group) <= len(str(GROUPS_MAX))):
            raise ProblemError(f"{name}: group {group[:20]!r}")
        places[GroupId(int(group))] = NodeId(_whole(node, f"{name}: a node", NODE_ID_MAX))
    return places


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProblemError(f"{what}: not an object")
    return value


def _list(value: Mapping[str, Any], name: str, most: int) -> list[Any]:
    found = value.get(name, [])
    if not isinstance(found, list) or len(found) > most:
        raise ProblemError(f"{name}: not a list, or more than {most}")
    return found


def _whole(value: object, what: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ProblemError(f"{what} is a whole number of 0 to {most}")
    return value
