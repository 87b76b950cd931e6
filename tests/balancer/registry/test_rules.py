"""ACL rules in the registry: sorted, each once, bounded, and part of snapshots."""

import attrs
import pytest

from balancer.registry import rules as rules_module
from balancer.registry.codec import encode_command
from balancer.registry.commands import Decided, Done, Refusal, Refused
from balancer.registry.image import (
    IMAGE_VERSION,
    decode_image,
    decode_pieces,
    encode_image,
    encode_pieces,
    version_for,
)
from balancer.registry.packing import PackingError, encode
from balancer.registry.registry import Registry
from balancer.registry.rules import CreateRules, DeleteRules, Rule
from balancer.registry.security import NO_SECURITY, SECURITY, Security
from paxos.ids import Slot
from wire.acls import CLUSTER_NAME, OPERATIONS, Operation, PatternType, Permission, ResourceType

READ_T = Rule(2, "t", 3, "User:a", "*", 3, 3)
WRITE_T = READ_T._replace(operation=4)
DENY_T = READ_T._replace(permission=2, principal="User:*")


def registry_with(*rules: Rule) -> Registry:
    registry = Registry()
    assert isinstance(registry.apply_command(CreateRules(rules), 1), Done)
    return registry


def test_rules_are_kept_sorted_and_once() -> None:
    registry = registry_with(WRITE_T, READ_T, WRITE_T, DENY_T)
    assert registry.security.rules == tuple(sorted((READ_T, WRITE_T, DENY_T)))


def test_a_repeated_creation_changes_nothing_and_keeps_the_object() -> None:
    """Who caches decisions compares the object."""
    registry = registry_with(READ_T)
    before, version = registry.security, registry.version
    assert registry.apply_command(CreateRules((READ_T,)), 2) == Done(version)
    assert registry.security is before


def test_rules_are_deleted_and_absent_ones_are_no_error() -> None:
    registry = registry_with(READ_T, WRITE_T)
    assert isinstance(registry.apply_command(DeleteRules((READ_T, DENY_T)), 2), Done)
    assert registry.security.rules == (WRITE_T,)


def test_what_no_rule_can_say_is_refused_as_a_whole() -> None:
    registry = Registry()
    bad = READ_T._replace(operation=Operation.CLUSTER_ACTION)
    refused = registry.apply_command(CreateRules((WRITE_T, bad)), 1)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.INVALID_RULES
    assert "TOPIC" in refused.detail
    assert registry.security.rules == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"pattern_type": PatternType.MATCH},
        {"pattern_type": PatternType.ANY},
        {"operation": Operation.ANY},
        {"operation": 77},
        {"permission": Permission.ANY},
        {"name": ""},
        {"name": "n" * 513},
        {"resource_type": ResourceType.CLUSTER, "name": "other"},
        {"principal": "alice"},
        {"principal": "User:"},
        {"principal": "Group:staff"},
        {"principal": "User:" + "a" * 512},
        {"host": ""},
        {"host": "h" * 65},
    ],
)
def test_each_field_has_its_range(wrong: dict[str, object]) -> None:
    assert rules_module.rule_problem(READ_T._replace(**wrong))  # type: ignore[arg-type]
    assert not rules_module.rule_problem(READ_T)


def test_every_operation_of_every_type_can_be_ruled() -> None:
    for kind, operations in OPERATIONS.items():
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else "x"
        for operation in (*operations, Operation.ALL):
            rule = READ_T._replace(resource_type=kind, name=name, operation=operation)
            assert not rules_module.rule_problem(rule)


def test_there_is_a_most_that_a_cluster_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_module, "RULES_MAX", 2)
    registry = registry_with(READ_T, WRITE_T)
    refused = registry.apply_command(CreateRules((DENY_T,)), 2)
    assert refused == Refused(Refusal.INVALID_RULES, "3 rules: a cluster has at most 2")


def test_a_snapshot_has_the_rules() -> None:
    registry = registry_with(READ_T, DENY_T)
    again = Registry.restore(registry.snapshot())
    assert again.security == registry.security
    pieces = list(encode_pieces(registry.image()))
    assert decode_pieces(pieces).security == registry.security


def test_without_security_an_older_version_is_written() -> None:
    """Nodes of before can read it; the newest version where an older one says as much is refused,
    so that equal registries are equal bytes."""
    image = Registry().image()
    assert version_for(image) == 7
    assert encode_image(image)[0] == 7
    ruled = attrs.evolve(image, security=Security(rules=(READ_T,)))
    assert encode_image(ruled)[0] == IMAGE_VERSION == 9
    size = len(encode(SECURITY, ruled.security))
    emptied = encode_image(ruled)[:-size] + encode(SECURITY, NO_SECURITY)
    with pytest.raises(PackingError, match="older one says as much"):
        decode_image(emptied)


@pytest.mark.parametrize(
    "wrong", [(WRITE_T, READ_T), (READ_T, READ_T), (READ_T._replace(host=""),)]
)
def test_an_image_of_impossible_rules_is_refused(wrong: tuple[Rule, ...]) -> None:
    image = attrs.evolve(Registry().image(), security=Security(rules=wrong))
    with pytest.raises(PackingError):
        decode_image(encode_image(image))


def test_a_late_decision_on_rules_is_refused() -> None:
    """Created, deleted, and then the creation arrives once more: the rule must not come back."""
    registry = Registry()
    registry.apply_command(Decided(Slot(0), CreateRules(())), 1)
    late = Decided(Slot(1), CreateRules((READ_T,)))
    registry.apply(encode_command(late), 2)
    registry.apply_command(Decided(Slot(2), DeleteRules((READ_T,))), 3)
    refused = registry.apply_command(late, 4)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.OVERTAKEN
    assert registry.security.rules == ()
