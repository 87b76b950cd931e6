"""Decisions against a slow and simple model of Kafka's rules, with random rules."""

from hypothesis import given
from hypothesis import strategies as st

from balancer.registry.rules import Rule
from broker.security.decisions import Decisions
from wire.acls import IMPLIED_BY, OPERATIONS, Operation, PatternType, Permission, ResourceType

KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
NAMES = ("a", "ab", "abc", "b", "*")
PEOPLE = ("User:a", "User:b", "User:root")
HOSTS = ("10.0.0.1", "10.0.0.2")
SUPER = frozenset({"User:root"})

rules = st.lists(
    st.builds(
        Rule,
        st.sampled_from(KINDS),
        st.sampled_from(NAMES),
        st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
        st.sampled_from((*PEOPLE[:2], "User:*")),
        st.sampled_from((*HOSTS, "*")),
        st.sampled_from((Operation.ALL, *sorted(OPERATIONS[ResourceType.TOPIC]))),
        st.sampled_from((Permission.ALLOW, Permission.DENY)),
    ),
    max_size=8,
)
people, hosts, kinds = st.sampled_from(PEOPLE), st.sampled_from(HOSTS), st.sampled_from(KINDS)
operations = st.sampled_from(sorted(OPERATIONS[ResourceType.TOPIC]))
resources = st.sampled_from(("a", "ab", "abc", "b", "bc", "z"))


def applies(rule: Rule, who: str, host: str, kind: int, name: str) -> bool:
    pattern = (
        rule.name in (name, "*")
        if rule.pattern_type == PatternType.LITERAL
        else name.startswith(rule.name)
    )
    return (
        pattern
        and rule.resource_type == kind
        and rule.principal in (who, "User:*")
        and rule.host in (host, "*")
    )


def model(
    some: list[Rule], who: str, host: str, operation: Operation, kind: int, name: str
) -> bool:
    """One rule after the other."""
    if who in SUPER:
        return True
    mine = [rule for rule in some if applies(rule, who, host, kind, name)]
    if any(
        rule.permission == Permission.DENY and rule.operation in (operation, Operation.ALL)
        for rule in mine
    ):
        return False
    enough = {operation, Operation.ALL, *IMPLIED_BY.get(operation, ())}
    return any(rule.permission == Permission.ALLOW and rule.operation in enough for rule in mine)


@given(rules, people, hosts, operations, kinds, resources)
def test_decisions_are_those_of_the_model(
    some: list[Rule], who: str, host: str, operation: Operation, kind: int, name: str
) -> None:
    decision = Decisions(some, SUPER).decide(who, host, operation, kind, name)
    assert decision.allowed is model(some, who, host, operation, kind, name)
    if decision.rule is not None:
        assert applies(decision.rule, who, host, kind, name), "the rule that is blamed applies"
        assert (decision.rule.permission == Permission.ALLOW) is decision.allowed


@given(rules, people, hosts, operations, kinds)
def test_who_may_everywhere_may_anywhere(
    some: list[Rule], who: str, host: str, operation: Operation, kind: int
) -> None:
    decisions = Decisions(some, SUPER)
    if decisions.everywhere(who, host, operation, kind):
        for name in (*NAMES, "z", "zz"):
            assert model(some, who, host, operation, kind, name)
            assert decisions.decide(who, host, operation, kind, name).allowed


@given(rules, people, hosts, kinds)
def test_somewhere_is_true_only_if_there_is_such_a_place(
    some: list[Rule], who: str, host: str, kind: int
) -> None:
    """Write is implied by nothing, so a name near one of the patterns shows it."""
    near = [name + end for name in (*NAMES, "") for end in ("", "x", "b", "bb", "~")]
    found = any(model(some, who, host, Operation.WRITE, kind, one) for one in near if one)
    says = Decisions(some, SUPER).somewhere(who, host, Operation.WRITE, kind)
    if found:
        assert says.allowed
    if not any(rule.permission == Permission.DENY for rule in some):
        assert says.allowed is found


def test_the_rule_that_decided_is_told() -> None:
    allow = Rule(2, "t", 3, "User:a", "*", Operation.READ, Permission.ALLOW)
    deny = Rule(2, "t", 4, "User:*", "*", Operation.ALL, Permission.DENY)
    assert Decisions([allow]).decide("User:a", "h", Operation.DESCRIBE, 2, "t").rule is allow
    both = Decisions([allow, deny]).decide("User:a", "h", Operation.READ, 2, "t")
    assert (both.allowed, both.rule) == (False, deny)
    none = Decisions([allow]).decide("User:b", "h", Operation.READ, 2, "t")
    assert (none.allowed, none.rule, none.why) == (False, None, "no rule allows it")
