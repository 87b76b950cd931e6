"""CreateTopics, DeleteTopics and CreatePartitions, on any node.

They change the registry through group 0's log, wherever its master is, and are answered once every
node that is alive and keeps up has applied the change, so that every node a client asks next agrees
with the answer (broker.handlers.topics.registry_changes). An attempt whose outcome is unknown is
repeated: a topic's id is drawn before the first attempt, so our own "it exists" and "it is gone"
can be told from another client's.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import attrs

from balancer.registry.catalogue import INTERNAL_TOPICS, RESERVED_PREFIX, name_problem
from balancer.registry.commands import (
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    PartitionsCreated,
    Refusal,
    Refused,
    TopicCreated,
    TopicDeleted,
)
from balancer.registry.records import TOPIC_PARTITIONS_MAX, Topic
from broker.handlers.topics.assignments import PARTITIONS_MAX as ASSIGNED_MAX
from broker.handlers.topics.assignments import Chooser
from broker.handlers.topics.known_names import is_certain, no_such_topic, when_known
from broker.handlers.topics.registry_changes import DONE, Verdict, deadline_of, refused, submit
from broker.handlers.topics.settings import replicas_of, topic_settings
from broker.registry_calls import Answer
from broker.requests.context import Broker
from broker.requests.guard import gather, guarded
from broker.requests.refusals import answer_aside, refuse_more_than
from broker.requests.request import Request
from broker.topic_configs import TOPIC_CONFIGS, as_kept, relation_problem
from broker.topic_configs import problem as configs_problem
from paxos.ids import MS, GroupId
from wire.apis import encode_response
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

CONFIGS_PER_TOPIC_MAX: Final = 1_000
TOPICS_PER_REQUEST_MAX: Final = 1_000
BY_ID_FROM: Final = 6
"""The first version of DeleteTopics that names topics by id."""
DEFAULT: Final = -1
TOPICS_STEP: Final = 20
"""Topics checked in one step: two milliseconds or so."""


DUPLICATE: Final = Verdict(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
RESERVED: Final = Verdict(
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    f"topics whose names begin with {RESERVED_PREFIX} are made and deleted by the nodes only",
)


# -- CreateTopics ----------------------------------------------------------------------------------


class _Outcome(NamedTuple):
    """Of one topic; `command` None: it was refused before anything was proposed."""

    asked: CreatableTopic
    command: CreateTopic | None
    verdict: Verdict


def handle_create(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, CreateTopicsRequest)
    if refuse_more_than(TOPICS_PER_REQUEST_MAX, message.topics, broker, request):
        return
    most = max((one.configs for one in message.topics), key=len, default=[])
    if refuse_more_than(CONFIGS_PER_TOPIC_MAX, most, broker, request):
        return
    assigned = sum(len(one.assignments) for one in message.topics)
    if refuse_more_than(ASSIGNED_MAX, range(assigned), broker, request):
        return
    broker.portions.in_steps(broker, request.reply, _create(broker, request, message), lambda: None)


def _create(broker: Broker, request: Request, message: CreateTopicsRequest) -> Iterator[None]:
    """To check one topic costs a tenth of a millisecond."""
    named = Counter(topic.name for topic in message.topics)
    topics = list({topic.name: topic for topic in message.topics}.values())
    deadline = deadline_of(broker, message.timeout_ms)
    put = gather(len(topics), partial(_answer_create, broker, request))
    chooser = Chooser(broker)
    for index, topic in enumerate(topics):
        problem = (
            DUPLICATE
            if named[topic.name] > 1
            else _create_problem(broker, topic, message.validate_only)
        )
        groups = chooser.of_new_topic(topic) if problem is None else ()
        if isinstance(groups, Verdict):
            problem, groups = groups, ()
        command = None if problem is not None else _create_command(broker, topic, groups)
        if command is not None and message.validate_only:
            command = attrs.evolve(command, topic_id=UUID_ZERO)
        decide = partial(_created, topic, command, partial(put, index))
        if command is None or message.validate_only:
            decide(problem or DONE)
        else:
            make = partial(_create_again, broker, topic, command)
            judge = partial(_judge_created, command)
            here = partial(_is_here, broker, command.topic_id)
            submit(broker, request, make, deadline, judge, here, decide)
        if (index + 1) % TOPICS_STEP == 0:
            yield


def _create_again(broker: Broker, topic: CreatableTopic, command: CreateTopic) -> Command | Verdict:
    """With the same id as at first: one request never creates two topics. With the same Paxos
    groups as well: there are never fewer."""
    return _create_problem(broker, topic) or command


def _create_problem(
    broker: Broker, topic: CreatableTopic, validate_only: bool = False
) -> Verdict | None:
    """What the registry would refuse, or could not know; also the answer to validate_only. Whether
    the topic exists is for the registry to say, if this node may not have heard of its deletion."""
    name = name_problem(topic.name)
    if name is not None:
        return Verdict(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if topic.name.startswith(RESERVED_PREFIX):
        return RESERVED
    certain = broker.registry.topic(topic.name) is not None and (
        validate_only or is_certain(broker)
    )
    if certain:
        return Verdict(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists")
    replicas = replicas_of(broker)
    wrong = _configs_problem(broker, topic, replicas)
    if wrong is not None:
        return Verdict(ErrorCode.INVALID_CONFIG, wrong)
    if topic.assignments:
        return None  # their numbers are not given
    partitions, factor = topic.num_partitions, topic.replication_factor
    if factor != DEFAULT and not 0 < factor <= replicas:
        return Verdict(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} is not between 1 and {replicas}, the replicas of every partition here",
        )
    if partitions != DEFAULT and not 0 < partitions <= TOPIC_PARTITIONS_MAX:
        return Verdict(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} is not between 1 and {TOPIC_PARTITIONS_MAX}",
        )
    return None


def _configs_problem(broker: Broker, topic: CreatableTopic, replicas: int) -> str | None:
    without = [one.name for one in topic.configs if one.value is None]
    if without:
        return f"{without[0][:100]} has no value"
    wrong = configs_problem(_named_last(topic), broker.config, replicas)
    return wrong or relation_problem(_configs(topic), broker.config, replicas)


def _named_last(topic: CreatableTopic) -> dict[str, str]:
    """Settings as they are written. As in Kafka the last holds of one that is named twice."""
    return {one.name: one.value for one in topic.configs if one.value is not None}


def _configs(topic: CreatableTopic) -> dict[str, str]:
    """Settings in which nothing is wrong, as they are kept."""
    return {name: as_kept(name, value) for name, value in _named_last(topic).items()}


def _create_command(
    broker: Broker, topic: CreatableTopic, groups: tuple[GroupId, ...]
) -> CreateTopic:
    """Whatever factor is requested, partitions get the replicas of their Paxos group: never
    fewer."""
    asked = topic.num_partitions
    default = len(groups) or broker.config.default_partitions
    return CreateTopic(
        topic.name,
        broker.new_topic_id(),
        default if asked == DEFAULT else asked,
        replicas_of(broker),
        _configs(topic),
        groups,
    )


def _judge_created(command: CreateTopic, answer: Answer) -> Verdict:
    """Our own topic id tells our earlier attempt from another client's topic of that name."""
    result = answer.result
    if isinstance(result, TopicCreated):
        assert result.topic.topic_id == command.topic_id
        return DONE
    return refused(result)


