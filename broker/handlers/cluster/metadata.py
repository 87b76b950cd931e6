"""Metadata: the nodes, the topics, and the leader of each partition.

While a requested partition has no leader, the answer is held for a moment: a client that is told of
no leader backs off longer than an election takes (docs/kafka.md). The same happens while a
requested topic may merely be unknown to this node (broker.handlers.topics.known_names). Replicas
are the present and future members of the partition's Paxos group, its ideal master first, because
Kafka calls the first one preferred. Reachable members are in sync, because which of them voted last
does not matter to Kafka; the others are offline.

Topics that the client may not describe are left out of the answer about all topics. By name they
get an error at once, whether or not they exist; by id they are as unknown as any other.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from balancer.registry.catalogue import INTERNAL_TOPICS, RESERVED_PREFIX, name_problem
from balancer.registry.commands import CreateTopic, Decided, TopicCreated
from balancer.registry.records import Topic
from broker.handlers.cluster.partition_views import View, view_of
from broker.handlers.topics.known_names import knows_a_part, may_deny
from broker.handlers.topics.registry_changes import once_everywhere
from broker.handlers.topics.settings import replicas_of
from broker.leaders_told import LeadersTold
from broker.registry_calls import Answer, change_registry
from broker.requests.access import (
    Access,
    access_of,
    cluster_operations,
    operations,
    visible_topics,
)
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.refusals import answer_aside, known_brokers
from broker.requests.request import Request
from broker.requests.steps import STEP
from broker.security.authorizer import EVERYTHING
from paxos.ids import MS, REGISTRY_GROUP, GroupId
from wire.acls import Operation, ResourceType
from wire.apis import encode_response
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

REBOOTSTRAP_FROM: Final = 13
LISTENER_NOT_FOUND_FROM: Final = 6
"""Before, a leader without the client's listener is LEADER_NOT_AVAILABLE, as in Kafka."""
COST_OF_TOPIC: Final = 20
COST_OF_OPERATIONS: Final = 30
"""In partitions: a decision, and all decisions about a topic."""
NULL_NAME_FROM: Final = 12
"""The first version in which the name of a topic that is unknown by its id is null."""


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, MetadataRequest)
    wanted = _wanted(message, request.header.api_version)
    if _redirected(broker, request):
        return
    now = broker.groups.now()
    deadline = now.boot_ns + broker.config.no_coordinator_wait_ms * MS
    creating: set[str] = set()
    creates = broker.config.auto_create_topics and message.allow_auto_topic_creation
    denied: list[MetadataResponseTopic] = []
    access = access_of(broker, request)
    if access is not None and wanted is not None:
        wanted, denied = _sorted_out(broker, access, wanted, creates=creates)
    if wanted is not None and creates:
        _create_missing(broker, wanted, creating, deadline)
    act = guarded(broker, request, partial(_answer, broker, request, message, wanted, denied))
    broker.delayed_operations.until(partial(_settled, broker, wanted, creating), deadline, act)


def _wanted(message: MetadataRequest, version: int) -> list[MetadataRequestTopic] | None:
    """The requested topics, each once; None for all topics."""
    if message.topics is None or (version == 0 and not message.topics):
        return None
    return list({(one.topic_id, one.name): one for one in message.topics}.values())


def _sorted_out(
    broker: Broker, access: Access, wanted: list[MetadataRequestTopic], *, creates: bool
) -> tuple[list[MetadataRequestTopic], list[MetadataResponseTopic]]:
    """What the client may ask for by name, and the answers about the rest: it may not describe
    that, or would have it created and may not create it. Ids are judged by the answer."""
    allowed, denied = [], []
    for one in wanted:
        name = one.name or ""
        may = one.topic_id != UUID_ZERO or (
            access.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
            and (not creates or name in broker.registry.topics or _may_create(access, name))
        )
        if may:
            allowed.append(one)
        else:
            denied.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
    return allowed, denied


