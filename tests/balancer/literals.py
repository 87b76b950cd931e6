"""Clusters as literals for the balancer's stories."""

from collections.abc import Mapping
from typing import Any

from balancer.registry.commands import (
    AcquireStealToken,
    Command,
    FoundCluster,
    RegisterNode,
    Result,
    SetPlacement,
)
from balancer.registry.records import Address
from balancer.registry.registry import Registry
from balancer.stealing.view import ClusterView, GroupView
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now, Slot

START_NS = 1_700_000_000_000_000_000


def at(ms: float, *, wall_error_ms: float = 0, trusted: bool = True) -> Now:
    """`ms` after the start of the story, on a clock that is off by `wall_error_ms`."""
    return Now(START_NS + int((ms + wall_error_ms) * MS), int(ms * MS), trusted)


def group(number: int, master: int | None, **kwargs: Any) -> GroupView:
    fields = {"lease_ver": 10, "epoch": 10, "renewals": 0, "applied": 50, "chosen_to": 50} | kwargs
    return GroupView(
        GroupId(number),
        None if master is None else NodeId(master),
        Slot(fields["lease_ver"]),
        Slot(fields["epoch"]),
        fields["renewals"],
        Slot(fields["applied"]),
        Slot(fields["chosen_to"]),
        bool(fields.get("voting", True)),
    )


def view(
    now: Now,
    masters: Mapping[int, int | None],
    ideal: Mapping[int, int],
    *,
    me: int = 1,
    groups: Mapping[int, GroupView] | None = None,
    alive: tuple[int, ...] = (1, 2, 3),
    **kwargs: Any,
) -> ClusterView:
    """Groups by master and by ideal node; everything else is healthy unless given."""
    seen = {GroupId(number): group(number, master) for number, master in masters.items()}
    seen.update({GroupId(number): one for number, one in (groups or {}).items()})
    fields: dict[str, Any] = {
        "incarnation": Incarnation(1),
        "registry_reachable": True,
        "placement_version": 1,
    } | kwargs
    return ClusterView(
        now=now,
        me=NodeId(me),
        alive=frozenset(NodeId(node) for node in alive),
        groups=seen,
        placement={GroupId(number): NodeId(node) for number, node in ideal.items()},
        **fields,
    )


def register(node: int, incarnation: int = 1, zone: str = "") -> RegisterNode:
    host = f"10.0.0.{node}"
    return RegisterNode(
        NodeId(node),
        Incarnation(incarnation),
        Address(host, 9092),
        Address(host, 7000),
        Address(host, 8000),
        zone,
    )


def placement(ideal: Mapping[int, int], expected: int | None = None) -> SetPlacement:
    return SetPlacement(expected, {GroupId(number): NodeId(node) for number, node in ideal.items()})


def acquire(
    group_number: int, source: int, target: int, *, now_ms: float = 0, **kwargs: Any
) -> AcquireStealToken:
    fields: dict[str, Any] = {
        "target_incarnation": 1,
        "attempt": 1,
        "master_version": 10,
        "placement_version": 1,
        "duration_ns": 10_000 * MS,
    } | kwargs
    return AcquireStealToken(
        group=GroupId(group_number),
        source=NodeId(source),
        target=NodeId(target),
        now_wall_ns=at(now_ms).wall_ns,
        **fields,
    )


def founded(groups: int = 4, nodes: tuple[int, ...] = (1, 2, 3)) -> Registry:
    """A cluster with that many groups and nodes, and nothing else."""
    registry = Registry()
    run(registry, FoundCluster("test", groups), *map(register, nodes))
    return registry


def run(registry: Registry, *commands: Command) -> list[Result]:
    """Apply the commands in consecutive slots."""
    return [registry.apply_command(command, registry.applied + 1) for command in commands]