def _is_here(broker: Broker, topic_id: bytes) -> bool:
    return broker.registry.topic_by_id(topic_id) is not None


def _created(
    asked: CreatableTopic,
    command: CreateTopic | None,
    put: Callable[[_Outcome], None],
    verdict: Verdict,
) -> None:
    put(_Outcome(asked, command, verdict))


def _answer_create(broker: Broker, request: Request, outcomes: Sequence[_Outcome]) -> None:
    """A topic's answer names all its settings."""
    things = len(outcomes) * len(TOPIC_CONFIGS)
    answer_aside(broker, request, things, partial(_results, broker, replicas_of(broker), outcomes))


def _results(broker: Broker, replicas: int, outcomes: Sequence[_Outcome]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_result(broker, replicas, *one) for one in outcomes])


def _result(
    broker: Broker,
    replicas: int,
    asked: CreatableTopic,
    command: CreateTopic | None,
    verdict: Verdict,
) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=asked.name, error_code=verdict.error, error_message=verdict.message, configs=[]
    )
    if command is not None and verdict.error == ErrorCode.NONE:
        written = _named_last(asked)  # shown as they were asked for, as in Kafka
        topic = Topic(command.name, command.topic_id, command.replication, written, ())
        result.topic_id = command.topic_id
        result.num_partitions = command.partitions
        result.replication_factor = command.replication
        result.configs = [
            CreatableTopicConfigs(one.name, one.value, one.read_only, one.source)
            for one in topic_settings(broker.config, replicas, topic)
        ]
    return result


# -- DeleteTopics ----------------------------------------------------------------------------------


def handle_delete(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DeleteTopicsRequest)
    asked = (
        message.topics
        if request.header.api_version >= BY_ID_FROM
        else [DeleteTopicState(name) for name in message.topic_names]
    )
    if refuse_more_than(TOPICS_PER_REQUEST_MAX, asked, broker, request):
        return
    deadline = deadline_of(broker, message.timeout_ms)
    names = [state.name for state in asked if state.name is not None]
    go_on = partial(_delete_known, broker, request, asked, deadline)
    when_known(broker, request, names, deadline, go_on)


