"""Whether a node's directory may be lost without losing data or availability."""

from collections.abc import Mapping
from typing import Any

from paxos.ids import NodeId
from paxos.quorum import quorum_size


def what_would_be_lost(number: int, views: Mapping[int, Any]) -> str:
    """Why a node must not lose its directory; "" if it may. `views` are the answers of the nodes
    about their groups. A node that has lost its directory votes again once a majority of other
    members can tell it what it has forgotten; of two members, the other one (paxos.changes.rejoin).
    A node that does not answer may be the only one with a group: the others know all groups from
    the registry."""
    members: dict[int, set[NodeId]] = {}
    voting: dict[int, set[int]] = {}
    for node, view in views.items():
        for one in view["groups"]:
            members.setdefault(one["group"], set()).update(map(NodeId, one["members"]))
            if one["voting"] and node in one["members"]:
                voting.setdefault(one["group"], set()).add(node)
    if not members:
        return "no node answers, so nobody knows what the others have: start them first"
    for group, noted in sorted(_not_answered_for(members, views).items()):
        if number in noted:
            return (
                f"no member of Paxos group {group} answers, and node {number} is one of {noted}: "
                "nobody knows what the others have of it. Start them first (evenkeel status)"
            )
    for group, its in sorted(members.items()):
        if number not in its:
            continue
        able = sorted(voting.get(group, set()) - {number})
        if len(its) == 1:
            return (
                f"node {number} alone has Paxos group {group}: with its directory the data would "
                f"be gone."
                " Add nodes first (evenkeel node add), or put a copy of the directory in its place"
            )
        needed = 1 if len(its) == 2 else quorum_size(its)
        if len(able) < needed:
            return (
                f"Paxos group {group} would stop for ever: of its members {sorted(its)} "
                f"only "
                f"{able or 'none'} would vote, and {needed} others are needed for node {number} to "
                "vote again. Bring the others back first (evenkeel status)"
            )
    return ""


def _not_answered_for(
    members: Mapping[int, object], views: Mapping[int, Any]
) -> dict[int, list[int]]:
    """Paxos groups of which no member answers, with their members as far as others know them."""
    noted: dict[int, list[int]] = {}
    for view in views.values():
        for group, its in view.get("group_members", {}).items():
            if int(group) not in members:
                noted[int(group)] = sorted({*noted.get(int(group), ()), *its})
    return noted
