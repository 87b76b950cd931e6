"""What the gate asks where a name in the request is not enough (see `broker.security.table`)."""

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, Final

import attrs

from broker.groups.topic_patterns import matching
from broker.handlers.groups.coordinators import BATCHED_FROM, KEY_GROUP, KEY_TRANSACTION
from broker.handlers.groups.offsets import BATCHED_FETCH_FROM
from broker.handlers.records.fetch import TOPIC_ID_FROM_VERSION
from broker.handlers.security.edited_reply import Edit
from broker.handlers.security.gate import (
    PIECE,
    Check,
    Deciding,
    Outcome,
    at_once,
    check_needs,
    named,
    sort_out,
)
from broker.handlers.topics.configs import ResourceType as ConfigType
from broker.requests.access import DENIED, Access
from broker.requests.context import Broker
from broker.requests.named_items import Named
from broker.requests.request import Request
from broker.security.authorizer import EVERYTHING
from broker.security.table import ROWS
from wire.acls import Operation, ResourceType
from wire.apis import ApiKey
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages.assigned_groups import ConsumerGroupHeartbeatRequest
from wire.messages.membership import FindCoordinatorRequest
from wire.messages.offsets import OffsetFetchRequest
from wire.messages.producer_ids import InitProducerIdRequest
from wire.messages.topics import CreateTopicsRequest, DeleteTopicsRequest

NAMED_TOPICS_FROM: Final = 6
"""DeleteTopics: the first version that names topics by id as well (KIP-516)."""
MANY_TRANSACTIONS_FROM: Final = 4
"""AddPartitionsToTxn: what only brokers send (KIP-890)."""
_CLUSTER: Final = ResourceType.CLUSTER
_TOPIC: Final = ResourceType.TOPIC
_GROUP: Final = ResourceType.GROUP


@at_once
def _later(broker: Broker, request: Request, access: Access) -> Outcome:
    """Its handler asks, when it makes the answer."""
    return Outcome(request.message)


