"""`evenkeel acl`: add, list, delete and check rules. Any Kafka cluster with an authorizer."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from balancer.registry.rules import Rule
from broker.security.audit import rule_text
from broker.security.decisions import Decision, Decisions
from cli.clusters.kafka_commands import (
    ClientError,
    add_action,
    open_admin,
    print_json,
    table,
)
from evenkeel.admin.acls import AccessRule, RuleFilter
from wire.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    USER,
    WILDCARD,
    Operation,
    ResourceType,
    titled,
)

DENIED: Final = 1
"""The exit code of `check` for a no."""
_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_ANYWHERE: Final = "a host that no rule names"
"""For `check` without --host."""


def _operation(word: str) -> Operation:
    wanted = word.replace("-", "").replace("_", "").lower()
    for one in Operation:
        if one >= Operation.ALL and titled(one).lower() == wanted:
            return one
    known = ", ".join(titled(one) for one in Operation if one >= Operation.ALL)
    raise argparse.ArgumentTypeError(f"no operation {word!r}; known are {known}")


def _principal(word: str) -> str:
    """A name alone is that of a user."""
    return word if ":" in word else f"{USER}:{word}"


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    action = partial(add_action, actions)

    add = action("add", _add, "allow clients something, or deny it", changes=True)
    who = add.add_mutually_exclusive_group(required=True)
    who.add_argument("--allow", type=_principal, metavar="USER", help="who may ('*': everybody)")
    who.add_argument("--deny", type=_principal, metavar="USER", help="who may not")
    _operations_option(add, required=True)
    _resource_options(add, required=True)
    _prefixed_option(add)
    add.add_argument("--host", default=WILDCARD, metavar="IP", help="only from this address")

    shown = action("list", _list, "list the rules")
    _filter_options(shown)
    text = "delete the rules that all given options select"
    delete = action("delete", _delete, text, changes=True)
    _filter_options(delete)
    delete.add_argument("--all", action="store_true", help="all rules there are")
    delete.add_argument("--dry-run", action="store_true", help="only show what would be deleted")

    check = action("check", _check, "say whether a client may do something, and by which rule")
    check.add_argument("principal", type=_principal, metavar="USER")
    _operations_option(check, required=True)
    _resource_options(check, required=True)
    check.add_argument("--host", metavar="IP", help="from this address")


def _operations_option(parser: argparse.ArgumentParser, *, required: bool) -> None:
    text = "Read, Write, Describe, ..., All"
    parser.add_argument(
        "--operation",
        type=_operation,
        action="append",
        required=required,
        metavar="OP",
        help=text,
    )


def _resource_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    one = parser.add_mutually_exclusive_group(required=required)
    one.add_argument("--topic", metavar="NAME", help="a topic ('*': all)")
    one.add_argument("--group", metavar="NAME", help="a consumer group ('*': all)")
    one.add_argument("--transactional-id", metavar="NAME", help="of a producer ('*': all)")
    one.add_argument("--cluster", action="store_true", help="the cluster itself")


def _prefixed_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefixed", action="store_true", help="all that begin with the name")


def _filter_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", type=_principal, metavar="USER", help="rules about this user")
    _operations_option(parser, required=False)
    _resource_options(parser, required=False)
    _prefixed_option(parser)
    text = "all rules that apply to the resource, also prefixes and '*'"
    parser.add_argument("--matching", action="store_true", help=text)
    parser.add_argument("--host", metavar="IP", help="rules about this address")


def _resource(options: Any) -> tuple[ResourceType, str] | None:  # noqa: ANN401 (argparse's)
    if options.cluster:
        return ResourceType.CLUSTER, CLUSTER_NAME
    for option, kind in _KINDS.items():
        name = getattr(options, option.replace("-", "_"))
        if name is not None:
            return kind, name
    return None


# --- changing and listing ------------------------------------------------------------------------


async def _add(options: Any) -> int:  # noqa: ANN401 (argparse's)
    resource = _resource(options)
    assert resource is not None
    kind, name = resource
    for operation in options.operation:
        if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
            known = ", ".join(map(titled, sorted(OPERATIONS[kind])))
            raise ClientError(
                f"nobody can {titled(operation)} a {titled(kind)}; its operations are {known}, All"
            )
    rules = [
        AccessRule(
            options.allow or options.deny,
            operation,
            kind,
            name,
            options.prefixed,
            options.host,
            options.allow is not None,
        )
        for operation in options.operation
    ]
    async with open_admin(options) as admin:
        await admin.create_rules(rules)
    _print(rules, options, "no rules")
    return 0


def _filters(options: Any) -> list[RuleFilter]:  # noqa: ANN401 (argparse's)
    kind, name = _resource(options) or (None, None)
    if options.matching and name is None:
        raise ClientError("--matching needs a resource: --topic, --group, ...")
    return [
        RuleFilter(
            options.user,
            operation,
            kind,
            name,
            True if options.prefixed else None,
            options.host,
            None,
            options.matching,
        )
        for operation in options.operation or [None]
    ]


async def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    filters = _filters(options)
    async with open_admin(options) as admin:
        rules = [rule for one in filters for rule in await admin.list_rules(one)]
    _print(rules, options, "no rules")
    return 0


async def _delete(options: Any) -> int:  # noqa: ANN401 (argparse's)
    filters = _filters(options)
    if filters == [RuleFilter()] and not options.all:
        raise ClientError("this would delete every rule; say which, or --all")
    async with open_admin(options) as admin:
        rules: list[AccessRule] = []
        for one in filters:
            work = admin.list_rules if options.dry_run else admin.delete_rules
            rules += await work(one)
    _print(rules, options, "there are no such rules")
    if rules and not options.json:
        print(f"{len(rules)} rules {'would be deleted' if options.dry_run else 'were deleted'}")
    return 0


def _print(rules: Sequence[AccessRule], options: Any, nothing: str) -> None:  # noqa: ANN401
    if options.json:
        print_json([_json(rule) for rule in rules])
    elif rules:
        head = ("", "user", "operation", "resource", "name", "host")
        print(table(head, [_row(rule) for rule in rules]))
    else:
        print(nothing)


def _row(rule: AccessRule) -> tuple[str, ...]:
    return (
        "allow" if rule.allow else "deny",
        rule.principal,
        titled(rule.operation),
        titled(rule.resource_type),
        f"{rule.name} ..." if rule.prefixed else rule.name,
        rule.host,
    )


def _json(rule: AccessRule) -> dict[str, object]:
    return {
        "allow": rule.allow,
        "principal": rule.principal,
        "operation": titled(rule.operation),
        "resource_type": titled(rule.resource_type),
        "name": rule.name,
        "prefixed": rule.prefixed,
        "host": rule.host,
    }


# --- checking ------------------------------------------------------------------------------------


async def _check(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """By the same decisions that the nodes make. Super users are in the nodes' settings, so their
    rules are all that can be told about them."""
    resource = _resource(options)
    assert resource is not None
    kind, name = resource
    async with open_admin(options) as admin:
        rules = await admin.list_rules(RuleFilter(resource_type=kind, name=name, matching=True))
    decisions = Decisions([_registered(rule) for rule in rules])
    host = options.host or _ANYWHERE
    found = [
        (operation, decisions.decide(options.principal, host, operation, kind, name))
        for operation in options.operation
    ]
    if options.json:
        print_json([_decision_json(*one) for one in found])
    else:
        for operation, decision in found:
            print(_said(operation, decision))
    return 0 if all(decision.allowed for _, decision in found) else DENIED


def _registered(rule: AccessRule) -> Rule:
    return Rule(
        rule.resource_type,
        rule.name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )


def _said(operation: Operation, decision: Decision) -> str:
    because = decision.why if decision.rule is None else rule_text(decision.rule)
    return f"{'yes' if decision.allowed else 'no'}: {titled(operation)}: {because}"


def _decision_json(operation: Operation, decision: Decision) -> dict[str, object]:
    return {
        "operation": titled(operation),
        "allowed": decision.allowed,
        "rule": None if decision.rule is None else rule_text(decision.rule),
        "why": decision.why,
    }
