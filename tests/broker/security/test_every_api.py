"""Each API asks for exactly the operations of its row: with nothing allowed it is refused, with the
row's operations allowed it is not, and another operation does not help."""

from typing import Any

import pytest

from balancer.registry.commands import CreateTopic
from balancer.registry.rules import Rule
from broker.security.table import ROWS
from tests.broker.security.rulings import ROOT, Ruled, rule
from tests.broker.world import SERVED, World
from wire.acls import CLUSTER_NAME, Operation, ResourceType, titled
from wire.apis import APIS, ApiKey
from wire.error_codes import ErrorCode
from wire.messages import (
    assigned_groups,
    configs,
    fetch,
    group_admin,
    leader_epochs,
    list_offsets,
    logs,
    membership,
    metadata,
    offsets,
    placement,
    produce,
    producer_ids,
    security,
    topics,
    transactions,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TXN = ResourceType.TRANSACTIONAL_ID
NAME = "t"
ID = b"i" * 16

Asked = tuple[Any, int, list[tuple[Operation, ResourceType, str]]]
"""A request, its version, and what it needs."""


def need(operation: Operation, kind: ResourceType, name: str = NAME) -> Any:
    return operation, kind, CLUSTER_NAME if kind is CLUSTER else name


ALTER, DESCRIBE = need(Operation.ALTER, CLUSTER), need(Operation.DESCRIBE, CLUSTER)
READ_G = need(Operation.READ, GROUP, "g")

CASES: dict[int, Asked] = {
    ApiKey.PRODUCE: (
        produce.ProduceRequest(
            None,
            -1,
            1000,
            [produce.TopicProduceData(NAME, [produce.PartitionProduceData(0, b"")])],
        ),
        9,
        [need(Operation.WRITE, TOPIC)],
    ),
    ApiKey.FETCH: (
        fetch.FetchRequest(
            topics=[fetch.FetchTopic(NAME, partitions=[fetch.FetchPartition(0)])], max_bytes=1
        ),
        12,
        [need(Operation.READ, TOPIC)],
    ),
    ApiKey.LIST_OFFSETS: (
        list_offsets.ListOffsetsRequest(
            -1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    NAME, [list_offsets.ListOffsetsPartition(0, timestamp=-1)]
                )
            ],
        ),
        7,
        [need(Operation.DESCRIBE, TOPIC)],
    ),
    ApiKey.METADATA: (
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name=NAME)], False),
        12,
        [need(Operation.DESCRIBE, TOPIC)],
    ),
    ApiKey.OFFSET_COMMIT: (
        offsets.OffsetCommitRequest(
            "g",
            topics=[
                offsets.OffsetCommitRequestTopic(NAME, [offsets.OffsetCommitRequestPartition(0, 1)])
            ],
        ),
        8,
        [READ_G, need(Operation.READ, TOPIC)],
    ),
    ApiKey.OFFSET_FETCH: (
        offsets.OffsetFetchRequest(
            groups=[
                offsets.OffsetFetchRequestGroup(
                    "g", topics=[offsets.OffsetFetchRequestTopic(NAME, [0])]
                )
            ]
        ),
        8,
        [need(Operation.DESCRIBE, GROUP, "g"), need(Operation.DESCRIBE, TOPIC)],
    ),
    ApiKey.FIND_COORDINATOR: (
        membership.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
        4,
        [need(Operation.DESCRIBE, GROUP, "g")],
    ),
    ApiKey.JOIN_GROUP: (membership.JoinGroupRequest("g", 10_000), 5, [READ_G]),
    ApiKey.HEARTBEAT: (membership.HeartbeatRequest("g"), 4, [READ_G]),
    ApiKey.LEAVE_GROUP: (membership.LeaveGroupRequest("g"), 4, [READ_G]),
    ApiKey.SYNC_GROUP: (membership.SyncGroupRequest("g"), 4, [READ_G]),
    ApiKey.DESCRIBE_GROUPS: (
        group_admin.DescribeGroupsRequest(["g"]),
        5,
        [need(Operation.DESCRIBE, GROUP, "g")],
    ),
    ApiKey.CREATE_TOPICS: (
        topics.CreateTopicsRequest([topics.CreatableTopic("new", 1, 1)], 1000),
        7,
        [need(Operation.CREATE, CLUSTER)],
    ),
    ApiKey.DELETE_TOPICS: (
        topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(NAME)], timeout_ms=1000),
        6,
        [need(Operation.DELETE, TOPIC)],
    ),
    ApiKey.DELETE_RECORDS: (
        logs.DeleteRecordsRequest(
            [logs.DeleteRecordsTopic(NAME, [logs.DeleteRecordsPartition(0, 0)])], 1000
        ),
        2,
        [need(Operation.DELETE, TOPIC)],
    ),
    ApiKey.INIT_PRODUCER_ID: (
        producer_ids.InitProducerIdRequest(),
        4,
        [need(Operation.IDEMPOTENT_WRITE, CLUSTER)],
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        leader_epochs.OffsetForLeaderEpochRequest(
            topics=[
                leader_epochs.OffsetForLeaderTopic(
                    NAME, [leader_epochs.OffsetForLeaderPartition(0)]
                )
            ]
        ),
        4,
        [need(Operation.DESCRIBE, TOPIC)],
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic(NAME, [0])],
        ),
        3,
        [need(Operation.WRITE, TXN, "x")],
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        transactions.AddOffsetsToTxnRequest("x", 1, 0, "g"),
        3,
        [need(Operation.WRITE, TXN, "x"), READ_G],
    ),
    ApiKey.END_TXN: (
        transactions.EndTxnRequest("x", 1, 0, True),
        3,
        [need(Operation.WRITE, TXN, "x")],
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        transactions.TxnOffsetCommitRequest(
            "x",
            "g",
            topics=[
                transactions.TxnOffsetCommitRequestTopic(
                    NAME, [transactions.TxnOffsetCommitRequestPartition(0, 1)]
                )
            ],
        ),
        3,
        [need(Operation.WRITE, TXN, "x"), READ_G, need(Operation.READ, TOPIC)],
    ),
    ApiKey.DESCRIBE_ACLS: (
        security.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        3,
        [DESCRIBE],
    ),
    ApiKey.CREATE_ACLS: (
        security.CreateAclsRequest([security.AclCreation(2, "t", 3, "User:b", "*", 3, 3)]),
        3,
        [ALTER],
    ),
    ApiKey.DELETE_ACLS: (
        security.DeleteAclsRequest([security.DeleteAclsFilter(2, "z", 3, None, None, 1, 1)]),
        3,
        [ALTER],
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(2, NAME, None)]),
        4,
        [need(Operation.DESCRIBE_CONFIGS, TOPIC)],
    ),
    ApiKey.ALTER_CONFIGS: (
        configs.AlterConfigsRequest([configs.AlterConfigsResource(2, NAME, [])]),
        2,
        [need(Operation.ALTER_CONFIGS, TOPIC)],
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        configs.IncrementalAlterConfigsRequest(
            [configs.IncrementalAlterConfigsResource(2, NAME, [])]
        ),
        1,
        [need(Operation.ALTER_CONFIGS, TOPIC)],
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        logs.AlterReplicaLogDirsRequest(
            [logs.AlterReplicaLogDir("/d", [logs.AlterReplicaLogDirTopic(NAME, [0])])]
        ),
        2,
        [ALTER],
    ),
    ApiKey.DESCRIBE_LOG_DIRS: (logs.DescribeLogDirsRequest(None), 4, [DESCRIBE]),
    ApiKey.CREATE_PARTITIONS: (
        topics.CreatePartitionsRequest([topics.CreatePartitionsTopic(NAME, 2, None)], 1000),
        3,
        [need(Operation.ALTER, TOPIC)],
    ),
    ApiKey.DELETE_GROUPS: (
        group_admin.DeleteGroupsRequest(["g"]),
        2,
        [need(Operation.DELETE, GROUP, "g")],
    ),
    ApiKey.ELECT_LEADERS: (placement.ElectLeadersRequest(0, None, 1000), 2, [ALTER]),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        placement.AlterPartitionReassignmentsRequest(1000),
        0,
        [ALTER],
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        placement.ListPartitionReassignmentsRequest(1000, None),
        0,
        [DESCRIBE],
    ),
    ApiKey.OFFSET_DELETE: (
        offsets.OffsetDeleteRequest(
            "g", [offsets.OffsetDeleteTopic(NAME, [offsets.OffsetDeletePartition(0)])]
        ),
        0,
        [need(Operation.DELETE, GROUP, "g"), need(Operation.READ, TOPIC)],
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        security.DescribeClientQuotasRequest(),
        1,
        [need(Operation.DESCRIBE_CONFIGS, CLUSTER)],
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        security.AlterClientQuotasRequest(
            [security.AlterQuotaEntry([security.QuotaEntity("user", "a")])]
        ),
        1,
        [need(Operation.ALTER_CONFIGS, CLUSTER)],
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        security.DescribeUserScramCredentialsRequest(None),
        0,
        [DESCRIBE],
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        security.AlterUserScramCredentialsRequest([security.ScramCredentialDeletion("a", 1)]),
        0,
        [ALTER],
    ),
    ApiKey.DESCRIBE_QUORUM: (metadata.DescribeQuorumRequest(), 1, [DESCRIBE]),
    ApiKey.DESCRIBE_PRODUCERS: (
        producer_ids.DescribeProducersRequest([producer_ids.DescribeProducersTopic(NAME, [0])]),
        0,
        [need(Operation.READ, TOPIC)],
    ),
    ApiKey.UNREGISTER_BROKER: (metadata.UnregisterBrokerRequest(2), 0, [ALTER]),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        transactions.DescribeTransactionsRequest(["x"]),
        0,
        [need(Operation.DESCRIBE, TXN, "x")],
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        assigned_groups.ConsumerGroupHeartbeatRequest(
            "g", rebalance_timeout_ms=1000, subscribed_topic_names=[NAME], topic_partitions=[]
        ),
        0,
        [READ_G, need(Operation.DESCRIBE, TOPIC)],
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        assigned_groups.ConsumerGroupDescribeRequest(["nobody's"]),
        1,
        [need(Operation.DESCRIBE, GROUP, "nobody's")],
    ),
    ApiKey.LIST_CONFIG_RESOURCES: (
        configs.ListConfigResourcesRequest(),
        0,
        [need(Operation.DESCRIBE_CONFIGS, CLUSTER)],
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        metadata.DescribeTopicPartitionsRequest([metadata.PartitionsOfTopic(NAME)]),
        0,
        [need(Operation.DESCRIBE, TOPIC)],
    ),
}
FOR_ANYONE = {key for key, row in ROWS.items() if not row.needs}
LISTINGS = {ApiKey.LIST_GROUPS}
"""Nothing is refused, things are left out: see test_listings.py."""
ALTERNATIVES = {ApiKey.CREATE_TOPICS: {"Create"}}
FAILED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NEVER_SERVED = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
}
"""There are no transactions: the answer is always an authorization error (ADR 58)."""


