"""Where requests name items and answers say what became of each, by API.

`broker/requests/refusals.py` refuses all that a request names, `broker/requests/portions.py` cuts
requests and joins answers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from wire.apis import ApiKey
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


@attrs.frozen
class Named:
    """Items that a request names in its field `asked` and its answer in `answered`, as `item`s.

    `names` maps what identifies an item in the request to where the answer says it; None stands for
    an item that is a plain name or number. The error belongs to the items of `inner`, if any.
    """

    asked: str
    answered: str
    item: type[Any]
    names: Mapping[str | None, str]
    inner: "Named | None" = None
    blank: Mapping[str, int] = attrs.field(factory=dict)
    """What stands for "nothing" in the answer, where that is not the field's default."""

    def named(self, message: Any) -> Sequence[Any]:  # noqa: ANN401
        """The items; with a dot in `asked`, those that items of another kind name."""
        outer, _, inner = self.asked.partition(".")
        found: Sequence[Any] = getattr(message, outer) or ()
        return [one for each in found for one in getattr(each, inner)] if inner else found

    def refusals(self, message: Any, error: int, text: str) -> list[Any]:  # noqa: ANN401
        return [self._refusal(one, error, text) for one in self.named(message)]

    def _refusal(self, one: Any, error: int, text: str) -> Any:  # noqa: ANN401
        made = self.item(**self.blank)
        for source, target in self.names.items():
            setattr(made, target, one if source is None else getattr(one, source))
        if self.inner is not None:
            setattr(made, self.inner.answered, self.inner.refusals(one, error, text))
            return made
        set_error(made, error, text)
        return made


_NAME: Final[Mapping[str | None, str]] = {"name": "name"}
_TOPIC: Final[Mapping[str | None, str]] = {"topic": "topic"}
_INDEX: Final[Mapping[str | None, str]] = {"partition_index": "partition_index"}
_RESOURCE: Final[Mapping[str | None, str]] = {
    "resource_type": "resource_type",
    "resource_name": "resource_name",
}