def _delete_known(
    broker: Broker,
    request: Request,
    asked: Sequence[DeleteTopicState],
    deadline: int,
    unsure: Collection[str],
) -> None:
    work = _delete_each(broker, request, asked, deadline, unsure)
    broker.portions.in_steps(broker, request.reply, work, lambda: None)


def _delete_each(
    broker: Broker,
    request: Request,
    asked: Sequence[DeleteTopicState],
    deadline: int,
    unsure: Collection[str],
) -> Iterator[None]:
    times = Counter(map(_key, asked))
    states = list({_key(state): state for state in asked}.values())
    topics = [_named(broker, state) for state in states]
    named = Counter(topic.topic_id for topic in topics if topic is not None)
    once = _once(states, topics)
    put = gather(len(once), partial(_answer_delete, request))
    for index, (state, topic) in enumerate(once):
        decide = partial(_deleted, state, topic, partial(put, index))
        if times[_key(state)] > 1:
            _deleted(state, None, partial(put, index), DUPLICATE)
        elif topic is not None and topic.name in INTERNAL_TOPICS:
            decide(RESERVED)
        elif topic is None or named[topic.topic_id] > 1:
            decide(DUPLICATE if topic is not None else _delete_problem(state, unsure))
        else:
            make = partial(_delete_command, broker, state, topic.topic_id)
            here = partial(_is_gone, broker, topic.topic_id)
            go_on = partial(submit, broker, request, make, deadline, _judge_deleted, here, decide)
            known = partial(_knows_epochs, broker, topic)
            wait_ns = broker.config.no_coordinator_wait_ms * MS
            until = min(deadline, broker.groups.now().boot_ns + wait_ns)
            broker.delayed_operations.until(known, until, guarded(broker, request, go_on))
        if (index + 1) % TOPICS_STEP == 0:
            yield


def _key(state: DeleteTopicState) -> tuple[str | None, bytes]:
    return state.name, bytes(state.topic_id)


def _once(
    states: Sequence[DeleteTopicState], topics: Sequence[Topic | None]
) -> list[tuple[DeleteTopicState, Topic | None]]:
    """A topic that is named by name and by id, too, is in the answer once."""
    seen: dict[object, tuple[DeleteTopicState, Topic | None]] = {}
    for state, topic in zip(states, topics, strict=True):
        seen.setdefault(_key(state) if topic is None else topic.topic_id, (state, topic))
    return list(seen.values())


def _knows_epochs(broker: Broker, topic: Topic) -> bool:
    """Whether this node has heard of a master of each Paxos group since it was started."""
    return all(broker.groups.epoch(place.group) > 0 for place in topic.partitions)


def _delete_command(broker: Broker, state: DeleteTopicState, topic_id: bytes) -> Command | Verdict:
    """By the id it had when the request came: another topic of its name was never meant. With the
    epochs of its Paxos groups' leases: the next topic of that name begins above them."""
    topic = broker.registry.topic_by_id(topic_id)
    if topic is None:
        return _delete_problem(state)
    groups = sorted({place.group for place in topic.partitions})
    heard = {group: broker.groups.epoch(group) for group in groups}
    return DeleteTopic(
        topic.name, topic_id, {group: epoch for group, epoch in heard.items() if epoch > 0}
    )


def _named(broker: Broker, state: DeleteTopicState) -> Topic | None:
    if (state.name is None) == (state.topic_id == UUID_ZERO):
        return None
    if state.name is not None:
        return broker.registry.topic(state.name)
    return broker.registry.topic_by_id(state.topic_id)


