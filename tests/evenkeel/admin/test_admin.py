"""The admin client against real nodes, and against brokers that lose answers or know little."""

import pytest
import trio

from evenkeel import (
    Admin,
    BrokerError,
    ClientConfig,
    CommitError,
    Consumer,
    ConsumerConfig,
    Producer,
    TimedOutError,
    TopicPartition,
    UnsupportedError,
    lookups,
)
from evenkeel.admin.admin import UP_TO_NOW
from tests.evenkeel.peers import PeerStream, Script, scripted
from tests.evenkeel.shared_cluster import SharedCluster
from wire.apis import ApiKey, Request, Response
from wire.error_codes import ErrorCode
from wire.messages.group_admin import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from wire.messages.membership import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from wire.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectPartitionResult,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from wire.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

cluster_test = pytest.mark.cluster

STEP_S = 30.0


@cluster_test
async def test_topics_live_and_die(cluster: SharedCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(
            "admin-1", partitions=4, settings={"max.message.bytes": "5000"}, dry_run=True
        )
        assert "admin-1" not in await admin.list_topics()
        await admin.create_topic("admin-1", partitions=4, settings={"max.message.bytes": "5000"})
        described = await admin.describe_topic("admin-1")
        assert [one.partition for one in described.partitions] == [0, 1, 2, 3]
        assert all(one.leader in {1, 2, 3} for one in described.partitions)
        listed = (await admin.list_topics())["admin-1"]  # a master may have moved meanwhile
        assert (listed.topic_id, len(listed.partitions)) == (described.topic_id, 4)
        with pytest.raises(BrokerError, match=r"TOPIC_ALREADY_EXISTS.*use it"):
            await admin.create_topic("admin-1")
        await admin.set_partitions("admin-1", 6)
        assert len((await admin.describe_topic("admin-1")).partitions) == 6
        with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
            await admin.set_partitions("admin-1", 2)
        await admin.delete_topic("admin-1")
        with trio.fail_after(STEP_S), pytest.raises(BrokerError, match="create the topic first"):
            await admin.describe_topic("admin-1")
        with trio.fail_after(STEP_S), pytest.raises(BrokerError) as refused:
            await admin.delete_topic("admin-1")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@cluster_test
async def test_settings_of_topics_and_nodes(cluster: SharedCluster, topic: str) -> None:
    async with Admin(cluster.bootstrap) as admin:
        before = (await admin.topic_settings(topic))["retention.ms"]
        assert before.is_default
        await admin.alter_topic_settings(topic, {"retention.ms": "12345"})
        changed = (await admin.topic_settings(topic))["retention.ms"]
        assert (changed.value, changed.is_default) == ("12345", False)
        await admin.alter_topic_settings(topic, {"retention.ms": "1"}, dry_run=True)
        await admin.alter_topic_settings(topic, reset=["retention.ms"])
        assert (await admin.topic_settings(topic))["retention.ms"] == before
        with pytest.raises(BrokerError, match="INVALID_CONFIG"):
            await admin.alter_topic_settings(topic, {"no.such.setting": "1"})
        assert await admin.node_settings(2)
        described = await admin.describe_cluster()
        assert [node.id for node in described.nodes] == [1, 2, 3]
        assert described.controller in {1, 2, 3}


@cluster_test
async def test_records_are_deleted_from_the_front(cluster: SharedCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, partition=number % 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Admin(cluster.bootstrap) as admin:
        assert await admin.delete_records({first: 2, second: UP_TO_NOW}) == {first: 2, second: 5}
        found = await admin.list_offsets({first: lookups.BEGINNING, second: lookups.END})
        assert (found[first].offset, found[second].offset) == (2, 5)
        with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
            await admin.delete_records({first: 99})


@cluster_test
async def test_groups_are_listed_set_back_and_forgotten(cluster: SharedCluster, topic: str) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for number in range(9):
            await producer.send(topic, b"%d" % number, partition=number % 3)
    group = f"group-of-{topic}"
    place = TopicPartition(topic, 0)
    async with Admin(cluster.bootstrap) as admin:
        async with Consumer(cluster.bootstrap, ConsumerConfig(group=group)) as consumer:
            await consumer.subscribe([topic])
            while consumer.statistics().records < 9:
                await anext(consumer)
            described = await admin.describe_group(group)
            assert (described.state, described.assignor) == ("Stable", "cooperative-sticky")
            assert [member.client_id for member in described.members] == ["evenkeel"]
            assert set(described.members[0].assignment) == consumer.assignment
            assert described.members[0].host == "127.0.0.1"
            with pytest.raises(BrokerError, match="stop its members first"):
                await admin.delete_group(group)
            with pytest.raises(CommitError):
                await admin.alter_offsets(group, {place: 1})
            listed = {one.name: one for one in await admin.list_groups()}
            assert listed[group].protocol_type == "consumer"
        progress = await admin.group_progress(group)
        assert {one.lag for one in progress.values()} == {0}
        await admin.alter_offsets(group, {place: 1})
        assert (await admin.committed_offsets(group))[place].offset == 1
        assert (await admin.group_progress(group))[place].lag == 2
        await admin.delete_records({place: 2})
        left = (await admin.group_progress(group))[place]
        assert (left.start, left.end, left.lag) == (2, 3, 1), "what retention took is no lag"
        await admin.delete_offsets(group, [place])
        assert place not in await admin.committed_offsets(group)
        await admin.delete_group(group)
        assert group not in {one.name for one in await admin.list_groups()}
        with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
            await admin.describe_group(group)
        with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
            await admin.group_progress("never-heard-of")


@cluster_test
async def test_leaders_that_lead_already(cluster: SharedCluster, topic: str) -> None:
    await cluster.spread()
    async with Admin(cluster.bootstrap) as admin:
        places = [TopicPartition(topic, number) for number in range(3)]
        outcomes = await admin.elect_leaders(places)
        codes = {place: one and one.code for place, one in outcomes.items()}
        assert codes == dict.fromkeys(places, ErrorCode.ELECTION_NOT_NEEDED)
        assert await admin.reassignments() == []


# -- scripted brokers -----------------------------------------------------------------------------

PLACE = TopicPartition("t", 1)


def answering(answers: dict[type[Request], Response], asked: list[Request]) -> Script:
    """A broker that is its own controller and gives prepared answers."""

    async def script(peer: PeerStream) -> None:
        await peer.greet()
        host, port = peer.address
        cluster = MetadataResponse(
            brokers=[MetadataResponseBroker(7, host, port)], controller_id=7, cluster_id="c"
        )
        while True:
            header, request = await peer.read()
            if isinstance(request, MetadataRequest):
                await peer.answer(header, cluster)
                continue
            asked.append(request)
            await peer.answer(header, answers[type(request)])

    return script


async def test_leaders_are_elected_and_partitions_reassigned() -> None:
    asked: list[Request] = []
    answers: dict[type[Request], Response] = {
        ElectLeadersRequest: ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    "t", [ElectPartitionResult(0), ElectPartitionResult(1, 84, "is it already")]
                )
            ]
        ),
        AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse("t", [ReassignablePartitionResponse(1, 39, "node 9?")])
            ]
        ),
        ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment("t", [OngoingPartitionReassignment(1, [1, 2], [3], [1])])
            ]
        ),
    }
    async with (
        scripted(answering(answers, asked)) as (host, port),
        Admin(f"{host}:{port}") as admin,
    ):
        outcomes = await admin.elect_leaders([PLACE, TopicPartition("t", 0)])
        assert outcomes[TopicPartition("t", 0)] is None
        refused = outcomes[PLACE]
        assert refused is not None
        assert refused.code is ErrorCode.ELECTION_NOT_NEEDED
        with pytest.raises(BrokerError, match=r"t/1 was not reassigned.*node 9\?"):
            await admin.reassign({PLACE: [9], TopicPartition("t", 0): None})
        (moving,) = await admin.reassignments()
        assert (moving.place, moving.adding, moving.removing) == (PLACE, [3], [1])
    election, reassignment = asked[:2]
    assert isinstance(election, ElectLeadersRequest)
    assert election.topic_partitions is not None
    assert election.topic_partitions[0].partitions == [0, 1]
    assert isinstance(reassignment, AlterPartitionReassignmentsRequest)
    assert [one.replicas for one in reassignment.topics[0].partitions] == [None, [9]]


