"""AlterConfigs and IncrementalAlterConfigs (KIP-339): changing the settings of existing topics.

Values are checked here, as when a topic is created; the registry applies the change as one step, so
two clients that change different settings of a topic do not undo each other.

Of a node's settings only those can be changed that need no restart (live_settings), and of those of
consumer groups none. What sets nothing is accepted, though: as in Kafka any setting may be deleted,
also one that nobody knows. MirrorMaker and kafka-reassign-partitions do that without asking what
there is.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Final

import attrs

from balancer.registry.catalogue import name_problem
from balancer.registry.commands import Command, ConfigureTopic, Done
from balancer.registry.records import Topic
from broker.handlers.topics.broker_settings import THROTTLES
from broker.handlers.topics.configs import ResourceType, node_problem
from broker.handlers.topics.known_names import no_such_topic, when_known
from broker.handlers.topics.live_settings import change, change_loggers, is_live
from broker.handlers.topics.registry_changes import DONE, Verdict, deadline_of, refused, submit
from broker.handlers.topics.settings import group_settings, replicas_of
from broker.registry_calls import Answer
from broker.requests.context import Broker
from broker.requests.guard import gather
from broker.requests.refusals import refuse_more_than
from broker.requests.request import Request
from broker.topic_configs import (
    TOPIC_CONFIGS,
    ConfigType,
    TopicConfig,
    as_kept,
    items,
    problem,
    relation_problem,
    setting,
)
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

RESOURCES_MAX: Final = 1_000
RESOURCES_STEP: Final = 20
"""Checked in one step: two milliseconds or so."""
CONFIGS_MAX: Final = 1_000
"""In one request, over all resources."""
TIMEOUT_MS: Final = 30_000
"""The requests carry no timeout of their own."""

DUPLICATE: Final = Verdict(ErrorCode.INVALID_REQUEST, "the request names the resource twice")


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _InvalidError(Exception):
    """A setting that cannot be changed in the way requested; the message says why."""

    def __init__(self, text: str, error: ErrorCode = ErrorCode.INVALID_CONFIG) -> None:
        super().__init__(text)
        self.error = error


@attrs.frozen
class _Resource:
    """One resource of either request; `change` makes the command for the topic."""

    type: int
    name: str
    sets: Sequence[tuple[str, str | None]]
    """What is to have a value afterwards."""
    change: Callable[[Topic], ConfigureTopic]
    resets: Sequence[str] | None = ()
    """What is to be taken back; None: all that has no value in `sets`."""
    edits: Sequence[str] = ()
    """Of `sets`, what is to be appended to or taken from a list."""


def handle_replace(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, AlterConfigsRequest)
    if refuse_more_than(RESOURCES_MAX, message.resources, broker, request):
        return
    named = [config for one in message.resources for config in one.configs]
    if refuse_more_than(CONFIGS_MAX, named, broker, request):
        return
    resources = [
        _Resource(
            one.resource_type,
            one.resource_name,
            [(config.name, config.value) for config in one.configs],
            partial(_replaced, one.configs),
            resets=None,
        )
        for one in message.resources
    ]
    _alter(broker, request, resources, message.validate_only, AlterConfigsResponse)


def handle_incremental(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, IncrementalAlterConfigsRequest)
    if refuse_more_than(RESOURCES_MAX, message.resources, broker, request):
        return
    named = [config for one in message.resources for config in one.configs]
    if refuse_more_than(CONFIGS_MAX, named, broker, request):
        return
    resources = [
        _Resource(
            one.resource_type,
            one.resource_name,
            [
                (config.name, config.value)
                for config in one.configs
                if config.config_operation != Operation.DELETE
            ],
            partial(_changed, broker, one.configs),
            resets=[one.name for one in one.configs if one.config_operation == Operation.DELETE],
            edits=[
                config.name for config in one.configs if config.config_operation > Operation.DELETE
            ],
        )
        for one in message.resources
    ]
    _alter(broker, request, resources, message.validate_only, IncrementalAlterConfigsResponse)


# -- what is asked for -----------------------------------------------------------------------------


def _replaced(configs: Sequence[AlterableConfig], topic: Topic) -> ConfigureTopic:
    _refuse_repeated([one.name for one in configs])
    wanted = {one.name: one.value for one in configs if one.value is not None}
    if len(wanted) < len(configs):
        raise _InvalidError("a setting has no value", ErrorCode.INVALID_REQUEST)
    return ConfigureTopic(topic.name, topic.topic_id, wanted, replace=True)


def _changed(
    broker: Broker, configs: Sequence[IncrementalAlterableConfig], topic: Topic
) -> ConfigureTopic:
    _refuse_repeated([one.name for one in configs])
    wanted: dict[str, str] = {}
    removed: list[str] = []
    for one in configs:
        known = TOPIC_CONFIGS.get(one.name)
        if one.config_operation == Operation.DELETE:
            if known is not None or one.name in topic.configs:
                removed.append(one.name)
        elif one.value is None:
            raise _InvalidError(f"{one.name[:100]} has no value", ErrorCode.INVALID_REQUEST)
        elif known is None:
            raise _InvalidError(f"unknown topic config {one.name[:100]!r}")
        elif one.config_operation == Operation.SET:
            wanted[one.name] = one.value
        else:
            wanted[one.name] = _list_changed(broker, topic, known, one)
    return ConfigureTopic(topic.name, topic.topic_id, wanted, tuple(removed))


def _list_changed(
    broker: Broker, topic: Topic, known: TopicConfig, asked: IncrementalAlterableConfig
) -> str:
    if known.type is not ConfigType.LIST:
        raise _InvalidError(f"{known.name} is not a list: it can be set or deleted")
    there = items(setting(topic.configs, known.name, broker.config, replicas_of(broker)))
    named = [item.strip() for item in (asked.value or "").split(",")]
    if asked.config_operation == Operation.APPEND:
        return ",".join(there + [item for item in dict.fromkeys(named) if item not in there])
    if asked.config_operation == Operation.SUBTRACT:
        return ",".join(item for item in there if item not in named)
    raise _InvalidError(f"there is no operation {asked.config_operation}")


def _refuse_repeated(names: Sequence[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise _InvalidError(f"{name[:100]} is given twice", ErrorCode.INVALID_REQUEST)


# -- carrying it out -------------------------------------------------------------------------------


def _alter(
    broker: Broker,
    request: Request,
    resources: Sequence[_Resource],
    validate_only: bool,
    response: type[AlterConfigsResponse] | type[IncrementalAlterConfigsResponse],
) -> None:
    deadline = deadline_of(broker, TIMEOUT_MS)
    names = [one.name for one in resources if one.type == ResourceType.TOPIC]

    def go_on(unsure: Collection[str]) -> None:
        work = _alter_each(broker, request, resources, validate_only, response, deadline, unsure)
        broker.portions.in_steps(broker, request.reply, work, lambda: None)

    when_known(broker, request, names, deadline, go_on)


def _alter_each(
    broker: Broker,
    request: Request,
    resources: Sequence[_Resource],
    validate_only: bool,
    response: type[AlterConfigsResponse] | type[IncrementalAlterConfigsResponse],
    deadline: int,
    unsure: Collection[str],
) -> Iterator[None]:
    named = Counter((one.type, one.name) for one in resources)
    put = gather(len(resources), partial(_answer, request, response))
    for index, resource in enumerate(resources):
        decide = partial(_decided, resource, partial(put, index))
        twice = named[resource.type, resource.name] > 1
        command = DUPLICATE if twice else _decision(broker, resource, unsure, validate_only)
        if isinstance(command, Verdict):
            decide(command)
        elif validate_only:
            decide(DONE)
        else:
            change = _Change(broker, resource, command)
            submit(broker, request, change.make, deadline, change.judge, change.is_here, decide)
        if (index + 1) % RESOURCES_STEP == 0:
            yield


def _decision(
    broker: Broker, resource: _Resource, unsure: Collection[str], only_check: bool
) -> ConfigureTopic | Verdict:
    """The change to propose, or the answer if there is none to propose: this node's own settings
    are changed at once, unless that is only to be checked."""
    if resource.type == ResourceType.TOPIC:
        return _command(broker, resource, unsure)
    if resource.type == ResourceType.BROKER:
        wrong = node_problem(broker, resource.name)
        return wrong or _node_decision(broker, resource, only_check)
    if resource.type == ResourceType.GROUP:
        return _group_decision(broker, resource)
    if resource.type == ResourceType.BROKER_LOGGER:
        if broker.live is None:
            return _only_nothing(resource, "nothing of this node can be changed while it runs")
        try:
            wanted = _wanted(broker, resource, lambda _: True)
        except _InvalidError as error:
            return Verdict(error.error, str(error))
        return change_loggers(broker, resource.name, wanted, only_check=only_check)
    if resource.type == ResourceType.CLIENT_METRICS:
        return _only_nothing(resource, "nodes do not collect the metrics of clients")
    return Verdict(ErrorCode.INVALID_REQUEST, f"there are no resources of type {resource.type}")


def _group_decision(broker: Broker, resource: _Resource) -> Verdict:
    if not resource.name:
        return Verdict(ErrorCode.INVALID_REQUEST, "the consumer group has no name")
    there = {one.name: one.value for one in group_settings(broker)}
    for name, value in resource.sets:
        if name not in there or not (value or "").strip().isdecimal():
            return Verdict(
                ErrorCode.INVALID_CONFIG,
                f"{name[:100]} is no setting of consumer groups, or not so",
            )
    changed = [(name, value) for name, value in resource.sets if there[name] != value]
    return _only_nothing(
        attrs.evolve(resource, sets=changed), "all consumer groups have the same settings"
    )


def _node_decision(broker: Broker, resource: _Resource, only_check: bool) -> Verdict:
    """Rates for throttles are accepted, because kafka-reassign-partitions sets them (ADR 57)."""
    for name, value in resource.sets:
        if name in THROTTLES and not (value or "").isdecimal():
            return Verdict(ErrorCode.INVALID_CONFIG, f"{name} is a number of bytes per second")
    live = partial(is_live, broker)
    others = [pair for pair in resource.sets if pair[0] not in THROTTLES and not live(pair[0])]
    if others:
        return _only_nothing(
            attrs.evolve(resource, sets=others),
            "it comes from the node's configuration file: change it and restart the node",
        )
    try:
        wanted = _wanted(broker, resource, live)
    except _InvalidError as error:
        return Verdict(error.error, str(error))
    if not wanted:
        return DONE
    if not resource.name:
        why = "settings are changed node by node, each until it restarts: name one"
        return DONE if not any(wanted.values()) else Verdict(ErrorCode.INVALID_REQUEST, why)
    return change(broker, wanted, only_check=only_check)


def _wanted(
    broker: Broker, resource: _Resource, known: Callable[[str], bool]
) -> dict[str, str | None]:
    """The node's settings to be changed, with None for what is to be taken back."""
    sets = [(name, value) for name, value in resource.sets if known(name)]
    resets = resource.resets
    if resets is None:
        rows = () if broker.live is None else broker.live.rows()
        resets = [one.name for one in rows if one.name not in dict(sets)]
    resets = [name for name in resets if known(name)]
    _refuse_repeated([*dict.fromkeys(resets), *(name for name, _ in sets)])
    for name, value in sets:
        if value is None:
            raise _InvalidError(f"{name[:100]} has no value", ErrorCode.INVALID_REQUEST)
        if name in resource.edits:
            raise _InvalidError(f"{name[:100]} is not a list: it can be set or deleted")
    return {**dict(sets), **dict.fromkeys(resets)}


