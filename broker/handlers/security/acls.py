"""DescribeAcls, CreateAcls, DeleteAcls: the rules in the registry, by Kafka's own protocol.

They are validated as in Kafka, with two exceptions, both so that no rule looks as if it protected
something and does not: a host has to be an IP address or `*`, since that is what it is compared
with; and a principal has to be of type User, because there are no others here.

Without an authorizer there are no rules to see or change, and the answer is SECURITY_DISABLED.
"""

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from balancer.registry.commands import Command, Refusal, Refused
from balancer.registry.rules import (
    RULES_AT_ONCE_MAX,
    RULES_MAX,
    CreateRules,
    DeleteRules,
    Rule,
    rule_problem,
)
from broker.handlers.cluster.absent import NO_AUTHORIZER
from broker.handlers.topics.registry_changes import (
    DONE,
    Verdict,
    deadline_of,
    refused,
    submit,
)
from broker.registry_calls import Answer
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.refusals import answer_aside, refuse, refuse_more_than
from broker.requests.request import Request
from wire.acls import (
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from wire.addresses import canonical_host
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.security import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

TIMEOUT_MS: Final = 30_000
"""The requests have no timeout of their own."""
FILTERS_MAX: Final = 1_000
_TOKENS: Final = (ResourceType.DELEGATION_TOKEN, ResourceType.USER)
"""Of delegation tokens (KIP-48, KIP-373), which Evenkeel does not have."""
_NOTHING: Final[tuple[Rule, ...]] = ()

Filter = DescribeAclsRequest | DeleteAclsFilter


# -- filters ---------------------------------------------------------------------------------------


def filter_problem(one: Filter) -> str:
    """What is wrong with a filter, as Kafka says it; "" if nothing is."""
    for value, kind, name in (
        (one.resource_type_filter, ResourceType, "resource type"),
        (one.pattern_type_filter, PatternType, "pattern type"),
        (one.operation, Operation, "operation"),
        (one.permission_type, Permission, "permission type"),
    ):
        if value == 0 or value not in set(map(int, kind)):
            return f"the filter has {name} {value}, which is unknown"
    return ""


def matches(one: Filter, rule: Rule) -> bool:
    """Whether a sound filter selects a rule: ANY and null select all, MATCH the patterns that apply
    to the name, a name alone its literal."""
    return (
        one.resource_type_filter in (ResourceType.ANY, rule.resource_type)
        and one.operation in (Operation.ANY, rule.operation)
        and one.permission_type in (Permission.ANY, rule.permission)
        and one.principal_filter in (None, rule.principal)
        and (one.host_filter is None or canonical_host(one.host_filter) == rule.host)
        and _matches_pattern(one, rule)
    )


def _matches_pattern(one: Filter, rule: Rule) -> bool:
    name, kind = one.resource_name_filter, one.pattern_type_filter
    if kind in (PatternType.LITERAL, PatternType.PREFIXED) and kind != rule.pattern_type:
        return False
    if name is None:
        return True
    if kind != PatternType.MATCH:
        return name == rule.name
    if rule.pattern_type == PatternType.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, WILDCARD)


# -- DescribeAcls ----------------------------------------------------------------------------------


def handle_describe(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeAclsRequest)
    if broker.authorizer is None:
        NO_AUTHORIZER(broker, request)
        return
    problem = filter_problem(message)
    if problem:
        response = DescribeAclsResponse(0, ErrorCode.INVALID_REQUEST, problem)
        request.reply.complete(encode_response(request.header, response))
        return
    rules = broker.registry.security.rules
    answer_aside(broker, request, len(rules), partial(_described, message, rules))


def _described(message: DescribeAclsRequest, rules: Iterable[Rule]) -> DescribeAclsResponse:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for rule in rules:
        if not matches(message, rule):
            continue
        key = rule.resource_type, rule.name, rule.pattern_type
        resource = resources.setdefault(key, DescribeAclsResource(*key))
        resource.acls.append(
            AclDescription(rule.principal, rule.host, rule.operation, rule.permission)
        )
    return DescribeAclsResponse(resources=list(resources.values()))


# -- CreateAcls ------------------------------------------------------------------------------------


def handle_create(broker: Broker, request: Request) -> None:
    """All sound rules of a request become one change of the registry."""
    message = request.message
    assert isinstance(message, CreateAclsRequest)
    if broker.authorizer is None:
        NO_AUTHORIZER(broker, request)
        return
    if refuse_more_than(RULES_AT_ONCE_MAX, message.creations, broker, request):
        return
    results, wanted = [], set[Rule]()
    for one in message.creations:
        rule = _rule_of(one)
        problem = _creation_problem(rule)
        if problem:
            results.append(AclCreationResult(ErrorCode.INVALID_REQUEST, problem))
        else:
            wanted.add(rule)
            results.append(AclCreationResult())
    rules = tuple(sorted(wanted))

    def decide(verdict: Verdict) -> None:
        for result in results:
            if result.error_code == ErrorCode.NONE:
                result.error_code, result.error_message = verdict
        response = CreateAclsResponse(results=results)
        request.reply.complete(encode_response(request.header, response))

    _change(broker, request, lambda: CreateRules(rules), rules, decide, there=True)


