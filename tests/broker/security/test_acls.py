"""DescribeAcls, CreateAcls and DeleteAcls as Kafka answers them."""

from typing import Any

import pytest

from tests.broker.security.rulings import ROOT, Ruled
from tests.broker.world import World
from wire.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from wire.error_codes import ErrorCode
from wire.messages import security

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, ANY = Permission.ALLOW, 1
BAD = ErrorCode.INVALID_REQUEST


@pytest.fixture
def ruled() -> Ruled:
    return Ruled(World())


def creation(**fields: Any) -> security.AclCreation:
    made = security.AclCreation(
        ResourceType.TOPIC, "t", LITERAL, "User:a", "*", Operation.READ, ALLOW
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def create(ruled: Ruled, *creations: security.AclCreation) -> list[tuple[int, str | None]]:
    sent = ruled.send(security.CreateAclsRequest(list(creations)), 3, ROOT)
    ruled.world.advance(2_000)
    assert not ruled.world[1].bugs
    return [(one.error_code, one.error_message) for one in sent.response.results]


def described(ruled: Ruled, **fields: Any) -> Any:
    asked = security.DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    for name, value in fields.items():
        setattr(asked, name, value)
    return ruled.ask(asked, 3, ROOT, node=2)


def names(ruled: Ruled, **fields: Any) -> set[tuple[str, int]]:
    answer = described(ruled, **fields)
    assert answer.error_code == 0
    return {(one.resource_name, one.pattern_type) for one in answer.resources}


def delete(ruled: Ruled, *filters: security.DeleteAclsFilter) -> Any:
    sent = ruled.send(security.DeleteAclsRequest(list(filters)), 3, ROOT)
    ruled.world.advance(2_000)
    assert not ruled.world[1].bugs
    return sent.response.filter_results


def selecting(**fields: Any) -> security.DeleteAclsFilter:
    made = security.DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_rules_are_created_described_and_deleted(ruled: Ruled) -> None:
    """Asked of another node, which has them when the answer comes."""
    told = create(ruled, creation(), creation(operation=Operation.WRITE), creation())
    assert told == [(0, None)] * 3
    (resource,) = described(ruled).resources
    assert (resource.resource_type, resource.resource_name) == (ResourceType.TOPIC, "t")
    assert [one.operation for one in resource.acls] == [Operation.READ, Operation.WRITE]
    (result,) = delete(ruled, selecting(operation=Operation.READ))
    (gone,) = result.matching_acls
    assert (gone.resource_name, gone.principal, gone.operation) == ("t", "User:a", Operation.READ)
    (resource,) = described(ruled).resources
    assert [one.operation for one in resource.acls] == [Operation.WRITE]


def test_a_rule_counts_at_once_on_all_nodes(ruled: Ruled) -> None:
    asked = security.DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    assert ruled.ask(asked, 3, node=3).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    mine = creation(
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        principal="User:alice",
        operation=Operation.DESCRIBE,
    )
    assert create(ruled, mine) == [(0, None)]
    assert ruled.ask(asked, 3, node=3).error_code == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"operation": Operation.CLUSTER_ACTION}, "does not exist for resources of type TOPIC"),
        ({"operation": Operation.ANY}, "does not exist"),
        ({"operation": -1}, "does not exist"),
        ({"resource_type": ResourceType.CLUSTER, "operation": 8}, "'kafka-cluster'"),
        ({"resource_type": ANY}, "no resources of type 1"),
        ({"resource_type": ResourceType.USER, "operation": 13}, "no delegation tokens"),
        ({"resource_type": ResourceType.DELEGATION_TOKEN, "operation": 8}, "no delegation tokens"),
        ({"resource_pattern_type": PatternType.MATCH}, "literal or prefixed"),
        ({"resource_pattern_type": PatternType.ANY}, "literal or prefixed"),
        ({"permission_type": ANY}, "allows or denies"),
        ({"principal": "a"}, "a principal is 'User:'"),
        ({"principal": "Group:a"}, "a principal is 'User:'"),
        ({"host": "example.org"}, "is not an IP address"),
        ({"resource_name": ""}, "1 to 512"),
    ],
)
def test_what_no_rule_can_say_is_refused_in_words(
    ruled: Ruled, fields: dict[str, Any], said: str
) -> None:
    """And the others of the request are created."""
    (wrong, right) = create(ruled, creation(**fields), creation(resource_name="u"))
    assert wrong[0] == BAD
    assert said in (wrong[1] or "")
    assert right == (0, None)
    assert names(ruled) == {("u", LITERAL)}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("192.0.2.1", "192.0.2.1"),
    ],
)
def test_an_address_is_kept_as_connections_have_it(ruled: Ruled, given: str, kept: str) -> None:
    create(ruled, creation(host=given))
    assert [rule.host for rule in ruled.world[1].registry.security.rules] == [kept]
    assert names(ruled, host_filter=given) == {("t", LITERAL)}


