"""The rows of the table of APIs (`wire.apis`): key, messages, versions.

"accepted" is what we decode, "advertised" what ApiVersions says, if that is more. Flexible versions
(KIP-482) begin at the number behind them.
"""

from typing import Any, Final, NamedTuple

from wire.messages import (
    api_versions,
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
    sasl,
    security,
    topics,
    transactions,
)


class Row(NamedTuple):
    key: int
    request: type[Any]
    response: type[Any]
    accepted: str
    flexible_from: int
    advertised: str | None = None

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")


ROWS: Final = (
    Row(0, produce.ProduceRequest, produce.ProduceResponse, "3-10", 9, "0-10"),
    Row(1, fetch.FetchRequest, fetch.FetchResponse, "4-16", 12),
    Row(2, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse, "1-11", 6),
    Row(3, metadata.MetadataRequest, metadata.MetadataResponse, "0-13", 9),
    Row(8, offsets.OffsetCommitRequest, offsets.OffsetCommitResponse, "2-9", 8),
    Row(9, offsets.OffsetFetchRequest, offsets.OffsetFetchResponse, "1-9", 6),
    Row(10, membership.FindCoordinatorRequest, membership.FindCoordinatorResponse, "0-4", 3),
    Row(11, membership.JoinGroupRequest, membership.JoinGroupResponse, "0-9", 6),
    Row(12, membership.HeartbeatRequest, membership.HeartbeatResponse, "0-4", 4),
    Row(13, membership.LeaveGroupRequest, membership.LeaveGroupResponse, "0-5", 4),
    Row(14, membership.SyncGroupRequest, membership.SyncGroupResponse, "0-5", 4),
    Row(15, group_admin.DescribeGroupsRequest, group_admin.DescribeGroupsResponse, "0-6", 5),
    Row(16, group_admin.ListGroupsRequest, group_admin.ListGroupsResponse, "0-5", 3),
    Row(17, sasl.SaslHandshakeRequest, sasl.SaslHandshakeResponse, "0-1", 2),
    Row(18, api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse, "0-4", 3),
    Row(19, topics.CreateTopicsRequest, topics.CreateTopicsResponse, "2-7", 5),
    Row(20, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, "1-6", 4),
    Row(21, logs.DeleteRecordsRequest, logs.DeleteRecordsResponse, "0-2", 2),
    Row(22, producer_ids.InitProducerIdRequest, producer_ids.InitProducerIdResponse, "0-4", 2),
    Row(
        23,
        leader_epochs.OffsetForLeaderEpochRequest,
        leader_epochs.OffsetForLeaderEpochResponse,
        "2-4",
        4,
    ),
    Row(
        24,
        transactions.AddPartitionsToTxnRequest,
        transactions.AddPartitionsToTxnResponse,
        "0-5",
        3,
    ),
    Row(25, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, "0-4", 3),
    Row(26, transactions.EndTxnRequest, transactions.EndTxnResponse, "0-5", 3),
    Row(28, transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse, "0-5", 3),
    Row(29, security.DescribeAclsRequest, security.DescribeAclsResponse, "1-3", 2),
    Row(30, security.CreateAclsRequest, security.CreateAclsResponse, "1-3", 2),
    Row(31, security.DeleteAclsRequest, security.DeleteAclsResponse, "1-3", 2),
    Row(32, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse, "1-4", 4),
    Row(33, configs.AlterConfigsRequest, configs.AlterConfigsResponse, "0-2", 2),
    Row(34, logs.AlterReplicaLogDirsRequest, logs.AlterReplicaLogDirsResponse, "1-2", 2),
    Row(35, logs.DescribeLogDirsRequest, logs.DescribeLogDirsResponse, "1-4", 2),
    Row(36, sasl.SaslAuthenticateRequest, sasl.SaslAuthenticateResponse, "0-2", 2),
    Row(37, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse, "0-3", 2),
    Row(
        38, security.CreateDelegationTokenRequest, security.CreateDelegationTokenResponse, "1-3", 2
    ),
    Row(39, security.RenewDelegationTokenRequest, security.RenewDelegationTokenResponse, "1-2", 2),
    Row(
        40, security.ExpireDelegationTokenRequest, security.ExpireDelegationTokenResponse, "1-2", 2
    ),
    Row(
        41,
        security.DescribeDelegationTokenRequest,
        security.DescribeDelegationTokenResponse,
        "1-3",
        2,
    ),
    Row(42, group_admin.DeleteGroupsRequest, group_admin.DeleteGroupsResponse, "0-2", 2),
    Row(43, placement.ElectLeadersRequest, placement.ElectLeadersResponse, "0-2", 2),
    Row(
        44,
        configs.IncrementalAlterConfigsRequest,
        configs.IncrementalAlterConfigsResponse,
        "0-1",
        1,
    ),
    Row(
        45,
        placement.AlterPartitionReassignmentsRequest,
        placement.AlterPartitionReassignmentsResponse,
        "0-1",
        0,
    ),
    Row(
        46,
        placement.ListPartitionReassignmentsRequest,
        placement.ListPartitionReassignmentsResponse,
        "0",
        0,
    ),
    Row(47, offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse, "0", 1),
    Row(48, security.DescribeClientQuotasRequest, security.DescribeClientQuotasResponse, "0-1", 1),
    Row(49, security.AlterClientQuotasRequest, security.AlterClientQuotasResponse, "0-1", 1),
    Row(
        50,
        security.DescribeUserScramCredentialsRequest,
        security.DescribeUserScramCredentialsResponse,
        "0",
        0,
    ),
    Row(
        51,
        security.AlterUserScramCredentialsRequest,
        security.AlterUserScramCredentialsResponse,
        "0",
        0,
    ),
    Row(55, metadata.DescribeQuorumRequest, metadata.DescribeQuorumResponse, "0-2", 0),
    Row(60, metadata.DescribeClusterRequest, metadata.DescribeClusterResponse, "0-2", 0),
    Row(61, producer_ids.DescribeProducersRequest, producer_ids.DescribeProducersResponse, "0", 0),
    Row(64, metadata.UnregisterBrokerRequest, metadata.UnregisterBrokerResponse, "0", 0),
    Row(
        65,
        transactions.DescribeTransactionsRequest,
        transactions.DescribeTransactionsResponse,
        "0",
        0,
    ),
    Row(66, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse, "0-2", 0),
    Row(
        68,
        assigned_groups.ConsumerGroupHeartbeatRequest,
        assigned_groups.ConsumerGroupHeartbeatResponse,
        "0-1",
        0,
    ),
    Row(
        69,
        assigned_groups.ConsumerGroupDescribeRequest,
        assigned_groups.ConsumerGroupDescribeResponse,
        "0-1",
        0,
    ),
    Row(74, configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse, "0-1", 0),
    Row(
        75,
        metadata.DescribeTopicPartitionsRequest,
        metadata.DescribeTopicPartitionsResponse,
        "0",
        0,
    ),
)
