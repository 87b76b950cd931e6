"""DescribeClientQuotas and AlterClientQuotas (KIP-546), on any node.

What is right and wrong is Kafka's (ClientQuotasImage.describe, ClientQuotaControlManager). The
entities of one request that are accepted are one change of the registry; it is answered once every
living node has applied it. Quotas are enforced by each node for itself (broker.security.quotas).
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address
from typing import Final

from balancer.registry.commands import Command, Done
from balancer.registry.quotas import (
    CHANGES_MAX,
    DEFAULT,
    KEY_NAMED,
    AlterQuotas,
    Entity,
    Name,
    QuotaChange,
    QuotaKey,
    Quotas,
    altered,
    entity_problem,
    value_problem,
)
from broker.handlers.topics.registry_changes import DONE, Verdict, deadline_of, refused, submit
from broker.registry_calls import Answer
from broker.requests.context import Broker
from broker.requests.refusals import refuse_more_than
from broker.requests.request import Request
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.security import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntry,
    AlterQuotaEntry,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuota,
    QuotaEntity,
    QuotaFilter,
    QuotaValue,
)

FILTERS_MAX: Final = 1_000
OPERATIONS_MAX: Final = 10_000
"""In one request, over all entities."""
TIMEOUT_MS: Final = 30_000
"""The requests carry no timeout of their own."""
_FIELDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""Kafka's types of entities and ours."""
_EXACT, _OF_DEFAULT, _ANY = 0, 1, 2
"""Of this name, of the default, of any name or the default."""


# -- DescribeClientQuotas --------------------------------------------------------------------------


def handle_describe(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeClientQuotasRequest)
    if refuse_more_than(FILTERS_MAX, message.components, broker, request):
        return
    wrong = _filters_problem(message.components)
    if wrong is not None:
        response = DescribeClientQuotasResponse(0, wrong.error, wrong.message, entries=None)
    else:
        found = _matching(broker.registry.security.quotas, message.components, message.strict)
        response = DescribeClientQuotasResponse(entries=found)
    request.reply.complete(encode_response(request.header, response))


def _filters_problem(filters: Sequence[QuotaFilter]) -> Verdict | None:
    seen = set()
    for one in filters:
        if not one.entity_type:
            return _invalid("a filter names no type of entity")
        if one.entity_type in seen:
            return _invalid(f"two filters for {one.entity_type[:40]!r}")
        if one.entity_type not in _FIELDS:
            text = f"there are no quotas of entities of type {one.entity_type[:40]!r}"
            return Verdict(ErrorCode.UNSUPPORTED_VERSION, text)
        if one.match_type not in (_EXACT, _OF_DEFAULT, _ANY) or (
            (one.match_type == _EXACT) != (one.match is not None)
        ):
            return _invalid("a filter matches by name, the default, or any")
        seen.add(one.entity_type)
    return None


def _invalid(text: str) -> Verdict:
    return Verdict(ErrorCode.INVALID_REQUEST, text)


def _matching(quotas: Quotas, filters: Sequence[QuotaFilter], strict: bool) -> list[DescribedQuota]:
    wanted = {_FIELDS[one.entity_type]: one for one in filters}

    def matches(entity: Entity) -> bool:
        for field in _FIELDS.values():
            name: Name = getattr(entity, field)
            one = wanted.get(field)
            if one is None:
                if strict and name:
                    return False
            elif not name or (one.match_type != _ANY and name != _name(one.entity_type, one.match)):
                return False
        return True

    return [
        DescribedQuota(
            _told(entity), [QuotaValue(key.kafka_name, value) for key, value in values.items()]
        )
        for entity, values in quotas.items()
        if matches(entity)
    ]


def _name(kind: str, name: str | None) -> Name:
    """As it is kept: addresses in their one canonical form."""
    if name is None:
        return DEFAULT
    if kind == "ip":
        try:
            return (str(ip_address(name)),)
        except ValueError:
            return (name,)
    return (name,)


def _told(entity: Entity) -> list[QuotaEntity]:
    named = ((kind, getattr(entity, field)) for kind, field in _FIELDS.items())
    return [QuotaEntity(kind, name[0] or None) for kind, name in named if name]


# -- AlterClientQuotas -----------------------------------------------------------------------------


def handle_alter(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, AlterClientQuotasRequest)
    if refuse_more_than(CHANGES_MAX, message.entries, broker, request):
        return
    operations = sum(len(one.ops) + len(one.entity) for one in message.entries)
    if refuse_more_than(OPERATIONS_MAX, range(operations), broker, request):
        return
    judged = [_change(entry) for entry in message.entries]
    times = Counter(one.entity for one in judged if isinstance(one, QuotaChange))
    judged = [
        _invalid("the request names the entity twice")
        if isinstance(one, QuotaChange) and times[one.entity] > 1
        else one
        for one in judged
    ]
    command = AlterQuotas(tuple(one for one in judged if isinstance(one, QuotaChange)))
    answer = partial(_answer_alter, request, message, judged)
    problem = altered(broker.registry.security.quotas, command)
    if isinstance(problem, str):
        answer(_invalid(problem))
    elif message.validate_only or not command.changes:
        answer(DONE)
    else:
        deadline = deadline_of(broker, TIMEOUT_MS)
        make = partial(_made, broker, command)
        here = partial(_is_here, broker, command)
        submit(broker, request, make, deadline, _judge, here, answer)


def _change(entry: AlterQuotaEntry) -> QuotaChange | Verdict:
    names: dict[str, Name] = {}
    for part in entry.entity:
        field = _FIELDS.get(part.entity_type)
        if field is None:
            return _invalid(f"there are no quotas of type {part.entity_type[:40]!r}")
        if field in names:
            return _invalid(f"the entity has two names of type {part.entity_type!r}")
        if part.entity_name == "":
            return _invalid(f"an empty {part.entity_type} is no entity")
        names[field] = _name(part.entity_type, part.entity_name)
    entity = Entity(**names)
    problem = entity_problem(entity)
    values: dict[QuotaKey, float | None] = {}
    for one in entry.ops:
        key = KEY_NAMED.get(one.key)
        if problem:
            break
        if key is None:
            problem = f"there is no quota {one.key[:60]!r}"
        elif key in values:
            problem = f"quota {one.key} is there twice"
        else:
            values[key] = None if one.remove else one.value
            problem = value_problem(entity, key, values[key])
    return _invalid(problem) if problem else QuotaChange(entity, values)


def _made(broker: Broker, command: AlterQuotas) -> Command | Verdict:
    after = altered(broker.registry.security.quotas, command)
    return _invalid(after) if isinstance(after, str) else command


def _judge(answer: Answer) -> Verdict:
    return DONE if isinstance(answer.result, Done) else refused(answer.result)


def _is_here(broker: Broker, command: AlterQuotas) -> bool:
    quotas = broker.registry.security.quotas
    return altered(quotas, command) == quotas


def _answer_alter(
    request: Request,
    message: AlterClientQuotasRequest,
    judged: Sequence[QuotaChange | Verdict],
    outcome: Verdict,
) -> None:
    entries = []
    for asked, one in zip(message.entries, judged, strict=True):
        verdict = one if isinstance(one, Verdict) else outcome
        entries.append(AlteredQuotaEntry(verdict.error, verdict.message, asked.entity))
    response = AlterClientQuotasResponse(entries=entries)
    request.reply.complete(encode_response(request.header, response))
