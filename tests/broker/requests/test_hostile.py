"""Whatever bytes a client sends: every request is answered once, or its connection is closed.

There are three kinds of hostile clients: one whose valid frames were cut or damaged on the way, one
that sends well-formed requests full of absurd values, and one that sends noise. None of them may
raise anything out of `ApiTable.handle_frame`, reveal a bug in a handler, or keep others from being
served. (The time that a client may make us wait is bounded too: the answers are there in the end.)
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.batches import batch
from tests.broker.fakes import FakeReply
from tests.broker.world import CLIENT_HOST, SERVED, World
from tests.wire.messages_of import example, messages
from wire.apis import Api, ApiKey, Request, encode_request
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

MUTANTS = 40
PATIENCE_MS = 70_000
"""Longer than any wait a client can ask for, except in consumer groups."""

REQUESTS = [(api, version) for api in SERVED for version in range(*api.accepted)] + [
    (api, api.accepted.last) for api in SERVED
]


def sensible(api: Api) -> Request:
    """A request that gets as far as possible: it names what exists."""
    made: dict[ApiKey, Request] = {
        ApiKey.PRODUCE: produce.ProduceRequest(
            None,
            -1,
            1_000,
            [
                produce.TopicProduceData(
                    "t", [produce.PartitionProduceData(0, memoryview(batch("x")))]
                )
            ],
        ),
        ApiKey.FETCH: fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=[
                fetch.FetchTopic("t", topic_id=_TOPIC_ID, partitions=[fetch.FetchPartition(0)])
            ],
        ),
        ApiKey.LIST_OFFSETS: list_offsets.ListOffsetsRequest(
            -1,
            topics=[
                list_offsets.ListOffsetsTopic(
                    "t", [list_offsets.ListOffsetsPartition(0, timestamp=-1)]
                )
            ],
        ),
        ApiKey.METADATA: metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")]),
        ApiKey.OFFSET_COMMIT: offsets.OffsetCommitRequest(
            "g",
            topics=[
                offsets.OffsetCommitRequestTopic("t", [offsets.OffsetCommitRequestPartition(0, 1)])
            ],
        ),
        ApiKey.OFFSET_FETCH: offsets.OffsetFetchRequest(
            "g",
            [offsets.OffsetFetchRequestGroup("g")],
            [offsets.OffsetFetchRequestTopic("t", [0])],
        ),
        ApiKey.FIND_COORDINATOR: membership.FindCoordinatorRequest("g", 0, ["g"]),
        ApiKey.JOIN_GROUP: membership.JoinGroupRequest(
            "g", 6_000, 6_000, "", None, "c", [membership.JoinGroupRequestProtocol("p", b"x")]
        ),
        ApiKey.HEARTBEAT: membership.HeartbeatRequest("g", 1, "m"),
        ApiKey.LEAVE_GROUP: membership.LeaveGroupRequest("g", "m"),
        ApiKey.SYNC_GROUP: membership.SyncGroupRequest("g", 1, "m"),
        ApiKey.DESCRIBE_GROUPS: group_admin.DescribeGroupsRequest(["g"]),
        ApiKey.LIST_GROUPS: group_admin.ListGroupsRequest(),
        ApiKey.API_VERSIONS: api_versions.ApiVersionsRequest("client", "1"),
        ApiKey.DELETE_TOPICS: topics.DeleteTopicsRequest(["n"], [topics.DeleteTopicState("n")]),
        ApiKey.INIT_PRODUCER_ID: producer_ids.InitProducerIdRequest(None, 0, 5, 1),
        ApiKey.DESCRIBE_CONFIGS: configs.DescribeConfigsRequest(
            [configs.DescribeConfigsResource(2, "t"), configs.DescribeConfigsResource(4, "1")]
        ),
        ApiKey.CREATE_PARTITIONS: topics.CreatePartitionsRequest(
            [topics.CreatePartitionsTopic("t", 5)], 1_000
        ),
    } | _administration()
    return made.get(api.key) or _absent()[api.key]


def _absent() -> dict[ApiKey, Request]:
    """Of what is not there: every array has an item."""
    txn = transactions.AddPartitionsToTxnTopic("t", [0])
    entity = [security.QuotaEntity("user", "u")]
    change = security.AlterQuotaEntry(entity, [security.QuotaChange("k", 1.0)])
    principal = security.TokenPrincipal("User", "u")
    moved = logs.AlterReplicaLogDir("/d", [logs.AlterReplicaLogDirTopic("t", [0])])
    commit = transactions.TxnOffsetCommitRequestPartition(0, 1)
    return {
        ApiKey.SASL_HANDSHAKE: sasl.SaslHandshakeRequest("PLAIN"),
        ApiKey.SASL_AUTHENTICATE: sasl.SaslAuthenticateRequest(b"x"),
        ApiKey.ADD_PARTITIONS_TO_TXN: transactions.AddPartitionsToTxnRequest(
            [transactions.AddPartitionsToTxnTransaction("i", 1, 0, False, [txn])], "i", 1, 0, [txn]
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: transactions.AddOffsetsToTxnRequest("i", 1, 0, "g"),
        ApiKey.END_TXN: transactions.EndTxnRequest("i", 1, 0, True),
        ApiKey.TXN_OFFSET_COMMIT: transactions.TxnOffsetCommitRequest(
            "i", "g", 1, 0, topics=[transactions.TxnOffsetCommitRequestTopic("t", [commit])]
        ),
        ApiKey.DESCRIBE_ACLS: security.DescribeAclsRequest(1),
        ApiKey.CREATE_ACLS: security.CreateAclsRequest([security.AclCreation(2, "t")]),
        ApiKey.DELETE_ACLS: security.DeleteAclsRequest([security.DeleteAclsFilter(2, "t")]),
        ApiKey.ALTER_REPLICA_LOG_DIRS: logs.AlterReplicaLogDirsRequest([moved]),
        ApiKey.CREATE_DELEGATION_TOKEN: security.CreateDelegationTokenRequest(
            renewers=[principal], max_lifetime_ms=1
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: security.RenewDelegationTokenRequest(b"h", 1),
        ApiKey.EXPIRE_DELEGATION_TOKEN: security.ExpireDelegationTokenRequest(b"h", 1),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: security.DescribeDelegationTokenRequest([principal]),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: security.DescribeClientQuotasRequest(
            [security.QuotaFilter("user", 0, "u")]
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: security.AlterClientQuotasRequest([change]),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: security.DescribeUserScramCredentialsRequest(
            [security.ScramUserName("u")]
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: security.AlterUserScramCredentialsRequest(
            [security.ScramCredentialDeletion("u", 1)], [security.ScramCredentialUpsertion("v", 1)]
        ),
        ApiKey.UNREGISTER_BROKER: metadata.UnregisterBrokerRequest(9),
        ApiKey.DESCRIBE_TRANSACTIONS: transactions.DescribeTransactionsRequest(["i"]),
        ApiKey.LIST_TRANSACTIONS: transactions.ListTransactionsRequest(["Ongoing"], [1]),
    }


def _administration() -> dict[ApiKey, Request]:
    return {
        ApiKey.CREATE_TOPICS: topics.CreateTopicsRequest(
            [
                topics.CreatableTopic(
                    "n",
                    -1,
                    -1,
                    [topics.CreatableReplicaAssignment(0, [1, 2, 3])],
                    [topics.CreatableTopicConfig("flush.ms", "1")],
                )
            ]
        ),
        ApiKey.DELETE_RECORDS: logs.DeleteRecordsRequest(
            [logs.DeleteRecordsTopic("t", [logs.DeleteRecordsPartition(0, -1)])], 1_000
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: leader_epochs.OffsetForLeaderEpochRequest(
            -1,
            [
                leader_epochs.OffsetForLeaderTopic(
                    "t", [leader_epochs.OffsetForLeaderPartition(0, -1, 1)]
                )
            ],
        ),
        ApiKey.DESCRIBE_LOG_DIRS: logs.DescribeLogDirsRequest(
            [logs.DescribableLogDirTopic("t", [0])]
        ),
        ApiKey.ALTER_CONFIGS: configs.AlterConfigsRequest(
            [configs.AlterConfigsResource(2, "t", [configs.AlterableConfig("retention.ms", "1")])]
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.IncrementalAlterConfigsRequest(
            [
                configs.IncrementalAlterConfigsResource(
                    2, "t", [configs.IncrementalAlterableConfig("retention.ms", 0, "1")]
                )
            ]
        ),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: assigned_groups.ConsumerGroupHeartbeatRequest(
            "k", "m", 0, rebalance_timeout_ms=9_000, subscribed_topic_names=["t"]
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: assigned_groups.ConsumerGroupDescribeRequest(["k"]),
        ApiKey.OFFSET_DELETE: offsets.OffsetDeleteRequest(
            "g", [offsets.OffsetDeleteTopic("t", [offsets.OffsetDeletePartition(0)])]
        ),
        ApiKey.ELECT_LEADERS: placement.ElectLeadersRequest(
            0, [placement.ElectTopicPartitions("t", [0, 1])], 1_000
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: placement.AlterPartitionReassignmentsRequest(
            1_000,
            topics=[
                placement.ReassignableTopic("t", [placement.ReassignablePartition(0, [2, 1, 3])])
            ],
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: placement.ListPartitionReassignmentsRequest(),
        ApiKey.DELETE_GROUPS: group_admin.DeleteGroupsRequest(["g"]),
        ApiKey.DESCRIBE_CLUSTER: metadata.DescribeClusterRequest(),
        ApiKey.DESCRIBE_QUORUM: metadata.DescribeQuorumRequest(
            [metadata.QuorumTopic("__cluster_metadata", [metadata.QuorumPartition(0)])]
        ),
        ApiKey.DESCRIBE_PRODUCERS: producer_ids.DescribeProducersRequest(
            [producer_ids.DescribeProducersTopic("t", [0, 1])]
        ),
        ApiKey.LIST_CONFIG_RESOURCES: configs.ListConfigResourcesRequest([2]),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: metadata.DescribeTopicPartitionsRequest(
            [metadata.PartitionsOfTopic("t")], 2, metadata.PartitionCursor("t", 0)
        ),
    }


_TOPIC_ID = (1).to_bytes(16, "big")


def encoded(message: Request, version: int) -> bytes:
    return b"".join(encode_request(message, version, 7, "hostile"))[4:]


def mutants(frame: bytes, dice: Random) -> Iterator[bytes]:
    """Frames cut short, with changed bytes, a blown-up length, or bytes put in or taken out."""
    for _ in range(MUTANTS):
        data = bytearray(frame)
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            at = dice.randrange(4, max(5, len(data)))
            kind = dice.choice([0, 1, 1, 1, 1, 2, 3, 4])
            if kind == 0:
                del data[at:]
            elif kind == 1 and at < len(data):
                data[at] = dice.randrange(256)
            elif kind == 2:
                data[at : at + 2] = dice.choice([b"\xff\xff", b"\x7f\xff", b"\x80\x00"])
            elif kind == 3:
                data[at:at] = dice.randbytes(dice.randint(1, 9))
            else:
                del data[at : at + dice.randint(1, 4)]
        yield bytes(data)


BYSTANDER = "bystander"


class Victim:
    """A cluster with a topic, a second topic that no request names (the first may be deleted on
    request), and a record of all requests."""

    def __init__(self) -> None:
        self.world = World(groups=2)
        made = [topics.CreatableTopic(name, 2, -1) for name in ("t", BYSTANDER)]
        self.world.ask(1, topics.CreateTopicsRequest(made), 7)
        self.replies: list[FakeReply] = []

    def send(self, frame: bytes, *, owned: bool = True) -> None:
        reply = FakeReply()
        self.replies.append(reply)
        self.world[1].api.handle_frame(memoryview(frame), owned, CLIENT_HOST, reply)

    def check(self) -> None:
        """Everything is answered in the end, no handler has failed, and the next client is
        served."""
        self.world.cluster.settle()
        self.world.advance(PATIENCE_MS, step_ms=500)
        for group in range(1, 3):
            self.world.cluster.install(group, 2)  # members that still wait in a group are sent away
        assert all(reply.settled for reply in self.replies)
        assert not self.world[1].bugs, self.world[1].bugs
        response = self.world.ask(1, metadata.MetadataRequest(None), 12)
        assert BYSTANDER in [topic.name for topic in response.topics]


@pytest.mark.parametrize(("api", "version"), REQUESTS, ids=lambda one: getattr(one, "name", one))
def test_damaged_frames(api: Api, version: int) -> None:
    victim = Victim()
    dice = Random(f"{api.name} {version}")
    refused = 0
    for message in (sensible(api), example(api.request, version)):
        frame = encoded(message, version)
        victim.send(frame)
        assert victim.world[1].api.refused == refused, "a whole frame reaches its handler"
        for mutant in mutants(frame, dice):
            victim.send(mutant)
            victim.send(mutant, owned=False)
        refused = victim.world[1].api.refused
    victim.check()


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_absurd_but_well_formed(api: Api, data: Any) -> None:
    """Any value of any field: no handler trusts a client's value."""
    victim = Victim()
    for version in (api.accepted.first, api.accepted.last):
        message = data.draw(messages(api.request, version))
        victim.send(encoded(message, version))
    victim.check()


