"""The admin client's part about consumer groups: their members and progress, and how to change
it.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

import attrs
import trio

from evenkeel import lookups
from evenkeel.admin.descriptions import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupProgress,
    PartitionProgress,
)
from evenkeel.client import Client
from evenkeel.coordinator import Committed, Coordinator, Identity, topic_map
from evenkeel.errors import (
    AuthenticationError,
    EvenkeelError,
    UnreachableError,
    UnsupportedError,
    refusal,
)
from evenkeel.lookups import FoundOffset
from wire.cluster_view import TopicPartition
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.messages.assigned_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from wire.messages.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from wire.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.offsets import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
)

DEAD = "Dead"
"""The state in which a coordinator describes a group it does not know."""


class IncompleteListError(EvenkeelError):
    """Some nodes did not answer in time: `found` is what the others reported, `failures` the error
    of each that did not."""

    retriable = True

    def __init__(
        self, found: Sequence[GroupListing], failures: Mapping[int, EvenkeelError]
    ) -> None:
        words = "; ".join(f"node {node}: {error}" for node, error in sorted(failures.items()))
        super().__init__(
            "the list of consumer groups is not complete", why=words or "no node answered"
        )
        self.found = found
        self.failures = failures


class _HasClient(Protocol):
    @property
    def client(self) -> Client: ...


class GroupAdmin:
    """Mixed into `Admin`; each method asks the group's coordinator, even after it moves."""

    async def list_groups(self: _HasClient) -> list[GroupListing]:
        """All consumer groups of the cluster: each node reports those it coordinates.

        A node that is down coordinates none as soon as the others know that it is down.

        Raises:
            IncompleteListError: if a node that may coordinate groups does not answer in time.
        """
        client = self.client
        listing = _Listing(client)
        try:
            await client.until_done("the list of consumer groups is incomplete", listing.once)
        except AuthenticationError:
            raise
        except EvenkeelError as error:
            raise IncompleteListError(listing.groups(), listing.failures) from error
        return listing.groups()

    async def describe_group(self: _HasClient, name: str) -> GroupDescription:
        """The members of a consumer group, and what each of them reads.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND if there is no such group.
        """
        coordinator = Coordinator(self.client, name)

        async def once() -> GroupDescription:
            answer = await coordinator.ask(DescribeGroupsRequest([name]), DescribeGroupsResponse)
            described = answer.groups[0]
            unknown = described.error_code == ErrorCode.GROUP_ID_NOT_FOUND  # from version 6 on
            if not unknown:
                coordinator.check("describing", described.error_code)
            node = await coordinator.find()
            found: GroupDescription | None = _classic(described, node)
            if unknown or described.group_state == DEAD:  # so is a group of the other type
                found = await _shared_out(coordinator, node)
            if found is None:
                raise refusal(f"there is no consumer group '{name}'", ErrorCode.GROUP_ID_NOT_FOUND)
            return found

        return await coordinator.until_done("describing", once)

    async def group_progress(self: _HasClient, name: str) -> GroupProgress:
        """Committed offsets and ends of all partitions that a consumer group reads or has
        committed.

        Raises:
            BrokerError: if there is no such group, and nothing was committed under its name.
            TimedOutError: if its coordinator does not report its members in time.
        """
        coordinator = Coordinator(self.client, name)
        committed = await coordinator.committed(None)
        places = set(committed)
        try:
            described = await GroupAdmin.describe_group(self, name)
        except EvenkeelError as error:
            if not committed or error.retriable:  # an unknown membership is not an empty one
                raise
        else:
            places |= {place for member in described.members for place in member.assignment}
        counts = await _partition_counts(self.client, {place.topic for place in places})
        there = [place for place in places if place.partition < counts.get(place.topic, 0)]
        starts = await lookups.list_offsets(self.client, dict.fromkeys(there, lookups.BEGINNING))
        ends = await lookups.list_offsets(self.client, dict.fromkeys(there, lookups.END))
        return {
            place: PartitionProgress(
                place, committed.get(place), _offset(starts, place), _offset(ends, place)
            )
            for place in sorted(places)
        }

    async def committed_offsets(self: _HasClient, group: str) -> dict[TopicPartition, Committed]:
        return await Coordinator(self.client, group).committed(None)

    async def alter_offsets(
        self: _HasClient, group: str, offsets: Mapping[TopicPartition, int | Committed]
    ) -> None:
        """Set the committed offsets of a consumer group; it must have no members.

        Raises:
            CommitError: if it has members.
        """
        wanted = {
            place: one if isinstance(one, Committed) else Committed(one)
            for place, one in offsets.items()
        }
        await Coordinator(self.client, group).commit(wanted, Identity)

    async def delete_offsets(
        self: _HasClient, group: str, places: Collection[TopicPartition]
    ) -> None:
        """Delete the committed offsets for these; the members must not subscribe to them."""
        coordinator = Coordinator(self.client, group)
        topics = [
            OffsetDeleteTopic(topic, [OffsetDeletePartition(number) for number in numbers])
            for topic, numbers in topic_map(places).items()
        ]

        async def once() -> None:
            request = OffsetDeleteRequest(group, topics)
            answer = await coordinator.ask(request, OffsetDeleteResponse)
            coordinator.check("deleting offsets", answer.error_code)
            for topic in answer.topics:
                for one in topic.partitions:
                    place = TopicPartition(topic.name, one.partition_index)
                    coordinator.check(f"deleting the offset of {place}", one.error_code)

        await coordinator.until_done("deleting offsets", once)

    async def delete_group(self: _HasClient, name: str) -> None:
        """Delete a consumer group and its offsets.

        Raises:
            BrokerError: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND.
        """
        coordinator = Coordinator(self.client, name)

        async def once() -> None:
            answer = await coordinator.ask(DeleteGroupsRequest([name]), DeleteGroupsResponse)
            coordinator.check("deleting", answer.results[0].error_code)

        await coordinator.until_done("deleting", once)