def errors_in(answer: Any) -> set[int]:
    """All error codes anywhere in an answer."""
    found = set()
    waiting = [answer]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif hasattr(one, "__attrs_attrs__"):
            for field in one.__attrs_attrs__:
                value = getattr(one, field.name)
                if field.name in ("error_code", "partition_error_code"):
                    found.add(value)
                else:
                    waiting.append(value)
    return found


@pytest.fixture(scope="module")
def ruled() -> Ruled:
    world = World()
    world.run(CreateTopic(NAME, ID, 1, 3, {}))
    return Ruled(world)


def test_every_served_api_has_a_row_and_a_case() -> None:
    served = {int(api.key) for api in SERVED}
    assert served == set(ROWS)
    assert served == {int(key) for key in CASES} | FOR_ANYONE | LISTINGS


@pytest.mark.parametrize("key", CASES, ids=lambda key: ApiKey(key).name)
def test_without_rules_it_is_refused(ruled: Ruled, key: int) -> None:
    message, version, needs = CASES[key]
    before = len(ruled.entries)
    errors = errors_in(ruled.ask(message, version))
    assert errors & FAILED, errors
    assert ErrorCode.NONE not in errors or key == ApiKey.DESCRIBE_LOG_DIRS or len(errors) > 1
    asked = {titled(operation) for operation, _, _ in needs}
    told = {one["operation"] for one in ruled.entries[before:]}
    assert told <= asked | ALTERNATIVES.get(key, set()), "nothing else was asked for"
    assert told, "and it was written down"