def _may_create(access: Access, name: str) -> bool:
    return access.quietly(Operation.CREATE, ResourceType.CLUSTER) or access.may(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _find(broker: Broker, one: MetadataRequestTopic) -> Topic | None:
    if one.topic_id != UUID_ZERO:
        return broker.registry.topic_by_id(one.topic_id)
    return broker.registry.topic(one.name or "")


def _redirected(broker: Broker, request: Request) -> bool:
    """A node that is cut off knows of no leaders that could be trusted: the client is to start
    again from its bootstrap servers (KIP-1102). Older versions have no field for that; they are
    answered, and leave when their connections are closed (ADR 42)."""
    header = request.header
    if header.api_version < REBOOTSTRAP_FROM or not broker.redirects_clients():
        return False
    response = MetadataResponse(
        brokers=[],
        cluster_id=broker.config.cluster_id,
        topics=[],
        error_code=ErrorCode.REBOOTSTRAP_REQUIRED,
    )
    request.reply.complete(encode_response(header, response))
    return True


# -- waiting ---------------------------------------------------------------------------------------


def _settled(broker: Broker, wanted: list[MetadataRequestTopic] | None, creating: set[str]) -> bool:
    """Whether waiting would not improve the answer."""
    registry = broker.registry
    if broker.redirects_clients():
        return True
    if not registry.nodes or _denies_wrongly(broker, wanted):
        return False
    groups: Iterable[GroupId]
    if wanted is None:
        every = [GroupId(group) for group in registry.groups]
        groups = [group for group in every if registry.partitions_of_group(group)]
    else:
        if creating:
            return False
        topics = (_find(broker, one) for one in wanted)
        groups = {
            place.group for topic in topics if topic is not None for place in topic.partitions
        }
    return all(broker.leaders.of(group).node in registry.nodes for group in groups)


def _denies_wrongly(broker: Broker, wanted: list[MetadataRequestTopic] | None) -> bool:
    """Whether the answer would omit or deny what this node perhaps only has to learn."""
    if may_deny(broker):
        return False
    return wanted is None or any(_is_denied(broker, one) for one in wanted)


def _is_denied(broker: Broker, one: MetadataRequestTopic) -> bool:
    could_be = one.topic_id != UUID_ZERO or not name_problem(one.name or "")
    return could_be and _find(broker, one) is None


def _create_missing(
    broker: Broker, wanted: list[MetadataRequestTopic], creating: set[str], deadline: int
) -> None:
    """Auto-creation, where configured: the answer waits until the topic is created or refused."""
    registry = broker.registry
    for one in wanted:
        name = one.name
        if one.topic_id != UUID_ZERO or not name or name in registry.topics or name_problem(name):
            continue
        if name.startswith(RESERVED_PREFIX):
            continue
        creating.add(name)
        command = CreateTopic(
            name,
            broker.new_topic_id(),
            broker.config.default_partitions,
            replicas_of(broker),
        )
        finished = partial(_on_created, broker, creating, name, deadline)
        decided = Decided(registry.applied, command)
        change_registry(broker.groups, broker.timers, decided, deadline, finished)


def _on_created(
    broker: Broker, creating: set[str], name: str, deadline: int, answer: Answer | None
) -> None:
    """Perhaps created by another node: the client continues at the topic's leader."""
    done = partial(creating.discard, name)
    if answer is None or not isinstance(answer.result, TopicCreated):
        done()
        return
    here = partial(_is_here, broker, name)
    broker.delayed_operations.until(
        here, deadline, partial(once_everywhere, broker, deadline, done)
    )


def _is_here(broker: Broker, name: str) -> bool:
    return broker.registry.topic(name) is not None


# -- answering -------------------------------------------------------------------------------------


def _answer(
    broker: Broker,
    request: Request,
    message: MetadataRequest,
    wanted: list[MetadataRequestTopic] | None,
    denied: list[MetadataResponseTopic],
) -> None:
    if _redirected(broker, request):
        return
    header = request.header
    if _denies_wrongly(broker, wanted) and (wanted is not None or knows_a_part(broker)):
        request.reply.close("a topic is not known here: this node is still catching up")
        return
    sees = visible_topics(broker, request)
    listener = request.reply.connection.listener.name
    if wanted is not None:
        asked = [_asked_topic(broker, one, header.api_version, listener, sees) for one in wanted]
        for topic in asked:
            _add_operations(broker, request, message, topic)
        response = _response(broker, request, message, [*asked, *denied])
        request.reply.complete(encode_response(header, response))
        _note_moves_told(broker, request, [_find(broker, one) for one in wanted])
        return
    flags = (
        message.include_cluster_authorized_operations,
        message.include_topic_authorized_operations,
    )
    personal = sees is not EVERYTHING or (broker.authorizer is not None and any(flags))
    told = _all_told(broker, request)
    topics: list[MetadataResponseTopic] = []
    work = _every_topic(broker, request, message, sees, topics)
    if personal:  # what others were told must not be told to this client

        def encode() -> None:
            response = _response(broker, request, message, topics)
            answer_aside(broker, request, len(topics), lambda: response)
            told()

        broker.portions.in_steps(broker, request.reply, work, encode)
        return
    state, variant = _state(broker), (header.api_version, *flags, listener)
    frame = broker.metadata_cache.get(state, variant, header.correlation_id)
    if frame is None:  # at once: the others that ask now get the same
        for _ in work:
            pass
        frame = encode_response(header, _response(broker, request, message, topics))
        broker.metadata_cache.put(state, variant, frame)
    request.reply.complete(frame)
    told()


def _all_told(broker: Broker, request: Request) -> Callable[[], None]:
    """To be called when the client gets an answer about all topics as they are now."""
    if not _settled(broker, None, set()):
        return lambda: None
    return partial(_leaders_told(request).told, None, broker.groups.now().boot_ns)


def _every_topic(
    broker: Broker,
    request: Request,
    message: MetadataRequest,
    sees: Callable[[str], bool],
    topics: list[MetadataResponseTopic],
) -> Iterator[None]:
    """Collect all topics that the client may see, a thousand partitions or decisions at a time."""
    version, listener = request.header.api_version, request.reply.connection.listener.name
    each = COST_OF_TOPIC + COST_OF_OPERATIONS * message.include_topic_authorized_operations
    cost = 0
    for name in list(broker.registry.topics):
        if cost >= STEP:
            cost = 0
            yield
        topic = broker.registry.topics.get(name)
        cost += each
        if topic is None or not sees(name):
            continue  # it has been deleted meanwhile, or is not for this client
        shown = _topic(broker, topic, version, listener)
        _add_operations(broker, request, message, shown)
        topics.append(shown)
        cost += len(topic.partitions)


def _note_moves_told(broker: Broker, request: Request, topics: list[Topic | None]) -> None:
    """The client now knows where topics have moved that this node was the master of."""
    groups, nodes = broker.groups, broker.registry.nodes
    for topic in topics:
        if topic is None or not any(groups.moved_ns(place.group) for place in topic.partitions):
            continue
        if all(broker.leaders.of(place.group).node in nodes for place in topic.partitions):
            _leaders_told(request).told(topic.name, groups.now().boot_ns)


def _leaders_told(request: Request) -> LeadersTold:
    connection = request.reply.connection
    if connection.leaders_told is None:
        connection.leaders_told = LeadersTold()
    return connection.leaders_told


def _state(broker: Broker) -> tuple[object, ...]:
    """Everything the answer about all topics depends on."""
    registry, groups = broker.registry, broker.groups
    versions = registry.versions
    leaders = tuple(
        (broker.leaders.of(GroupId(group)), groups.members(GroupId(group)))
        for group in registry.groups
    )
    seen = (versions.nodes, versions.topics, versions.placement, versions.replicas, groups.alive())
    return (*seen, leaders)


def _response(
    broker: Broker,
    request: Request,
    message: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    listener = request.reply.connection.listener.name
    return MetadataResponse(
        brokers=known_brokers(broker, listener),
        cluster_id=broker.config.cluster_id,
        controller_id=controller(broker, listener),
        topics=topics,
        cluster_authorized_operations=cluster_operations(
            broker, request, asked=message.include_cluster_authorized_operations
        ),
    )


def _add_operations(
    broker: Broker, request: Request, message: MetadataRequest, topic: MetadataResponseTopic
) -> None:
    if message.include_topic_authorized_operations and topic.error_code == ErrorCode.NONE:
        topic.topic_authorized_operations = operations(
            broker, request, ResourceType.TOPIC, topic.name or ""
        )


def controller(broker: Broker, listener: str) -> int:
    """The master of the registry's Paxos group, or this node while there is none: every node
    accepts requests meant for the controller and waits for the election itself. An administration
    client that is told of no controller does not ask again: librdkafka's waited until its
    timeout. So another node takes its place if the client cannot reach it by its listener."""
    registry = broker.registry
    nodes = [node for node in registry.nodes if registry.address(node, listener) is not None]
    node = broker.leaders.of(REGISTRY_GROUP).node
    if node is not None and node in nodes:
        return node
    return broker.me if broker.me in nodes or not nodes else min(nodes)


def _asked_topic(
    broker: Broker,
    one: MetadataRequestTopic,
    version: int,
    listener: str,
    sees: Callable[[str], bool],
) -> MetadataResponseTopic:
    topic = _find(broker, one)
    if topic is not None and (one.topic_id == UUID_ZERO or sees(topic.name)):
        return _topic(broker, topic, version, listener)
    if one.topic_id != UUID_ZERO:
        name = None if version >= NULL_NAME_FROM else ""
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, name, one.topic_id)
    name = one.name or ""
    error = (
        ErrorCode.INVALID_TOPIC_EXCEPTION
        if name_problem(name)
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return MetadataResponseTopic(error, name)


def _topic(broker: Broker, topic: Topic, version: int, listener: str) -> MetadataResponseTopic:
    views: dict[GroupId, View] = {}
    partitions = []
    for index, place in enumerate(topic.partitions):
        view = views.get(place.group)
        if view is None:
            view = views[place.group] = view_of(broker, place.group, listener)
        error, leader, epoch, *nodes = view
        if error == ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_NOT_FOUND_FROM:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        epoch += topic.epoch_base(index)
        partitions.append(MetadataResponsePartition(error, index, leader, epoch, *nodes))
    return MetadataResponseTopic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )
