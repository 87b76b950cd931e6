"""Kafka's ssl.principal.mapping.rules, by the examples of its own tests and documentation."""

import pytest

from broker.security.principal import ANONYMOUS, Principal
from broker.security.principal_mapping import (
    NAME_CHARS_MAX,
    RULES_MAX,
    PrincipalMapping,
    distinguished_name,
)

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "DEFAULT",
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("O=apache,CN=Duke.x", "DUKE.X"),
        ("OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(name: str, principal: str) -> None:
    assert PrincipalMapping(DOCUMENTED).principal(name) == Principal("User", principal)


def test_without_rules_the_name_is_taken_as_it_is() -> None:
    assert str(PrincipalMapping().principal("CN=alice")) == "User:CN=alice"
    assert str(PrincipalMapping(()).principal("CN=alice")) == "User:CN=alice"


def test_a_name_that_no_rule_matches_or_that_is_none_proves_nobody() -> None:
    mapping = PrincipalMapping(["RULE:^CN=(.*?)$/$1/"])
    assert mapping.principal("O=Example") is None
    assert mapping.principal("") is None
    assert mapping.principal("CN=") is None, "a principal without a name"
    assert PrincipalMapping().principal("CN=" + "x" * NAME_CHARS_MAX) is None


def test_an_escaped_slash_is_one() -> None:
    assert str(PrincipalMapping([r"RULE:^CN=a\/(.*)$/x\/$1/"]).principal("CN=a/b")) == "User:x/b"


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("default", "is no rule"),
        ("RULE:a", "is no rule"),
        ("RULE:a/b", "is no rule"),
        ("RULE:a/b/X", "is no rule"),
        ("RULE:(/b/", "the pattern cannot be read"),
        ("RULE:a/$1/", "there is no group"),
        ("RULE:(a)(?=b)/$1/", "the pattern cannot be read"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rule: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PrincipalMapping([rule])


def test_rules_are_limited() -> None:
    with pytest.raises(ValueError, match="at most"):
        PrincipalMapping(["DEFAULT"] * (RULES_MAX + 1))


def test_a_subject_is_written_as_java_writes_it() -> None:
    """The certificate has the least specific part first, RFC 2253 the most specific."""
    subject = (
        (("countryName", "US"),),
        (("organizationName", "Sun, Inc."),),
        (("organizationalUnitName", "#1"), ("userId", "x+y")),
        (("commonName", "Duke "),),
    )
    assert distinguished_name(subject) == r"CN=Duke\ ,OU=\#1+UID=x\+y,O=Sun\, Inc.,C=US"
    assert distinguished_name(()) == ""


def test_principals_read_back() -> None:
    for text in ("User:alice", "User:CN=a:b", "Group:ops"):
        assert str(Principal.parse(text)) == text
    for wrong in ("alice", "User:", ":alice", ""):
        with pytest.raises(ValueError, match="expected 'User:' and a name"):
            Principal.parse(wrong)
    assert str(ANONYMOUS) == "User:ANONYMOUS"