@pytest.mark.parametrize("key", CASES, ids=lambda key: ApiKey(key).name)
def test_with_exactly_the_operations_of_its_row_it_is_served(ruled: Ruled, key: int) -> None:
    message, version, needs = CASES[key]
    rules = [rule(*one) for one in needs]
    ruled.allow(*rules)
    before = len(ruled.entries)
    answer = ruled.ask(message, version)
    denied = ruled.entries[before:]
    ruled.revoke(*rules)
    assert not [one for one in denied if one["event"] == "denied"]
    if key not in NEVER_SERVED:
        assert not errors_in(answer) & FAILED


@pytest.mark.parametrize("key", CASES, ids=lambda key: ApiKey(key).name)
def test_each_of_its_operations_is_needed(ruled: Ruled, key: int) -> None:
    """All but one are not enough, and neither is the missing one for another name."""
    message, version, needs = CASES[key]
    for missing in needs:
        others = [rule(*one) for one in needs if one != missing]
        elsewhere: list[Rule] = []
        if missing[1] is not CLUSTER:
            elsewhere = [rule(missing[0], missing[1], missing[2] + "-other")]
        ruled.allow(*others, *elsewhere)
        errors = errors_in(ruled.ask(message, version))
        ruled.revoke(*others, *elsewhere)
        assert errors & FAILED, (missing, errors)


@pytest.mark.parametrize("key", CASES, ids=lambda key: ApiKey(key).name)
def test_a_super_user_is_served_without_rules(ruled: Ruled, key: int) -> None:
    if key in (ApiKey.DELETE_TOPICS, ApiKey.CREATE_ACLS, *NEVER_SERVED):
        return  # it would change what the others need
    message, version, _ = CASES[key]
    assert not errors_in(ruled.ask(message, version, ROOT)) & FAILED


@pytest.mark.parametrize("key", sorted(FOR_ANYONE), ids=lambda key: ApiKey(key).name)
def test_what_anybody_may_ask_is_not_refused_for_the_rules(ruled: Ruled, key: int) -> None:
    api = APIS[key]
    before = len(ruled.entries)
    ruled.send(api.request(), api.accepted.last)
    assert len(ruled.entries) == before