def test_filters_select_as_in_kafka(ruled: Ruled) -> None:
    create(
        ruled,
        creation(resource_name="abc"),
        creation(resource_name="ab", resource_pattern_type=PREFIXED),
        creation(resource_name="*"),
        creation(resource_name="other", principal="User:b"),
        creation(resource_type=ResourceType.GROUP, resource_name="abc"),
    )
    topic = {"resource_type_filter": ResourceType.TOPIC}
    match = {**topic, "resource_name_filter": "abc", "pattern_type_filter": PatternType.MATCH}
    assert names(ruled, **match) == {("abc", LITERAL), ("ab", PREFIXED), ("*", LITERAL)}
    any_pattern = {**match, "pattern_type_filter": PatternType.ANY}
    assert names(ruled, **any_pattern) == {("abc", LITERAL)}
    assert names(ruled, **{**match, "pattern_type_filter": LITERAL}) == {("abc", LITERAL)}
    assert names(ruled, **{**match, "pattern_type_filter": PREFIXED}) == set()
    assert names(ruled, pattern_type_filter=PREFIXED) == {("ab", PREFIXED)}
    assert names(ruled, principal_filter="User:b") == {("other", LITERAL)}
    assert len(described(ruled).resources) == 5
    assert names(ruled, operation=Operation.WRITE) == set()
    assert names(ruled, permission_type=Permission.DENY) == set()


@pytest.mark.parametrize(
    "field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"]
)
@pytest.mark.parametrize("value", [0, 99, -1])
def test_unknown_numbers_in_filters_are_refused(ruled: Ruled, field: str, value: int) -> None:
    create(ruled, creation())
    assert described(ruled, **{field: value}).error_code == BAD
    wrong, right = delete(ruled, selecting(**{field: value}), selecting())
    assert wrong.error_code == BAD
    assert not wrong.matching_acls
    assert len(right.matching_acls) == 1


def test_a_filter_that_selects_nothing_is_no_error(ruled: Ruled) -> None:
    (result,) = delete(ruled, selecting())
    assert (result.error_code, result.matching_acls) == (0, [])


def test_a_rule_is_told_to_every_filter_that_selects_it(ruled: Ruled) -> None:
    create(ruled, creation())
    first, second = delete(ruled, selecting(), selecting(principal_filter="User:a"))
    assert len(first.matching_acls) == len(second.matching_acls) == 1


def test_many_rules_are_deleted_in_parts(ruled: Ruled) -> None:
    for part in range(3):
        create(ruled, *(creation(resource_name=f"{part}-{one}") for one in range(500)))
    (result,) = delete(ruled, selecting())
    assert len(result.matching_acls) == 1_500
    assert ruled.world[2].registry.security.rules == ()


def test_too_many_at_once_are_refused(ruled: Ruled) -> None:
    told = create(ruled, *(creation(resource_name=str(one)) for one in range(1_001)))
    assert {error for error, _ in told} == {BAD}
    assert ruled.world[1].registry.security.rules == ()


def test_rules_are_changed_by_those_who_may(ruled: Ruled) -> None:
    asked = security.CreateAclsRequest([creation()])
    (result,) = ruled.ask(asked, 3).results
    assert result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    (gone,) = ruled.ask(security.DeleteAclsRequest([selecting()]), 3).filter_results
    assert gone.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert ruled.world[1].registry.security.rules == ()


def test_two_that_change_the_rules_at_once_both_succeed(ruled: Ruled) -> None:
    """The second is decided again on what the first has left."""
    sent = [
        ruled.send(security.CreateAclsRequest([creation(resource_name=name)]), 3, ROOT, node)
        for node, name in ((1, "x"), (2, "y"))
    ]
    ruled.world.advance(3_000)
    assert [one.response.results[0].error_code for one in sent] == [0, 0]
    kept = [rule.name for rule in ruled.world[3].registry.security.rules]
    assert kept == ["x", "y"]


def test_without_an_authorizer_rules_are_not_served() -> None:
    world = World()
    asked = security.DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    assert world.ask(1, asked, 3).error_code == ErrorCode.SECURITY_DISABLED
