"""What Evenkeel does not have is answered as by a Kafka without it: tools that list it find
nothing, and whoever names it is told."""

from typing import Any

import pytest

from paxos.ids import REGISTRY_GROUP, NodeId
from tests.broker.world import World
from wire.apis import APIS, ApiKey
from wire.error_codes import ErrorCode
from wire.messages import (
    group_admin,
    logs,
    metadata,
    sasl,
    security,
    transactions,
)

NO_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

WHOLE = [
    (sasl.SaslHandshakeRequest("PLAIN"), ErrorCode.ILLEGAL_SASL_STATE),
    (sasl.SaslAuthenticateRequest(b"\0me\0secret"), ErrorCode.ILLEGAL_SASL_STATE),
    (transactions.AddOffsetsToTxnRequest("t", 1, 0, "g"), NO_TXN),
    (transactions.EndTxnRequest("t", 1, 0, True), NO_TXN),
    (security.DescribeAclsRequest(1, None), ErrorCode.SECURITY_DISABLED),
    (security.CreateDelegationTokenRequest(), NOT_ALLOWED),
    (security.RenewDelegationTokenRequest(b"t"), NOT_ALLOWED),
    (security.ExpireDelegationTokenRequest(b"t"), NOT_ALLOWED),
    (security.DescribeDelegationTokenRequest(None), NOT_ALLOWED),
    (security.DescribeClientQuotasRequest(), ErrorCode.NONE),
    (security.DescribeUserScramCredentialsRequest(None), ErrorCode.NONE),
    (metadata.UnregisterBrokerRequest(2), ErrorCode.INVALID_REQUEST),
    (transactions.ListTransactionsRequest(), ErrorCode.NONE),
]
"""Requests whose answer has one error."""


@pytest.mark.parametrize(("message", "error"), WHOLE, ids=lambda one: type(one).__name__)
def test_answers_with_one_error(message: Any, error: ErrorCode) -> None:
    [api] = [api for api in APIS.values() if api.request is type(message)]
    for version in range(api.accepted.first, api.accepted.last + 1):
        answer = World().ask(1, message, version)
        assert answer.error_code == error


def each(message: Any, version: int, field: str) -> list[tuple[int, str | None]]:
    found = getattr(World().ask(1, message, version), field)
    return [(one.error_code, one.error_message) for one in found]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_disabled_one_by_one(version: int) -> None:
    """MirrorMaker and kafka-acls tell their user this; an unknown API would end them."""
    creations = [security.AclCreation(2, "t", 3, "User:me", "*", 3, 3)] * 2
    told = each(security.CreateAclsRequest(creations), version, "results")
    assert [one for one, _ in told] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all("No Authorizer" in (text or "") for _, text in told)
    filters = [security.DeleteAclsFilter(2, "t")] * 3
    told = each(security.DeleteAclsRequest(filters), version, "filter_results")
    assert [one for one, _ in told] == [ErrorCode.SECURITY_DISABLED] * 3
    assert each(security.CreateAclsRequest(), version, "results") == []


def test_partitions_of_a_transaction() -> None:
    topic = transactions.AddPartitionsToTxnTopic("t", [0, 1])
    old = transactions.AddPartitionsToTxnRequest([], "id", 1, 0, [topic])
    for version in range(4):
        [told] = World().ask(1, old, version).results_by_topic_v3_and_below
        rows = [
            (one.partition_index, one.partition_error_code) for one in told.results_by_partition
        ]
        assert rows == [(0, NO_TXN), (1, NO_TXN)]
    new = transactions.AddPartitionsToTxnRequest(
        [transactions.AddPartitionsToTxnTransaction("id", 1, 0, False, [topic])]
    )
    assert World().ask(1, new, 4).error_code == NO_TXN


def test_offsets_in_a_transaction() -> None:
    partition = transactions.TxnOffsetCommitRequestPartition(3, 7)
    topic = transactions.TxnOffsetCommitRequestTopic("t", [partition])
    for version in range(6):
        message = transactions.TxnOffsetCommitRequest("id", "g", 1, 0, topics=[topic])
        [told] = World().ask(1, message, version).topics
        assert [(one.partition_index, one.error_code) for one in told.partitions] == [(3, NO_TXN)]


