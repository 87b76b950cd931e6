"""The topics of the cluster and where each partition lives; part of the registry's state.

A partition gets a uid that is never used again (its data may outlive its topic on a node that was
away) and a Paxos group for life: the group with the fewest partitions, the lowest number among
equals, so every node that applies the same commands computes the same map. The cluster's own topics
live in the registry's group, which every node has, and are not counted.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from balancer.registry.commands import (
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    PartitionsCreated,
    Refusal,
    Refused,
    TopicCreated,
    TopicDeleted,
)
from balancer.registry.load import LOAD_TOPIC
from balancer.registry.packing import PackingError
from balancer.registry.records import (
    CONFIG_VALUE_CHARS_MAX,
    CONFIGS_MAX,
    EPOCH_FLOOR_MAX,
    EPOCH_MARGIN,
    NODES_MAX,
    PARTITIONS_MAX,
    TOPIC_NAME_CHARS_MAX,
    TOPIC_PARTITIONS_MAX,
    TOPICS_MAX,
    UIDS_END,
    Cluster,
    Partition,
    PartitionPlace,
    PartitionUid,
    Topic,
)
from paxos.ids import REGISTRY_GROUP, GroupId

_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
INTERNAL_TOPICS: Final = frozenset({LOAD_TOPIC})
"""With one partition each."""
RESERVED_PREFIX: Final = "__evenkeel_"
"""Topics that only nodes create and delete have names with this prefix."""
ZERO_ID: Final = bytes(16)
"""Kafka's "no id": no topic may have it."""


def name_problem(name: str) -> str | None:
    """What is wrong with a topic name by Kafka's rules; None if nothing is."""
    if not name or name in (".", ".."):
        return f"the name may not be {name!r}"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return f"the name has {len(name)} characters, at most {TOPIC_NAME_CHARS_MAX} are allowed"
    if not _NAME_CHARS.issuperset(name):
        return "only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def data_groups(groups_count: int) -> list[GroupId]:
    """Groups that carry partitions: 1..groups_count, or the registry's own if there are none."""
    return [GroupId(group) for group in range(1, groups_count + 1)] or [REGISTRY_GROUP]