def test_noise() -> None:
    victim = Victim()
    dice = Random(0)
    for size in [*range(64), *(dice.randrange(64, 4_096) for _ in range(200))]:
        victim.send(dice.randbytes(size))
    for key in range(-2, 100):
        for version in (-1, 0, 3, 9, 99):
            head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
            victim.send(head + dice.randbytes(60))
    victim.check()


def test_more_names_than_any_client_has() -> None:
    """What can be served in portions is. The rest is refused with an answer that clients
    understand: a client that is disconnected retries for minutes."""
    victim = Victim()
    many = [str(number) for number in range(20_000)]
    victim.send(encoded(group_admin.DescribeGroupsRequest(many), 5))
    victim.send(encoded(group_admin.DeleteGroupsRequest(many), 2))
    victim.send(encoded(membership.FindCoordinatorRequest("", 0, many), 4))
    wanted = [metadata.MetadataRequestTopic(name=name) for name in many]
    victim.send(encoded(metadata.MetadataRequest(wanted), 12))
    asked = [topics.CreatableTopic(name, 1, 1) for name in many]
    victim.send(encoded(topics.CreateTopicsRequest(asked), 7))
    times = [list_offsets.ListOffsetsPartition(0, timestamp=1) for _ in range(20_000)]
    one_topic = list_offsets.ListOffsetsTopic("t", times)
    victim.send(encoded(list_offsets.ListOffsetsRequest(-1, topics=[one_topic]), 7))
    places = [fetch.FetchPartition(number) for number in range(20_001)]
    victim.send(encoded(fetch.FetchRequest(topics=[fetch.FetchTopic("t", partitions=places)]), 12))
    alter = [configs.AlterConfigsResource(2, name, []) for name in many]
    victim.send(encoded(configs.AlterConfigsRequest(alter), 2))
    victim.check()
    assert all(reply.frame and not reply.closed for reply in victim.replies)
