"""What an admin client returns: frozen values."""

from collections.abc import Mapping, Sequence

import attrs

from evenkeel.coordinator import Committed
from wire.cluster_view import Node, TopicPartition


@attrs.frozen
class ClusterDescription:
    """`controller` is the node that changes topics; with Evenkeel the registry's master."""

    cluster_id: str | None
    controller: int
    nodes: Sequence[Node]


@attrs.frozen
class PartitionDescription:
    """`leader` is -1 while there is no leader."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]


@attrs.frozen
class TopicDescription:
    name: str
    topic_id: str
    internal: bool
    partitions: Sequence[PartitionDescription]


@attrs.frozen
class Setting:
    """One setting of a topic or a node. The value of a sensitive one is not returned."""

    name: str
    value: str | None
    is_default: bool
    read_only: bool
    sensitive: bool


@attrs.frozen
class Reassignment:
    """A partition that is moving to other nodes."""

    place: TopicPartition
    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


@attrs.frozen
class GroupListing:
    """`state` and `group_type` are empty if the broker is too old to report them.

    `group_type` is "classic", or "consumer" for a consumer group with broker-side assignment
    (KIP-848).
    """

    name: str
    protocol_type: str
    state: str
    group_type: str = ""


@attrs.frozen
class GroupMember:
    id: str
    instance: str | None
    client_id: str
    host: str
    assignment: Sequence[TopicPartition]


@attrs.frozen
class GroupDescription:
    name: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: Sequence[GroupMember]


@attrs.frozen
class PartitionProgress:
    """How far a consumer group is in one partition. `lag` is None if nothing is committed.

    `start` and `end` are the bounds of the log; they are None, and so is `lag`, if the partition no
    longer exists. Records that retention deleted before they were read are not counted.
    """

    place: TopicPartition
    committed: Committed | None
    start: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.start is None or self.end is None:
            return None
        return max(0, self.end - max(self.start, self.committed.offset))


GroupProgress = Mapping[TopicPartition, PartitionProgress]
