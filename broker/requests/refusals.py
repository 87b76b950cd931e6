"""A request that is refused as a whole, in the format of its API.

Where a version has an error for the whole request, that says it; else every item that the request
names is refused. Nothing is looked up or decided; long answers are encoded in the background.
"""

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, Final, cast

import attrs

from broker.requests.context import Broker
from broker.requests.request import Request
from wire.apis import APIS, ApiKey, RequestHeader, Response, encode_response
from wire.codec.primitives import Buffer
from wire.codec.schema import fields_of
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
    topics,
)

BACKGROUND_FROM: Final = 500
"""Writing an answer for this many items costs a millisecond."""


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

    def refusals(self, message: Any, error: int, text: str) -> list[Any]:  # noqa: ANN401
        asked: Iterable[Any] = getattr(message, self.asked) or ()
        return [self._refusal(one, error, text) for one in asked]

    def _refusal(self, one: Any, error: int, text: str) -> Any:  # noqa: ANN401
        made = self.item(**self.blank)
        for source, target in self.names.items():
            setattr(made, target, one if source is None else getattr(one, source))
        if self.inner is not None:
            setattr(made, self.inner.answered, self.inner.refusals(one, error, text))
            return made
        _set_error(made, error, text)
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
}
"""Of all APIs that have a version without an error for the whole request."""


def whole_refusal(
    broker: Broker, header: RequestHeader, error: ErrorCode, text: str
) -> Response | None:
    """An answer that has an error for the whole request; None where this version has none. Without
    one, an empty answer would be taken for the truth."""
    answer = _empty_answer(broker, header)
    for field in fields_of(type(answer)):
        if field.name == "error_code" and field.spec.versions.has(header.api_version):
            _set_error(answer, error, text)
            return cast(Response, answer)
    if header.api_key == ApiKey.DESCRIBE_LOG_DIRS:
        directory = logs.DescribeLogDirsResult(error, broker.log_dir.path)
        return logs.DescribeLogDirsResponse(results=[directory])
    return None


def _empty_answer(broker: Broker, header: RequestHeader) -> Any:  # noqa: ANN401  a Response
    answer: Any = APIS[header.api_key].response()
    if isinstance(answer, metadata.MetadataResponse):
        answer.brokers = known_brokers(broker)
    return answer


def _name_all(
    answer: Any,  # noqa: ANN401  a Response
    header: RequestHeader,
    message: object,
    error: ErrorCode,
    text: str,
) -> bool:
    """Refuse everything that the request names; False if it names nothing, so that nothing could be
    said. Reads nothing that the loop changes."""
    refused = 0
    for named in NAMED[header.api_key]:
        items = named.refusals(message, error, text)
        if items:
            setattr(answer, named.answered, items)
            refused += len(items)
    return refused > 0


def _set_error(one: Any, error: int, text: str) -> None:  # noqa: ANN401
    """Versions without a message leave it out."""
    one.error_code = error
    if hasattr(one, "error_message"):
        one.error_message = text


def known_brokers(broker: Broker) -> list[metadata.MetadataResponseBroker]:
    """The nodes of the cluster, as Metadata names them."""
    return [
        metadata.MetadataResponseBroker(
            node.node, node.kafka.host, node.kafka.port, node.zone or None
        )
        for node in broker.registry.nodes.values()
    ]


def refuse(broker: Broker, request: Request, error: ErrorCode, text: str, things: int) -> None:
    """Answer a decoded request with `error`. One that names nothing loses its connection."""
    header = request.header
    whole = whole_refusal(broker, header, error, text)
    if whole is not None:
        request.reply.complete(encode_response(header, whole))
        return
    answer = _empty_answer(broker, header)  # here: it reads the registry

    def written() -> list[Buffer] | None:
        if not _name_all(answer, header, request.message, error, text):
            return None
        return encode_response(header, answer)

    def done(frame: list[Buffer] | None) -> None:
        if frame is None:
            request.reply.close(text)
        else:
            request.reply.complete(frame)

    if things < BACKGROUND_FROM:
        done(written())
    else:
        broker.background.submit(written, done)


def refuse_more_than(limit: int, named: Sized, broker: Broker, request: Request) -> bool:
    """Refuse a request that names more things than any client has."""
    if len(named) <= limit:
        return False
    name = APIS[request.header.api_key].name
    text = f"{name} names {len(named)} things, at most {limit} are answered"
    refuse(broker, request, ErrorCode.INVALID_REQUEST, text, len(named))
    return True


def answer_aside(broker: Broker, request: Request, things: int, make: Callable[[], Any]) -> None:
    """Answer with the result of `make`, in another thread if it is about many items. It must not
    read what the loop changes."""
    if things < BACKGROUND_FROM:
        request.reply.complete(encode_response(request.header, make()))
    else:
        broker.background.submit(
            lambda: encode_response(request.header, make()), request.reply.complete
        )
