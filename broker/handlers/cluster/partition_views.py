"""A Paxos group as clients see it: who leads its partitions, who keeps them, who is in sync."""

from typing import NamedTuple

from broker.handlers.topics.places import in_order
from broker.requests.context import Broker
from paxos.ids import GroupId, NodeId
from wire.error_codes import ErrorCode


class View(NamedTuple):
    """What all partitions of a Paxos group have in common, in the order of Kafka's fields."""

    error: ErrorCode
    leader: int
    epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def view_of(broker: Broker, group: GroupId, listener: str) -> View:
    """As a client that came by `listener` sees it: to a master without that listener it cannot
    connect."""
    leader, epoch = broker.leaders.of(group)
    replicas = _replicas(broker, group)
    members, alive = broker.groups.members(group), broker.groups.alive()
    nodes = (
        [int(one) for one in replicas],
        [int(one) for one in replicas if one in members and one in alive],
        [int(one) for one in replicas if one not in alive],
    )
    if leader is None or leader not in broker.registry.nodes:
        return View(ErrorCode.LEADER_NOT_AVAILABLE, -1, epoch, *nodes)
    if broker.registry.address(leader, listener) is None:
        return View(ErrorCode.LISTENER_NOT_FOUND, -1, epoch, *nodes)
    return View(ErrorCode.NONE, leader, epoch, *nodes)


def _replicas(broker: Broker, group: GroupId) -> list[NodeId]:
    """The nodes that have a Paxos group or are to have it, as far as clients can reach them, its
    ideal master first."""
    registry = broker.registry
    there = {*broker.groups.members(group), *registry.replica_set(group)} & registry.nodes.keys()
    return in_order(broker, group, there)