@attrs.define(eq=False)
class _Listing:
    """Asks all nodes, again and again, until one round is complete."""

    _client: Client
    failures: dict[int, EvenkeelError] = attrs.Factory(dict)
    _found: dict[str, GroupListing] = attrs.Factory(dict)

    async def once(self) -> None:
        """Ask every node once.

        Raises:
            EvenkeelError: a failure of a node that has to answer.
        """
        await self._client.refresh()
        down = await _nodes_down(self._client)
        self.failures.clear()
        self._found.clear()
        async with trio.open_nursery() as nursery:
            for node in self._client.view.nodes:
                nursery.start_soon(self._ask, node)
        for node in down & self.failures.keys():
            if isinstance(self.failures[node], UnreachableError):
                del self.failures[node]
        for failure in self.failures.values():
            raise failure

    def groups(self) -> list[GroupListing]:
        """The groups of the last round."""
        return [self._found[name] for name in sorted(self._found)]

    async def _ask(self, node: int) -> None:
        try:
            answer = await self._client.ask(node, ListGroupsRequest(), ListGroupsResponse)
            if answer.error_code != ErrorCode.NONE:
                raise refusal(f"node {node} does not list all consumer groups", answer.error_code)
        except EvenkeelError as error:
            self.failures[node] = error
            return
        for one in answer.groups:
            listing = GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
            self._found[one.group_id] = listing


def _offset(found: Mapping[TopicPartition, FoundOffset], place: TopicPartition) -> int | None:
    return found[place].offset if place in found else None


async def _nodes_down(client: Client) -> set[int]:
    """Nodes that the others know to be down: each has replicas, none in sync, and leads nothing."""
    request = MetadataRequest(None, allow_auto_topic_creation=False)
    answer = await client.metadata(request)
    partitions = [one for topic in answer.topics for one in topic.partitions]
    having = {node for one in partitions for node in one.replica_nodes}
    serving = {node for one in partitions for node in (one.leader_id, *one.isr_nodes)}
    return having - serving


async def _partition_counts(client: Client, topics: Collection[str]) -> dict[str, int]:
    """Of the topics that exist: committed offsets may outlive their topic for a while."""
    if not topics:
        return {}
    wanted = [MetadataRequestTopic(name=one) for one in sorted(topics)]
    request = MetadataRequest(wanted, allow_auto_topic_creation=False)
    answer = await client.until_done("topics are not described", partial(client.metadata, request))
    return {one.name: len(one.partitions) for one in answer.topics if one.name is not None}


def _classic(described: DescribedGroup, node: int) -> GroupDescription:
    return GroupDescription(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        node,
        [_member(one, described.protocol_type) for one in described.members],
    )


async def _shared_out(coordinator: Coordinator, node: int) -> GroupDescription | None:
    """A consumer group with broker-side assignment (KIP-848); None if it is not one."""
    request = ConsumerGroupDescribeRequest([coordinator.group])
    try:
        answer = await coordinator.ask(request, ConsumerGroupDescribeResponse)
    except UnsupportedError:
        return None
    described = answer.groups[0]
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    coordinator.check("describing", described.error_code)
    members = []
    for one in described.members:
        given = one.assignment.topic_partitions
        places = sorted(
            TopicPartition(part.topic_name, n) for part in given for n in part.partitions
        )
        host = one.client_host.removeprefix("/")
        members.append(GroupMember(one.member_id, one.instance_id, one.client_id, host, places))
    return GroupDescription(
        described.group_id,
        described.group_state,
        PROTOCOL_TYPE,
        described.assignor_name,
        node,
        members,
    )


def _member(one: DescribedGroupMember, protocol_type: str) -> GroupMember:
    """Assignments of other protocols than the consumers' are opaque to us."""
    assignment: list[TopicPartition] = []
    if protocol_type == PROTOCOL_TYPE:
        try:
            given = decode_assignment(one.member_assignment)
        except ProtocolError:
            given = decode_assignment(b"")
        assignment = [
            TopicPartition(part.topic, number)
            for part in given.assigned_partitions
            for number in part.partitions
        ]
    host = one.client_host.removeprefix("/")
    return GroupMember(
        one.member_id, one.group_instance_id, one.client_id, host, sorted(assignment)
    )