NAMED: Final[Mapping[int, tuple[Named, ...]]] = {
    ApiKey.PRODUCE: (
        Named(
            "topic_data",
            "responses",
            produce.TopicProduceResponse,
            _NAME,
            Named(
                "partition_data",
                "partition_responses",
                produce.PartitionProduceResponse,
                {"index": "index"},
                blank={"base_offset": -1},
            ),
        ),
    ),
    ApiKey.FETCH: (
        Named(
            "topics",
            "responses",
            fetch.FetchableTopicResponse,
            {"topic": "topic", "topic_id": "topic_id"},
            Named(
                "partitions",
                "partitions",
                fetch.PartitionData,
                {"partition": "partition_index"},
                blank={"high_watermark": -1},
            ),
        ),
    ),
    ApiKey.LIST_OFFSETS: (
        Named(
            "topics",
            "topics",
            list_offsets.ListOffsetsTopicResponse,
            _NAME,
            Named("partitions", "partitions", list_offsets.ListOffsetsPartitionResponse, _INDEX),
        ),
    ),
    ApiKey.METADATA: (
        Named(
            "topics",
            "topics",
            metadata.MetadataResponseTopic,
            {"name": "name", "topic_id": "topic_id"},
        ),
    ),
    ApiKey.OFFSET_COMMIT: (
        Named(
            "topics",
            "topics",
            offsets.OffsetCommitResponseTopic,
            _NAME,
            Named("partitions", "partitions", offsets.OffsetCommitResponsePartition, _INDEX),
        ),
    ),
    ApiKey.OFFSET_FETCH: (
        Named(
            "topics",
            "topics",
            offsets.OffsetFetchResponseTopic,
            _NAME,
            Named(
                "partition_indexes",
                "partitions",
                offsets.OffsetFetchResponsePartition,
                {None: "partition_index"},
                blank={"committed_offset": -1},
            ),
        ),
        Named("groups", "groups", offsets.OffsetFetchResponseGroup, {"group_id": "group_id"}),
    ),
    ApiKey.FIND_COORDINATOR: (
        Named(
            "coordinator_keys",
            "coordinators",
            membership.Coordinator,
            {None: "key"},
            blank={"node_id": -1, "port": -1},
        ),
    ),
    ApiKey.DESCRIBE_GROUPS: (
        Named("groups", "groups", group_admin.DescribedGroup, {None: "group_id"}),
    ),
    ApiKey.DELETE_GROUPS: (
        Named("groups_names", "results", group_admin.DeletableGroupResult, {None: "group_id"}),
    ),
    ApiKey.CREATE_TOPICS: (Named("topics", "topics", topics.CreatableTopicResult, _NAME),),
    ApiKey.DELETE_TOPICS: (
        Named(
            "topics",
            "responses",
            topics.DeletableTopicResult,
            {"name": "name", "topic_id": "topic_id"},
        ),
        Named("topic_names", "responses", topics.DeletableTopicResult, {None: "name"}),
    ),
    ApiKey.DELETE_RECORDS: (
        Named(
            "topics",
            "topics",
            logs.DeleteRecordsTopicResult,
            _NAME,
            Named(
                "partitions",
                "partitions",
                logs.DeleteRecordsPartitionResult,
                _INDEX,
                blank={"low_watermark": -1},
            ),
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Named(
            "topics",
            "topics",
            leader_epochs.OffsetForLeaderTopicResult,
            _TOPIC,
            Named(
                "partitions",
                "partitions",
                leader_epochs.EpochEndOffset,
                {"partition": "partition"},
            ),
        ),
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        Named("resources", "results", configs.DescribeConfigsResult, _RESOURCE),
    ),
    ApiKey.ALTER_CONFIGS: (
        Named("resources", "responses", configs.AlterConfigsResourceResponse, _RESOURCE),
    ),
    ApiKey.CREATE_PARTITIONS: (
        Named("topics", "results", topics.CreatePartitionsTopicResult, _NAME),
    ),
    ApiKey.ELECT_LEADERS: (
        Named(
            "topic_partitions",
            "replica_election_results",
            placement.ReplicaElectionResult,
            _TOPIC,
            Named(
                "partitions",
                "partition_result",
                placement.ElectPartitionResult,
                {None: "partition_id"},
            ),
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Named("resources", "responses", configs.AlterConfigsResourceResponse, _RESOURCE),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        Named("group_ids", "groups", assigned_groups.DescribedConsumerGroup, {None: "group_id"}),
    ),
    ApiKey.OFFSET_DELETE: (
        Named(
            "topics",
            "topics",
            offsets.OffsetDeleteTopicResult,
            _NAME,
            Named("partitions", "partitions", offsets.OffsetDeletePartitionResult, _INDEX),
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        Named(
            "topics",
            "responses",
            placement.ReassignableTopicResponse,
            _NAME,
            Named("partitions", "partitions", placement.ReassignablePartitionResponse, _INDEX),
        ),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (Named("topics", "topics", metadata.DescribedTopic, _NAME),),
    ApiKey.DESCRIBE_PRODUCERS: (
        Named(
            "topics",
            "topics",
            producer_ids.DescribedProducersTopic,
            _NAME,
            Named(
                "partition_indexes",
                "partitions",
                producer_ids.DescribedProducersPartition,
                {None: "partition_index"},
            ),
        ),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Named(
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            transactions.AddPartitionsToTxnTopicResult,
            _NAME,
            Named(
                "partitions",
                "results_by_partition",
                transactions.AddPartitionsToTxnPartitionResult,
                {None: "partition_index"},
            ),
        ),
        Named(
            "transactions",
            "results_by_transaction",
            transactions.AddPartitionsToTxnResult,
            {"transactional_id": "transactional_id"},
            Named(
                "topics",
                "topic_results",
                transactions.AddPartitionsToTxnTopicResult,
                _NAME,
                Named(
                    "partitions",
                    "results_by_partition",
                    transactions.AddPartitionsToTxnPartitionResult,
                    {None: "partition_index"},
                ),
            ),
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        Named(
            "topics",
            "topics",
            transactions.TxnOffsetCommitResponseTopic,
            _NAME,
            Named(
                "partitions", "partitions", transactions.TxnOffsetCommitResponsePartition, _INDEX
            ),
        ),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Named(
            "transactional_ids",
            "transaction_states",
            transactions.DescribedTransaction,
            {None: "transactional_id"},
        ),
    ),
    ApiKey.CREATE_ACLS: (Named("creations", "results", security.AclCreationResult, {}),),
    ApiKey.DELETE_ACLS: (Named("filters", "filter_results", security.DeleteAclsFilterResult, {}),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        Named(
            "dirs.topics",
            "results",
            logs.AlterReplicaLogDirTopicResult,
            {"name": "topic_name"},
            Named(
                "partitions",
                "partitions",
                logs.AlterReplicaLogDirPartitionResult,
                {None: "partition_index"},
            ),
        ),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        Named("entries", "entries", security.AlteredQuotaEntry, {"entity": "entity"}),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        Named("users", "results", security.DescribedScramUser, {"name": "user"}),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        Named("deletions", "results", security.AlteredScramUser, {"name": "user"}),
        Named("upsertions", "results", security.AlteredScramUser, {"name": "user"}),
    ),
}
"""Of all APIs that have a version without an error for the whole request, or whose requests are cut
into portions. The last row of an API is that of the newest versions."""


def set_error(one: Any, error: int, text: str) -> None:  # noqa: ANN401
    """Versions without a message leave it out."""
    if hasattr(one, "partition_error_code"):  # of a transaction
        one.partition_error_code = error
    else:
        one.error_code = error
    if hasattr(one, "error_message"):
        one.error_message = text