class Catalogue:
    """Topics by name and by id, partitions by uid and by group."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        self.partitions: dict[PartitionUid, Partition] = {}
        self.by_group: dict[GroupId, dict[PartitionUid, Partition]] = {}
        self.next_uid = PartitionUid(1)
        self.epochs: dict[GroupId, int] = {}
        """A lower bound of the epoch of each group's lease, from commands that deleted topics."""
        self.epoch_floor = 0
        """Above the leader epochs of all deleted partitions: new partitions begin with it."""

    def found(self, groups_count: int) -> None:
        """Name the Paxos groups; from then on partitions can be placed."""
        assert not self.by_group, "a cluster is founded once"
        self.by_group = {group: {} for group in {REGISTRY_GROUP, *data_groups(groups_count)}}

    @classmethod
    def from_topics(
        cls, cluster: Cluster | None, topics: Iterable[Topic], next_uid: PartitionUid
    ) -> "Catalogue":
        """The catalogue of a snapshot.

        Raises:
            PackingError: if a partition lies in a group the cluster does not have.
        """
        catalogue = cls()
        catalogue.next_uid = next_uid
        if cluster is not None:
            catalogue.found(cluster.groups_count)
        for topic in topics:
            if any(place.group not in catalogue.by_group for place in topic.partitions):
                raise PackingError(f"a partition of {topic.name} is in an unknown group")
            catalogue.install(topic)
        # In the order of uids, as on a node that applied the log.
        catalogue.partitions = dict(sorted(catalogue.partitions.items()))
        catalogue.by_group = {
            group: dict(sorted(uids.items())) for group, uids in catalogue.by_group.items()
        }
        return catalogue

    # ---- commands --------------------------------------------------------------------------------

    def create(self, command: CreateTopic) -> TopicCreated | Refused:
        known = self.topics.get(command.name)
        if known is not None:
            if known.topic_id == command.topic_id:
                return TopicCreated(known)  # the same request, applied twice
            return Refused(Refusal.TOPIC_EXISTS, command.name)
        problem = self._problem(command)
        if problem is not None:
            return problem
        places = self._place(command.name, command.partitions, command.groups)
        topic = Topic(
            command.name,
            command.topic_id,
            command.replication,
            dict(sorted(command.configs.items())),
            places,
            self._epoch_bases((), places),
        )
        self.install(topic)
        return TopicCreated(topic)

    def grow(self, command: CreatePartitions) -> PartitionsCreated | Refused:
        topic = self.topics.get(command.name)
        if topic is None:
            return Refused(Refusal.UNKNOWN_TOPIC, command.name)
        first_new = len(topic.partitions)
        if command.name in INTERNAL_TOPICS:
            return Refused(
                Refusal.INVALID_PARTITIONS, "the cluster's own topics cannot get more partitions"
            )
        if command.total <= first_new:
            return Refused(
                Refusal.INVALID_PARTITIONS, f"{command.total} wanted, there are {first_new}"
            )
        new = command.total - first_new
        problem = self._room_problem(command.total, new) or self._groups_problem(
            command.name, new, command.groups
        )
        if problem is not None:
            return problem
        places = topic.partitions + self._place(command.name, new, command.groups)
        known = topic.epoch_bases or (0,) * first_new
        bases = self._epoch_bases(known, places[first_new:])
        grown = attrs.evolve(topic, partitions=places, epoch_bases=bases)
        self.install(grown)
        return PartitionsCreated(grown, first_new)

    def delete(self, command: DeleteTopic) -> TopicDeleted | Refused:
        named = None if command.name is None else self.topics.get(command.name)
        with_id = None if command.topic_id is None else self.topic_by_id(command.topic_id)
        topic = named or with_id
        if topic is None or (command.name is not None and command.name != topic.name):
            return Refused(Refusal.UNKNOWN_TOPIC, command.name or "")
        if command.topic_id is not None and command.topic_id != topic.topic_id:
            return Refused(Refusal.UNKNOWN_TOPIC, f"{topic.name} has another id")
        del self.topics[topic.name]
        del self.names[topic.topic_id]
        for place in topic.partitions:
            del self.partitions[place.uid]
            del self.by_group[place.group][place.uid]
        if command.epochs:  # else by an older release, perhaps long ago
            self._raise_floor(topic, command.epochs)
        return TopicDeleted(topic)

    def configure(self, command: ConfigureTopic) -> Topic | Refused:
        """The topic with its new settings."""
        topic = self.topics.get(command.name)
        if topic is None:
            return Refused(Refusal.UNKNOWN_TOPIC, command.name)
        if topic.topic_id != command.topic_id:
            return Refused(Refusal.UNKNOWN_TOPIC, f"{topic.name} has another id")
        configs = command.applied_to(topic.configs)
        problem = _configs_problem(configs)
        if problem is not None:
            return problem
        configured = attrs.evolve(topic, configs=dict(sorted(configs.items())))
        if configured != topic:
            self.install(configured)
        return configured

    # ---- reads -----------------------------------------------------------------------------------

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def of_group(self, group: GroupId) -> Mapping[PartitionUid, Partition]:
        return self.by_group.get(group, {})

    # ---- parts -----------------------------------------------------------------------------------

    def install(self, topic: Topic) -> None:
        """Enter a topic whose partitions already have their places."""
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name
        for index, (uid, group) in enumerate(topic.partitions):
            if uid not in self.partitions:
                partition = Partition(uid, group, topic.name, topic.topic_id, index)
                self.partitions[uid] = self.by_group[group][uid] = partition

    def _place(
        self, name: str, count: int, chosen: tuple[GroupId, ...]
    ) -> tuple[PartitionPlace, ...]:
        """Uids and groups for `count` new partitions: those chosen, or the emptiest groups."""
        places = []
        for group in chosen or self._emptiest(count, _groups_for(name, self.by_group)):
            places.append(PartitionPlace(self.next_uid, group))
            self.next_uid = PartitionUid(self.next_uid + 1)
        return tuple(places)

    def _emptiest(self, count: int, where: list[GroupId]) -> Iterator[GroupId]:
        emptiest = [(len(self.by_group[group]), group) for group in where]
        heapq.heapify(emptiest)
        for _ in range(count):
            filled, group = emptiest[0]
            heapq.heapreplace(emptiest, (filled + 1, group))
            yield group

    def _groups_problem(self, name: str, count: int, chosen: tuple[GroupId, ...]) -> Refused | None:
        if not chosen:
            return None
        if len(chosen) != count:
            return Refused(Refusal.INVALID_PARTITIONS, f"{count} with {len(chosen)} groups")
        unknown = set(chosen).difference(_groups_for(name, self.by_group))
        if unknown:
            return Refused(Refusal.INVALID_REPLICAS, f"there is no group {min(unknown)}")
        return None

    def _raise_floor(self, topic: Topic, epochs: Mapping[GroupId, int]) -> None:
        """Clients remember the leader epochs of partitions by name, and ignore lower ones."""
        for index, (_, group) in enumerate(topic.partitions):
            known = max(self.epochs.get(group, 0), epochs.get(group, 0))
            if known:
                self.epochs[group] = known
            floor = topic.epoch_base(index) + known + EPOCH_MARGIN
            self.epoch_floor = min(max(self.epoch_floor, floor), EPOCH_FLOOR_MAX)

    def _epoch_bases(
        self, known: tuple[int, ...], new: tuple[PartitionPlace, ...]
    ) -> tuple[int, ...]:
        """The epoch bases of a topic that gets more partitions; empty if all are 0."""
        bases = [max(0, self.epoch_floor - self.epochs.get(group, 0)) for _, group in new]
        return (*known, *bases) if any(known) or any(bases) else ()

    def _problem(self, command: CreateTopic) -> Refused | None:
        name = name_problem(command.name)
        if name is not None:
            return Refused(Refusal.INVALID_NAME, name)
        if command.topic_id == ZERO_ID or command.topic_id in self.names:
            return Refused(Refusal.INVALID_TOPIC_ID, "the id is zero or in use")
        if command.partitions < 1 or (command.partitions > 1 and command.name in INTERNAL_TOPICS):
            return Refused(Refusal.INVALID_PARTITIONS, f"{command.partitions} partitions")
        if not 1 <= command.replication <= NODES_MAX:
            return Refused(Refusal.INVALID_REPLICATION, f"a factor of {command.replication}")
        if len(self.topics) >= TOPICS_MAX:
            return Refused(Refusal.TOO_MANY_TOPICS, f"at most {TOPICS_MAX}")
        return (
            _configs_problem(command.configs)
            or self._room_problem(command.partitions, command.partitions)
            or self._groups_problem(command.name, command.partitions, command.groups)
        )

    def _room_problem(self, total: int, new: int) -> Refused | None:
        if total > TOPIC_PARTITIONS_MAX:
            return Refused(
                Refusal.TOO_MANY_PARTITIONS, f"at most {TOPIC_PARTITIONS_MAX} in one topic"
            )
        if len(self.partitions) + new > PARTITIONS_MAX:
            return Refused(Refusal.TOO_MANY_PARTITIONS, f"at most {PARTITIONS_MAX} in all")
        if self.next_uid + new > UIDS_END:
            return Refused(Refusal.TOO_MANY_PARTITIONS, "all uids of partitions are used up")
        return None


def _groups_for(name: str, by_group: Iterable[GroupId]) -> list[GroupId]:
    """The groups a topic's partitions may live in, ascending."""
    if name in INTERNAL_TOPICS:
        return [REGISTRY_GROUP]
    return [group for group in sorted(by_group) if group != REGISTRY_GROUP] or [REGISTRY_GROUP]


def _configs_problem(configs: Mapping[str, str]) -> Refused | None:
    if len(configs) > CONFIGS_MAX:
        return Refused(Refusal.INVALID_CONFIGS, f"{len(configs)} settings, at most {CONFIGS_MAX}")
    for key, value in configs.items():
        if not key or len(key) > TOPIC_NAME_CHARS_MAX or len(value) > CONFIG_VALUE_CHARS_MAX:
            return Refused(Refusal.INVALID_CONFIGS, f"{key[:TOPIC_NAME_CHARS_MAX]!r} is too long")
    return None