def _delete_problem(state: DeleteTopicState, unsure: Collection[str] = ()) -> Verdict:
    if (state.name is None) == (state.topic_id == UUID_ZERO):
        return Verdict(ErrorCode.INVALID_REQUEST, "name the topic by name or by id")
    if state.name is None:
        return Verdict(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of this id")
    return no_such_topic(state.name, unsure)


def _judge_deleted(answer: Answer) -> Verdict:
    result = answer.result
    if isinstance(result, TopicDeleted):
        return DONE
    if answer.repeated and isinstance(result, Refused) and result.reason is Refusal.UNKNOWN_TOPIC:
        return DONE  # it was there, by this very id, before our first attempt
    return refused(result)


def _is_gone(broker: Broker, topic_id: bytes) -> bool:
    return broker.registry.topic_by_id(topic_id) is None


def _deleted(
    state: DeleteTopicState,
    topic: Topic | None,
    put: Callable[[DeletableTopicResult], None],
    verdict: Verdict,
) -> None:
    name, topic_id = state.name, state.topic_id
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    put(DeletableTopicResult(name, topic_id, verdict.error, verdict.message))


def _answer_delete(request: Request, results: Sequence[DeletableTopicResult]) -> None:
    response = DeleteTopicsResponse(responses=list(results))
    request.reply.complete(encode_response(request.header, response))


# -- CreatePartitions ------------------------------------------------------------------------------


def handle_create_partitions(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, CreatePartitionsRequest)
    if refuse_more_than(TOPICS_PER_REQUEST_MAX, message.topics, broker, request):
        return
    assigned = sum(len(one.assignments or ()) for one in message.topics)
    if refuse_more_than(ASSIGNED_MAX, range(assigned), broker, request):
        return
    deadline = deadline_of(broker, message.timeout_ms)
    names = [topic.name for topic in message.topics]
    go_on = partial(_grow_known, broker, request, message, deadline)
    when_known(broker, request, names, deadline, go_on)


def _grow_known(
    broker: Broker,
    request: Request,
    message: CreatePartitionsRequest,
    deadline: int,
    unsure: Collection[str],
) -> None:
    work = _grow_each(broker, request, message, deadline, unsure)
    broker.portions.in_steps(broker, request.reply, work, lambda: None)


def _grow_each(
    broker: Broker,
    request: Request,
    message: CreatePartitionsRequest,
    deadline: int,
    unsure: Collection[str],
) -> Iterator[None]:
    named = Counter(topic.name for topic in message.topics)
    topics = list({topic.name: topic for topic in message.topics}.values())
    put = gather(len(topics), partial(_answer_grow, request))
    chooser = Chooser(broker)
    for index, asked in enumerate(topics):
        problem = DUPLICATE if named[asked.name] > 1 else _grow_problem(broker, asked, unsure)
        if problem is None and message.validate_only:
            groups = chooser.of_new_partitions(asked, _partitions(broker, asked.name))
            problem = groups if isinstance(groups, Verdict) else None
        decide = partial(_grown, asked, partial(put, index))
        if problem is not None or message.validate_only:
            decide(problem or DONE)
        else:
            make = partial(_grow_command, broker, chooser, asked)
            judge = partial(_judge_grown, broker, asked)
            here = partial(_has_grown, broker, asked)
            submit(broker, request, make, deadline, judge, here, decide)
        if (index + 1) % TOPICS_STEP == 0:
            yield


def _grow_command(
    broker: Broker, chooser: Chooser, asked: CreatePartitionsTopic
) -> Command | Verdict:
    wrong = _grow_problem(broker, asked)
    if wrong is not None:
        return wrong
    groups = chooser.of_new_partitions(asked, _partitions(broker, asked.name))
    if isinstance(groups, Verdict):
        return groups
    return CreatePartitions(asked.name, asked.count, groups)


def _grow_problem(
    broker: Broker, asked: CreatePartitionsTopic, unsure: Collection[str] = ()
) -> Verdict | None:
    topic = broker.registry.topic(asked.name)
    if topic is None:
        return no_such_topic(asked.name, unsure)
    there = len(topic.partitions)
    if asked.count <= there:
        text = (
            f"Topic already has {there} partition(s)"
            if asked.count == there
            else f"The topic {topic.name} currently has {there} partition(s); "
            f"{asked.count} would not be an increase"
        )
        return Verdict(ErrorCode.INVALID_PARTITIONS, text)
    if asked.count > TOPIC_PARTITIONS_MAX:
        return Verdict(
            ErrorCode.INVALID_PARTITIONS,
            f"{asked.count} partitions, a topic has at most {TOPIC_PARTITIONS_MAX}",
        )
    return None


def _judge_grown(broker: Broker, asked: CreatePartitionsTopic, answer: Answer) -> Verdict:
    result = answer.result
    if isinstance(result, PartitionsCreated):
        return DONE
    if answer.repeated and _partitions(broker, asked.name) == asked.count:
        return DONE  # there were fewer before our first attempt, and now it is what was requested
    return refused(result)


def _partitions(broker: Broker, name: str) -> int:
    topic = broker.registry.topic(name)
    return 0 if topic is None else len(topic.partitions)


def _has_grown(broker: Broker, asked: CreatePartitionsTopic) -> bool:
    return _partitions(broker, asked.name) >= asked.count


def _grown(
    asked: CreatePartitionsTopic,
    put: Callable[[CreatePartitionsTopicResult], None],
    verdict: Verdict,
) -> None:
    put(CreatePartitionsTopicResult(asked.name, verdict.error, verdict.message))


def _answer_grow(request: Request, results: Sequence[CreatePartitionsTopicResult]) -> None:
    response = CreatePartitionsResponse(results=list(results))
    request.reply.complete(encode_response(request.header, response))