def _by_id(broker: Broker, access: Access, operation: Operation, topic_id: bytes) -> ErrorCode:
    """A topic that is not known is left to the handler. One that the client may not even describe
    is as unknown to it as any other."""
    topic = broker.registry.topic_by_id(topic_id)
    if topic is None or access.may(operation, _TOPIC, topic.name):
        return ErrorCode.NONE
    if access.quietly(Operation.DESCRIBE, _TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_ID


def _by_name(access: Access, operation: Operation, name: str) -> ErrorCode:
    may = access.may(operation, _TOPIC, name)
    return ErrorCode.NONE if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED


# -- topics ----------------------------------------------------------------------------------------


def _fetch(broker: Broker, request: Request, access: Access) -> Deciding:
    by_id = request.header.api_version >= TOPIC_ID_FROM_VERSION

    def judge(one: Any) -> ErrorCode:  # noqa: ANN401  a FetchTopic
        if by_id:
            return _by_id(broker, access, Operation.READ, one.topic_id)
        return _by_name(access, Operation.READ, one.topic)

    return sort_out(Outcome(request.message), named(ApiKey.FETCH, "topics"), judge)


def _create_topics(broker: Broker, request: Request, access: Access) -> Deciding:
    """Create Cluster allows every topic; else each needs Create Topic. The settings of a new topic
    are told to those who may describe them."""
    message = request.message
    assert isinstance(message, CreateTopicsRequest)
    every = access.quietly(Operation.CREATE, _CLUSTER)

    def judge(one: Any) -> ErrorCode:  # noqa: ANN401  a CreatableTopic
        return ErrorCode.NONE if every else _by_name(access, Operation.CREATE, one.name)

    outcome = yield from sort_out(Outcome(message), named(ApiKey.CREATE_TOPICS, "topics"), judge)
    hidden: set[str] = set()
    for number, one in enumerate(message.topics, 1):
        if not access.quietly(Operation.DESCRIBE_CONFIGS, _TOPIC, one.name):
            hidden.add(one.name)
        if number % PIECE == 0:
            yield
    if not hidden:
        return outcome

    def hide(answer: Any) -> None:  # noqa: ANN401  a CreateTopicsResponse
        for one in answer.topics:
            if one.name in hidden and one.error_code == ErrorCode.NONE:
                one.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                one.num_partitions = one.replication_factor = -1
                one.configs = None

    return attrs.evolve(outcome, edits=(*outcome.edits, hide))


def _delete_topics(broker: Broker, request: Request, access: Access) -> Deciding:
    message = request.message
    assert isinstance(message, DeleteTopicsRequest)
    if request.header.api_version < NAMED_TOPICS_FROM:
        names = partial(_by_name, access, Operation.DELETE)
        return sort_out(Outcome(message), named(ApiKey.DELETE_TOPICS, "topic_names"), names)

    def judge(one: Any) -> ErrorCode:  # noqa: ANN401  a DeleteTopicState
        if one.topic_id != UUID_ZERO:
            return _by_id(broker, access, Operation.DELETE, one.topic_id)
        return _by_name(access, Operation.DELETE, one.name or "")

    return sort_out(Outcome(message), named(ApiKey.DELETE_TOPICS, "topics"), judge)


def _topic_partitions(broker: Broker, request: Request, access: Access) -> Deciding:
    """Of all topics, those that may not be described are left out by the handler."""
    row = named(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics")
    return sort_out(
        Outcome(request.message),
        row,
        lambda one: _by_name(access, Operation.DESCRIBE, one.name),
    )


_OF_CONFIG: Final = {
    ConfigType.TOPIC: ResourceType.TOPIC,
    ConfigType.GROUP: ResourceType.GROUP,
    ConfigType.BROKER: ResourceType.CLUSTER,
    ConfigType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigType.CLIENT_METRICS: ResourceType.CLUSTER,
}
"""What a resource with settings is for the rules."""


def _configs(operation: Operation, broker: Broker, request: Request, access: Access) -> Deciding:
    """A type that does not exist is left to the handler, which refuses it."""

    def judge(one: Any) -> ErrorCode:  # noqa: ANN401  a resource of one of three requests
        kind = _OF_CONFIG.get(one.resource_type)
        if kind is None:
            return ErrorCode.NONE
        if kind is ResourceType.CLUSTER:
            may = access.may(operation, kind)
        else:
            may = access.may(operation, kind, one.resource_name)
        return ErrorCode.NONE if may else DENIED[kind]

    row = named(request.header.api_key, "resources")
    return sort_out(Outcome(request.message), row, judge)


# -- groups and producers --------------------------------------------------------------------------


def _find_coordinator(broker: Broker, request: Request, access: Access) -> Deciding:
    message = request.message
    assert isinstance(message, FindCoordinatorRequest)
    kinds = {KEY_GROUP: _GROUP, KEY_TRANSACTION: ResourceType.TRANSACTIONAL_ID}
    kind = kinds.get(message.key_type)
    if kind is None:
        return Outcome(message)

    def judge(key: str) -> ErrorCode:
        may = access.may(Operation.DESCRIBE, kind, key)
        return ErrorCode.NONE if may else DENIED[kind]

    if request.header.api_version < BATCHED_FROM:
        return Outcome(message, judge(message.key))
    row = named(ApiKey.FIND_COORDINATOR, "coordinator_keys")
    return (yield from sort_out(Outcome(message), row, judge))


def _offset_fetch(broker: Broker, request: Request, access: Access) -> Deciding:
    """Groups are refused as such; within the others, topics that are named one by one. Of all
    offsets of a group, those of topics that may not be described are left out."""
    message = request.message
    assert isinstance(message, OffsetFetchRequest)
    sees = access.sees(Operation.DESCRIBE, _TOPIC)
    if request.header.api_version < BATCHED_FETCH_FROM:
        if not access.may(Operation.DESCRIBE, _GROUP, message.group_id):
            return Outcome(None, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if message.topics is None:
            return Outcome(message, edits=_hiding(sees, None))
        return (yield from _described_offsets(Outcome(message), access))

    def judge(one: Any) -> ErrorCode:  # noqa: ANN401  an OffsetFetchRequestGroup
        may = access.may(Operation.DESCRIBE, _GROUP, one.group_id)
        return ErrorCode.NONE if may else ErrorCode.GROUP_AUTHORIZATION_FAILED

    outcome = yield from sort_out(Outcome(message), named(ApiKey.OFFSET_FETCH, "groups"), judge)
    if outcome.message is None or sees is EVERYTHING:
        return outcome
    return (yield from _within_groups(outcome, access, sees))


def _described_offsets(outcome: Outcome, access: Access) -> Deciding:
    """Of one group: without the topics that are named and may not be described."""
    describe = partial(_by_name, access, Operation.DESCRIBE)
    return sort_out(outcome, _OLD_TOPICS, lambda one: describe(one.name))


def _within_groups(outcome: Outcome, access: Access, sees: Callable[[str], bool]) -> Deciding:
    groups: list[Any] = []
    refused: dict[str, list[Edit]] = {}
    refused_rows = 0
    for group in outcome.message.groups:
        judged = Outcome(group)
        if group.topics is not None:
            judged = yield from _described_offsets(judged, access)
        if judged.edits:
            refused.setdefault(group.group_id, []).extend(judged.edits)
            refused_rows += judged.refused
            left = () if judged.message is None else judged.message.topics
            groups.append(attrs.evolve(group, topics=list(left)))
        else:
            groups.append(group)

    def add(answer: Any) -> None:  # noqa: ANN401  an OffsetFetchResponse
        for one in answer.groups:
            if one.error_code == ErrorCode.NONE:
                for edit in refused.pop(one.group_id, ()):
                    edit(one)

    edits, rows = outcome.edits, outcome.refused + refused_rows
    whole = frozenset(one.group_id for one in groups if one.topics is None)
    if whole:
        edits += _hiding(sees, whole)
    if refused:
        edits += (add,)
    return Outcome(attrs.evolve(outcome.message, groups=groups), edits=edits, refused=rows)


_OLD_TOPICS: Final[Named] = named(ApiKey.OFFSET_FETCH, "topics")


def _hiding(sees: Callable[[str], bool], whole: frozenset[str] | None) -> tuple[Edit, ...]:
    """For the answer about all offsets of these groups; None: of the only one there is."""
    if sees is EVERYTHING:
        return ()

    def hide(answer: Any) -> None:  # noqa: ANN401  an OffsetFetchResponse
        groups = (
            (answer,) if whole is None else (one for one in answer.groups if one.group_id in whole)
        )
        for one in groups:
            one.topics = [topic for topic in one.topics if sees(topic.name)]

    return (hide,)


@at_once
def _list_groups(broker: Broker, request: Request, access: Access) -> Outcome:
    """All of them for those who may describe the cluster, else each that may be described."""
    sees = access.sees(Operation.DESCRIBE, _GROUP)
    if sees is EVERYTHING or access.quietly(Operation.DESCRIBE, _CLUSTER):
        return Outcome(request.message)

    def hide(answer: Any) -> None:  # noqa: ANN401  a ListGroupsResponse
        answer.groups = [one for one in answer.groups if sees(one.group_id)]

    return Outcome(request.message, edits=(hide,))


@at_once
def _init_producer_id(broker: Broker, request: Request, access: Access) -> Outcome:
    """Who may write to any topic may have an id for it (KIP-679)."""
    message = request.message
    assert isinstance(message, InitProducerIdRequest)
    transaction = message.transactional_id
    if transaction is not None:
        if access.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction):
            return Outcome(message)
        return Outcome(None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if access.may_somewhere(Operation.WRITE, _TOPIC).allowed or access.may(
        Operation.IDEMPOTENT_WRITE, _CLUSTER
    ):
        return Outcome(message)
    return Outcome(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _add_partitions(broker: Broker, request: Request, access: Access) -> Deciding:
    of_client, of_broker = ROWS[ApiKey.ADD_PARTITIONS_TO_TXN].needs
    from_broker = request.header.api_version >= MANY_TRANSACTIONS_FROM
    return check_needs((of_broker if from_broker else of_client,), broker, request, access)


def _group_heartbeat(broker: Broker, request: Request, access: Access) -> Deciding:
    """A member that subscribes to what it may not describe is refused, as in Kafka. A pattern is
    one that matches no such topic now: Kafka would leave those out."""
    message = request.message
    assert isinstance(message, ConsumerGroupHeartbeatRequest)
    if not access.may(Operation.READ, _GROUP, message.group_id):
        return Outcome(None, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for number, name in enumerate(message.subscribed_topic_names or (), 1):
        if not access.may(Operation.DESCRIBE, _TOPIC, name):
            return Outcome(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if number % PIECE == 0:
            yield
    if message.subscribed_topic_regex:
        hidden = yield from _matches_hidden(broker, access, message.subscribed_topic_regex)
        if hidden is not None:
            access.may(Operation.DESCRIBE, _TOPIC, hidden)  # it is an attempt
            return Outcome(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return Outcome(message)


def _matches_hidden(
    broker: Broker, access: Access, pattern: str
) -> Generator[None, None, str | None]:
    """A topic that the pattern matches and that may not be described."""
    sees = access.sees(Operation.DESCRIBE, _TOPIC)
    if sees is EVERYTHING:
        return None
    names = list(broker.registry.topics)
    for start in range(0, len(names), PIECE):
        if start:
            yield
        hidden = [name for name in names[start : start + PIECE] if not sees(name)]
        try:
            found = matching(pattern, hidden)
        except ValueError:
            return None  # the coordinator refuses it
        if found:
            return min(found)
    return None


def _group_describe(broker: Broker, request: Request, access: Access) -> Deciding:
    """A group whose members have topics that may not be described is not described at all."""
    row = named(ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids")

    def judge(name: str) -> ErrorCode:
        may = access.may(Operation.DESCRIBE, _GROUP, name)
        return ErrorCode.NONE if may else ErrorCode.GROUP_AUTHORIZATION_FAILED

    outcome = yield from sort_out(Outcome(request.message), row, judge)
    sees = access.sees(Operation.DESCRIBE, _TOPIC)
    if sees is EVERYTHING:
        return outcome

    def hide(answer: Any) -> None:  # noqa: ANN401  a ConsumerGroupDescribeResponse
        for group in answer.groups:
            if all(sees(topic) for member in group.members for topic in _topics_of(member)):
                continue
            group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group.error_message = (
                "The group has described topic(s) that the client is not authorized to describe."
            )
            group.members = []

    return attrs.evolve(outcome, edits=(*outcome.edits, hide))


def _topics_of(member: Any) -> set[str]:  # noqa: ANN401  a DescribedConsumer
    shares = (member.assignment, member.target_assignment)
    named = {one.topic_name for share in shares for one in share.topic_partitions}
    return {*named, *member.subscribed_topic_names} - {""}


CHECKS: Final[Mapping[int, Check]] = {
    ApiKey.FETCH: _fetch,
    ApiKey.METADATA: _later,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.DESCRIBE_CONFIGS: partial(_configs, Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: partial(_configs, Operation.ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(_configs, Operation.ALTER_CONFIGS),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _group_describe,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _topic_partitions,
}
