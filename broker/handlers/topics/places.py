"""Partitions as a client names them, and the Paxos groups they belong to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from broker.handlers.topics.registry_changes import Verdict
from broker.requests.context import Broker
from paxos.ids import GroupId, NodeId
from wire.error_codes import ErrorCode

UNKNOWN: Final = Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")


class Place(NamedTuple):
    """A partition as a client names it."""

    topic: str
    number: int


def group_of(broker: Broker, place: Place) -> GroupId | None:
    topic = broker.registry.topic(place.topic)
    if topic is None or not 0 <= place.number < len(topic.partitions):
        return None
    return topic.partitions[place.number].group


def has_unknown(broker: Broker, places: Iterable[Place]) -> bool:
    return any(group_of(broker, place) is None for place in places)


def every_partition(broker: Broker) -> Iterator[tuple[str, int, GroupId]]:
    """Topic, index and Paxos group of each. Topics may come and go during the iteration."""
    for topic in tuple(broker.registry.topics.values()):
        for index, partition in enumerate(topic.partitions):
            yield topic.name, index, partition.group


def by_topic(answers: Mapping[Place, Verdict]) -> dict[str, list[tuple[int, Verdict]]]:
    """In the order in which the topics came."""
    topics: dict[str, list[tuple[int, Verdict]]] = defaultdict(list)
    for place, verdict in answers.items():
        topics[place.topic].append((place.number, verdict))
    return topics


def in_order(
    broker: Broker, group: GroupId, nodes: Iterable[NodeId], last: Iterable[NodeId] = ()
) -> list[NodeId]:
    """Nodes of a Paxos group as clients are told them: the ideal master first, then in the order
    that an operator asked for, and `last` those that are to lose it."""
    registry = broker.registry
    ideal, asked = registry.placement.get(group), registry.orders.get(group, ())
    place = {node: at for at, node in enumerate(asked)}
    going = frozenset(last)
    return sorted(
        nodes,
        key=lambda node: (node != ideal, node in going, place.get(node, len(asked)), node),
    )


def is_home(broker: Broker, group: GroupId) -> bool:
    ideal = broker.registry.placement.get(group)
    return ideal is None or broker.groups.master(group) == ideal