def _only_nothing(resource: _Resource, why: str) -> Verdict:
    """Whatever sets nothing is done already."""
    if not resource.sets:
        return DONE
    name = resource.sets[0][0]
    return Verdict(ErrorCode.INVALID_REQUEST, f"{name[:100]} cannot be set: {why}")


def _command(
    broker: Broker, resource: _Resource, unsure: Collection[str] = ()
) -> ConfigureTopic | Verdict:
    if not resource.name:
        return Verdict(ErrorCode.INVALID_REQUEST, "there are no settings of all topics")
    wrong = name_problem(resource.name)
    if wrong is not None:
        return Verdict(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    topic = broker.registry.topic(resource.name)
    if topic is None:
        return no_such_topic(resource.name, unsure)
    try:
        command = resource.change(topic)
    except _InvalidError as error:
        return Verdict(error.error, str(error))
    replicas = replicas_of(broker)
    wrong = problem(command.configs, broker.config, replicas)
    if wrong is None:
        kept = {name: as_kept(name, value) for name, value in command.configs.items()}
        command = attrs.evolve(command, configs=kept)
        wrong = relation_problem(command.applied_to(topic.configs), broker.config, replicas)
    if wrong is not None:
        return Verdict(ErrorCode.INVALID_CONFIG, wrong)
    changes = command.replace or command.configs or command.removed
    return command if changes else DONE


@attrs.define
class _Change:
    """A command under way, and the registry's version once it has applied it."""

    broker: Broker
    resource: _Resource
    command: ConfigureTopic
    version: int = 0

    def make(self) -> Command | Verdict:
        """Decided on the topic's present settings; only for the topic that was meant at first."""
        command = _command(self.broker, self.resource)
        if isinstance(command, Verdict):
            return command
        if command.topic_id != self.command.topic_id:
            return Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        self.command = command
        return command

    def judge(self, answer: Answer) -> Verdict:
        result = answer.result
        if not isinstance(result, Done):
            return refused(result)
        self.version = result.version
        return DONE

    def is_here(self) -> bool:
        """If the answer was lost: whether the settings are what was requested."""
        if self.version:
            return self.broker.registry.version >= self.version
        topic = self.broker.registry.topic_by_id(self.command.topic_id)
        return topic is not None and self.command.applied_to(topic.configs) == topic.configs


def _decided(
    resource: _Resource, put: Callable[[AlterConfigsResourceResponse], None], verdict: Verdict
) -> None:
    put(AlterConfigsResourceResponse(verdict.error, verdict.message, resource.type, resource.name))


def _answer(
    request: Request,
    response: type[AlterConfigsResponse] | type[IncrementalAlterConfigsResponse],
    results: Sequence[AlterConfigsResourceResponse],
) -> None:
    request.reply.complete(encode_response(request.header, response(responses=list(results))))