def test_there_are_no_transactions() -> None:
    named = transactions.DescribeTransactionsRequest(["a", "b"])
    found = World().ask(1, named, 0).transaction_states
    assert [(one.transactional_id, one.error_code) for one in found] == [
        ("a", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("b", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ]
    asked = transactions.ListTransactionsRequest(["Ongoing", "Pending"])
    listed = World().ask(1, asked, 2)
    assert (listed.transaction_states, listed.unknown_state_filters) == ([], ["Pending"])


def test_without_users_there_are_no_credentials() -> None:
    users = [security.ScramUserName("me")]
    told = World().ask(1, security.DescribeUserScramCredentialsRequest(users), 0).results
    assert [(one.user, one.error_code) for one in told] == [("me", ErrorCode.RESOURCE_NOT_FOUND)]
    change = security.AlterUserScramCredentialsRequest(
        [security.ScramCredentialDeletion("a", 1)], [security.ScramCredentialUpsertion("b", 1)]
    )
    told = World().ask(1, change, 0).results
    assert [(one.user, one.error_code) for one in told] == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ]


def test_there_is_one_directory() -> None:
    named = [logs.AlterReplicaLogDirTopic("t", [0, 1]), logs.AlterReplicaLogDirTopic("u", [2])]
    dirs = [
        logs.AlterReplicaLogDir("/elsewhere", named[:1]),
        logs.AlterReplicaLogDir("/b", named[1:]),
    ]
    told = World().ask(1, logs.AlterReplicaLogDirsRequest(dirs), 2).results
    assert [
        (topic.topic_name, one.partition_index, one.error_code)
        for topic in told
        for one in topic.partitions
    ] == [
        ("t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("t", 1, ErrorCode.LOG_DIR_NOT_FOUND),
        ("u", 2, ErrorCode.LOG_DIR_NOT_FOUND),
    ]


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ([("user", 0, "x"), ("client-id", 1, None), ("ip", 2, None)], ErrorCode.NONE),
        ([("nonsense", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "x"), ("user", 0, "y")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_of_quotas_are_read_though_there_are_none(
    filters: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    asked = security.DescribeClientQuotasRequest([security.QuotaFilter(*one) for one in filters])
    for version in (0, 1):
        answer = World().ask(1, asked, version)
        assert answer.error_code == error
        assert (answer.entries, bool(answer.error_message)) == (
            ([], False) if error == ErrorCode.NONE else (None, True)
        )


def test_a_user_that_is_named_twice_is_told_once() -> None:
    asked = security.DescribeUserScramCredentialsRequest(
        [security.ScramUserName(name) for name in ("x", "y", "x")]
    )
    answer = World().ask(1, asked, 0)
    assert {one.user: one.error_code for one in answer.results} == {
        "x": ErrorCode.DUPLICATE_RESOURCE,
        "y": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert len(answer.results) == 2


def test_a_pattern_of_transactions_that_is_none() -> None:
    for pattern, error in (
        ("t(", ErrorCode.INVALID_REGULAR_EXPRESSION),
        ("t.*", ErrorCode.NONE),
        ("", ErrorCode.NONE),
        (None, ErrorCode.NONE),
    ):
        asked = transactions.ListTransactionsRequest(transactional_id_pattern=pattern)
        assert World().ask(1, asked, 2).error_code == error


def test_the_registry_stands_for_kafkas_quorum() -> None:
    world = World(nodes=4)
    world.cluster.members[REGISTRY_GROUP] = (NodeId(1), NodeId(2), NodeId(3))
    asked = metadata.DescribeQuorumRequest(
        [
            metadata.QuorumTopic("__cluster_metadata", [metadata.QuorumPartition(0)]),
            metadata.QuorumTopic("other", [metadata.QuorumPartition(0)]),
        ]
    )
    answer = world.ask(1, asked, 2)
    assert [one.node_id for one in answer.nodes] == [1, 2, 3, 4]
    none = metadata.DescribeQuorumRequest(asked.topics[1:])
    assert world.ask(1, none, 2).nodes == [], "beside nothing but errors"
    [ours], [other] = (topic.partitions for topic in answer.topics)
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (ours.error_code, ours.leader_id) == (ErrorCode.NONE, 1)
    applied = world[1].registry.applied
    assert ours.high_watermark == applied
    ends = {one.replica_id: one.log_end_offset for one in ours.current_voters}
    assert ends == {1: applied, 2: -1, 3: -1}
    assert [one.replica_id for one in ours.observers] == [4]


def test_every_old_api_is_listed() -> None:
    """franz-go guesses the version by the first API that it misses: it was 17, of Kafka 0.10."""
    missing = [key for key in range(52) if key not in APIS and key not in (4, 5, 6, 7, 27)]
    assert missing == []
    assert APIS[ApiKey.ADD_PARTITIONS_TO_TXN].advertised.last >= 4  # kafka-python's Kafka 3.6


@pytest.mark.parametrize("version", range(7))
def test_unknown_consumer_groups_are_not_found_by_those_who_ask_so(version: int) -> None:
    [told] = World().ask(1, group_admin.DescribeGroupsRequest(["g"]), version).groups
    assert told.group_state == "Dead"
    if version >= 6:
        assert told.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "g" in (told.error_message or "")
    else:
        assert told.error_code == ErrorCode.NONE


def test_there_are_no_share_or_streams_groups() -> None:
    for kind in ("share", "streams", "Share"):
        answer = World().ask(1, group_admin.ListGroupsRequest([], [kind]), 5)
        assert (answer.error_code, answer.groups) == (ErrorCode.NONE, [])


def test_a_client_may_do_everything_there_is() -> None:
    """As with a Kafka without an authorizer: Create, Alter, Describe, ClusterAction,
    DescribeConfigs, AlterConfigs, IdempotentWrite."""
    world = World()
    asked = metadata.DescribeClusterRequest(True)
    wanted = sum(1 << one for one in (5, 7, 8, 9, 10, 11, 12))
    assert world.ask(1, asked, 2).cluster_authorized_operations == wanted
    asked = metadata.DescribeClusterRequest()
    assert world.ask(1, asked, 2).cluster_authorized_operations == -(2**31)


def test_nodes_that_are_away_are_fenced_for_those_who_ask() -> None:
    world = World()
    world.cluster.dead.add(3)
    for asked, fenced in ((True, [3]), (False, [])):
        message = metadata.DescribeClusterRequest(include_fenced_brokers=asked)
        brokers = world.ask(1, message, 2).brokers
        assert [one.broker_id for one in brokers] == [1, 2, 3]
        assert [one.broker_id for one in brokers if one.is_fenced] == fenced