def _rule_of(one: AclCreation) -> Rule:
    return Rule(
        _byte(one.resource_type),
        one.resource_name,
        _byte(one.resource_pattern_type),
        one.principal,
        canonical_host(one.host),
        _byte(one.operation),
        _byte(one.permission_type),
    )


def _byte(value: int) -> int:
    """Negative numbers mean nothing: 0, which is Kafka's UNKNOWN."""
    return max(0, value)


def _creation_problem(rule: Rule) -> str:
    if rule.resource_type in _TOKENS:
        return "there are no delegation tokens here, and so no rules about them"
    problem = rule_problem(rule)
    if problem:
        return problem
    if rule.host != WILDCARD:
        try:
            ipaddress.ip_address(rule.host)
        except ValueError:
            return f"host {rule.host[:64]!r} is not an IP address, and would never match: or use *"
    return ""


# -- DeleteAcls ------------------------------------------------------------------------------------


def handle_delete(broker: Broker, request: Request) -> None:
    """The filters are read where they arrive, at the time of the change; each rule that goes is
    told once for every filter that selects it, as in Kafka."""
    message = request.message
    assert isinstance(message, DeleteAclsRequest)
    if broker.authorizer is None:
        NO_AUTHORIZER(broker, request)
        return
    if refuse_more_than(FILTERS_MAX, message.filters, broker, request):
        return
    problems = [filter_problem(one) for one in message.filters]
    if len(broker.registry.security.rules) * len(problems) > _LOOKS_MAX:
        text = f"{len(problems)} filters are too many for this many rules: send fewer at once"
        refuse(broker, request, ErrorCode.INVALID_REQUEST, text, len(problems))
        return
    _Deletion(broker, request, message.filters, problems).next_part()


_LOOKS_MAX: Final = 100_000
"""Rules compared with filters for one request: a tenth of a second."""


class _Deletion:
    """Deletes RULES_AT_ONCE_MAX rules at a time, until none is left that a filter selects."""

    def __init__(
        self,
        broker: Broker,
        request: Request,
        filters: Sequence[DeleteAclsFilter],
        problems: Sequence[str],
    ) -> None:
        self._broker, self._request = broker, request
        self._filters, self._problems = filters, problems
        self._sound = [one for one, wrong in zip(filters, problems, strict=True) if not wrong]
        self._gone: list[Rule] = []
        self._now: tuple[Rule, ...] = _NOTHING
        self._parts_left = RULES_MAX // RULES_AT_ONCE_MAX + 1

    def next_part(self) -> None:
        self._parts_left -= 1
        _change(
            self._broker, self._request, self._make, self._now, self._decided, there=False, of=self
        )

    @property
    def now(self) -> tuple[Rule, ...]:
        """The rules that the last part was about."""
        return self._now

    def _make(self) -> Command | Verdict:
        rules = self._broker.registry.security.rules
        selected = (rule for rule in rules if any(matches(one, rule) for one in self._sound))
        self._now = tuple(islice(selected, RULES_AT_ONCE_MAX))
        return DeleteRules(self._now) if self._now else DONE

    def _decided(self, verdict: Verdict) -> None:
        if verdict.error == ErrorCode.NONE:
            self._gone += self._now
            if len(self._now) == RULES_AT_ONCE_MAX and self._parts_left:
                self._now = _NOTHING
                self.next_part()
                return
        response = DeleteAclsResponse(
            filter_results=[
                self._result(one, problem, verdict)
                for one, problem in zip(self._filters, self._problems, strict=True)
            ]
        )
        self._request.reply.complete(encode_response(self._request.header, response))

    def _result(
        self, one: DeleteAclsFilter, problem: str, verdict: Verdict
    ) -> DeleteAclsFilterResult:
        if problem:
            return DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, problem)
        gone = [
            DeleteAclsMatchingAcl(
                ErrorCode.NONE,
                None,
                rule.resource_type,
                rule.name,
                rule.pattern_type,
                rule.principal,
                rule.host,
                rule.operation,
                rule.permission,
            )
            for rule in self._gone
            if matches(one, rule)
        ]
        return DeleteAclsFilterResult(verdict.error, verdict.message, gone)


# -- changing --------------------------------------------------------------------------------------


def _change(
    broker: Broker,
    request: Request,
    make: Callable[[], Command | Verdict],
    rules: Sequence[Rule],
    decide: Callable[[Verdict], None],
    *,
    there: bool,
    of: _Deletion | None = None,
) -> None:
    """Carry out a change; it is done when these rules are (not) there, here and on all nodes."""
    registry = broker.registry

    def here() -> bool:
        wanted = rules if of is None else of.now
        known = frozenset(registry.security.rules)
        return all((rule in known) is there for rule in wanted)

    act = guarded(broker, request, decide)
    if there and not rules:
        act(DONE)
        return
    submit(broker, request, make, deadline_of(broker, TIMEOUT_MS), _judged, here, act)


def _judged(answer: Answer) -> Verdict:
    result = answer.result
    if not isinstance(result, Refused):
        return DONE
    if result.reason is Refusal.INVALID_RULES:
        return Verdict(ErrorCode.INVALID_REQUEST, result.detail)
    return refused(result)