async def test_who_is_in_a_group_is_not_taken_for_nobody_where_nobody_says() -> None:
    """A coordinator has the offsets, and never answers who the members are."""
    committed = OffsetFetchResponsePartition(0, 5)
    answers: dict[type[Request], Response] = {
        OffsetFetchRequest: OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup("g", [OffsetFetchResponseTopic("t", [committed])])]
        ),
        DescribeGroupsRequest: DescribeGroupsResponse(
            groups=[DescribedGroup(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "g")]
        ),
    }
    asked: list[Request] = []
    config = ClientConfig(operation_timeout_ms=3_000)
    async with (
        scripted(answering(answers, asked)) as (host, port),
        Admin(f"{host}:{port}", client=config) as admin,
    ):
        coordinator = Coordinator("g", 7, host, port)
        answers[FindCoordinatorRequest] = FindCoordinatorResponse(coordinators=[coordinator])
        with trio.fail_after(STEP_S), pytest.raises(TimedOutError, match="describing"):
            await admin.group_progress("g")
    assert any(isinstance(one, DescribeGroupsRequest) for one in asked)


async def test_what_was_done_before_the_answer_was_lost_is_no_error() -> None:
    """The first attempt's connection breaks; the second finds the topic there: it is ours."""
    calls: list[Request] = []

    async def script(peer: PeerStream) -> None:
        await peer.greet()
        host, port = peer.address
        while True:
            header, request = await peer.read()
            if isinstance(request, MetadataRequest):
                brokers = [MetadataResponseBroker(7, host, port)]
                await peer.answer(header, MetadataResponse(brokers=brokers, controller_id=7))
                continue
            assert isinstance(request, CreateTopicsRequest)
            calls.append(request)
            if len(calls) == 1:
                return  # the connection closes
            result = CreatableTopicResult("t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
            await peer.answer(header, CreateTopicsResponse(topics=[result]))

    async with scripted(script) as (host, port), Admin(f"{host}:{port}") as admin:
        await admin.create_topic("t", dry_run=True)
        assert len(calls) == 2
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            await admin.create_topic("t", dry_run=True)


async def test_an_old_broker_says_what_it_cannot() -> None:
    async def script(peer: PeerStream) -> None:
        await peer.greet(only=(ApiKey.METADATA, ApiKey.API_VERSIONS))
        host, port = peer.address
        while True:
            header, _ = await peer.read()
            brokers = [MetadataResponseBroker(7, host, port)]
            await peer.answer(header, MetadataResponse(brokers=brokers, controller_id=7))

    async with scripted(script) as (host, port), Admin(f"{host}:{port}") as admin:
        with pytest.raises(UnsupportedError, match=r"cannot do ElectLeaders: .*not at all"):
            await admin.elect_leaders()
